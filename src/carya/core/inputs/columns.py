"""Columns and tables from other libraries: pandas, polars, pyarrow, datasets and PyTorch.

Libraries are recognized by the types of their objects and are never imported here: an object can exist only if its
library has already been imported.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.errors import InputError

_BATCH = 4096  # number of items converted at a time
_MAX_NAMES = 10  # maximum number of columns listed in an error message
_TABLES = {
    "pandas": {"DataFrame"},
    "polars": {"DataFrame", "LazyFrame"},
    "pyarrow": {"Table", "RecordBatch"},
    "datasets": {"Dataset", "DatasetDict", "IterableDataset", "IterableDatasetDict"},
}
_COLUMNS = {
    "pandas": {"Series", "Index"},
    "polars": {"Series"},
    "pyarrow": {"Array", "ChunkedArray"},
    "datasets": {"Column", "IterableColumn"},
}


def library_of(value: object) -> str | None:
    """Return the name of the library that a table, a column or a tensor is from; None for all other objects."""
    return _find(value, _TABLES) or _find(value, _COLUMNS) or _find(value, {"torch": {"Tensor"}})


def is_table(value: object) -> bool:
    """Return whether a value is a table with named columns: a data frame, a pyarrow Table or a Dataset."""
    return _find(value, _TABLES) is not None


def is_column(value: object) -> bool:
    """Return whether a value is a column: a Series, an Index, a pyarrow Array or a column of a Dataset."""
    return _find(value, _COLUMNS) is not None


def is_tensor(value: object) -> bool:
    """Return whether a value is a PyTorch tensor."""
    return _find(value, {"torch": {"Tensor"}}) is not None


def describe(value: object) -> str:
    """Describe the type of a value, including its library, for error messages.

    >>> describe([]), describe(np.zeros(3)), describe(np.zeros((3, 2), np.int64))
    ('list', 'an array of float64 with 1 dimension', 'an array of int64 with 2 dimensions')
    """
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with {value.ndim} dimension{'s' * (value.ndim != 1)}"
    library = library_of(value)
    name = type(value).__name__
    return name if library is None else f"a {library} {name}"


def is_missing(value: object) -> bool:
    """Return whether a value is None, NaN, or a missing value of pandas (NA or NaT)."""
    if value is None:
        return True
    if isinstance(value, (float, np.floating)):
        return math.isnan(value)
    return type(value).__name__ in ("NAType", "NaTType")


def table_column(table: Any, name: str) -> Any:
    """Return a column of a table; raise InputError unless exactly one column has this name."""
    is_lazy = type(table).__name__ == "LazyFrame"
    if library_of(table) == "datasets":
        names = table.column_names
    elif library_of(table) == "pyarrow":
        names = table.schema.names
    else:
        names = table.collect_schema().names() if is_lazy else table.columns
    if isinstance(names, Mapping):
        raise InputError(f"Expected one data set, got {describe(table)}. Pass one split, such as data['train'].")
    columns = [] if names is None else list(names)
    if names is not None and columns.count(name) != 1:
        shown = ", ".join(map(repr, columns[:_MAX_NAMES])) + ", …" * (len(columns) > _MAX_NAMES)
        raise InputError(
            f"The data ({describe(table)}) must have exactly one column named {name!r}, but it has "
            f"{columns.count(name)}. Available columns: {shown or 'none'}. Pass a column, such as data['title']."
        )
    return table.select(name).collect()[name] if is_lazy else table[name]


def iterate_column(column: Any, name: str) -> Iterator[Any]:
    """Yield the items of a column as Python objects; if an item is missing, raise InputError with its row number."""
    first = 0
    for batch in _batches(column):
        for row, item in enumerate(batch, first):
            if is_missing(item):
                raise InputError(
                    f"{name}[{row}] is missing ({item!r}). Remove rows with missing values or fill in the values."
                )
        yield from batch
        first += len(batch)


def to_numpy(column: Any) -> NDArray[Any] | None:
    """Convert a tensor, or a numeric column without missing items, to an array; return None for all other columns."""
    library = library_of(column)
    if library == "torch":
        return tensor_to_numpy(column, "The tensor")
    if library == "pandas":
        numeric = getattr(column.dtype, "kind", "O") in "iufb" and not column.isna().any()
        return column.to_numpy() if numeric else None
    if library == "polars":
        numeric = column.dtype.is_numeric() and not column.null_count()
        return column.to_numpy() if numeric else None
    if library == "pyarrow":
        numeric = str(column.type).startswith(("int", "uint", "float", "double", "halffloat")) and not column.null_count
        return np.asarray(column) if numeric else None
    return None


def tensor_to_numpy(tensor: Any, name: str) -> NDArray[Any]:
    """Convert a dense tensor to an array; raise InputError if the tensor is not in CPU memory."""
    if tensor.device.type != "cpu":
        raise InputError(f"{name} is on device {tensor.device}. Move it to the CPU with .cpu().")
    tensor = tensor.detach()
    if str(tensor.dtype) == "torch.bfloat16":  # NumPy has no bfloat16
        tensor = tensor.float()
    array: NDArray[Any] = tensor.resolve_conj().resolve_neg().numpy()
    return array


def _find(value: object, classes: Mapping[str, Collection[str]]) -> str | None:
    """Return the name of the library that defines the class of a value; None if `classes` does not list the class."""
    if isinstance(value, (list, np.ndarray)):
        return None
    for cls in type(value).__mro__:
        library = cls.__module__.partition(".")[0]
        if cls.__name__ in classes.get(library, ()):
            return library
    return None


def _batches(column: Any) -> Iterator[list[Any]]:
    library = library_of(column)
    try:
        length = len(column)
    except TypeError:  # columns of iterable data sets have no length
        yield from ([item] for item in column)
        return
    for begin in range(0, length, _BATCH):
        if library == "pandas":
            positions = getattr(column, "iloc", column)  # an Index has no iloc
            yield positions[begin : begin + _BATCH].tolist()
        elif library == "polars":
            yield column.slice(begin, _BATCH).to_list()
        elif library == "pyarrow":
            yield column.slice(begin, _BATCH).to_pylist()
        else:
            yield list(column[begin : begin + _BATCH])
