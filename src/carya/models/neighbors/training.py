"""Trains a model of neighbours: an index of labels or rows, a shortlist for every row, a ranker for every label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from carya import metrics
from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr, Features
from carya.core.progress import Progress, Report
from carya.errors import ParameterError
from carya.indexing import pifa
from carya.indexing.representations import unit
from carya.matching.hnsw import Graph
from carya.matching.nearest_neighbors import Neighbours, index_layer, sorted_rows, without_themselves
from carya.matching.voting import votes
from carya.models.neighbors.search import NeighbourSearch, Parts, Question, blocks
from carya.ranking import LinearRanker, Problem
from carya.trees.beam_search import Searcher
from carya.trees.layer import Layer
from carya.trees.transforms import Transform

#: Below that many items every dense vector is compared: a graph of them would gain little.
FEW_ITEMS = 10_000
_SIMILARITY: dict[str, float | str] = {"labels": "learned", "rows": 0.5}
#: What is tried if it is to be learned, on so many rows at most, and used if there are too few rows to learn from.
_TRIED = {"labels": (0.01, 1.0, 3.0, 6.0, 10.0, 20.0), "rows": (0.01, 0.1, 0.2, 0.5, 1.0)}
_HELD_OUT, _MOST_HELD_OUT, _FEWEST_ROWS = 0.1, 5000, 50
_UNLEARNED = {"labels": 1.0, "rows": 0.5}


@dataclass(frozen=True, kw_only=True)
class NeighbourTrainer:
    """The settings of training; :meth:`train` does it. Most are parameters of :class:`carya.NearestNeighbours`."""

    over: str
    neighbours: int
    candidates: int
    sharpness: float | None
    index_features: int | None
    search: str
    connectivity: int
    build_width: int
    search_width: int | None
    ranker: str | None
    similarity: float | str | None
    precision: str
    transform: str
    seed: int
    rankers: LinearRanker

    def train(
        self, features: Features, labels: Csr, own: Features | None, *, threads: int, progress: Progress
    ) -> Parts:
        """All that is to be learned.

        Parameters
        ----------
        features : Features, n rows of length 1
        labels : Csr, n rows x labels, all ones
        own : Features, one row a label, of length 1, or None
            Where labels are, if not amid their rows.
        """
        similarity = self._similarity(features, labels, own, threads, progress)
        return self._learn(features, labels, own, threads, progress)(similarity)

    def _items(
        self, features: Features, labels: Csr, own: Features | None, threads: int, progress: Progress
    ) -> Features:
        """What neighbours are to be found among, all of length 1."""
        if self.over == "rows":
            return features
        if own is not None:
            return own
        with progress.stage("represent the labels") as report:
            return unit(pifa(features, labels, keep=self.index_features, threads=threads, report=report))

    def _graph(self, items: Features, progress: Progress) -> Graph | None:
        sparse = items.widths[0] > 0
        if self.search == "graph" and sparse:
            raise ParameterError(
                "search='graph' is for dense features; sparse ones have an inverted index, which is exact and faster: "
                "search='exact'"
            )
        if self.search == "exact" or sparse or (self.search == "auto" and items.rows < FEW_ITEMS):
            return None
        with progress.stage("build the graph") as report:
            return Graph.build(items.dense, connectivity=self.connectivity, width=self.build_width, report=report)

    def _learn(
        self, features: Features, labels: Csr, own: Features | None, threads: int, progress: Progress
    ) -> Callable[[float], Parts]:
        """What some rows teach, for any weight of similarity."""
        items = self._items(features, labels, own, threads, progress)
        graph = self._graph(items, progress)
        near = Neighbours(Searcher([index_layer(items, precision=self.precision, threads=threads)]), graph)
        ranker: Layer | None = None
        if self.ranker is not None:
            with progress.stage("match") as report:
                shortlist = self._shortlist(near, features, labels, threads, report)
            with progress.stage("train the rankers") as report:
                ranker = self._train(features, labels, shortlist, threads, report)

        def parts(similarity: float) -> Parts:
            strength = similarity if self.over == "labels" else None
            return Parts(
                index=index_layer(items, precision=self.precision, strength=strength, threads=threads),
                ranker=ranker,
                labels=labels if self.over == "rows" else None,
                graph=graph,
                n_labels=labels.cols,
                widths=features.widths,
                row_features=features.sparse.values.size / features.rows,
                similarity=similarity,
            )

        return parts

    def _similarity(
        self, features: Features, labels: Csr, own: Features | None, threads: int, progress: Progress
    ) -> float:
        """How much similarity is to count: as told, or as ranks rows best that were held out."""
        told = _SIMILARITY[self.over] if self.similarity is None else self.similarity
        if not isinstance(told, str):
            return float(told)
        if self.ranker is None or features.rows < _FEWEST_ROWS:
            return _UNLEARNED[self.over]
        order = np.random.default_rng(self.seed).permutation(features.rows)
        held = min(int(features.rows * _HELD_OUT), _MOST_HELD_OUT)
        seen, unseen = np.sort(order[held:]), np.sort(order[:held])
        Y = labels.to_scipy()
        parts = self._learn(features.take(seen), Csr.of_scipy(Y[seen]), own, threads, progress)
        queries, truth = features.take(unseen), Y[unseen]
        question = Question(
            top_k=5,
            neighbours=self.neighbours,
            candidates=self.candidates,
            search_width=self.search_width,
            sharpness=self.sharpness,
        )
        best, most = _UNLEARNED[self.over], -1.0
        for tried in _TRIED[self.over]:
            search = NeighbourSearch(parts(tried), neighbours=self.neighbours)
            indptr, found, scores = search.predict(queries, question, threads=threads)
            report = metrics.report(truth, sp.csr_array((scores, found, indptr), shape=truth.shape), k=(1, 3, 5))
            reached = report["P@1"] + report["P@3"] + report["P@5"]
            if reached > most:
                best, most = tried, reached
        return best

    def _shortlist(self, near: Neighbours, features: Features, labels: Csr, threads: int, report: Report) -> Csr:
        """The rows that each label is suggested for or that have it, labels x rows; no row votes for itself."""
        found = []
        itself = self.over == "rows"
        for first, block in blocks(features):
            nearest = near.search(block, count=self.neighbours + itself, width=self.search_width, threads=threads)
            if itself:
                others = without_themselves(nearest, first, self.neighbours)
                suggested = votes(others, labels, most=self.candidates, sharpness=self.sharpness)
            else:
                suggested = sorted_rows(nearest, labels.cols)
            found.append(suggested.with_values(1).to_scipy())
            if report is not None:
                report(first + block.rows, features.rows)
        joined = sp.csr_array(sp.vstack(found, format="csr") + labels.to_scipy())
        return Csr.of_scipy(joined).transpose()

    def _train(self, features: Features, labels: Csr, shortlist: Csr, threads: int, report: Report) -> Layer:
        each = np.arange(labels.cols + 1, dtype=np.int64)
        problem = Problem(
            level=2,  # a label is the only child of its place in the index
            seed=self.seed,
            targets=labels,
            shortlist=shortlist,
            order=each[:-1].astype(np.int32),
            chunks=each,
            transform=Transform.named(self.transform),
        )
        (layer,) = self.rankers.train(features, [problem], threads=threads, report=report)
        return layer
