"""Rank the labels in a given set, even if labels outside the set rank higher."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya.core.matrices import Csr, Features
from carya.errors import InputError
from carya.trees.beam_search import Rankings

_MAX_PAIRS = 1 << 22  # number of pairs in memory at a time

#: Function that returns the scores of the stored entries of a (queries, labels) matrix.
PairScorer = Callable[[Features, Csr], NDArray[np.float32]]


def check_label_subset(labels: ArrayLike, n_labels: int, name: str = "labels") -> NDArray[np.int32]:
    """Return distinct label indices in ascending order; raise InputError if the list is empty or an index is
    invalid.
    """
    try:
        numbers = np.asarray(labels)
    except ValueError:  # a ragged list
        numbers = np.zeros((0, 0))
    if numbers.ndim != 1 or numbers.size == 0 or numbers.dtype.kind not in "iu":
        raise InputError(f"{name} must be a non-empty list of label indices, got {labels!r}.")
    lowest, highest = int(numbers.min()), int(numbers.max())
    if lowest < 0 or highest >= n_labels:
        outside = lowest if lowest < 0 else highest
        raise InputError(f"{name} must be between 0 and {n_labels - 1}, got {outside}.")
    return np.unique(numbers).astype(np.int32)


def score_labels(
    score: PairScorer, queries: Features, labels: NDArray[np.int32], n_labels: int, *, top_k: int, min_score: float
) -> Rankings:
    """Score all given labels for every query and return the best; queries without features are assigned no labels."""
    rankings = []
    step = max(1, _MAX_PAIRS // labels.size)
    for first in range(0, max(queries.rows, 1), step):
        block = queries if queries.rows <= step else queries.take(slice(first, first + step))
        nonzero = np.flatnonzero(block.sparse.values)
        has_features = np.asarray(block.dense.any(axis=1))
        has_features[np.searchsorted(block.sparse.indptr, nonzero, side="right") - 1] = True
        counts = np.where(has_features, labels.size, 0)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        indices = np.tile(labels, int(has_features.sum()))
        pairs = Csr.of(indptr, indices, np.ones(indices.size, np.float32), n_labels)
        rankings.append(best_of_rows(indptr, indices, score(block, pairs), top_k=top_k, min_score=min_score))
    return concatenate(rankings)


def filter_rankings(rankings: Rankings, labels: NDArray[np.int32], *, top_k: int) -> Rankings:
    """Return the `top_k` highest-ranked of the given labels in each row."""
    indptr, ranked, scores = rankings
    rows = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    kept = np.flatnonzero(np.isin(ranked, labels))
    ends = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=indptr.size - 1))]).astype(np.int64)
    place = np.arange(kept.size) - ends[rows[kept]]
    kept = kept[place < top_k]
    ends = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=indptr.size - 1))]).astype(np.int64)
    return ends, ranked[kept], scores[kept]


def best_of_rows(
    indptr: NDArray[np.int64],
    labels: NDArray[np.int32],
    scores: NDArray[np.float32],
    *,
    top_k: int,
    min_score: float,
) -> Rankings:
    """Sort each row by descending score, break ties by ascending label, and return its best labels."""
    sizes = np.diff(indptr)
    row = np.repeat(np.arange(sizes.size), sizes)
    order = np.lexsort((labels, -scores, row))
    place = np.arange(row.size) - np.repeat(indptr[:-1], sizes)
    order = order[(place < top_k) & (scores[order] >= min_score)]
    ends = np.concatenate([[0], np.cumsum(np.bincount(row[order], minlength=sizes.size))])
    return ends.astype(np.int64), labels[order], scores[order]


def concatenate(rankings: list[Rankings]) -> Rankings:
    """Concatenate the rankings of consecutive blocks of queries."""
    if len(rankings) == 1:
        return rankings[0]
    lengths = np.concatenate([np.diff(indptr) for indptr, _, _ in rankings])
    return (
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([labels for _, labels, _ in rankings]),
        np.concatenate([scores for _, _, scores in rankings]),
    )
