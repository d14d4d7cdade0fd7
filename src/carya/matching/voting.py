"""Similarity-weighted voting: the neighbors of a query vote for their labels."""

from __future__ import annotations

import numpy as np

from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr
from carya.trees.beam_search import Rankings


def vote(neighbors: Rankings, labels: Csr, *, max_labels: int | None = None, sharpness: float | None = None) -> Csr:
    """Return the share of the votes that each label receives, as a matrix of shape (queries, labels).

    Parameters
    ----------
    neighbors : tuple of ndarray
        The row offsets, the neighbors (row indices of `labels`) and the similarities.
    labels : Csr of shape (training rows, labels)
    max_labels : int, optional
        The maximum number of labels per query; the labels with the largest shares are kept.
    sharpness : float, optional
        Votes are weighted by exp(-sharpness · (1 - cosine)); if None, by the cosine similarity.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> labels = Csr.of_scipy(sp.csr_array(np.array([[1, 0], [1, 1]], np.float32)))
    >>> neighbors = (np.array([0, 2]), np.array([0, 1], np.int32), np.array([0.75, 0.25], np.float32))
    >>> vote(neighbors, labels).to_scipy().toarray().tolist()
    [[1.0, 0.25]]
    """
    indptr, rows, similarities = neighbors
    weight = np.maximum(similarities, 0) if sharpness is None else np.exp(sharpness * (similarities - 1))
    query = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    total = np.bincount(query, weight, minlength=indptr.size - 1)
    weight = (weight / np.maximum(total, np.finfo(np.float32).tiny)[query]).astype(np.float32)
    votes = sp.csr_array(sp.csr_array((weight, rows, indptr), shape=(indptr.size - 1, labels.rows)) @ labels.to_scipy())
    votes.eliminate_zeros()
    votes.sort_indices()
    shares = Csr.of_scipy(votes, "votes")
    return shares if max_labels is None else keep_largest(shares, max_labels)


def keep_largest(matrix: Csr, count: int) -> Csr:
    """Return the `count` largest entries of each row; ties are broken in favor of the lower column index."""
    if matrix.rows == 0 or np.diff(matrix.indptr).max() <= count:
        return matrix
    row = np.repeat(np.arange(matrix.rows), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, -matrix.values, row))
    rank = np.arange(row.size) - np.repeat(matrix.indptr[:-1], np.diff(matrix.indptr))
    kept = np.sort(order[rank < count])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[kept], minlength=matrix.rows))]).astype(np.int64)
    return Csr.of(indptr, matrix.indices[kept], matrix.values[kept], matrix.cols)
