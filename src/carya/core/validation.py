"""The one door for data: what users have becomes what kernels accept, or an error that names the argument.

``csr_matrix``, ``csr_array`` and other SciPy formats, arrays, nested lists, and pairs (sparse, dense) come in; checked
float32 matrices go out. What comes in is never changed.
"""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr, Features
from carya.errors import InputError

#: Anything that :func:`features` takes.
FeaturesLike = Any
#: Anything that :func:`labels` takes.
LabelsLike = Any


#: Beyond that the squared length of a row is no float32 number any more.
_LARGEST_FEATURE = 1e15
_MOST = 2**31 - 1


def features(X: FeaturesLike, name: str = "X") -> Features:
    """Features from a sparse matrix, an array, or a pair (sparse, dense) of them.

    Parameters
    ----------
    X : sparse matrix, array_like of shape (n, d), or tuple of both
        In a pair the dense block stays dense; it is never expanded to sparse rows.
    name : str
        What messages call it.
    """
    if isinstance(X, Features):
        return X
    if isinstance(X, list) and any(sp.issparse(block) for block in X):
        raise InputError(f"{name} is a list of matrices: a pair (sparse, dense) must be a tuple")
    if isinstance(X, tuple):
        if len(X) != 2 or not sp.issparse(X[0]) or sp.issparse(X[1]):
            raise InputError(f"{name} is a tuple: it must be a pair of a sparse matrix and a dense array")
        return Features.of(
            _sparse(X[0], f"the sparse block of {name}"), _dense(X[1], f"the dense block of {name}"), name
        )
    if sp.issparse(X):
        return Features.of(_sparse(X, name), name=name)
    dense = _dense(X, name)
    return Features.of(Csr.empty(dense.shape[0]), dense, name)


def features_like(X: FeaturesLike, widths: tuple[int, int], name: str = "X") -> Features:
    """Features in the blocks a model was trained with.

    A sparse matrix may stand for dense columns and an array for sparse ones; a pair must match block by block.
    """
    if isinstance(X, tuple):
        pair = features(X, name)
        for have, want, block in zip(pair.widths, widths, ("sparse", "dense"), strict=True):
            if have != want:
                raise InputError(f"{name} has {have} {block} columns, the model was trained on {want}")
        return pair
    given: Any = X if sp.issparse(X) else _dense(X, name)
    if given.ndim != 2:
        raise InputError(f"{name} has {given.ndim} dimensions, it must have 2")
    if given.shape[1] != sum(widths):
        raise InputError(f"{name} has {given.shape[1]} columns, the model was trained on {sum(widths)}")
    if 0 not in widths:
        raise InputError(
            f"{name} must be a pair (sparse, dense) of {widths[0]} and {widths[1]} columns, as the model was trained on"
        )
    if widths[0] == 0:
        dense = _sparse(given, name).to_scipy().toarray() if sp.issparse(given) else given
        return Features.of(Csr.empty(given.shape[0]), dense, name)
    return Features.of(_sparse(given if sp.issparse(given) else sp.csr_array(given), name), name=name)


_NO_INDICES = np.zeros(0, np.int32)
_NO_VALUES = np.zeros(0, np.float32)


#: The columns and values of a query's sparse features, and its dense ones.
QueryArrays = tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]


def query(x: FeaturesLike, widths: tuple[int, int]) -> QueryArrays:
    """The arrays of one query in any form: a matrix of one row, a vector, a list, or a pair (sparse, dense)."""
    if (sp.issparse(x) or isinstance(x, np.ndarray)) and x.ndim == 1:
        x = x.reshape(1, -1)
    elif isinstance(x, list) and x and np.isscalar(x[0]):
        x = [x]
    row = features_like(x, widths, "x")
    if row.rows != 1:
        raise InputError(f"x has {row.rows} rows, rank takes one; use predict for many")
    return row.sparse.indices, row.sparse.values, row.dense.reshape(-1)


