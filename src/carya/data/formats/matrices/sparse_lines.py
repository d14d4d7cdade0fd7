"""Lines of labels and features, ``3,17 0:0.5 8:1``: what the XMC format and svmlight have in common.

A block of lines is parsed by NumPy, all its numbers at once, if every byte of it is as expected. Otherwise it is parsed
line by line, which says what the lines mean, and what is wrong with them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from carya.data.formats.columns import brief
from carya.errors import InputError

_DIGIT, _SPACE, _COLON, _LINE, _COMMA, _IN_VALUE, _STRANGE = range(7)
_KINDS = np.full(256, _STRANGE, np.uint8)
for _kind, _members in enumerate((b"0123456789", b" ", b":", b"\n", b",", b".+-eE")):
    _KINDS[list(_members)] = _kind
_VALUE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_ROWS_AT_ONCE = 2048


@dataclass(frozen=True)
class Limits:
    """How many features and labels there are, and what says so."""

    features: int = 2**31 - 1
    labels: int = 2**31 - 1
    said_by: str = "a matrix"


class Rows(NamedTuple):
    """Some rows: how many labels and features each has, and those of all in one array."""

    label_counts: NDArray[np.int64]
    labels: NDArray[np.int64]
    feature_counts: NDArray[np.int64]
    features: NDArray[np.int64]
    values: NDArray[np.float32]


class Gathered:
    """Rows of many blocks, to become matrices."""

    def __init__(self) -> None:
        self.rows = 0
        self._pieces: dict[str, list[NDArray[Any]]] = {field: [np.zeros(0, np.int32)] for field in Rows._fields}

    def add(self, rows: Rows) -> None:
        """Append rows."""
        self.rows += rows.label_counts.size
        for field, piece in rows._asdict().items():
            self._pieces[field].append(piece if piece.dtype == np.float32 else piece.astype(np.int32))

    def column(self, field: str) -> NDArray[Any]:
        """One field of all rows; it is given away."""
        return np.concatenate(self._pieces.pop(field))


def matrix(counts: NDArray[Any], columns: NDArray[Any], values: NDArray[Any] | None, width: int) -> sp.csr_array:
    """Rows as a matrix; without values an entry is 1, however often it occurs."""
    indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    data = np.ones(columns.size, np.float32) if values is None else values.astype(np.float32, copy=False)
    made = sp.csr_array((data, columns.astype(np.int32, copy=False), indptr), shape=(counts.size, width))
    made.sum_duplicates()
    if values is None:
        made.data[:] = 1
    return made


def parse(block: bytes, first_line: int, source: str, limits: Limits, *, skip_blank: bool) -> Rows:
    """The rows of some whole lines; raises InputError with the line if one is wrong.

    Parameters
    ----------
    block : bytes
        Lines, the last one ended as well.
    first_line : int
        The number of the first.
    source : str
        What messages call the file.
    limits : Limits
    skip_blank : bool
        A line of nothing but spaces or a comment (``#``) is no row. Otherwise it is one, and there are no comments.
    """
    tidy = block.replace(b"\r\n", b"\n").replace(b" \n", b"\n")
    try:
        if skip_blank and (b"\n\n" in tidy or tidy.startswith(b"\n")):
            raise _OddError
        return _parse_at_once(tidy, limits)
    except _OddError:
        return _parse_one_by_one(block, first_line, source, limits, skip_blank)


def format_rows(X: Any, Y: Any, shift: int = 0) -> Iterator[str]:
    """The lines of two matrices; `shift` is added to the numbers of features."""
    X, Y = sp.csr_array(X), sp.csr_array(Y)
    for start in range(0, Y.shape[0], _ROWS_AT_ONCE):
        x, y = X[start : start + _ROWS_AT_ONCE], Y[start : start + _ROWS_AT_ONCE]
        labels, columns = y.indices.astype(str).tolist(), (x.indices + shift).astype(str).tolist()
        values = x.data.astype(np.float32).astype(str).tolist()  # the fewest digits that give the same number back
        for row in range(y.shape[0]):
            here = slice(x.indptr[row], x.indptr[row + 1])
            pairs = (f" {one}:{value}" for one, value in zip(columns[here], values[here], strict=True))
            yield ",".join(labels[y.indptr[row] : y.indptr[row + 1]]) + ("".join(pairs) or " ") + "\n"


class _OddError(Exception):
    """Lines that have to be looked at one by one."""


class _Tokens(NamedTuple):
    """The tokens of a block: what is between spaces, colons and line ends; labels with their commas are one."""

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    ended_by: NDArray[np.uint8]
    starts_line: NDArray[np.bool_]
    commas: NDArray[np.int64]


def _tokens(kinds: NDArray[np.uint8]) -> _Tokens:
    """The tokens, if labels, numbers of features and values follow each other as they should."""
    ends = np.flatnonzero((kinds >= _SPACE) & (kinds <= _LINE))
    begins = np.concatenate([[0], ends[:-1] + 1])
    ended_by = kinds[ends]
    after = np.concatenate([[_LINE], ended_by[:-1]])
    commas = _count(kinds == _COMMA, begins, ends)
    at = np.flatnonzero(kinds == _COMMA)
    if (
        kinds.max() == _STRANGE
        or ((after == _LINE) & (ended_by == _COLON)).any()  # a feature where labels should be
        or ((after == _SPACE) & (ended_by != _COLON)).any()  # a feature without a value
        or ((after == _COLON) & (ended_by == _COLON)).any()
        or ((after != _LINE) & (begins == ends)).any()  # an empty number
        or commas[after != _LINE].any()
        or (at.size and (at[0] == 0 or kinds[at - 1].any() or kinds[at + 1].any()))  # beside a comma is a digit, 0
        or _count(kinds == _IN_VALUE, begins, ends)[after != _COLON].any()
    ):
        raise _OddError
    return _Tokens(begins, ends, ended_by, after == _LINE, commas)


def _parse_at_once(block: bytes, limits: Limits) -> Rows:
    data = np.frombuffer(block, np.uint8)
    tokens = _tokens(_KINDS[data])
    heads, head_ends = tokens.begins[tokens.starts_line], tokens.ends[tokens.starts_line]
    label_counts = tokens.commas[tokens.starts_line] + (head_ends > heads)
    step = np.zeros(data.size, np.int8)
    step[heads] += 1
    step[head_ends] -= 1
    in_head = np.cumsum(step, dtype=np.int8).view(np.bool_)
    colons = np.cumsum(tokens.ended_by == _COLON)[tokens.ended_by == _LINE]
    feature_counts = np.diff(colons, prepend=0)
    numbers = _numbers(data[~in_head], b":", np.float64, 2 * int(colons[-1]))
    in_head[head_ends] = True
    labels = _numbers(data[in_head], b",", np.int64, int(label_counts.sum()))
    if numbers[::2].max(initial=0) >= limits.features or labels.max(initial=0) >= limits.labels:
        raise _OddError
    features = numbers[::2].astype(np.int64)
    with np.errstate(over="ignore"):
        values = numbers[1::2].astype(np.float32)
    rows = np.repeat(np.arange(heads.size), feature_counts)
    in_order = (np.diff(features) > 0) | (np.diff(rows) > 0)
    if not np.isfinite(values).all() or not in_order.all():
        raise _OddError
    return Rows(label_counts, labels, feature_counts, features, values)


def _count(there: NDArray[np.bool_], begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many are in each token."""
    before = np.zeros(there.size + 1, np.int32)
    np.cumsum(there, out=before[1:])
    return (before[ends] - before[begins]).astype(np.int64)


def _numbers(text: NDArray[np.uint8], separator: bytes, kind: Any, count: int) -> NDArray[Any]:
    """All numbers of a text, if they are so many."""
    if not count:
        return np.zeros(0, kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            found = np.fromstring(text.tobytes().replace(separator, b" "), kind, sep=" ")
        except (DeprecationWarning, ValueError):
            raise _OddError from None
    if found.size != count:
        raise _OddError
    return found


def _parse_one_by_one(block: bytes, first_line: int, source: str, limits: Limits, skip_blank: bool) -> Rows:
    label_counts: list[int] = []
    labels: list[int] = []
    feature_counts: list[int] = []
    features: list[int] = []
    values: list[float] = []
    for number, raw in enumerate(block[:-1].split(b"\n"), first_line):
        line = raw.decode("ascii", "backslashreplace").removesuffix("\r")
        if skip_blank:
            line = line.partition("#")[0]
            if not line.strip():
                continue
        where = f"{source}, line {number}"
        head, _, tail = line.partition(" ")
        found = [_whole(one, "label", limits.labels, limits, where) for one in head.split(",")] if head else []
        pairs = dict(_pairs(tail.split(), limits, where))
        label_counts.append(len(found))
        labels.extend(found)
        feature_counts.append(len(pairs))
        features.extend(sorted(pairs))
        values.extend(pairs[one] for one in sorted(pairs))
    return Rows(
        np.array(label_counts, np.int64),
        np.array(labels, np.int64),
        np.array(feature_counts, np.int64),
        np.array(features, np.int64),
        np.array(values, np.float32),
    )


def _pairs(tokens: list[str], limits: Limits, where: str) -> Iterator[tuple[int, float]]:
    seen = set()
    for token in tokens:
        name, colon, value = token.partition(":")
        if not colon:
            raise InputError(f"{where}: a feature must be number:value, got {brief(token)}")
        feature = _whole(name, "feature", limits.features, limits, where)
        if feature in seen:
            raise InputError(f"{where}: feature {feature} occurs twice")
        seen.add(feature)
        if not _VALUE.fullmatch(value) or abs(float(value)) > np.finfo(np.float32).max:
            raise InputError(f"{where}: the value of feature {feature} must be a finite number, got {brief(value)}")
        yield feature, float(value)


def _whole(text: str, what: str, limit: int, limits: Limits, where: str) -> int:
    if not (text.isascii() and text.isdigit()):
        hint = "; a row without labels begins with a space" if what == "label" and ":" in text else ""
        raise InputError(f"{where}: a {what} must be a whole number, got {brief(text)}{hint}")
    if len(text.lstrip("0")) > 10 or int(text) >= limit:
        raise InputError(f"{where}: {what} {brief(text)[1:-1]} is outside the {limit} {what}s of {limits.said_by}")
    return int(text)
