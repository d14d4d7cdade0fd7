"""Validate user input and convert it to matrices that the kernels accept.

Error messages name the invalid argument.

The functions accept ``csr_matrix``, ``csr_array`` and other SciPy formats, arrays, nested lists, data frames, tensors,
and (sparse, dense) pairs, and return validated float32 matrices. They never modify their input.
"""

from __future__ import annotations

import math
import numbers
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core.inputs.columns import is_column, is_tensor, to_numpy
from carya.core.inputs.features import coerce_matrix
from carya.core.matrices import Csr, Features
from carya.core.rules import MAX_INT
from carya.errors import InputError

T = TypeVar("T", bound=np.generic)

#: Anything that :func:`check_features` accepts.
FeaturesLike = Any
#: Anything that :func:`check_labels` accepts.
LabelsLike = Any
#: The column indices and values of a query's sparse features, and its dense features.
QueryArrays = tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]

#: Maximum absolute feature value; with larger values, the squared norm of a row may overflow float32.
_MAX_FEATURE = 1e15
_NO_INDICES = np.zeros(0, np.int32)
#: The array passed to the kernels for queries without dense features.
NO_VALUES = np.zeros(0, np.float32)


def check_features(X: FeaturesLike, name: str = "X") -> Features:
    """Validate features given as a sparse matrix, an array, a data frame, a tensor, or a (sparse, dense) pair.

    Parameters
    ----------
    X : sparse matrix, array_like, DataFrame or tensor of shape (rows, columns), or tuple of a sparse and a dense block
        The dense block of a pair remains dense.
    name : str
        The name of the argument in error messages.
    """
    if isinstance(X, Features):
        return X
    X = _coerce_blocks(X, name)
    if isinstance(X, list) and any(sp.issparse(block) for block in X):
        raise InputError(f"{name} must not be a list of matrices. Pass a (sparse, dense) pair as a tuple.")
    if isinstance(X, tuple):
        if len(X) != 2 or not sp.issparse(X[0]) or sp.issparse(X[1]):
            raise InputError(
                f"If {name} is a tuple, it must be a pair of a sparse matrix and a dense array, in this order."
            )
        sparse = _check_sparse(X[0], f"The sparse block of {name}")
        return Features.of(sparse, _check_dense(X[1], f"The dense block of {name}"), name)
    if sp.issparse(X):
        return Features.of(_check_sparse(X, name), name=name)
    dense = _check_dense(X, name)
    return Features.of(Csr.empty(dense.shape[0]), dense, name)


def check_features_like(X: FeaturesLike, widths: tuple[int, int], name: str = "X") -> Features:
    """Validate features and arrange them in a sparse and a dense block with the same columns as in training.

    A model with only dense features also accepts a sparse matrix, and a model with only sparse features also accepts an
    array. Both blocks of a (sparse, dense) pair must have the same numbers of columns as in training.
    """
    X = _coerce_blocks(X, name)
    if isinstance(X, tuple):
        pair = check_features(X, name)
        for width, expected, block in zip(pair.widths, widths, ("sparse", "dense"), strict=True):
            if width != expected:
                raise InputError(f"{name} has {width} {block} columns, but must have {expected}, as in training.")
        return pair
    matrix: Any = X if sp.issparse(X) else _check_dense(X, name)
    if matrix.ndim != 2:
        raise InputError(f"{name} must have 2 dimensions, got {matrix.ndim}.")
    if matrix.shape[1] != sum(widths):
        raise InputError(f"{name} has {matrix.shape[1]} columns, but must have {sum(widths)}, as in training.")
    if 0 not in widths:
        raise InputError(
            f"{name} must be a (sparse, dense) pair with {widths[0]} sparse and {widths[1]} dense columns, as in "
            "training."
        )
    if widths[0] == 0:
        dense = _check_sparse(matrix, name).to_scipy().toarray() if sp.issparse(matrix) else matrix
        return Features.of(Csr.empty(matrix.shape[0]), dense, name)
    return Features.of(_check_sparse(matrix if sp.issparse(matrix) else sp.csr_array(matrix), name), name=name)


