"""Convert features given as data frames, tensors or columns of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core.inputs.columns import (
    describe,
    is_column,
    is_table,
    is_tensor,
    iterate_column,
    library_of,
    tensor_to_numpy,
    to_numpy,
)
from carya.errors import InputError


def coerce_matrix(X: Any, name: str) -> Any:
    """Convert a data frame, tensor or column to an array or a sparse matrix; return all other objects unchanged.

    Sparse tensors, and pandas data frames whose columns are all sparse, become sparse matrices. A column of numbers
    becomes a vector, and a column of vectors becomes a matrix with one row per item.
    """
    # Arrays and sparse matrices are handled first, because the checks below take as long as ranking a query.
    if isinstance(X, np.ndarray) or sp.issparse(X):
        return X
    if is_table(X):
        return _table_to_matrix(X, name)
    if is_tensor(X):
        return _tensor_to_matrix(X, name)
    if is_column(X):
        vector = to_numpy(X)
        return list(iterate_column(X, name)) if vector is None else vector
    return X


def column_names(table: Any) -> list[Any]:
    """Return the column names of a table."""
    return list(table.schema.names if library_of(table) == "pyarrow" else table.columns)


def _table_to_matrix(table: Any, name: str) -> Any:
    library = library_of(table)
    if library == "datasets":
        raise InputError(
            f"{name} must be a matrix, got {describe(table)}. Pass a column of vectors, such as data['embedding']."
        )
    if type(table).__name__ == "LazyFrame":
        table = table.collect()
    if library == "pandas":
        return _pandas_to_matrix(table, name)
    columns = [table.column(number) if library == "pyarrow" else table[:, number] for number in range(table.shape[1])]
    arrays = [_numbers(column, label, name) for column, label in zip(columns, column_names(table), strict=True)]
    return np.column_stack(arrays) if arrays else np.zeros(table.shape)


def _pandas_to_matrix(frame: Any, name: str) -> Any:
    kinds = [_kind(dtype) for dtype in frame.dtypes]
    for label, dtype, kind in zip(frame.columns, frame.dtypes, kinds, strict=True):
        if kind not in "iufb":
            raise InputError(
                f"{name} must contain only numeric columns, but column {label!r} has type {dtype}. Select or "
                "encode the columns first."
            )
    if kinds and all(hasattr(dtype, "fill_value") for dtype in frame.dtypes):  # pandas.SparseDtype
        if any(dtype.fill_value != 0 for dtype in frame.dtypes):
            raise InputError(f"{name} is a sparse data frame whose fill value is not 0. Use a fill value of 0.")
        return sp.csr_array(frame.sparse.to_coo())
    return frame.to_numpy(dtype=np.float64, na_value=np.nan) if kinds else np.zeros(frame.shape)


def _kind(dtype: Any) -> str:
    """Return NumPy's kind code for a pandas dtype, which may be sparse, nullable or backed by pyarrow."""
    subtype = getattr(dtype, "subtype", dtype)
    kind = getattr(subtype, "kind", "O")
    return kind if isinstance(kind, str) and len(kind) == 1 else "O"


def _numbers(column: Any, label: object, name: str) -> NDArray[Any]:
    library, dtype = library_of(column), column.dtype if library_of(column) == "polars" else column.type
    if not (dtype.is_numeric() or str(dtype) == "Boolean" if library == "polars" else _is_arrow_number(dtype)):
        raise InputError(
            f"{name} must contain only numeric columns, but column {label!r} has type {dtype}. Select or "
            "encode the columns first."
        )
    if library == "polars":
        return np.asarray(column.to_numpy(), np.float64)
    return np.array([np.nan if value is None else value for value in column.to_pylist()], np.float64)


def _is_arrow_number(dtype: Any) -> bool:
    return str(dtype).startswith(("int", "uint", "float", "double", "halffloat", "bool"))


def _tensor_to_matrix(tensor: Any, name: str) -> Any:
    layout = str(tensor.layout)
    if layout == "torch.strided":
        return tensor_to_numpy(tensor, name)
    if tensor.ndim != 2:
        raise InputError(f"{name} must have 2 dimensions, got {tensor.ndim}.")
    entries = tensor.detach().to_sparse_coo().coalesce()
    values, coordinates = tensor_to_numpy(entries.values(), name), tensor_to_numpy(entries.indices(), name)
    return sp.csr_array(sp.coo_array((values, (coordinates[0], coordinates[1])), shape=tuple(tensor.shape)))
