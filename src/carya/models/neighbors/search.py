"""Rank labels with nearest neighbors: retrieve neighbors, collect their labels, and score and sort the labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr, Features
from carya.core.progress import Report
from carya.errors import InputError
from carya.indexing.representations import normalize
from carya.matching.hnsw import HnswGraph
from carya.matching.nearest_neighbors import NeighborSearcher
from carya.matching.voting import vote
from carya.trees.beam_search import BeamSearcher, Rankings, to_matrix
from carya.trees.layer import Layer, Weights
from carya.trees.layout_choice import choose_layout
from carya.trees.transforms import Transform

_BLOCK = 8192  # number of rows whose neighbors and votes are kept in memory at a time


@dataclass(frozen=True, eq=False)
class TrainedNeighbors:
    """The result of training a nearest-neighbor model.

    Attributes
    ----------
    index : Layer
        The labels or rows, as children of the root.
    ranker : Layer or None
        One ranker per label, which is the only child of the label's node.
    labels : Csr, rows x labels, or None
        The labels of each row, if neighbors are rows.
    graph : HnswGraph or None
    n_labels : int
    widths : tuple of int
        The numbers of sparse and dense features.
    row_features : float
        The mean number of sparse features per training row.
    similarity_weight : float
        The weight of the similarity relative to the ranker; with ``over="labels"``, the index applies it.
    """

    index: Layer
    ranker: Layer | None
    labels: Csr | None
    graph: HnswGraph | None
    n_labels: int
    widths: tuple[int, int]
    row_features: float
    similarity_weight: float

    def with_weight_dtype(self, weight_dtype: str, *, threads: int = 1) -> TrainedNeighbors:
        """Return a copy of the model with its weights stored in a different data type."""
        ranker = None if self.ranker is None else self.ranker.with_weight_dtype(weight_dtype, threads=threads)
        return replace(self, index=self.index.with_weight_dtype(weight_dtype, threads=threads), ranker=ranker)

    def with_transform(self, transform: str) -> TrainedNeighbors:
        """Return a copy of the model with a different transform of the rankers' raw scores."""
        assert self.ranker is not None  # checked by the model
        return replace(self, ranker=replace(self.ranker, transform=Transform.from_name(transform)))

    def subset(self, labels: NDArray[np.int32], *, threads: int = 1) -> TrainedNeighbors:
        """Return a copy of the model restricted to the given labels, which must be in ascending order.

        Rows without any of these labels remain neighbors, but cast no votes.
        """
        order = np.arange(labels.size, dtype=np.int32)
        ranker = None
        if self.ranker is not None:  # each ranker is the only child of its label
            chunks = np.arange(labels.size + 1, dtype=np.int64)
            ranker = self.ranker.take(labels, labels, chunks, order, threads=threads)
        if self.labels is not None:
            votes = Csr.of_scipy(sp.csr_array(self.labels.to_scipy()[:, labels]))
            return replace(self, ranker=ranker, labels=votes, n_labels=labels.size)
        if self.graph is not None:
            raise InputError(
                "Models with an HNSW graph of the labels do not support subset. Use search='exact', or pass labels "
                "to predict."
            )
        chunks = np.array([0, labels.size], np.int64)
        index = self.index.take(labels, np.zeros(1, np.int32), chunks, order, threads=threads)
        return replace(self, index=index, ranker=ranker, n_labels=labels.size)


@dataclass(frozen=True, kw_only=True)
class NeighborQuery:
    """The options of a search; see the parameters of :class:`carya.NearestNeighbors`."""

    top_k: int
    n_neighbors: int
    max_candidates: int
    ef_search: int | None
    sharpness: float | None = None
    min_score: float = -math.inf