def check_query(x: FeaturesLike, widths: tuple[int, int]) -> QueryArrays:
    """Validate a single query and return its arrays."""
    row = check_row(x, widths)
    return row.sparse.indices, row.sparse.values, row.dense.reshape(-1)


def check_row(x: FeaturesLike, widths: tuple[int, int]) -> Features:
    """Validate a single query: a matrix with one row, a vector, a list, or a (sparse, dense) pair."""
    x = _coerce_blocks(x, "x")
    if (sp.issparse(x) or isinstance(x, np.ndarray)) and x.ndim == 1:
        x = x.reshape(1, -1)
    elif isinstance(x, list) and x and np.isscalar(x[0]):
        x = [x]
    row = check_features_like(x, widths, "x")
    if row.rows != 1:
        raise InputError(f"x has {row.rows} rows, but rank accepts a single row. Use predict for several rows.")
    return row


def fast_query(x: FeaturesLike, widths: tuple[int, int]) -> QueryArrays | None:
    """Return the arrays of a query that already has the expected types, or None if it requires :func:`check_query`.

    This function takes 1 microsecond, compared with 20 for :func:`check_query`. The search itself checks column indices
    and values.
    """
    sparse, dense = x if type(x) is tuple and len(x) == 2 else (x, None) if widths[0] else (None, x)
    indices, values, vector = _NO_INDICES, NO_VALUES, NO_VALUES
    if sparse is not None:
        if type(sparse) not in (sp.csr_array, sp.csr_matrix) or sparse.shape != (1, widths[0]):
            return None
        indices, values = sparse.indices, sparse.data
        if values.dtype != np.float32 or indices.dtype != np.int32 or sparse.indptr[-1] != values.size:
            return None
    if dense is not None:
        if type(dense) is not np.ndarray or dense.dtype != np.float32 or not dense.flags.c_contiguous:
            return None  # the search itself rejects arrays that are not aligned
        vector = dense.reshape(-1) if dense.ndim == 1 or dense.shape[0] == 1 else NO_VALUES
    return (indices, values, vector) if vector.size == widths[1] else None


def check_labels(Y: LabelsLike, name: str = "Y") -> Csr:
    """Validate a label matrix of shape (rows, labels), whose values are positive where a row has a label.

    Explicit zeros are removed; negative values are rejected.
    """
    Y = Y if isinstance(Y, Csr) else coerce_matrix(Y, name)  # issparse would import SciPy
    matrix = (
        Y if isinstance(Y, Csr) else _check_sparse(Y if sp.issparse(Y) else sp.csr_array(_check_dense(Y, name)), name)
    )
    if matrix.values.size and matrix.values.min() <= 0:
        if matrix.values.min() < 0:
            raise InputError(
                f"{name} has negative values. Entries must be positive where a row has a label, and 0 elsewhere."
            )
        kept = matrix.to_scipy().copy()
        kept.eliminate_zeros()
        matrix = Csr.of_scipy(kept, name)
    return matrix


def check_pattern(matrix: LabelsLike, name: str) -> Csr:
    """Return a matrix with ones at the stored entries of a sparse matrix or at the nonzero entries of an array."""
    matrix = coerce_matrix(matrix, name)
    if not sp.issparse(matrix):
        return _check_sparse(sp.csr_array(_check_dense(matrix, name) != 0), name)
    ones = matrix.copy()
    ones.data = np.ones(ones.data.shape, np.float32)
    return _check_sparse(ones, name).with_values(1)


def check_training_data(X: FeaturesLike, Y: LabelsLike) -> tuple[Features, Csr]:
    """Validate training features and labels; they must have the same number of rows and must not be empty."""
    x, y = check_features(X), check_labels(Y)
    if x.rows != y.rows:
        raise InputError(f"X has {x.rows} rows, but Y has {y.rows}.")
    if x.rows == 0:
        raise InputError("X has no rows.")
    if sum(x.widths) == 0:
        raise InputError("X has no columns.")
    if y.values.size == 0:
        raise InputError("Y has no positive entries. At least one row must have a label.")
    for largest in (max(block.max(initial=0), -block.min(initial=0)) for block in (x.sparse.values, x.dense)):
        if largest > _MAX_FEATURE:
            raise InputError(
                f"X has absolute values up to {largest:g}; the maximum is {_MAX_FEATURE:g}. Scale the features."
            )
    return x, y