def query_at_a_glance(x: FeaturesLike, widths: tuple[int, int]) -> QueryArrays | None:
    """The arrays of one query as they are, if they look right; None if :func:`query` has to see it.

    It takes a microsecond, where the thorough way takes twenty. Values and columns are checked by who uses them.
    """
    sparse, dense = x if type(x) is tuple and len(x) == 2 else (x, None) if widths[0] else (None, x)
    indices, values, vector = _NO_INDICES, _NO_VALUES, _NO_VALUES
    if sparse is not None:
        if type(sparse) not in (sp.csr_array, sp.csr_matrix) or sparse.shape != (1, widths[0]):
            return None
        indices, values = sparse.indices, sparse.data
        if values.dtype != np.float32 or indices.dtype != np.int32 or sparse.indptr[-1] != values.size:
            return None
    if dense is not None:
        if type(dense) is not np.ndarray or dense.dtype != np.float32 or not dense.flags.c_contiguous:
            return None
        vector = dense.reshape(-1) if dense.ndim == 1 or dense.shape[0] == 1 else _NO_VALUES
    return (indices, values, vector) if vector.size == widths[1] else None


def labels(Y: LabelsLike, name: str = "Y") -> Csr:
    """Labels, rows x labels, with values above 0 where a row has a label.

    Explicit zeros are dropped; negative values are refused.
    """
    matrix = Y if isinstance(Y, Csr) else _sparse(Y if sp.issparse(Y) else sp.csr_array(_dense(Y, name)), name)
    if matrix.values.size and matrix.values.min() <= 0:
        if matrix.values.min() < 0:
            raise InputError(f"{name} has negative values; a label is present (above 0) or absent")
        kept = matrix.to_scipy().copy()
        kept.eliminate_zeros()
        matrix = Csr.of_scipy(kept, name)
    return matrix


def pattern(matrix: LabelsLike, name: str) -> Csr:
    """Where a matrix has entries, all of them 1: stored ones of a sparse matrix, others than 0 of an array."""
    if not sp.issparse(matrix):
        return _sparse(sp.csr_array(_dense(matrix, name) != 0), name)
    ones = matrix.copy()
    ones.data = np.ones(ones.data.shape, np.float32)
    return _sparse(ones, name).with_values(1)


def training_pair(X: FeaturesLike, Y: LabelsLike) -> tuple[Features, Csr]:
    """Features and labels of the same rows, with at least one row, feature and positive."""
    x, y = features(X), labels(Y)
    if x.rows != y.rows:
        raise InputError(f"X has {x.rows} rows, Y has {y.rows}")
    if x.rows == 0:
        raise InputError("X has no rows")
    if sum(x.widths) == 0:
        raise InputError("X has no columns")
    if y.values.size == 0:
        raise InputError("Y has no positive entries: there is nothing to learn")
    for largest in (max(block.max(initial=0), -block.min(initial=0)) for block in (x.sparse.values, x.dense)):
        if largest > _LARGEST_FEATURE:
            raise InputError(f"X has values up to {largest:g}, above {_LARGEST_FEATURE:g}: scale its columns or rows")
    return x, y


