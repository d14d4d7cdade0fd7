"""The candidates of some queries, and the arithmetic of features of pairs: places, gaps, sums over what is near."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from carya.core.matrices import Csr


@dataclass(frozen=True, eq=False)
class Pool:
    """Candidates, queries x labels; labels ascend within a query.

    Attributes
    ----------
    offsets : ndarray of int64, shape (queries + 1,)
    labels : ndarray of int32, shape (pairs,)
    n_labels : int

    Examples
    --------
    >>> pool = Pool.of(np.array([5, 1, 7, 1]), n_queries=2, n_labels=5)      # a key is query · n_labels + label
    >>> pool.offsets.tolist(), pool.labels.tolist()
    ([0, 1, 3], [1, 0, 2])
    >>> pool.ranks(np.array([0.1, 0.2, 0.3])).tolist()
    [0.0, 1.0, 0.0]
    """

    offsets: NDArray[np.int64]
    labels: NDArray[np.int32]
    n_labels: int

    @classmethod
    def of(cls, keys: NDArray[np.int64], n_queries: int, n_labels: int) -> Self:
        """From keys, query · n_labels + label; what occurs several times counts once."""
        once = np.unique(keys)
        offsets = np.searchsorted(once, np.arange(n_queries + 1, dtype=np.int64) * n_labels).astype(np.int64)
        return cls(offsets, (once % max(n_labels, 1)).astype(np.int32), n_labels)

    @cached_property
    def queries(self) -> NDArray[np.int64]:
        """The query of each pair."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """Query · n_labels + label of each pair, ascending."""
        return self.queries * self.n_labels + self.labels

    def matrix(self) -> Csr:
        """The pairs as entries of a matrix."""
        return Csr.of(self.offsets, self.labels, np.ones(self.labels.size, np.float32), self.n_labels)

    def ranks(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """The place of each candidate in its query, 0 for the best; ties go to the lower label."""
        order = np.lexsort((-scores, self.queries))
        places = np.empty(scores.size, np.float32)
        places[order] = np.arange(scores.size) - self.offsets[self.queries]
        return places

    def gaps(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """How far each candidate is behind the best of its query."""
        if not scores.size:
            return scores
        some = np.flatnonzero(np.diff(self.offsets))
        best = np.maximum.reduceat(scores, self.offsets[some])
        return np.asarray(scores - np.repeat(best, np.diff(self.offsets)[some]), np.float32)

    def lookup(self, keys: NDArray[np.int64], values: NDArray[np.float32]) -> NDArray[np.float32]:
        """The value of each candidate's key among ascending keys; 0 if it is not there."""
        if not keys.size:
            return np.zeros(self.labels.size, np.float32)
        at = np.minimum(np.searchsorted(keys, self.keys), keys.size - 1)
        return np.where(keys[at] == self.keys, values[at], np.float32(0)).astype(np.float32)

    def best(self, scores: NDArray[np.float32], top_k: int, min_score: float) -> tuple[NDArray[np.int64], Pool]:
        """Which pairs are the `top_k` best of their query, best first, and their pool in that order."""
        order = np.lexsort((-scores, self.queries))
        kept = (np.arange(scores.size) - self.offsets[self.queries] < top_k) & (scores[order] >= min_score)
        chosen = order[kept]
        counts = np.bincount(self.queries[chosen], minlength=self.offsets.size - 1)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return chosen, Pool(offsets, self.labels[chosen], self.n_labels)


@dataclass(frozen=True, eq=False)
class Votes:
    """What weighted rows say about labels, by ascending key: how many vote, the sum of their weights, the largest."""

    keys: NDArray[np.int64]
    count: NDArray[np.float32]
    sum: NDArray[np.float32]
    cubes: NDArray[np.float32]
    largest: NDArray[np.float32]

    @classmethod
    def of(cls, queries: NDArray[np.int64], rows: NDArray[np.int32], weights: NDArray[np.float32], labels: Csr) -> Self:
        """For every query, the votes of some rows of `labels` for what stands in them.

        Examples
        --------
        >>> labels = Csr.of(np.array([0, 2, 3]), np.array([0, 2, 2], np.int32), np.ones(3, np.float32), 3)
        >>> votes = Votes.of(np.array([0, 0]), np.array([0, 1], np.int32), np.array([0.5, 0.25], np.float32), labels)
        >>> votes.keys.tolist(), votes.sum.tolist(), votes.largest.tolist()
        ([0, 2], [0.5, 0.75], [0.5, 0.5])
        """
        counts = np.diff(labels.indptr)[rows]
        before = np.cumsum(counts) - counts
        entries = np.repeat(labels.indptr[rows] - before, counts) + np.arange(counts.sum())
        keys = np.repeat(queries, counts) * labels.cols + labels.indices[entries]
        said = (np.repeat(weights, counts) * labels.values[entries]).astype(np.float32)
        order = np.argsort(keys, kind="stable")
        keys, said = keys[order], said[order]
        if not keys.size:
            return cls(keys, said, said, said, said)
        begins = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
        number = np.diff(np.append(begins, keys.size)).astype(np.float32)
        return cls(
            keys[begins],
            number,
            np.add.reduceat(said, begins),
            np.add.reduceat(said**3, begins),
            np.maximum.reduceat(said, begins),
        )

    def best(self, n_queries: int, n_labels: int, most: int) -> NDArray[np.int64]:
        """The keys of each query's labels with most cubed votes."""
        queries = self.keys // max(n_labels, 1)
        offsets = np.searchsorted(queries, np.arange(n_queries + 1))
        order = np.lexsort((-self.cubes, queries))
        return self.keys[order[np.arange(order.size) - offsets[queries] < most]]
