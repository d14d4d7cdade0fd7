"""Tokenized texts, stored as one array of token ids and truncated to the maximum length of a training stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core.progress import Report
from carya.fork_safety import ForkSafeLock

_TOKENIZER_BATCH = 1024  # number of texts per tokenizer call
_TOKENIZER_LOCK = ForkSafeLock()  # a tokenizer fails if one thread changes its truncation while another uses it


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokens of a list of texts.

    Attributes
    ----------
    ids : ndarray of int32
        The token ids of all texts, concatenated.
    starts : int64 ndarray of shape (texts + 1,)
        The start of each text in `ids`, and the end of the last text.
    tail : int
        Number of special tokens at the end of each text; they are kept when the text is truncated.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    tail: int = 1

    @classmethod
    def of(cls, texts: Sequence[str], tokenizer: Any, *, max_length: int, report: Report = None) -> Tokens:
        """Tokenize texts with a tokenizer from ``transformers``; texts are truncated to `max_length` tokens."""
        parts: list[NDArray[np.int32]] = []
        for begin in range(0, len(texts), _TOKENIZER_BATCH):
            batch = list(texts[begin : begin + _TOKENIZER_BATCH])
            with _TOKENIZER_LOCK:
                encoded = tokenizer(batch, truncation=True, max_length=max_length, padding=False)
            parts += [np.array(ids, np.int32) for ids in encoded["input_ids"]]
            if report is not None:
                report(len(parts), len(texts))
        # Every text must have at least one token, even if the tokenizer adds no special tokens to an empty text.
        unknown = tokenizer.unk_token_id if tokenizer.unk_token_id is not None else tokenizer.pad_token_id or 0
        parts = [ids if ids.size else np.array([unknown], np.int32) for ids in parts]
        lengths = [ids.size for ids in parts]
        all_ids = np.concatenate(parts) if parts else np.zeros(0, np.int32)
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
        return cls(all_ids, starts, _tail_length(tokenizer))

    def __len__(self) -> int:
        return self.starts.size - 1

    def append(self, *others: Tokens) -> Tokens:
        """Return the tokens of these texts, followed by the tokens of `others`."""
        starts = [self.starts]
        for other in others:
            starts.append(starts[-1][-1] + other.starts[1:])
        ids = np.concatenate([self.ids, *[other.ids for other in others]])
        return Tokens(ids, np.concatenate(starts), self.tail)

    def take(self, rows: NDArray[np.int64]) -> Tokens:
        """Return the tokens of the selected texts."""
        counts = np.diff(self.starts)[rows]
        ends = np.cumsum(counts)
        indices = np.repeat(self.starts[rows] - (ends - counts), counts) + np.arange(int(counts.sum()))
        return Tokens(self.ids[indices], np.concatenate([[0], ends]).astype(np.int64), self.tail)

    def lengths(self, max_length: int) -> NDArray[np.int64]:
        """Return the number of tokens per text after truncation."""
        return np.minimum(np.diff(self.starts), max_length)

    def gather(self, rows: NDArray[np.int64], max_length: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the concatenated token ids of the truncated texts in `rows`, and the lengths of these texts."""
        begins, full_lengths = self.starts[rows], np.diff(self.starts)[rows]
        lengths = np.minimum(full_lengths, max_length)
        ends = np.cumsum(lengths)
        positions = np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)  # within the text
        indices = np.repeat(begins, lengths) + positions
        if (full_lengths > lengths).any():  # truncated texts also end with their special tokens
            tail = min(self.tail, max_length - 1)
            skipped = np.where(full_lengths > lengths, full_lengths - lengths, 0)
            indices += np.where(positions >= np.repeat(lengths - tail, lengths), np.repeat(skipped, lengths), 0)
        return self.ids[indices], lengths


def _tail_length(tokenizer: Any) -> int:
    """Return the number of special tokens at the end of a text."""
    with _TOKENIZER_LOCK:
        ids = tokenizer("a")["input_ids"]
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    count = 0
    for token in reversed(ids):
        if token not in special:
            break
        count += 1
    return count if count < len(ids) else 0
