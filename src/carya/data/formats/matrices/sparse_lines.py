"""Parse and format lines of labels and features, such as ``3,17 0:0.5 8:1``, for the XMC and svmlight formats.

Blocks of regular lines are parsed with vectorized NumPy operations. All other blocks are parsed line by line; this
slower parser accepts unusual but valid lines and reports errors.
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

from carya.data.formats.columns import OptionError, short_repr
from carya.errors import InputError

# Byte classes. The order matters: the class of digits must be 0, and _SPACE to _LINE_END must be the separators.
_DIGIT, _SPACE, _COLON, _LINE_END, _COMMA, _IN_VALUE, _UNEXPECTED = range(7)
_BYTE_CLASSES = np.full(256, _UNEXPECTED, np.uint8)
for _class, _members in enumerate((b"0123456789", b" ", b":", b"\n", b",", b".+-eE")):
    _BYTE_CLASSES[list(_members)] = _class
_VALUE = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_ROWS_PER_BLOCK = 2048


@dataclass(frozen=True)
class Limits:
    """Limits on the numbers of features and labels, and the source of these limits for error messages.

    `column` is the term for a feature in error messages, and `first_feature` is the lowest valid feature index.
    """

    n_features: int = 2**31 - 1
    n_labels: int = 2**31 - 1
    stated_by: str = "the largest supported matrix"
    column: str = "feature"
    first_feature: int = 0


class ParsedRows(NamedTuple):
    """Parsed rows as concatenated arrays, with the numbers of labels and features per row."""

    label_counts: NDArray[np.int64]
    labels: NDArray[np.int64]
    feature_counts: NDArray[np.int64]
    features: NDArray[np.int64]
    values: NDArray[np.float32]


class RowCollector:
    """Accumulator for the rows of several blocks."""

    def __init__(self) -> None:
        self.n_rows = 0
        self._arrays: dict[str, list[NDArray[Any]]] = {field: [np.zeros(0, np.int32)] for field in ParsedRows._fields}

    def add(self, rows: ParsedRows) -> None:
        """Append rows."""
        self.n_rows += rows.label_counts.size
        for field, array in rows._asdict().items():
            self._arrays[field].append(array if array.dtype == np.float32 else array.astype(np.int32))

    def add_stated(self, rows: ParsedRows, n_rows: int, name: str) -> None:
        """Append rows; raise InputError if a nonempty row follows the `n_rows` rows stated in the header."""
        for row in range(max(0, n_rows - self.n_rows), rows.label_counts.size):
            if rows.label_counts[row] or rows.feature_counts[row]:
                line = self.n_rows + row + 2
                raise InputError(
                    f"{name}, line {line}: Expected the number of rows stated in the header ({n_rows}), got more."
                )
        self.add(rows)

    def check_n_rows(self, n_rows: int, name: str) -> None:
        """Raise InputError if there are fewer rows than stated in the header."""
        if self.n_rows < n_rows:
            raise InputError(f"{name}: Expected the number of rows stated in the header ({n_rows}), got {self.n_rows}.")

    def take(self, field: str) -> NDArray[Any]:
        """Return one field of all rows and release the stored blocks; can be called only once per field."""
        return np.concatenate(self._arrays.pop(field))


def to_csr(counts: NDArray[Any], columns: NDArray[Any], values: NDArray[Any] | None, n_columns: int) -> sp.csr_array:
    """Return the rows as a CSR matrix; if `values` is None, all entries are 1, even repeated ones."""
    indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    data = np.ones(columns.size, np.float32) if values is None else values.astype(np.float32, copy=False)
    matrix = sp.csr_array((data, columns.astype(np.int32, copy=False), indptr), shape=(counts.size, n_columns))
    matrix.sum_duplicates()
    if values is None:
        matrix.data[:] = 1
    return matrix


def parse_block(block: bytes, first_line: int, source: str, limits: Limits, *, skip_blank: bool) -> ParsedRows:
    """Parse complete lines; raise InputError with the line number of the first invalid line.

    Parameters
    ----------
    block : bytes
        Complete lines; the last line must also end with a newline.
    first_line : int
        The number of the first line.
    source : str
        The name of the file in error messages.
    limits : Limits
    skip_blank : bool
        Whether comments (``#``) and blank lines are ignored. Otherwise, a blank line is a row without entries, and
        comments are invalid.
    """
    stripped = block.replace(b"\r\n", b"\n").replace(b" \n", b"\n")
    try:
        if skip_blank and (b"\n\n" in stripped or stripped.startswith(b"\n")):
            raise _IrregularLinesError
        return _parse_vectorized(stripped, limits)
    except _IrregularLinesError:
        return _parse_line_by_line(block, first_line, source, limits, skip_blank)


def format_rows(X: Any, Y: Any, *, first_feature: int = 0) -> Iterator[str]:
    """Yield the rows of two matrices as lines of text; features are numbered from `first_feature`."""
    X, Y = sp.csr_array(X), sp.csr_array(Y)
    for start in range(0, Y.shape[0], _ROWS_PER_BLOCK):
        x, y = X[start : start + _ROWS_PER_BLOCK], Y[start : start + _ROWS_PER_BLOCK]
        labels, features = y.indices.astype(str).tolist(), (x.indices + first_feature).astype(str).tolist()
        values = (
            x.data.astype(np.float32).astype(str).tolist()
        )  # the shortest strings that restore the same float32 values
        for row in range(y.shape[0]):
            entries = slice(x.indptr[row], x.indptr[row + 1])
            pairs = (f" {feature}:{value}" for feature, value in zip(features[entries], values[entries], strict=True))
            yield ",".join(labels[y.indptr[row] : y.indptr[row + 1]]) + ("".join(pairs) or " ") + "\n"


class _IrregularLinesError(Exception):
    """Raised for lines that must be parsed one by one."""


class _LineTokens(NamedTuple):
    """Tokens of a block, separated by spaces, colons and newlines; the labels of a row form one token."""

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    ended_by: NDArray[np.uint8]
    starts_line: NDArray[np.bool_]
    commas: NDArray[np.int64]


def _tokenize(classes: NDArray[np.uint8]) -> _LineTokens:
    """Return the tokens; raise _IrregularLinesError unless labels, features and values alternate as expected."""
    ends = np.flatnonzero((classes >= _SPACE) & (classes <= _LINE_END))
    begins = np.concatenate([[0], ends[:-1] + 1])
    ended_by = classes[ends]
    preceded_by = np.concatenate([[_LINE_END], ended_by[:-1]])
    commas = _count_per_token(classes == _COMMA, begins, ends)
    comma_positions = np.flatnonzero(classes == _COMMA)
    has_bad_comma = comma_positions.size and (  # a comma that is not between two digits (class 0)
        comma_positions[0] == 0 or classes[comma_positions - 1].any() or classes[comma_positions + 1].any()
    )
    if (
        classes.max() == _UNEXPECTED
        or ((preceded_by == _LINE_END) & (ended_by == _COLON)).any()  # a feature instead of labels
        or ((preceded_by == _SPACE) & (ended_by != _COLON)).any()  # a feature without a value
        or ((preceded_by == _COLON) & (ended_by == _COLON)).any()
        or ((preceded_by != _LINE_END) & (begins == ends)).any()  # an empty number
        or commas[preceded_by != _LINE_END].any()
        or has_bad_comma
        or _count_per_token(classes == _IN_VALUE, begins, ends)[preceded_by != _COLON].any()
    ):
        raise _IrregularLinesError
    return _LineTokens(begins, ends, ended_by, preceded_by == _LINE_END, commas)


def _parse_vectorized(block: bytes, limits: Limits) -> ParsedRows:
    data = np.frombuffer(block, np.uint8)
    tokens = _tokenize(_BYTE_CLASSES[data])
    label_begins, label_ends = tokens.begins[tokens.starts_line], tokens.ends[tokens.starts_line]
    label_counts = tokens.commas[tokens.starts_line] + (label_ends > label_begins)
    step = np.zeros(data.size, np.int8)
    step[label_begins] += 1
    step[label_ends] -= 1
    in_labels = np.cumsum(step, dtype=np.int8).view(np.bool_)
    colons = np.cumsum(tokens.ended_by == _COLON)[tokens.ended_by == _LINE_END]
    feature_counts = np.diff(colons, prepend=0)
    numbers = _parse_numbers(data[~in_labels], b":", np.float64, 2 * int(colons[-1]))
    in_labels[label_ends] = True
    labels = _parse_numbers(data[in_labels], b",", np.int64, int(label_counts.sum()))
    if numbers[::2].min(initial=limits.first_feature) < limits.first_feature:
        raise _IrregularLinesError
    if numbers[::2].max(initial=0) >= limits.n_features or labels.max(initial=0) >= limits.n_labels:
        raise _IrregularLinesError
    features = numbers[::2].astype(np.int64)
    with np.errstate(over="ignore"):
        values = numbers[1::2].astype(np.float32)
    rows = np.repeat(np.arange(label_begins.size), feature_counts)
    is_ascending = (np.diff(features) > 0) | (np.diff(rows) > 0)
    if not np.isfinite(values).all() or not is_ascending.all():
        raise _IrregularLinesError
    return ParsedRows(label_counts, labels, feature_counts, features, values)


def _count_per_token(
    is_counted: NDArray[np.bool_], begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return, for each token, the number of its bytes that are marked in `is_counted`."""
    before = np.zeros(is_counted.size + 1, np.int32)
    np.cumsum(is_counted, out=before[1:])
    return (before[ends] - before[begins]).astype(np.int64)


def _parse_numbers(text: NDArray[np.uint8], separator: bytes, dtype: Any, count: int) -> NDArray[Any]:
    """Parse all numbers in a string; raise _IrregularLinesError unless there are exactly `count`."""
    if not count:
        return np.zeros(0, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            numbers = np.fromstring(text.tobytes().replace(separator, b" "), dtype, sep=" ")
        except (DeprecationWarning, ValueError):
            raise _IrregularLinesError from None
    if numbers.size != count:
        raise _IrregularLinesError
    return numbers


def _parse_line_by_line(block: bytes, first_line: int, source: str, limits: Limits, skip_blank: bool) -> ParsedRows:
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
        location = f"{source}, line {number}"
        label_field, _, pairs = line.partition(" ")
        row_labels = label_field.split(",") if label_field else []
        label_counts.append(len(row_labels))
        labels.extend(_parse_index(label, "label", limits.n_labels, limits, location) for label in row_labels)
        row_values = dict(_parse_pairs(pairs.split(), limits, location))
        feature_counts.append(len(row_values))
        features.extend(sorted(row_values))
        values.extend(row_values[feature] for feature in sorted(row_values))
    return ParsedRows(
        np.array(label_counts, np.int64),
        np.array(labels, np.int64),
        np.array(feature_counts, np.int64),
        np.array(features, np.int64),
        np.array(values, np.float32),
    )


def _parse_pairs(tokens: list[str], limits: Limits, location: str) -> Iterator[tuple[int, float]]:
    seen = set()
    for token in tokens:
        index, colon, value = token.partition(":")
        if not colon:
            raise InputError(f"{location}: A {limits.column} must have the form index:value, got {short_repr(token)}.")
        feature = _parse_index(index, limits.column, limits.n_features, limits, location)
        if feature < limits.first_feature:
            raise OptionError(
                f"{location}: Expected features numbered from 1, but feature 0 occurs. If features are numbered from "
                "0, pass zero_based=True (--zero-based).",
                "zero_based",
            )
        if feature in seen:
            raise InputError(f"{location}: {limits.column.capitalize()} {feature} occurs more than once.")
        seen.add(feature)
        if not _VALUE.fullmatch(value) or abs(float(value)) > np.finfo(np.float32).max:
            raise InputError(
                f"{location}: The value of {limits.column} {feature} must be a finite number, got {short_repr(value)}."
            )
        yield feature, float(value)


def _parse_index(text: str, kind: str, limit: int, limits: Limits, location: str) -> int:
    """Parse the index of a label or feature; raise InputError if it is not an integer from 0 to `limit` - 1."""
    if not (text.isascii() and text.isdigit()):
        hint = (
            " A row without labels must begin with a space."
            if kind == "label" and ":" in text and limits.column == "feature"
            else ""
        )
        raise InputError(f"{location}: A {kind} must be an integer >= 0, got {short_repr(text)}.{hint}")
    if len(text.lstrip("0")) > 10 or int(text) >= limit:
        raise InputError(
            f"{location}: {kind.capitalize()} {short_repr(text)[1:-1]} is out of range for the {limit} {kind}s in "
            f"{limits.stated_by}, which are numbered from 0."
        )
    return int(text)
