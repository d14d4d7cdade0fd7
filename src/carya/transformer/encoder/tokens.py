"""Texts as numbers of tokens: tokenised once, kept as one run, cut as short as a stage of training wants them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core.progress import Report
from carya.errors import InputError

_TEXTS = 1024  # tokenised at a time


@dataclass(frozen=True, eq=False)
class Tokens:
    """The tokens of some texts.

    Attributes
    ----------
    ids : ndarray of int32
        All of them, one text behind the other.
    starts : ndarray of int64, shape (texts + 1,)
        Where each text begins.
    tail : int
        How many tokens at the end of a text mark its end; a text that is cut keeps them.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    tail: int = 1

    @classmethod
    def of(cls, texts: Iterable[str], tokenizer: Any, *, max_length: int, report: Report = None) -> Tokens:
        """Tokenise texts with a tokenizer of ``transformers``, each to at most `max_length` tokens."""
        parts: list[NDArray[np.int32]] = []
        lengths: list[int] = []
        total = len(texts) if isinstance(texts, Sequence) else 0
        for some in _batches(texts):
            for ids in tokenizer(some, truncation=True, max_length=max_length, padding=False)["input_ids"]:
                parts.append(np.array(ids, np.int32))
                lengths.append(len(ids))
            if report is not None:
                report(len(lengths), max(total, len(lengths)))
        empty = [row for row, length in enumerate(lengths) if length == 0]
        if empty:  # a tokenizer without special tokens and a text without tokens
            unknown = tokenizer.unk_token_id if tokenizer.unk_token_id is not None else tokenizer.pad_token_id or 0
            for row in empty:
                parts[row], lengths[row] = np.array([unknown], np.int32), 1
        ids = np.concatenate(parts) if parts else np.zeros(0, np.int32)
        return cls(ids, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64), _tail(tokenizer))

    def __len__(self) -> int:
        return self.starts.size - 1

    def joined(self, *others: Tokens) -> Tokens:
        """These, and behind them those of other texts."""
        starts = [self.starts]
        for one in others:
            starts.append(starts[-1][-1] + one.starts[1:])
        return Tokens(np.concatenate([self.ids, *[one.ids for one in others]]), np.concatenate(starts), self.tail)

    def lengths(self, max_length: int) -> NDArray[np.int64]:
        """How many tokens each text has when cut."""
        return np.minimum(np.diff(self.starts), max_length)

    def select(self, rows: NDArray[np.int64]) -> Tokens:
        """The tokens of some of the texts."""
        whole = np.diff(self.starts)[rows]
        ends = np.cumsum(whole)
        at = np.repeat(self.starts[rows] - (ends - whole), whole) + np.arange(int(whole.sum()))
        return Tokens(self.ids[at], np.concatenate([[0], ends]).astype(np.int64), self.tail)

    def gather(self, rows: NDArray[np.int64], max_length: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The tokens of some texts, one behind the other, each cut, and the lengths."""
        begin, whole = self.starts[rows], np.diff(self.starts)[rows]
        lengths = np.minimum(whole, max_length)
        ends = np.cumsum(lengths)
        place = np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)  # in its own text
        at = np.repeat(begin, lengths) + place
        if (whole > lengths).any():  # the last tokens of a cut text are its own last
            tail = min(self.tail, max_length - 1)
            skipped = np.where(whole > lengths, whole - lengths, 0)
            at += np.where(place >= np.repeat(lengths - tail, lengths), np.repeat(skipped, lengths), 0)
        return self.ids[at], lengths


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    if isinstance(texts, str):
        raise InputError("texts is one string, it must be a list of them")
    waiting = iter(texts)
    number = 0
    while some := list(islice(waiting, _TEXTS)):
        for text in some:
            if not isinstance(text, str):
                raise InputError(f"text {number} must be a string, got {type(text).__name__}")
            number += 1
        yield some


def _tail(tokenizer: Any) -> int:
    """How many special tokens end a text."""
    ids = tokenizer("a")["input_ids"]
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    count = 0
    for one in reversed(ids):
        if one not in special:
            break
        count += 1
    return count if count < len(ids) else 0