class NeighborRanker:
    """Ranker for single queries and batches; results do not depend on the batch size or the number of threads."""

    def __init__(self, trained: TrainedNeighbors, *, n_neighbors: int) -> None:
        self.trained = trained
        self._neighbors = NeighborSearcher(BeamSearcher([trained.index]), trained.graph)
        rankers = [] if trained.ranker is None else [trained.ranker]
        layouts = [
            choose_layout(layer, beam_width=n_neighbors, query_features=trained.row_features).layout
            for layer in rankers
        ]
        above = trained.index if trained.labels is None else constant_layer(trained.n_labels, trained.widths)
        self._path = BeamSearcher([above, *rankers], ["packed", *layouts])
        # If labels are searched with an inverted index, one beam search covers the index and the rankers below it.
        self._is_single_search = trained.labels is None and trained.graph is None

    @property
    def widths(self) -> tuple[int, int]:
        """The numbers of sparse and dense features."""
        return self.trained.widths

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        return self.trained.n_labels

    @property
    def scores_any_label(self) -> bool:
        """Whether the score of a label is independent of votes."""
        return self.trained.labels is None

    def predict(self, queries: Features, query: NeighborQuery, *, threads: int, report: Report = None) -> Rankings:
        """Return the best labels for each query."""
        if self._is_single_search:
            return self._path.predict(
                normalize(queries),
                top_k=query.top_k,
                beam_width=query.n_neighbors,
                min_score=query.min_score,
                threads=threads,
                report=report,
            )
        rankings = []
        for first, block in row_blocks(queries):
            rankings.append(self._rank(normalize(block), query, threads))
            if report is not None:
                report(first + block.rows, queries.rows)
        return _concatenate(rankings)

    def score_pairs(self, queries: Features, candidates: Csr, *, threads: int) -> NDArray[np.float32]:
        """Return the score of every candidate pair; requires over='labels', because other scores depend on votes."""
        return self._path.score_pairs(normalize(queries), candidates, threads=threads)

    def _rank(self, queries: Features, query: NeighborQuery, threads: int) -> Rankings:
        neighbors = self._neighbors.search(queries, count=query.n_neighbors, ef_search=query.ef_search, threads=threads)
        if self.trained.labels is None:
            candidates = to_matrix(neighbors, self.trained.n_labels)
            scores = self._path.score_pairs(queries, candidates, threads=threads)
        else:
            candidates = vote(
                neighbors, self.trained.labels, max_labels=query.max_candidates, sharpness=query.sharpness
            )
            scores = candidates.values
            if self.trained.ranker is not None:
                ranker_scores = self._path.score_pairs(queries, candidates, threads=threads)
                scores = ranker_scores * scores**self.trained.similarity_weight
        return _sort(candidates, scores, query)


def constant_layer(n_labels: int, widths: tuple[int, int]) -> Layer:
    """Return a layer that assigns the score 1 to every label, to be placed above the rankers."""
    chunks = np.array([0, n_labels], np.int64)
    return Layer(
        weights=Weights.empty(widths[0], n_labels, chunks),
        dense=np.zeros((n_labels, widths[1]), np.float32),
        biases=np.ones(n_labels, np.float32),
        chunks=chunks,
        order=np.arange(n_labels, dtype=np.int32),
        transform=Transform.from_name("l1-hinge"),
    )


def row_blocks(features: Features) -> Iterator[tuple[int, Features]]:
    """Yield blocks of rows, each with the index of its first row."""
    if features.rows <= _BLOCK:
        yield 0, features
        return
    matrix = features.sparse.to_scipy()
    for first in range(0, features.rows, _BLOCK):
        rows = slice(first, first + _BLOCK)
        yield first, Features.of(Csr.of_scipy(matrix[rows]), features.dense[rows])


def _sort(candidates: Csr, scores: NDArray[np.float32], query: NeighborQuery) -> Rankings:
    sizes = np.diff(candidates.indptr)
    row = np.repeat(np.arange(candidates.rows), sizes)
    order = np.lexsort((candidates.indices, -scores, row))
    rank = np.arange(row.size) - np.repeat(candidates.indptr[:-1], sizes)
    order = order[(rank < query.top_k) & (scores[order] >= query.min_score)]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[order], minlength=candidates.rows))])
    return indptr.astype(np.int64), candidates.indices[order], scores[order]


def _concatenate(rankings: Sequence[Rankings]) -> Rankings:
    if len(rankings) == 1:
        return rankings[0]
    ends = np.cumsum([0] + [int(indptr[-1]) for indptr, _, _ in rankings])
    offsets = [indptr[1:] + end for (indptr, _, _), end in zip(rankings, ends, strict=False)]
    return (
        np.concatenate([np.zeros(1, np.int64), *offsets]),
        np.concatenate([labels for _, labels, _ in rankings]),
        np.concatenate([scores for _, _, scores in rankings]),
    )
