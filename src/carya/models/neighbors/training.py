"""Train nearest-neighbor models: index labels or rows, shortlist labels, and train one ranker per label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carya import metrics
from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr, Features
from carya.core.progress import Progress, Report
from carya.errors import ParameterError
from carya.indexing import pifa
from carya.indexing.representations import normalize
from carya.matching.hnsw import HnswGraph
from carya.matching.nearest_neighbors import NeighborSearcher, exclude_self, index_layer
from carya.matching.voting import vote
from carya.models.neighbors.search import NeighborQuery, NeighborRanker, TrainedNeighbors, row_blocks
from carya.ranking import LayerProblem, LinearSolver
from carya.trees.beam_search import BeamSearcher, to_matrix
from carya.trees.layer import Layer
from carya.trees.transforms import Transform

#: Below this number of items, dense vectors are searched exactly instead of with a graph.
MIN_GRAPH_ITEMS = 10_000
_DEFAULT_WEIGHTS: dict[str, float | str] = {"labels": "learned", "rows": 0.5}
#: Similarity weights to try on held-out rows, and the weights used if there are too few rows to hold out.
_CANDIDATE_WEIGHTS = {"labels": (0.01, 1.0, 3.0, 6.0, 10.0, 20.0), "rows": (0.01, 0.1, 0.2, 0.5, 1.0)}
_FALLBACK_WEIGHTS = {"labels": 1.0, "rows": 0.5}
_VALIDATION_FRACTION, _MAX_VALIDATION_ROWS, _MIN_ROWS = 0.1, 5000, 50


class _WeightedRows(NamedTuple):
    """Training rows, their labels and, unless all weights are 1, their weights."""

    features: Features
    labels: Csr
    sample_weight: NDArray[np.float32] | None

    def take(self, rows: NDArray[np.int64]) -> _WeightedRows:
        """Return the selected rows."""
        weights = None if self.sample_weight is None else self.sample_weight[rows]
        return _WeightedRows(self.features.take(rows), self.labels.take(rows), weights)


@dataclass(frozen=True, kw_only=True)
class NeighborTrainer:
    """Trainer of nearest-neighbor models; its attributes are the parameters of :class:`carya.NearestNeighbors`."""

    over: str
    n_neighbors: int
    max_candidates: int
    sharpness: float | None
    index_features: int | None
    search: str
    connectivity: int
    ef_construction: int
    ef_search: int | None
    ranker: str | None
    similarity_weight: float | str | None
    weight_dtype: str
    transform: str
    seed: int
    solver: LinearSolver
    threads: int
    progress: Progress

    def train(
        self,
        features: Features,
        labels: Csr,
        label_vectors: Features | None,
        sample_weight: NDArray[np.float32] | None = None,
    ) -> TrainedNeighbors:
        """Train a model.

        Parameters
        ----------
        features : Features, n rows with unit norm
        labels : Csr, n rows x labels, all ones
        label_vectors : Features, one row per label with unit norm, or None
            The label vectors, if they are not the centroids of the labels' rows.
        sample_weight : ndarray of float32, shape (n,), optional
            Positive weights of the rows in the centroids and in the rankers.
        """
        rows = _WeightedRows(features, labels, sample_weight)
        similarity_weight = self._choose_similarity_weight(rows, label_vectors)
        return self._train_all(rows, label_vectors)(similarity_weight)

    def _items(self, rows: _WeightedRows, label_vectors: Features | None) -> Features:
        """Return the items to be searched, with unit norm."""
        features, labels, sample_weight = rows
        if self.over == "rows":
            return features
        if label_vectors is not None:
            return label_vectors
        if sample_weight is not None:
            labels = labels.scale_rows(sample_weight)
        with self.progress.stage("represent labels") as report:
            return normalize(pifa(features, labels, keep=self.index_features, threads=self.threads, report=report))

    def _build_graph(self, items: Features) -> HnswGraph | None:
        is_sparse = items.widths[0] > 0
        if self.search == "graph" and is_sparse:
            raise ParameterError(
                "search='graph' requires dense features. For sparse features, use search='exact', an inverted index "
                "that is faster than a graph."
            )
        if self.search == "exact" or is_sparse or (self.search == "auto" and items.rows < MIN_GRAPH_ITEMS):
            return None
        with self.progress.stage("build graph") as report:
            return HnswGraph.build(
                items.dense, connectivity=self.connectivity, ef_construction=self.ef_construction, report=report
            )

    def _train_all(self, rows: _WeightedRows, label_vectors: Features | None) -> Callable[[float], TrainedNeighbors]:
        """Train everything that does not depend on the similarity weight.

        Returns a function that creates the model with a given similarity weight.
        """
        features, labels, _ = rows
        items = self._items(rows, label_vectors)
        graph = self._build_graph(items)
        index = index_layer(items, weight_dtype=self.weight_dtype, threads=self.threads)
        neighbors = NeighborSearcher(BeamSearcher([index]), graph)
        ranker: Layer | None = None
        if self.ranker is not None:
            with self.progress.stage("match") as report:
                shortlist = self._shortlist(neighbors, features, labels, report)
            with self.progress.stage("train rankers") as report:
                ranker = self._train_rankers(rows, shortlist, report)

        def assemble(similarity_weight: float) -> TrainedNeighbors:
            weight = similarity_weight if self.over == "labels" else None
            return TrainedNeighbors(
                index=index_layer(
                    items, weight_dtype=self.weight_dtype, similarity_weight=weight, threads=self.threads
                ),
                ranker=ranker,
                labels=labels if self.over == "rows" else None,
                graph=graph,
                n_labels=labels.cols,
                widths=features.widths,
                row_features=features.sparse.values.size / features.rows,
                similarity_weight=similarity_weight,
            )

        return assemble

    def _choose_similarity_weight(self, rows: _WeightedRows, label_vectors: Features | None) -> float:
        """Return the similarity weight: the given number or, if it is learned, the best candidate on held-out rows."""
        weight = _DEFAULT_WEIGHTS[self.over] if self.similarity_weight is None else self.similarity_weight
        if not isinstance(weight, str):
            return float(weight)
        features, labels, _ = rows
        best, best_value = _FALLBACK_WEIGHTS[self.over], -1.0
        if self.ranker is None or features.rows < _MIN_ROWS:
            return best
        order = np.random.default_rng(self.seed).permutation(features.rows)
        n_held_out = min(int(features.rows * _VALIDATION_FRACTION), _MAX_VALIDATION_ROWS)
        train, held_out = np.sort(order[n_held_out:]), np.sort(order[:n_held_out])
        assemble = self._train_all(rows.take(train), label_vectors)
        queries, truth = features.take(held_out), labels.take(held_out).to_scipy()
        query = NeighborQuery(
            top_k=5,
            n_neighbors=self.n_neighbors,
            max_candidates=self.max_candidates,
            ef_search=self.ef_search,
            sharpness=self.sharpness,
        )
        for candidate in _CANDIDATE_WEIGHTS[self.over]:
            ranker = NeighborRanker(assemble(candidate), n_neighbors=self.n_neighbors)
            indptr, ranked, scores = ranker.predict(queries, query, threads=self.threads)
            value = metrics.mean_precision(truth, sp.csr_array((scores, ranked, indptr), shape=truth.shape))
            if value > best_value:
                best, best_value = candidate, value
        return best

    def _shortlist(self, neighbors: NeighborSearcher, features: Features, labels: Csr, report: Report) -> Csr:
        """Return the rows for which each label is suggested or relevant, as a (labels, rows) matrix.

        No row votes for itself.
        """
        suggestions = []
        over_rows = self.over == "rows"
        for first, block in row_blocks(features):
            nearest = neighbors.search(
                block, count=self.n_neighbors + over_rows, ef_search=self.ef_search, threads=self.threads
            )
            if over_rows:
                others = exclude_self(nearest, first, self.n_neighbors)
                suggested = vote(others, labels, max_labels=self.max_candidates, sharpness=self.sharpness)
            else:
                suggested = to_matrix(nearest, labels.cols)
            suggestions.append(suggested.with_values(1).to_scipy())
            if report is not None:
                report(first + block.rows, features.rows)
        union = sp.csr_array(sp.vstack(suggestions, format="csr") + labels.to_scipy())
        return Csr.of_scipy(union).transpose()

    def _train_rankers(self, rows: _WeightedRows, shortlist: Csr, report: Report) -> Layer:
        features, labels, sample_weight = rows
        chunks = np.arange(labels.cols + 1, dtype=np.int64)
        problem = LayerProblem(
            level=2,  # a ranker is the only child of its label in the index
            seed=self.seed,
            targets=labels,
            shortlist=shortlist,
            order=chunks[:-1].astype(np.int32),
            chunks=chunks,
            transform=Transform.from_name(self.transform),
        )
        (layer,) = self.solver.train(
            features, [problem], sample_weight=sample_weight, threads=self.threads, report=report
        )
        return layer
