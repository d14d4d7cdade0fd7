"""From what a model of neighbours has learned to rankings: find neighbours, take their labels, score those, sort."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from carya.core.matrices import Csr, Features
from carya.core.progress import Report
from carya.indexing.representations import unit
from carya.matching.hnsw import Graph
from carya.matching.nearest_neighbors import Neighbours, sorted_rows
from carya.matching.voting import votes
from carya.models.base import Rankings
from carya.trees.beam_search import Searcher
from carya.trees.layer import Layer, Weights
from carya.trees.layouts import choose
from carya.trees.transforms import Transform

_BLOCK = 8192  # rows whose neighbours and votes are in memory at once


@dataclass(frozen=True, eq=False)
class Parts:
    """All that training finds out.

    Attributes
    ----------
    index : Layer
        Labels or rows, below the root.
    ranker : Layer or None
        The rankers of the labels, each the only child of its place.
    labels : Csr, rows x labels, or None
        Over rows: the labels of each.
    graph : Graph or None
    n_labels : int
    widths : tuple of int
        How many features are sparse, how many dense.
    row_features : float
        How many sparse features a training row had on average.
    similarity : float
        How much similarity counts beside the ranker; over labels the index has it in its scores.
    """

    index: Layer
    ranker: Layer | None
    labels: Csr | None
    graph: Graph | None
    n_labels: int
    widths: tuple[int, int]
    row_features: float
    similarity: float

    def with_precision(self, precision: str, *, threads: int = 1) -> Parts:
        """The same with sparse weights kept otherwise."""
        ranker = None if self.ranker is None else self.ranker.with_precision(precision, threads=threads)
        return replace(self, index=self.index.with_precision(precision, threads=threads), ranker=ranker)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of every query; the parameters of :class:`carya.NearestNeighbours` say what each means."""

    top_k: int
    neighbours: int
    candidates: int
    search_width: int | None
    sharpness: float | None = None
    min_score: float = -math.inf


class NeighbourSearch:
    """Ranks labels for queries; batch and single queries give the same, and threads change nothing."""

    def __init__(self, parts: Parts, *, neighbours: int) -> None:
        self.parts = parts
        self._near = Neighbours(Searcher([parts.index]), parts.graph)
        layers = [] if parts.ranker is None else [parts.ranker]
        choices = [choose(one, beam_width=neighbours, query_features=parts.row_features).layout for one in layers]
        above = parts.index if parts.labels is None else certain(parts.n_labels, parts.widths)
        self._path = Searcher([above, *layers], ["packed", *choices])
        # Labels in an inverted index and their rankers below are one beam search.
        self._one_walk = parts.labels is None and parts.graph is None

    def predict(self, queries: Features, question: Question, *, threads: int, report: Report = None) -> Rankings:
        """The best labels of every query."""
        if self._one_walk:
            return self._path.predict(
                unit(queries),
                top_k=question.top_k,
                beam_width=question.neighbours,
                min_score=question.min_score,
                threads=threads,
                report=report,
            )
        rankings = []
        for first, block in blocks(queries):
            rankings.append(self._rank(unit(block), question, threads))
            if report is not None:
                report(first + block.rows, queries.rows)
        return _joined(rankings)

    def selected(self, queries: Features, candidates: Csr, *, threads: int) -> NDArray[np.float32]:
        """The score of every candidate; over labels, where it depends on nothing but the two."""
        return self._path.selected(unit(queries), candidates, threads=threads)

    def _rank(self, queries: Features, question: Question, threads: int) -> Rankings:
        found = self._near.search(queries, count=question.neighbours, width=question.search_width, threads=threads)
        if self.parts.labels is None:
            candidates = sorted_rows(found, self.parts.n_labels)
            scores = self._path.selected(queries, candidates, threads=threads)
        else:
            candidates = votes(found, self.parts.labels, most=question.candidates, sharpness=question.sharpness)
            scores = candidates.values
            if self.parts.ranker is not None:
                scores = self._path.selected(queries, candidates, threads=threads) * scores**self.parts.similarity
        return _best(candidates, scores, question)


def certain(n_labels: int, widths: tuple[int, int]) -> Layer:
    """A layer in which every label has the score 1, for rankers below to say all."""
    nothing = Csr.of(np.zeros(widths[0] + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), n_labels)
    chunks = np.array([0, n_labels], np.int64)
    return Layer(
        weights=Weights.pack(nothing, chunks, "float32"),
        dense=np.zeros((n_labels, widths[1]), np.float32),
        offsets=np.ones(n_labels, np.float32),
        chunks=chunks,
        order=np.arange(n_labels, dtype=np.int32),
        transform=Transform.named("l1-hinge"),
    )


def blocks(features: Features) -> Iterator[tuple[int, Features]]:
    """Some thousand rows at a time, and the number of the first."""
    if features.rows <= _BLOCK:
        yield 0, features
        return
    matrix = features.sparse.to_scipy()
    for first in range(0, features.rows, _BLOCK):
        rows = slice(first, first + _BLOCK)
        yield first, Features.of(Csr.of_scipy(matrix[rows]), features.dense[rows])


def _best(candidates: Csr, scores: NDArray[np.float32], question: Question) -> Rankings:
    sizes = np.diff(candidates.indptr)
    row = np.repeat(np.arange(candidates.rows), sizes)
    order = np.lexsort((candidates.indices, -scores, row))
    place = np.arange(row.size) - np.repeat(candidates.indptr[:-1], sizes)
    order = order[(place < question.top_k) & (scores[order] >= question.min_score)]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row[order], minlength=candidates.rows))])
    return indptr.astype(np.int64), candidates.indices[order], scores[order]


def _joined(rankings: Sequence[Rankings]) -> Rankings:
    if len(rankings) == 1:
        return rankings[0]
    ends = np.cumsum([0] + [int(indptr[-1]) for indptr, _, _ in rankings])
    offsets = [indptr[1:] + end for (indptr, _, _), end in zip(rankings, ends, strict=False)]
    return (
        np.concatenate([np.zeros(1, np.int64), *offsets]),
        np.concatenate([labels for _, labels, _ in rankings]),
        np.concatenate([scores for _, _, scores in rankings]),
    )
