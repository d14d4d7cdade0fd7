"""Convert posted feature vectors to the matrices on which models are trained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core.parameters import did_you_mean
from carya.serve.http.errors import BadRequestError
from carya.serve.routes.schemas import FeatureVector

_MAX_ECHO = 100  # characters; longer names are truncated in error messages
_MAX_HINTS = 10_000  # if a model has more feature names, searching for similar ones would take too long
_MAX_VALUE = float(np.finfo(np.float32).max)

FeatureBlocks = tuple[sp.csr_array, NDArray[np.float32]]


def feature_blocks(
    vectors: Sequence[FeatureVector], widths: tuple[int, int], columns: Mapping[str, int] | None
) -> FeatureBlocks:
    """Return the sparse and the dense features of the vectors; raise BadRequestError if a vector is invalid.

    Parameters
    ----------
    vectors : sequence of FeatureVector
    widths : tuple of two int
        The numbers of sparse and dense features of the model.
    columns : mapping of str to int or None
        The position of each feature name, with the sparse features first; None if the features have no names.

    Examples
    --------
    >>> vectors = [FeatureVector(indices=[3, 1], values=[0.5, 2.0]), FeatureVector(named={"b": 1.0})]
    >>> sparse, dense = feature_blocks(vectors, (4, 0), {"a": 0, "b": 1, "c": 2, "d": 3})
    >>> sparse.toarray().tolist()
    [[0.0, 2.0, 0.0, 0.5], [0.0, 1.0, 0.0, 0.0]]
    """
    indices: list[int] = []
    values: list[float] = []
    ends = [0]
    dense = np.zeros((len(vectors), widths[1]), np.float32)
    for row, vector in enumerate(vectors):
        name = f"features[{row}]"
        _check_numbers(f"{name}.values", vector.values)
        _check_numbers(f"{name}.dense", vector.dense)
        entries = _named_entries(name, vector, columns) if vector.named else _indexed_entries(name, vector, widths)
        for column, value in sorted(entries.items()):
            if column < widths[0]:
                indices.append(column)
                values.append(value)
            else:
                dense[row, column - widths[0]] = value
        ends.append(len(indices))
    sparse = sp.csr_array(
        (np.array(values, np.float32), np.array(indices, np.int32), np.array(ends, np.int64)),
        shape=(len(vectors), widths[0]),
    )
    return sparse, dense


def _indexed_entries(name: str, vector: FeatureVector, widths: tuple[int, int]) -> dict[int, float]:
    """Return the features given by position: the elements of `indices` and `values`, and the dense features."""
    if len(vector.indices) != len(vector.values):
        raise BadRequestError(
            f"{name} has {len(vector.indices)} indices, but {len(vector.values)} values. Send one value per index."
        )
    if vector.indices and max(vector.indices) >= widths[0]:
        raise BadRequestError(
            f"{name} has the index {max(vector.indices)}, but the model has {widths[0]} sparse features. Indices start "
            "at 0."
        )
    entries = dict(zip(vector.indices, vector.values, strict=True))
    if len(entries) != len(vector.indices):
        raise BadRequestError(f"{name} contains an index more than once. Send each index once.")
    if len(vector.dense) != widths[1]:
        raise BadRequestError(
            f"{name} has {len(vector.dense)} dense features, but the model requires {widths[1]}. Send all of them in "
            '"dense".'
        )
    return entries | {widths[0] + column: value for column, value in enumerate(vector.dense)}


def _named_entries(name: str, vector: FeatureVector, columns: Mapping[str, int] | None) -> dict[int, float]:
    """Return the features given by name; other features are 0."""
    if columns is None:
        raise BadRequestError(f'{name} has feature names, but the features of the model have none. Send "indices".')
    if vector.indices or vector.values or vector.dense:
        raise BadRequestError(f'{name} has feature names and other features. Send either "named" or "indices".')
    _check_numbers(f"{name}.named", list(vector.named.values()))
    entries = {}
    for feature, value in vector.named.items():
        column = columns.get(feature)
        if column is None:
            hint = did_you_mean(feature[:_MAX_ECHO], columns) if len(columns) <= _MAX_HINTS else ""
            raise BadRequestError(f"{name} has the unknown feature {feature[:_MAX_ECHO]!r}.{hint}")
        entries[column] = value
    return entries


def _check_numbers(name: str, values: Sequence[float]) -> None:
    for value in values:
        if not math.isfinite(value) or abs(value) > _MAX_VALUE:
            raise BadRequestError(f"{name} contains {value!r}, which is not a finite 32-bit floating-point number.")
