"""Convert labels given as one list of labels per row, one label per row, class numbers or an indicator matrix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core import validation
from carya.core.inputs.columns import describe, is_column, is_missing, is_table, is_tensor, iterate_column, to_numpy
from carya.core.inputs.features import coerce_matrix, column_names
from carya.core.matrices import Csr
from carya.core.rules import MAX_INT
from carya.errors import InputError

#: The label of each matrix column or class number.
LabelNames = Sequence[str] | NDArray[Any]

_ACCEPTED = (
    "be a matrix with one column per label, or contain one label or one list of labels (strings or integers) per row"
)
#: Class numbers above this limit are accepted only if at least a fraction _MIN_SHARE of the numbers up to the highest
#: one is used.
_MAX_SPARSE_CLASSES = 1_000_000
_MIN_SHARE = 1 / 1000


@dataclass(frozen=True, eq=False)
class CoercedLabels:
    """A label matrix and the ids of its columns.

    Attributes
    ----------
    matrix : Csr of shape (rows, labels)
    ids : list of str or None
        The label of each column; None if the columns are identified by their indices.
    """

    matrix: Csr
    ids: list[str] | None

    def all_ids(self) -> list[str]:
        """Return the label of each column; if there are no ids, the column index as a string."""
        return [str(number) for number in range(self.matrix.cols)] if self.ids is None else self.ids


def coerce_labels(
    labels: Any, name: str = "labels", *, label_names: LabelNames | None = None, nested_is_matrix: bool = False
) -> CoercedLabels:
    """Convert labels to a matrix.

    The columns of the matrix correspond to `label_names` or, by default, to the distinct strings in sorted order.
    Integers are interpreted as column indices.

    Parameters
    ----------
    labels : object
        See the module docstring.
    name : str
        The name of the argument in error messages.
    label_names : sequence of str, optional
        The labels of the columns, in order, such as ``classes_`` of a MultiLabelBinarizer.
    nested_is_matrix : bool
        Whether to interpret a list of lists of numbers as a matrix instead of as lists of class numbers.

    Examples
    --------
    >>> coerce_labels(["b", "a", "b"]).ids
    ['a', 'b']
    >>> coerce_labels([[2], [], {0, 1}]).matrix.to_scipy().toarray().tolist()
    [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    >>> coerce_labels(["b", None])
    Traceback (most recent call last):
    carya.errors.InputError: labels[1] is missing (None). Remove rows with missing labels or fill in the labels.
    """
    ids = None if label_names is None else check_label_names(label_names)
    matrix = _matrix_of(labels, name, nested_is_matrix)
    if matrix is not None:
        checked = validation.check_labels(matrix, name)
        if ids is None and is_table(labels):
            ids = _ids_of_columns(column_names(labels))
        if ids is not None and len(ids) != checked.cols:
            raise InputError(
                f"label_names must have one name for each of the {checked.cols} columns of {name}, got {len(ids)}."
            )
        return CoercedLabels(checked, ids)
    reader = _RowReader(name, ids, unknown="error" if ids is not None else "add")
    indptr, indices = reader.read(labels)
    if ids is None and not reader.has_integers:
        ids = list(reader.numbers)
        order = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int32)
        column = np.empty_like(order)
        column[order] = np.arange(order.size, dtype=np.int32)
        indices = column[indices]
        ids = [ids[number] for number in order]
    n_labels = int(indices.max(initial=-1)) + 1 if ids is None else len(ids)
    return CoercedLabels(_to_csr(indptr, indices, n_labels), ids)


def match_labels(
    labels: Any,
    known: Sequence[str],
    name: str = "labels",
    *,
    nested_is_matrix: bool = False,
    keep_unknown: bool = False,
) -> CoercedLabels:
    """Convert labels to a matrix with the columns of a fitted model; an integer matches the label ``str(integer)``.

    Parameters
    ----------
    labels : object
        As for :func:`coerce_labels`. A matrix without column names must have one column per known label.
    known : sequence of str
        The labels of the model, in column order.
    keep_unknown : bool
        Whether to append columns for unknown labels; by default, unknown labels are ignored.

    Examples
    --------
    >>> match_labels([["c"], ["a", "z"]], ["a", "b", "c"]).matrix.to_scipy().toarray().tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    matrix = _matrix_of(labels, name, nested_is_matrix)
    if matrix is None:
        reader = _RowReader(name, known, unknown="add" if keep_unknown else "ignore")
        indptr, indices = reader.read(labels)
        ids = list(reader.numbers)
        return CoercedLabels(_to_csr(indptr, indices, len(ids)), ids)
    checked = validation.check_labels(matrix, name)
    own_ids = _ids_of_columns(column_names(labels)) if is_table(labels) else None
    if own_ids is None:
        if checked.cols != len(known):
            raise InputError(f"{name} has {checked.cols} columns, but the model has {len(known)} labels.")
        return CoercedLabels(checked, list(known))
    return align_columns(checked, own_ids, known, keep_unknown=keep_unknown)


def align_columns(
    matrix: Csr, ids: Sequence[str], known: Sequence[str], *, keep_unknown: bool = False
) -> CoercedLabels:
    """Rearrange the columns of a label matrix to match the known labels; see :func:`match_labels`."""
    numbers = {label: number for number, label in enumerate(known)}
    for label in ids if keep_unknown else ():
        numbers.setdefault(label, len(numbers))
    is_known = np.array([label in numbers for label in ids], bool)
    if ids and not is_known.any():
        raise InputError(
            f"None of the column names (such as {ids[0]!r}) is a label of the model (such as {known[0]!r}). Rename the "
            "columns."
        )
    target = np.array([numbers.get(label, 0) for label in ids], np.int32)
    kept = Csr.of_scipy(sp.csr_array(matrix.to_scipy()[:, np.flatnonzero(is_known)]))
    return CoercedLabels(kept.merge_columns(target[is_known], len(numbers)), list(numbers))


def match_candidates(candidates: Any, known: Sequence[str], rows: int, *, nested_is_matrix: bool = False) -> Csr:
    """Convert candidate (row, label) pairs, given as a matrix or as lists of labels; unknown labels are ignored."""
    matrix = _matrix_of(candidates, "candidates", nested_is_matrix)
    if matrix is not None:
        return validation.check_candidates(matrix, rows, len(known))
    pairs = match_labels(candidates, known, "candidates").matrix
    if pairs.rows != rows:
        raise InputError(f"candidates must have one list of labels for each of the {rows} rows, got {pairs.rows}.")
    return pairs


def check_label_names(label_names: Any, name: str = "label_names") -> list[str]:
    """Return label names as a list of distinct strings; integers are converted to strings."""
    if isinstance(label_names, (str, bytes, Mapping)) or not isinstance(label_names, Iterable):
        raise InputError(
            f"{name} must be a list with the label of each column, got {describe(label_names)}. To pass "
            "human-readable names, use the names parameter."
        )
    names = [str(label) if isinstance(label, (int, np.integer)) else label for label in label_names]
    seen: set[str] = set()
    for number, label in enumerate(names):
        if not isinstance(label, str):
            raise InputError(f"{name}[{number}] must be a string, got {label!r}.")
        if label in seen:
            raise InputError(f"{name} contains {label!r} more than once. Names must be distinct.")
        seen.add(label)
    return names


def _matrix_of(labels: Any, name: str, nested_is_matrix: bool) -> Any:
    """Return labels given in matrix form as a sparse matrix or an array; None if they are given as lists of labels."""
    if isinstance(labels, Csr) or sp.issparse(labels):
        return labels
    if is_table(labels) or (is_tensor(labels) and labels.ndim != 1):
        return coerce_matrix(labels, name)
    if isinstance(labels, np.ndarray) and labels.ndim > 1 and labels.dtype.kind not in "OUT":
        return labels
    if nested_is_matrix and isinstance(labels, (list, tuple)) and _has_rows_of_numbers(labels):
        try:
            return np.asarray(labels)
        except ValueError:
            raise InputError(
                f"{name} contains lists of numbers that differ in length, so it is not a matrix. Pass a matrix, or "
                f"one set of class numbers per row, such as [set(row) for row in {name}]."
            ) from None
    return None


def _has_rows_of_numbers(rows: Sequence[Any]) -> bool:
    for row in rows:
        if not isinstance(row, (list, tuple, np.ndarray)):
            return False
        if len(row):
            first = row[0]
            return isinstance(first, (int, float, complex, np.number, np.bool_, np.ndarray))
    return bool(rows)


def _ids_of_columns(columns: Sequence[Any]) -> list[str] | None:
    """Return the column names of a table as label ids; None if they are the numbers 0, 1, 2, …."""
    names = check_label_names(columns)
    return None if names == [str(number) for number in range(len(names))] else names


def _to_csr(indptr: NDArray[np.int64], indices: NDArray[np.int32], n_labels: int) -> Csr:
    Y = sp.csr_array((np.ones(indices.size, np.float32), indices, indptr), (indptr.size - 1, n_labels))
    Y.sum_duplicates()
    Y.data[:] = 1  # count repeated labels once
    return Csr.of_scipy(Y)


class _RowReader:
    """Reader for lists of labels.

    Parameters
    ----------
    name : str
        The name of the argument in error messages.
    known : sequence of str or None
        The known labels; None if the columns are derived from the labels that are read.
    unknown : {"add", "ignore", "error"}
        How to handle unknown labels.
    """

    def __init__(self, name: str, known: Sequence[str] | None, *, unknown: str) -> None:
        self.name = name
        self.has_integers = False
        self.numbers: dict[str, int] = {} if known is None else {label: number for number, label in enumerate(known)}
        self._known = known
        self._has_strings = False
        self._unknown = unknown
        self._has_single: bool | None = None

    def read(self, labels: Any) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the row offsets and the column indices."""
        if is_column(labels) or is_tensor(labels):
            values = to_numpy(labels)
            labels = iterate_column(labels, self.name) if values is None else values
        if isinstance(labels, np.ndarray):
            if labels.ndim == 1 and labels.dtype.kind in "iu" and self._known is None:
                return self._read_class_numbers(labels)
            if labels.ndim == 0 or labels.dtype.kind not in "iuOUT":
                raise InputError(f"{self.name} must {_ACCEPTED}, got {describe(labels)}.")
            labels = labels.tolist()
        if isinstance(labels, (str, bytes, Mapping)) or not isinstance(labels, Iterable):
            raise InputError(f"{self.name} must {_ACCEPTED}, got {labels!r}.")
        entries: list[int] = []
        ends = [0]
        numbers = self.numbers
        for row, item in enumerate(labels):
            for label in self._labels_of_row(row, item):
                number = numbers.get(label) if type(label) is str else None
                if number is None:
                    number = self._number(row, label)
                    if number is None:
                        continue
                entries.append(number)
            ends.append(len(entries))
        self._check_class_numbers(np.array(entries, np.int64))
        return np.array(ends, np.int64), np.array(entries, np.int32)

    def _read_class_numbers(self, classes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        self.has_integers = True
        if classes.size and classes.min() < 0:
            row = int(np.argmax(classes < 0))
            raise InputError(f"{self.name}[{row}] must be an integer >= 0, got {classes[row]}.")
        self._check_class_numbers(classes)
        return np.arange(classes.size + 1, dtype=np.int64), classes.astype(np.int32)

    def _check_class_numbers(self, classes: NDArray[Any]) -> None:
        """Raise InputError for class numbers that would result in a matrix of mostly empty columns."""
        if not self.has_integers or self._known is not None or not classes.size:
            return
        highest = int(classes.max())
        if highest >= MAX_INT or highest >= max(_MAX_SPARSE_CLASSES, np.unique(classes).size / _MIN_SHARE):
            raise InputError(
                f"{self.name} contains the class number {highest}, but most of the numbers from 0 to {highest} are "
                "not used. Convert the class numbers to strings."
            )

    def _labels_of_row(self, row: int, item: Any) -> Iterable[Any]:
        if isinstance(item, (list, tuple, set, frozenset)):
            is_single = False
        elif isinstance(item, (str, int, np.integer)):
            is_single, item = True, (item,)
        elif is_missing(item):
            raise InputError(
                f"{self.name}[{row}] is missing ({item!r}). Remove rows with missing labels or fill in the labels."
            )
        elif isinstance(item, np.ndarray) and item.ndim == 1:
            is_single, item = False, item.tolist()
        elif isinstance(item, (bytes, Mapping)) or not isinstance(item, Iterable):
            raise InputError(f"{self.name}[{row}] must be a label or a list of labels, got {item!r}.")
        else:
            is_single = False
        if self._has_single is None:
            self._has_single = is_single
        elif self._has_single != is_single:
            expected = "a label" if self._has_single else "a list of labels"
            raise InputError(f"{self.name}[{row}] must be {expected}, as in the preceding rows, got {_shown(item)}.")
        return item  # type: ignore[no-any-return]

    def _number(self, row: int, label: Any) -> int | None:
        """Return the column index of a label that is not yet in `numbers`, or None if the label is ignored."""
        self._check_label(row, label)
        if not isinstance(label, str) and (self._known is None or self._unknown == "error"):
            if self._known is not None and label >= len(self._known):
                raise InputError(
                    f"{self.name}[{row}] contains {label}, but label_names has only {len(self._known)} names."
                )
            return int(label)
        key = str(label)
        number = self.numbers.get(key)
        if number is None and self._unknown == "error":
            raise InputError(f"{self.name}[{row}] contains {label!r}, which is not in label_names.")
        if number is None and self._unknown == "add":
            number = self.numbers[key] = len(self.numbers)
        return number

    def _check_label(self, row: int, label: Any) -> None:
        """Raise InputError unless a label is a string or a class number and has the same type as the other labels."""
        if isinstance(label, str):
            self._has_strings = True
            if not label:
                raise InputError(f"{self.name}[{row}] contains an empty string, which is not a valid label.")
        elif isinstance(label, (int, np.integer)) and not isinstance(label, bool):
            self.has_integers = True
            if label < 0:
                raise InputError(f"{self.name}[{row}] must not contain negative integers, got {label}.")
        elif is_missing(label):
            raise InputError(f"{self.name}[{row}] contains a missing label ({label!r}). Remove it.")
        else:
            raise InputError(f"{self.name}[{row}] must contain only strings or integers, got {label!r}.")
        if self._has_strings and self.has_integers and self._known is None:
            raise InputError(f"{self.name}[{row}] contains {label!r}, but labels must be all strings or all integers.")


def _shown(item: Any) -> str:
    return repr(item[0]) if isinstance(item, tuple) and len(item) == 1 else describe(item)
