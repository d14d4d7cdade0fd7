"""Batches with little or no padding: texts are packed into one sequence, or grouped by length.

A packed batch is one sequence with a fixed number of tokens, so a compiled model has a single input shape; the
rest of the sequence consists of filler texts, whose embeddings are ignored. For encoders that do not support packing,
texts with similar lengths are combined into padded batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carya.transformer.encoder.tokens import Tokens

_BATCHES_SORTED_TOGETHER = 50  # number of padded batches whose texts are sorted by length as one group


@dataclass(frozen=True)
class BatchLayout:
    """Arrangement of texts in tensors.

    Attributes
    ----------
    packed : bool
        Whether texts are concatenated; otherwise, each text is a padded row.
    max_length : int
        Maximum number of tokens per text.
    tokens : int
        Maximum number of tokens per batch, including padding.
    rows : int
        Maximum number of texts per batch.
    pad : int
        The id of the padding token.
    first_position : int
        The position of the first token; in RoBERTa and its variants, positions start after the padding index.
    """

    packed: bool
    max_length: int
    tokens: int
    rows: int
    pad: int = 0
    first_position: int = 0

    @classmethod
    def of(cls, lengths: NDArray[np.int64], max_length: int, tokens: int, **options: Any) -> BatchLayout:
        """Create a layout for texts with the given lengths and about `tokens` tokens per batch."""
        longest = max(1, int(min(lengths.max(initial=1), max_length)))
        mean = max(1.0, float(np.minimum(lengths, max_length).mean()) if lengths.size else 1.0)
        tokens = max(tokens, longest)
        rows = int(np.ceil(1.3 * tokens / mean / 8)) * 8
        return cls(max_length=max_length, tokens=tokens, rows=rows, **options)


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of texts as input to an encoder.

    Attributes
    ----------
    rows : ndarray of int64
        The indices of the texts, in the order of their embeddings.
    ids : tensor of shape (1, tokens) if packed, otherwise (texts, longest)
    n_tokens : int
        Number of tokens, excluding padding.
    longest : int
        Maximum number of tokens per text.
    mask : tensor or None
        1 for tokens, 0 for padding; None if packed.
    positions, starts, text_numbers : tensors or None
        For packed batches: the position of each token in its text, the start of each text, and the index of the text to
        which each token belongs.
    """

    rows: NDArray[np.int64]
    ids: torch.Tensor
    n_tokens: int
    longest: int
    mask: torch.Tensor | None = None
    positions: torch.Tensor | None = None
    starts: torch.Tensor | None = None
    text_numbers: torch.Tensor | None = None

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The ids, positions, starts and text numbers of a packed batch, or the ids and mask of a padded batch."""
        tensors = (self.ids, self.mask, self.positions, self.starts, self.text_numbers)
        return [tensor for tensor in tensors if tensor is not None]

    def to(self, device: torch.device) -> Batch:
        """Return a copy of the batch on a device; copying from pinned memory is asynchronous."""
        moved = {
            name: None if tensor is None else tensor.to(device, non_blocking=True)
            for name in ("ids", "mask", "positions", "starts", "text_numbers")
            for tensor in (getattr(self, name),)
        }
        return Batch(self.rows, n_tokens=self.n_tokens, longest=self.longest, **moved)


def shuffled_batches(
    lengths: NDArray[np.int64], layout: BatchLayout, *, seed: Sequence[int]
) -> list[NDArray[np.int64]]:
    """Return the text indices in each batch of an epoch; every text occurs once, in random order."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(lengths.size)
    if layout.packed:
        return _split_by_tokens(order, lengths[order], layout)
    batches: list[NDArray[np.int64]] = []
    mean_length = max(1, int(lengths.mean()) if lengths.size else 1)
    sorted_together = _BATCHES_SORTED_TOGETHER * max(1, layout.tokens // mean_length)
    for begin in range(0, order.size, sorted_together):
        rows = order[begin : begin + sorted_together]
        batches += split_batches(rows[np.argsort(lengths[rows], kind="stable")], lengths, layout)
    return [batches[number] for number in rng.permutation(len(batches))]


def split_batches(rows: NDArray[np.int64], lengths: NDArray[np.int64], layout: BatchLayout) -> list[NDArray[np.int64]]:
    """Split texts into batches in the given order; for padded batches, the texts should be sorted by length."""
    if layout.packed:
        return _split_by_tokens(rows, lengths[rows], layout)
    batches, begin, longest = [], 0, 0
    for index, length in enumerate(lengths[rows].tolist()):
        longest = max(longest, length)
        if index > begin and (longest * (index + 1 - begin) > layout.tokens or index - begin >= layout.rows):
            batches.append(rows[begin:index])
            begin, longest = index, length
    return [*batches, rows[begin:]] if begin < rows.size else batches


def _split_by_tokens(
    rows: NDArray[np.int64], lengths: NDArray[np.int64], layout: BatchLayout
) -> list[NDArray[np.int64]]:
    batches, begin = [], 0
    ends = np.cumsum(lengths)
    while begin < rows.size:
        before = ends[begin] - lengths[begin]
        end = int(np.searchsorted(ends, before + layout.tokens, side="right"))
        end = min(max(end, begin + 1), begin + layout.rows)
        batches.append(rows[begin:end])
        begin = end
    return batches


def make_batch(tokens: Tokens, rows: NDArray[np.int64], layout: BatchLayout, *, pinned: bool = False) -> Batch:
    """Create a batch; if `pinned` is true, its tensors are allocated in pinned memory, for copying to a GPU."""
    ids, lengths = tokens.gather(rows, layout.max_length)
    arrays = _pack(ids, lengths, layout) if layout.packed else _pad(ids, lengths, layout)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if pinned:
        tensors = {name: tensor.pin_memory() for name, tensor in tensors.items()}
    longest = layout.max_length if layout.packed else int(lengths.max(initial=1))
    return Batch(rows, n_tokens=int(lengths.sum()), longest=longest, **tensors)


def make_batches(
    tokens: Tokens, batches: Sequence[NDArray[np.int64]], layout: BatchLayout, *, pinned: bool = False
) -> Iterator[Batch]:
    """Yield the batches one at a time."""
    for rows in batches:
        yield make_batch(tokens, rows, layout, pinned=pinned)


def _pad(ids: NDArray[np.int32], lengths: NDArray[np.int64], layout: BatchLayout) -> dict[str, NDArray[Any]]:
    mask = np.arange(int(lengths.max(initial=1)))[None, :] < lengths[:, None]
    padded = np.full(mask.shape, layout.pad, np.int64)
    padded[mask] = ids
    return {"ids": padded, "mask": mask.astype(np.int64)}


def _pack(ids: NDArray[np.int32], lengths: NDArray[np.int64], layout: BatchLayout) -> dict[str, NDArray[Any]]:
    size, longest = layout.tokens, layout.max_length
    rest = size - int(lengths.sum())
    # The rest is split into filler texts of at most the maximum length, so that every token belongs to a text.
    fillers = np.diff(np.append(np.arange(0, rest, longest), rest)) if rest else np.zeros(0, np.int64)
    all_lengths = np.concatenate([lengths, fillers]).astype(np.int64)
    starts = np.full(layout.rows + -(-size // longest) + 2, size, np.int32)
    starts[0] = 0
    starts[1 : all_lengths.size + 1] = np.cumsum(all_lengths)
    packed = np.full((1, size), layout.pad, np.int64)
    packed[0, : ids.size] = ids
    positions = np.arange(size) - np.repeat(starts[: all_lengths.size], all_lengths) + layout.first_position
    text_numbers = np.repeat(np.minimum(np.arange(all_lengths.size), layout.rows), all_lengths)
    text_numbers[ids.size :] = layout.rows
    return {
        "ids": packed,
        "positions": positions[None].astype(np.int64),
        "starts": starts,
        "text_numbers": text_numbers,
    }
