"""Labels by vote: each neighbour of a query speaks for its own labels, the nearer the louder."""

from __future__ import annotations

import numpy as np

from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr
from carya.matching.nearest_neighbors import Found


def votes(found: Found, labels: Csr, *, most: int | None = None, sharpness: float | None = None) -> Csr:
    """The share of the votes that each label gets, queries x labels; only the `most` of a query with the largest.

    Parameters
    ----------
    found : the neighbours of each query, rows of `labels`
    labels : Csr, training rows x labels
    sharpness : float, optional
        A neighbour counts exp(-sharpness · (1 - cosine)); None is the cosine itself.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> of_rows = Csr.of_scipy(sp.csr_array(np.array([[1, 0], [1, 1]], np.float32)))
    >>> near = (np.array([0, 2]), np.array([0, 1], np.int32), np.array([0.75, 0.25], np.float32))
    >>> votes(near, of_rows).to_scipy().toarray().tolist()
    [[1.0, 0.25]]
    """
    indptr, rows, near = found
    weight = np.maximum(near, 0) if sharpness is None else np.exp(sharpness * (near - 1))
    asking = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    total = np.bincount(asking, weight, minlength=indptr.size - 1)
    weight = (weight / np.maximum(total, np.finfo(np.float32).tiny)[asking]).astype(np.float32)
    said = sp.csr_array((weight, rows, indptr), shape=(indptr.size - 1, labels.rows)) @ labels.to_scipy()
    said = sp.csr_array(said)
    said.eliminate_zeros()
    said.sort_indices()
    all_votes = Csr.of_scipy(said, "votes")
    return all_votes if most is None else largest(all_votes, most)


def largest(matrix: Csr, most: int) -> Csr:
    """The same with at most so many entries a row, the largest; ties go to the lower column."""
    if matrix.rows == 0 or np.diff(matrix.indptr).max() <= most:
        return matrix
    row = np.repeat(np.arange(matrix.rows), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, -matrix.values, row))
    place = np.arange(row.size) - np.repeat(matrix.indptr[:-1], np.diff(matrix.indptr))
    kept = np.sort(order[place < most])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[kept], minlength=matrix.rows))]).astype(np.int64)
    return Csr.of(indptr, matrix.indices[kept], matrix.values[kept], matrix.cols)
