"""What the parts of a reranked model see of rows: trees some columns, the texts of labels the same or those behind."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carya.core.matrices import Csr, Features
from carya.indexing.representations import unit


class Views(NamedTuple):
    """The same rows for different parts.

    Attributes
    ----------
    trees : Features
        For trees: as given, or the first columns, of length 1.
    rows : Features
        For neighbours and centres: the same of length 1.
    texts : Features
        For the texts of labels: all columns, or those behind, with the numbers they have; of length 1. A dense block is
        in all views.
    """

    trees: Features
    rows: Features
    texts: Features


def views(features: Features, columns: int) -> Views:
    """What is seen if trees have so many sparse columns.

    Examples
    --------
    >>> import carya
    >>> import scipy.sparse
    >>> words_and_letters = scipy.sparse.csr_array([[3.0, 0, 8, 6], [1, 0, 0, 0]])
    >>> seen = views(carya.core.validation.features(words_and_letters), 2)
    >>> seen.trees.sparse.to_scipy().toarray().tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    >>> seen.texts.sparse.to_scipy().toarray().round(1)
    array([[0. , 0. , 0.8, 0.6],
           [0. , 0. , 0. , 0. ]], dtype=float32)
    """
    trees = first(features, columns)
    if trees is features:
        directed = unit(features)
        return Views(features, directed, directed)
    rest = features.sparse.to_scipy().copy()
    rest.data[rest.indices < columns] = 0
    rest.eliminate_zeros()
    return Views(trees, trees, unit(Features.of(Csr.of_scipy(rest), features.dense)))


def first(features: Features, columns: int) -> Features:
    """What trees see: the same if these are all sparse columns, else those alone, of length 1."""
    if features.widths[0] == columns:
        return features
    return unit(Features.of(Csr.of_scipy(features.sparse.to_scipy()[:, :columns]), features.dense))


def first_of_row(
    features: NDArray[np.int32], values: NDArray[np.float32], columns: int, width: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The same for the sparse features of one row of so many columns.

    >>> first_of_row(np.array([0, 2]), np.array([3.0, 4.0]), 2, 4)
    (array([0]), array([1.], dtype=float32))
    """
    if columns == width:
        return features, values
    end = int(np.searchsorted(features, columns))
    length = float(np.linalg.norm(values[:end].astype(np.float64)))
    return features[:end], (values[:end] / (length or 1.0)).astype(np.float32)
