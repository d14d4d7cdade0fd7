"""Batches without padding: texts of a batch are packed one behind the other, or are about equally long.

A packed batch is one row of exactly `tokens` tokens, whatever texts are in it, so that a compiled model meets one shape
only; the few left over belong to texts that nobody reads. An encoder that cannot be asked for packed texts gets rows
of texts of about the same length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from carya.transformer.encoder.tokens import Tokens

_POOL = 50  # batches whose texts are sorted by length together


@dataclass(frozen=True)
class Layout:
    """How texts are laid into tensors.

    Attributes
    ----------
    packed : bool
    max_length : int
        The most tokens of a text.
    tokens : int
        The most tokens of a batch, padding counted.
    rows : int
        The most texts of a batch.
    pad : int
        The token that fills what is left.
    first_position : int
        The number of the first position; encoders of RoBERTa's kind begin behind their padding.
    """

    packed: bool
    max_length: int
    tokens: int
    rows: int
    pad: int = 0
    first_position: int = 0

    @classmethod
    def of(cls, lengths: NDArray[np.int64], max_length: int, tokens: int, **about: Any) -> Layout:
        """A layout for texts of such lengths: batches have about `tokens` tokens."""
        longest = max(1, int(min(lengths.max(initial=1), max_length)))
        mean = max(1.0, float(np.minimum(lengths, max_length).mean()) if lengths.size else 1.0)
        tokens = max(tokens, longest)
        rows = int(np.ceil(1.3 * tokens / mean / 8)) * 8
        return cls(max_length=max_length, tokens=tokens, rows=rows, **about)


@dataclass(frozen=True, eq=False)
class Batch:
    """Some texts as an encoder takes them.

    Attributes
    ----------
    rows : ndarray of int64
        Which texts; vectors come in this order, behind them may be some that nobody reads.
    ids : tensor, shape (1, tokens) if packed, else (texts, longest)
    n_tokens : int
        Tokens that are not padding.
    mask : tensor or None
        1 where a text has a token; None if packed.
    positions, starts, owner : tensors or None
        If packed: the place of each token in its text, where texts begin, and whose each token is.
    longest : int
    """

    rows: NDArray[np.int64]
    ids: torch.Tensor
    n_tokens: int
    longest: int
    mask: torch.Tensor | None = None
    positions: torch.Tensor | None = None
    starts: torch.Tensor | None = None
    owner: torch.Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        """The same on a device; from pinned memory it is copied while the device computes."""
        moved = {
            name: None if tensor is None else tensor.to(device, non_blocking=True)
            for name in ("ids", "mask", "positions", "starts", "owner")
            for tensor in (getattr(self, name),)
        }
        return Batch(self.rows, n_tokens=self.n_tokens, longest=self.longest, **moved)  # type: ignore[arg-type]


def plan(lengths: NDArray[np.int64], layout: Layout, *, key: Sequence[int]) -> list[NDArray[np.int64]]:
    """The texts of each batch of an epoch: every text once, in an order that `key` decides."""
    rng = np.random.default_rng(key)
    order = rng.permutation(lengths.size)
    if layout.packed:
        return _cut_by_sum(order, lengths[order], layout)
    batches: list[NDArray[np.int64]] = []
    pool = _POOL * max(1, layout.tokens // max(1, int(lengths.mean()) if lengths.size else 1))
    for first in range(0, order.size, pool):
        some = order[first : first + pool]
        batches += in_order(some[np.argsort(lengths[some], kind="stable")], lengths, layout)
    return [batches[at] for at in rng.permutation(len(batches))]


def in_order(rows: NDArray[np.int64], lengths: NDArray[np.int64], layout: Layout) -> list[NDArray[np.int64]]:
    """Batches of texts in the order given, which for padded ones should be that of their lengths."""
    if layout.packed:
        return _cut_by_sum(rows, lengths[rows], layout)
    batches, begin, longest = [], 0, 0
    for at, length in enumerate(lengths[rows].tolist()):
        longest = max(longest, length)
        if at > begin and (longest * (at + 1 - begin) > layout.tokens or at - begin >= layout.rows):
            batches.append(rows[begin:at])
            begin, longest = at, length
    return [*batches, rows[begin:]] if begin < rows.size else batches


def _cut_by_sum(rows: NDArray[np.int64], lengths: NDArray[np.int64], layout: Layout) -> list[NDArray[np.int64]]:
    batches, begin = [], 0
    ends = np.cumsum(lengths)
    while begin < rows.size:
        before = ends[begin] - lengths[begin]
        end = int(np.searchsorted(ends, before + layout.tokens, side="right"))
        end = min(max(end, begin + 1), begin + layout.rows)
        batches.append(rows[begin:end])
        begin = end
    return batches


def make(tokens: Tokens, rows: NDArray[np.int64], layout: Layout, *, pinned: bool = False) -> Batch:
    """The tensors of a batch."""
    ids, lengths = tokens.gather(rows, layout.max_length)
    made = _packed(ids, lengths, layout) if layout.packed else _padded(ids, lengths, layout)
    tensors = {name: torch.from_numpy(array) for name, array in made.items()}
    if pinned:
        tensors = {name: tensor.pin_memory() for name, tensor in tensors.items()}
    longest = layout.max_length if layout.packed else int(lengths.max(initial=1))
    return Batch(rows, n_tokens=int(lengths.sum()), longest=longest, **tensors)


def stream(
    tokens: Tokens, batches: Sequence[NDArray[np.int64]], layout: Layout, *, pinned: bool = False
) -> Iterator[Batch]:
    """All batches, made when they are asked for."""
    for rows in batches:
        yield make(tokens, rows, layout, pinned=pinned)


def _padded(ids: NDArray[np.int32], lengths: NDArray[np.int64], layout: Layout) -> dict[str, NDArray[Any]]:
    here = np.arange(int(lengths.max(initial=1)))[None, :] < lengths[:, None]
    filled = np.full(here.shape, layout.pad, np.int64)
    filled[here] = ids
    return {"ids": filled, "mask": here.astype(np.int64)}


def _packed(ids: NDArray[np.int32], lengths: NDArray[np.int64], layout: Layout) -> dict[str, NDArray[Any]]:
    size, longest = layout.tokens, layout.max_length
    rest = size - int(lengths.sum())
    # What is left over is texts too, none longer than the longest, so that no token goes without attention.
    filler = np.diff(np.append(np.arange(0, rest, longest), rest)) if rest else np.zeros(0, np.int64)
    whole = np.concatenate([lengths, filler]).astype(np.int64)
    starts = np.full(layout.rows + -(-size // longest) + 2, size, np.int32)
    starts[0] = 0
    starts[1 : whole.size + 1] = np.cumsum(whole)
    filled = np.full((1, size), layout.pad, np.int64)
    filled[0, : ids.size] = ids
    positions = np.arange(size) - np.repeat(starts[: whole.size], whole) + layout.first_position
    owner = np.repeat(np.minimum(np.arange(whole.size), layout.rows), whole)
    owner[ids.size :] = layout.rows
    return {"ids": filled, "positions": positions[None].astype(np.int64), "starts": starts, "owner": owner}
