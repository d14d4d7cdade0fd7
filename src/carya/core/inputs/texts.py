"""Convert texts given as lists, iterators, arrays, columns, or tables with a column of texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from carya.core.inputs.columns import describe, is_column, is_table, iterate_column, library_of, table_column
from carya.errors import InputError

#: Anything that :func:`coerce_texts` accepts, or a :class:`carya.data.Corpus`.
TextsLike = Any

#: The names of the columns that contain the texts and the labels in tables and files.
TEXT_COLUMN = "text"
LABEL_COLUMN = "labels"

_ACCEPTED = "a list, tuple, iterator, one-dimensional array or column of strings"


def coerce_texts(texts: TextsLike, name: str = "texts") -> Iterable[str]:
    """Return texts as a sequence, or as an iterator if the input is one; items are checked by the native core.

    Columns from pyarrow and datasets are converted in batches while they are read. The texts of a table are read from
    its column ``text``.

    >>> coerce_texts(np.array(["a", "b"]))
    ['a', 'b']
    >>> coerce_texts(np.zeros(3))
    Traceback (most recent call last):
    carya.errors.InputError: texts must be a list, tuple, iterator, one-dimensional array or column of strings, got an
    array of float64 with 1 dimension.
    """
    if isinstance(texts, (list, tuple)):
        return texts
    if isinstance(texts, (str, bytes)):
        raise InputError(
            f"{name} must be a list of strings, got a single {type(texts).__name__}. Pass [text] for one text."
        )
    if isinstance(texts, np.ndarray):
        if texts.ndim != 1 or texts.dtype.kind not in "UOT":
            raise InputError(f"{name} must be {_ACCEPTED}, got {describe(texts)}.")
        items: list[str] = texts.tolist()
        return items
    if is_table(texts):
        return coerce_texts(table_column(texts, TEXT_COLUMN), name)
    if is_column(texts):
        column = iterate_column(texts, name)
        return column if library_of(texts) in ("pyarrow", "datasets") else list(column)
    is_matrix = hasattr(texts, "tocsr")  # issparse would import SciPy
    if is_matrix or isinstance(texts, (Mapping, AbstractSet)) or not isinstance(texts, Iterable) or library_of(texts):
        raise InputError(f"{name} must be {_ACCEPTED}, got {describe(texts)}.")
    return texts