def check_label_features(
    label_features: FeaturesLike, n_labels: int, widths: tuple[int, int] | None = None
) -> Features:
    """Validate label features, one row per label; if `widths` is given, their columns must match those of X."""
    name = "label_features"
    features = (
        check_features(label_features, name) if widths is None else check_features_like(label_features, widths, name)
    )
    if features.rows != n_labels:
        raise InputError(f"{name} must have one row per label ({n_labels}), got {features.rows} rows.")
    return features


def check_positive_int(value: object, name: str) -> int:
    """Validate an integer >= 1; values above the largest integer that the kernels support are clipped."""
    if type(value) is int and 1 <= value <= MAX_INT:  # the usual case, which takes a third of the time
        return value
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 1:
        return min(int(value), MAX_INT)
    raise InputError(f"{name} must be an integer >= 1, got {value!r}.")


def check_sparse_rows(
    indptr: NDArray[np.int64], features: NDArray[np.int32], values: NDArray[np.float32], widths: tuple[int, int]
) -> Features:
    """Validate queries given as the arrays of a CSR matrix."""
    queries = Features.of(Csr.of(indptr, features, values, widths[0], name="X"))
    check_no_dense(widths, "X")
    return queries


def check_no_dense(widths: tuple[int, int], name: str) -> None:
    """Raise InputError if the model requires dense features, which the argument `name` does not have."""
    if widths[1]:
        raise InputError(f"The model was trained with {widths[1]} dense features, but {name} has none.")


def check_candidates(candidates: LabelsLike, rows: int, n_labels: int) -> Csr:
    """Validate a matrix of (row, label) pairs to score."""
    pairs = check_pattern(candidates, "candidates")
    if (pairs.rows, pairs.cols) != (rows, n_labels):
        raise InputError(f"candidates must have shape ({rows}, {n_labels}), got ({pairs.rows}, {pairs.cols}).")
    return pairs


def check_sample_weight(sample_weight: Any, rows: int, name: str = "sample_weight") -> NDArray[np.float32] | None:
    """Validate one weight >= 0 per row; return None if all weights are 1.

    >>> check_sample_weight([1, 0.5], 2)
    array([1. , 0.5], dtype=float32)
    """
    if sample_weight is None:
        return None
    values = to_numpy(sample_weight) if is_column(sample_weight) or is_tensor(sample_weight) else sample_weight
    try:
        weights = np.asarray(values)
        weights = weights.astype(np.float32) if weights.dtype.kind in "fiub" else np.full(rows, np.nan, np.float32)
    except ValueError:  # a ragged list
        weights = np.full(rows, np.nan, np.float32)
    if weights.shape != (rows,):
        raise InputError(f"{name} must have one number for each of the {rows} rows, got shape {weights.shape}.")
    if not np.isfinite(weights).all() or weights.min(initial=0) < 0:
        invalid = np.flatnonzero(~np.isfinite(weights) | (weights < 0))
        raise InputError(f"{name} must contain numbers >= 0, one per row; the weight of row {invalid[0]} is invalid.")
    if not (weights > 0).any():
        raise InputError(f"{name} is 0 for every row. At least one weight must be greater than 0.")
    return None if (weights == 1).all() else np.ascontiguousarray(weights)


def check_min_score(min_score: object) -> float:
    """Validate a minimum score; None means no minimum."""
    if min_score is None:
        return -math.inf
    if isinstance(min_score, bool) or not isinstance(min_score, numbers.Real) or math.isnan(min_score):
        raise InputError(f"min_score must be a number or None, got {min_score!r}.")
    return float(min_score)


def _coerce_blocks(X: Any, name: str) -> Any:
    """Convert data frames and tensors, including the blocks of a pair, to arrays and sparse matrices."""
    return tuple(coerce_matrix(block, name) for block in X) if isinstance(X, tuple) else coerce_matrix(X, name)