def positive_int(value: object, name: str) -> int:
    """A whole number of at least 1; beyond what kernels count with, it is as good as the largest they do."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 1:
        return min(int(value), _MOST)
    raise InputError(f"{name} must be an integer of at least 1, got {value!r}")


def sparse_rows(
    indptr: NDArray[np.int64], features: NDArray[np.int32], values: NDArray[np.float32], widths: tuple[int, int]
) -> Features:
    """Queries from the arrays of a CSR matrix, for a model of so many sparse and dense features."""
    queries = Features.of(Csr.of(indptr, features, values, widths[0], name="X"))
    no_dense(widths, "X")
    return queries


def no_dense(widths: tuple[int, int], name: str) -> None:
    """Refuse what has no dense features if the model has some."""
    if widths[1]:
        raise InputError(f"the model has {widths[1]} dense features, {name} has none")


def candidates(given: LabelsLike, rows: int, n_labels: int) -> Csr:
    """Which (row, label) pairs are asked for, rows x labels."""
    wanted = pattern(given, "candidates")
    if (wanted.rows, wanted.cols) != (rows, n_labels):
        raise InputError(f"candidates is {wanted.rows} x {wanted.cols}, it must be {rows} rows x {n_labels} labels")
    return wanted


def least_score(min_score: object) -> float:
    """The least score to give, as the search takes it; None is any."""
    if min_score is None:
        return -math.inf
    if isinstance(min_score, bool) or not isinstance(min_score, numbers.Real) or math.isnan(min_score):
        raise InputError(f"min_score must be a number or None, got {min_score!r}")
    return float(min_score)


def _float32(values: NDArray[Any], name: str) -> NDArray[np.float32]:
    if values.dtype.kind not in "fiub":
        raise InputError(f"{name} has values of type {values.dtype}, they must be real numbers")
    with np.errstate(over="ignore"):  # what overflows becomes infinite, and that is refused
        return np.ascontiguousarray(values, np.float32)


def _dense(X: Any, name: str) -> NDArray[np.float32]:
    if sp.issparse(X):
        raise InputError(f"{name} is sparse, it must be an array")
    try:
        array = np.asarray(X)
    except ValueError as error:  # a ragged list
        raise InputError(f"{name} is not a matrix: {error}") from None
    if array.ndim != 2:
        raise InputError(f"{name} has {array.ndim} dimensions, it must have 2")
    return _float32(array, name)


def _check_coordinates(X: Any, name: str) -> None:
    for axis, coordinates in enumerate(X.coords):
        if len(coordinates) != len(X.data):
            raise InputError(f"{name} has coordinates and values of different lengths")
        if coordinates.size and (coordinates.min() < 0 or coordinates.max() >= X.shape[axis]):
            raise InputError(f"{name} has an entry outside its {X.shape[0]} rows and {X.shape[1]} columns")


def _sparse(X: Any, name: str) -> Csr:
    if X.ndim != 2:
        raise InputError(f"{name} has {X.ndim} dimensions, it must have 2")
    if X.format != "csr":
        try:
            # Before SciPy's own conversion runs over a broken matrix.
            if hasattr(X, "check_format"):
                X.check_format(full_check=True)
            elif X.format == "coo":
                _check_coordinates(X, name)
            X = X.tocsr()
        except (ValueError, IndexError) as error:
            raise InputError(f"{name} is not a valid matrix: {error}") from None
    if X.shape[1] > np.iinfo(np.int32).max:
        raise InputError(f"{name} has {X.shape[1]} columns, more than 2147483647")
    indptr = np.ascontiguousarray(X.indptr, np.int64)
    if X.indices.dtype != np.int32 and X.indices.size:  # a cast would fold them into the matrix
        least, most = X.indices.min(), X.indices.max()
        if least < 0 or most >= X.shape[1]:
            outside = least if least < 0 else most
            raise InputError(f"{name} has an entry in column {outside}, outside its {X.shape[1]} columns")
    indices = np.ascontiguousarray(X.indices, np.int32)
    values = _float32(X.data, name)
    if indptr.size != X.shape[0] + 1:
        raise InputError(f"{name} has {indptr.size} row offsets for {X.shape[0]} rows")
    try:  # before any code relies on offsets and columns
        _core.Csr(indptr, indices, values, X.shape[1], name, sorted=False)
    except ValueError as error:
        raise InputError(str(error)) from None
    if not X.has_canonical_format:  # unsorted or repeated columns
        tidy = sp.csr_array((values.copy(), indices.copy(), indptr.copy()), shape=X.shape)
        tidy.sum_duplicates()
        return Csr.of_scipy(tidy, name)
    return Csr.of(indptr, indices, values, X.shape[1], name)
