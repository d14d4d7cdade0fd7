"""Candidate labels for queries, and per-query operations on their scores: ranks, gaps, lookups and votes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from carya.core.matrices import Csr
from carya.fork_safety import cached_property


@dataclass(frozen=True, eq=False)
class Candidates:
    """Candidate labels for each query, in ascending order.

    Attributes
    ----------
    offsets : ndarray of int64, shape (queries + 1,)
    labels : ndarray of int32, shape (pairs,)
    n_labels : int

    Examples
    --------
    >>> candidates = Candidates.of(np.array([5, 1, 7, 1]), n_queries=2, n_labels=5)  # keys are query · n_labels + label
    >>> candidates.offsets.tolist(), candidates.labels.tolist()
    ([0, 1, 3], [1, 0, 2])
    >>> candidates.ranks(np.array([0.1, 0.2, 0.3])).tolist()
    [0.0, 1.0, 0.0]
    """

    offsets: NDArray[np.int64]
    labels: NDArray[np.int32]
    n_labels: int

    @classmethod
    def of(cls, keys: NDArray[np.int64], n_queries: int, n_labels: int) -> Self:
        """Create candidates from keys (query · n_labels + label); duplicates are removed."""
        unique = np.unique(keys)
        offsets = np.searchsorted(unique, np.arange(n_queries + 1, dtype=np.int64) * n_labels).astype(np.int64)
        return cls(offsets, (unique % max(n_labels, 1)).astype(np.int32), n_labels)

    @cached_property
    def queries(self) -> NDArray[np.int64]:
        """The query of each pair."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """The key of each pair, query · n_labels + label, in ascending order."""
        return self.queries * self.n_labels + self.labels

    def matrix(self) -> Csr:
        """Return the pairs as a matrix of shape (queries, labels) whose entries are all 1."""
        return Csr.of(self.offsets, self.labels, np.ones(self.labels.size, np.float32), self.n_labels)

    def ranks(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the rank of each candidate within its query, starting at 0; ties favor the lower label index."""
        order = np.lexsort((-scores, self.queries))
        ranks = np.empty(scores.size, np.float32)
        ranks[order] = np.arange(scores.size) - self.offsets[self.queries]
        return ranks

    def gaps(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the difference between each candidate's score and the best score of its query."""
        if not scores.size:
            return scores
        nonempty = np.flatnonzero(np.diff(self.offsets))
        best = np.maximum.reduceat(scores, self.offsets[nonempty])
        return np.asarray(scores - np.repeat(best, np.diff(self.offsets)[nonempty]), np.float32)

    def lookup(self, keys: NDArray[np.int64], values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Look up each candidate in a table sorted by key; return its value, or 0 if the table does not contain it."""
        if not keys.size:
            return np.zeros(self.labels.size, np.float32)
        nearest = np.minimum(np.searchsorted(keys, self.keys), keys.size - 1)
        return np.where(keys[nearest] == self.keys, values[nearest], np.float32(0)).astype(np.float32)

    def best(self, scores: NDArray[np.float32], top_k: int, min_score: float) -> tuple[NDArray[np.int64], Candidates]:
        """Return the indices of the `top_k` best candidates per query, best first, and the selected candidates."""
        order = np.lexsort((-scores, self.queries))
        kept = (np.arange(scores.size) - self.offsets[self.queries] < top_k) & (scores[order] >= min_score)
        selected = order[kept]
        counts = np.bincount(self.queries[selected], minlength=self.offsets.size - 1)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return selected, Candidates(offsets, self.labels[selected], self.n_labels)


@dataclass(frozen=True, eq=False)
class LabelVotes:
    """Weighted votes of rows for labels, sorted by key: number of votes, sum, sum of cubes, and maximum."""

    keys: NDArray[np.int64]
    count: NDArray[np.float32]
    sum: NDArray[np.float32]
    cubes: NDArray[np.float32]
    largest: NDArray[np.float32]

    @classmethod
    def of(cls, queries: NDArray[np.int64], rows: NDArray[np.int32], weights: NDArray[np.float32], labels: Csr) -> Self:
        """Sum the votes of the given rows of `labels` for each query.

        Examples
        --------
        >>> labels = Csr.of(np.array([0, 2, 3]), np.array([0, 2, 2], np.int32), np.ones(3, np.float32), 3)
        >>> weights = np.array([0.5, 0.25], np.float32)
        >>> votes = LabelVotes.of(np.array([0, 0]), np.array([0, 1], np.int32), weights, labels)
        >>> votes.keys.tolist(), votes.sum.tolist(), votes.largest.tolist()
        ([0, 2], [0.5, 0.75], [0.5, 0.5])
        """
        counts = np.diff(labels.indptr)[rows]
        before = np.cumsum(counts) - counts
        entries = np.repeat(labels.indptr[rows] - before, counts) + np.arange(counts.sum())
        keys = np.repeat(queries, counts) * labels.cols + labels.indices[entries]
        votes = (np.repeat(weights, counts) * labels.values[entries]).astype(np.float32)
        order = np.argsort(keys, kind="stable")
        keys, votes = keys[order], votes[order]
        if not keys.size:
            return cls(keys, votes, votes, votes, votes)
        begins = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]])
        return cls(
            keys[begins],
            np.diff(np.append(begins, keys.size)).astype(np.float32),
            np.add.reduceat(votes, begins),
            np.add.reduceat(votes**3, begins),
            np.maximum.reduceat(votes, begins),
        )

    def best(self, n_queries: int, n_labels: int, count: int) -> NDArray[np.int64]:
        """Return the keys of the `count` labels per query with the largest sums of cubed votes."""
        queries = self.keys // max(n_labels, 1)
        offsets = np.searchsorted(queries, np.arange(n_queries + 1))
        order = np.lexsort((-self.cubes, queries))
        return self.keys[order[np.arange(order.size) - offsets[queries] < count]]