def _to_float32(values: NDArray[Any], name: str) -> NDArray[np.float32]:
    if values.dtype.kind not in "fiub":
        raise InputError(f"{name} must contain real numbers, got dtype {values.dtype}.")
    with np.errstate(over="ignore"):  # overflowing values become infinite and are rejected later
        return _contiguous(values, np.float32)


def _contiguous(values: NDArray[Any], dtype: type[T]) -> NDArray[T]:
    """Return a contiguous array that is aligned in memory, as the kernels require."""
    return np.require(values, dtype, ["C", "A"])


def _contains_strings(X: Any) -> bool:
    """Return whether the first item of a list is a string, or a list whose first item is a string."""
    for _ in range(2):
        if not isinstance(X, (list, tuple)) or not X:
            return False
        X = X[0]
        if isinstance(X, str):
            return True
    return False


def _check_dense(X: Any, name: str) -> NDArray[np.float32]:
    if sp.issparse(X):
        raise InputError(f"{name} must be an array, got a sparse matrix.")
    if _contains_strings(X):
        raise InputError(f"{name} must be a matrix of numbers, got strings. Use carya.TextRanker for texts and labels.")
    try:
        array = np.asarray(X)
    except ValueError as error:  # a ragged list
        raise InputError(f"{name} is not a matrix: {error}") from None
    if array.ndim != 2:
        raise InputError(f"{name} must have 2 dimensions, got {array.ndim}.")
    return _to_float32(array, name)


def _check_coordinates(X: Any, name: str) -> None:
    for axis, coordinates in enumerate(X.coords):
        if len(coordinates) != len(X.data):
            raise InputError(f"{name} has {len(coordinates)} coordinates but {len(X.data)} values.")
        if coordinates.size and (coordinates.min() < 0 or coordinates.max() >= X.shape[axis]):
            raise InputError(f"{name} has an entry outside its shape {X.shape}.")


def _check_sparse(X: Any, name: str) -> Csr:
    if X.ndim != 2:
        raise InputError(f"{name} must have 2 dimensions, got {X.ndim}.")
    for size, axis in zip(X.shape, ("rows", "columns"), strict=True):
        if size > MAX_INT:  # checked first, because the conversion of other formats allocates memory for each row
            raise InputError(f"{name} has {size} {axis}; the maximum is {MAX_INT}.")
    if X.format != "csr":
        try:
            # SciPy's conversion assumes that the matrix is consistent, so check its consistency first.
            if hasattr(X, "check_format"):
                X.check_format(full_check=True)
            elif X.format == "coo":
                _check_coordinates(X, name)
            X = X.tocsr()
        except (ValueError, IndexError) as error:
            raise InputError(f"{name} is not a valid matrix: {error}") from None
    indptr = np.array(X.indptr, np.int64)  # a copy, because other threads could change the row offsets
    if X.indices.dtype != np.int32 and X.indices.size:  # casting to int32 would wrap around
        lowest, highest = X.indices.min(), X.indices.max()
        if lowest < 0 or highest >= X.shape[1]:
            outside = lowest if lowest < 0 else highest
            raise InputError(
                f"{name} has an entry in column {outside}; column indices must be >= 0 and < {X.shape[1]}."
            )
    indices = _contiguous(X.indices, np.int32)
    values = _to_float32(X.data, name)
    if indptr.size != X.shape[0] + 1:
        raise InputError(f"{name} must have {X.shape[0] + 1} row offsets for {X.shape[0]} rows, got {indptr.size}.")
    try:  # checked before other code relies on the row offsets and column indices
        _core.Csr(indptr, indices, values, X.shape[1], name, _core.Validation.structure)
    except ValueError as error:
        raise InputError(str(error)) from None
    if not X.has_canonical_format:  # unsorted or duplicate column indices
        canonical = sp.csr_array((values.copy(), indices.copy(), indptr.copy()), shape=X.shape)
        canonical.sum_duplicates()
        return Csr.of_scipy(canonical, name)
    return Csr.of(indptr, indices, values, X.shape[1], name)
