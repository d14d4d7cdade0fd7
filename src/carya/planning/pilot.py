"""Pilot run: measure the cost per unit of training work on this machine, using a sample of the data.

The linear rankers of sibling nodes are trained independently of all other nodes. Therefore, a pilot run trains
the rankers of a few full-size clusters rather than a small model, and uses as many rows per cluster as the full
training run. Labels are drawn uniformly, together with all of their rows, and grouped by the same clustering algorithm
as in training. The negatives of a group are the rows that are most similar to it, because a matcher would select
similar rows. Only CPU time is measured, so other processes have little effect on a plan.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr, Features
from carya.indexing import clustering, representations
from carya.planning.sampling import DataSample
from carya.planning.sizes import DataSizes
from carya.ranking import LayerProblem
from carya.trees.beam_search import BeamSearcher
from carya.trees.layer import Layer
from carya.trees.transforms import Transform

if TYPE_CHECKING:
    from carya.models.xr_linear.model import XRLinear

T = TypeVar("T")

#: Maximum amount of work per solver problem, measured as nonzeros x labels; one nonzero takes about one nanosecond per
#: label.
_MAX_WORK = 6e8
_MAX_GROUPS = 100
_MAX_ENTRIES = 6e6  # maximum number of nonzeros in the sampled rows
_TREE_ROWS = 400  # number of rows whose labels are clustered to estimate the number of clusters per row
_TREE_LABELS = 4000
_MAX_LABEL_ROWS = 128  # maximum number of rows aggregated per label, as in `representations.pifa_group`
_MAX_BIT_CLUSTERS = 1 << 16  # with more clusters, the clusters of a feature are always stored as a list
_SAMPLE_BIAS = 0.85  # a tree with few labels separates a row's labels more often than a tree with all labels
_QUERIES = 500
_DEPTH = 2  # number of layers in the pilot model


@dataclass(frozen=True)
class SolverRate:
    """Costs of training the rankers of a layer.

    Attributes
    ----------
    ns : float
        CPU nanoseconds per unit of work; one unit is one nonzero of a training row, processed for one node.
    rows : float
        The number of rows on which the ranker of each node was trained.
    positives : float
        The number of these rows that are positive examples.
    weights_per_node, bytes_per_weight : float
    weights_per_run : float
        The mean number of weights per pair of feature and cluster, not counting pairs without weights; the model stores
        the cluster index once per pair.
    chunks : int
        The number of clusters.
    growth : float
        The growth exponent: if the number of features were unlimited, the number of weights per node would be
        proportional to this power of the number of positives.
    """

    ns: float
    rows: float
    positives: float
    weights_per_node: float
    bytes_per_weight: float
    weights_per_run: float
    chunks: int
    growth: float

    def weights_at(self, positives: float, n_features: int) -> float:
        """Return the number of weights of a node with a given number of positives."""
        if self.growth == 0 or n_features <= 0:
            return self.weights_per_node
        # Rows share features: if a node would have w weights with an unlimited number of features, only
        # d (1 - exp(-w / d)) weights are expected with d features.
        used = min(self.weights_per_node / n_features, 0.99)
        unlimited = -n_features * math.log1p(-used) * math.pow(positives / self.positives, self.growth)
        return -n_features * math.expm1(-unlimited / n_features)

    def bytes_at(self, chunks: int) -> float:
        """Return the number of bytes per weight in a layer with a given number of clusters."""
        # With up to 65,536 clusters, most weights belong to features whose clusters are stored as bit sets, which take
        # about one byte per cluster, as in the pilot run. With more clusters, an index takes four bytes.
        longer_numbers = 3 if chunks > _MAX_BIT_CLUSTERS else 0
        return self.bytes_per_weight + longer_numbers / self.weights_per_run


@dataclass(frozen=True)
class Rates:
    """Measured costs per unit of work.

    Attributes
    ----------
    represent_ns : float
        CPU nanoseconds for adding one feature of a row to a label representation.
    entries_per_label : float
        The mean number of features per label representation.
    tree_ns : float
        CPU nanoseconds for processing one entry of a label representation in one bisection.
    capped_share : float
        The number of label entries that remain when at most 128 rows per label are aggregated, relative to the upper
        bound min(label entries, 128 x labels).
    clusters : tuple of (float, float)
        Pairs of K and the mean number of clusters, out of K, that contain at least one label of a row, sorted by K.
    inner, leaf : SolverRate
        Costs of the inner layers and of the last layer.
    inner_search_us, leaf_search_us : float
        CPU microseconds for searching the layer for one query of a batch.
    query_us : float
        Overhead of a single query in CPU microseconds, in addition to the time for the layers.
    inner_nodes, leaf_bytes : float
        The number of nodes in the pilot model's first layer, and the size of its last layer in bytes.
    seconds : float
        The CPU time of the pilot run.
    """

    represent_ns: float
    entries_per_label: float
    tree_ns: float
    capped_share: float
    clusters: tuple[tuple[float, float], ...]
    inner: SolverRate
    leaf: SolverRate
    inner_search_us: float
    leaf_search_us: float
    query_us: float
    inner_nodes: int
    leaf_bytes: float
    seconds: float

    def clusters_per_row(self, sizes: DataSizes, n_clusters: float) -> float:
        """Return the mean number of clusters, out of `n_clusters`, that contain at least one label of a row.

        Between measured values of `n_clusters`, the mean is interpolated linearly in log(n_clusters); beyond the
        largest measured value, it approaches the number of labels per row.
        """
        most = max(sizes.labels_per_row, 1.0)
        points = [(1.0, 1.0), *self.clusters]
        (last, count) = points[-1]
        if n_clusters <= last:
            sizes_known, counts = np.array(points).T
            known = np.interp(math.log(max(n_clusters, 1)), np.log(sizes_known), counts)
            return float(min(known, most, n_clusters))
        missing = max(1 - (count - 1) / max(most - 1, 1e-9), 0.01)
        exponent = -math.log(missing) / math.log(last) if last > 1 else 1.0
        return float(1 + (most - 1) * (1 - n_clusters**-exponent))


def measure_rates(sample: DataSample, model: XRLinear, *, group_size: int, rows_per_group: float, seed: int) -> Rates:
    """Measure the rates of this machine in a pilot run.

    Parameters
    ----------
    model : XRLinear
        The configuration to plan.
    group_size : int
        The number of labels per leaf cluster.
    rows_per_group : float
        The number of rows on which the rankers of the labels in a leaf cluster are trained.
    """
    started = time.process_time()
    return _Pilot(sample, model, group_size, rows_per_group, np.random.default_rng(seed)).run(started)


class _Pilot:
    def __init__(
        self, sample: DataSample, model: XRLinear, group_size: int, rows_per_group: float, rng: np.random.Generator
    ) -> None:
        self._sample, self._model, self._rng = sample, model, rng
        sizes = sample.sizes
        self._row_work = sizes.features_per_row + sizes.dense_features
        self._group_size = group_size
        self._rows_per_group = min(rows_per_group, max(_MAX_WORK / (self._row_work * group_size), 50.0))
        self._share = self._rows_per_group / rows_per_group  # as a fraction of the rows per group in a full run
        n_groups = _MAX_WORK / (self._rows_per_group * self._row_work * group_size)
        self._n_groups = int(min(max(n_groups, 2), _MAX_GROUPS, max(sizes.labels // group_size, 1)))

    def run(self, started: float) -> Rates:
        """Measure all stages."""
        features, labels = self._draw_rows()
        n_added = float(np.minimum(labels.column_counts(), _MAX_LABEL_ROWS).sum()) * self._row_work
        keep = self._model.index_features
        group, represent_s = _timed(lambda: representations.pifa_group(features, labels, keep=keep, threads=1))
        vectors = representations.pifa(features, labels, keep=keep)
        n_entries = vectors.sparse.values.size + vectors.dense.size
        size = math.ceil(labels.cols / self._n_groups)
        tree, tree_s = _timed(
            lambda: clustering.cluster(group, branching=max(self._n_groups, 2), max_leaf_size=size, threads=1)
        )
        clusters = tree.parents[-1] if tree.depth > 1 else np.zeros(labels.cols, np.int32)
        n_clusters = int(clusters.max()) + 1
        own = labels.merge_columns(clusters, n_clusters).with_values(1)
        inner_layer, inner = self._train_inner(features, own)
        shortlist = self._choose_rows(features, vectors, own, clusters)
        leaf_layer, leaf = self._train_leaves(features, labels, shortlist, clusters)
        inner_us, leaf_us, query_us = self._search(features, inner_layer, leaf_layer)
        return Rates(
            represent_ns=1e9 * represent_s / max(n_added, 1),
            entries_per_label=n_entries / labels.cols,
            tree_ns=1e9 * tree_s / max(n_entries * math.log2(max(n_clusters, 2)), 1),
            capped_share=self._capped_share(),
            clusters=self._count_clusters(),
            inner=inner,
            leaf=leaf,
            inner_search_us=inner_us,
            leaf_search_us=leaf_us,
            query_us=query_us,
            inner_nodes=n_clusters,
            leaf_bytes=leaf_layer.weights.n_bytes,
            seconds=time.process_time() - started,
        )

    def _draw_rows(self) -> tuple[Features, Csr]:
        """Return the rows of randomly drawn labels, and other rows from which negatives are chosen."""
        sample = self._sample
        drawn = sample.draw_labels(self._n_groups * self._group_size, self._rng)
        n_rows = sample.Y.shape[0]
        positive = np.flatnonzero(np.diff(sample.labels_of(np.arange(n_rows), drawn).indptr))
        if self._share < 1:
            positive = np.sort(self._rng.choice(positive, math.ceil(self._share * positive.size), replace=False))
        max_rows = int(_MAX_ENTRIES / max(self._row_work, 1))
        positive = positive[:: math.ceil(positive.size / max_rows)]
        n_other = min(max(4 * self._rows_per_group, positive.size), max_rows) - positive.size
        others = np.setdiff1d(np.arange(n_rows), positive)
        others = self._rng.choice(others, min(max(int(n_other), 0), others.size), replace=False)
        rows = np.sort(np.concatenate([positive, others]))
        return sample.take(rows), sample.labels_of(rows, drawn)

    def _train_inner(self, features: Features, own: Csr) -> tuple[Layer, SolverRate]:
        """Train the inner layer on a quarter of the rows, then on all rows; return the layer trained on all rows, and
        its rates.
        """
        max_rows = int(_MAX_WORK / (2 * self._row_work * own.cols))
        rows = np.arange(0, features.rows, math.ceil(features.rows / max(max_rows, 200)))
        weights = []
        for step in (4, 1):
            selected = rows[::step]
            problem = self._problem(1, own.take(selected), None, np.arange(own.cols, dtype=np.int32), [0, own.cols])
            part = features.take(selected)
            layer, seconds = self._solve(part, problem)
            weights.append(max(layer.weights.n_weights, 1))
        growth = math.log(weights[1] / weights[0]) / math.log(4)
        work = self._work(part, None) * lanes(own.cols)
        positives = problem.targets.indices.size / own.cols
        return layer, self._rate(layer, seconds, work, rows.size, positives, growth)

    def _choose_rows(
        self, features: Features, vectors: Features, own: Csr, clusters: NDArray[np.int32]
    ) -> list[NDArray[np.int64]]:
        """Return the training rows of each cluster: the rows of its labels, and the other rows most similar to it."""
        member = sp.csr_array(
            (np.ones(clusters.size, np.float32), (np.arange(clusters.size), clusters)), shape=(clusters.size, own.cols)
        )
        scores = np.zeros((features.rows, own.cols), np.float32)
        if features.widths[0]:
            centroids = sp.csr_array(vectors.sparse.to_scipy().T @ member)
            scores += (features.sparse.to_scipy() @ centroids).toarray()
        if features.widths[1]:
            scores += features.dense @ (vectors.dense.T @ member.toarray())
        by_cluster = own.transpose()
        chosen = []
        for cluster in range(own.cols):
            rows = by_cluster.indices[by_cluster.indptr[cluster] : by_cluster.indptr[cluster + 1]].astype(np.int64)
            n_others = min(round(self._rows_per_group), features.rows) - rows.size
            if n_others > 0:
                score = scores[:, cluster]
                score[rows] = -np.inf
                rows = np.sort(np.concatenate([rows, np.argpartition(-score, n_others - 1)[:n_others]]))
            chosen.append(rows)
        return chosen

    def _train_leaves(
        self, features: Features, labels: Csr, rows: list[NDArray[np.int64]], clusters: NDArray[np.int32]
    ) -> tuple[Layer, SolverRate]:
        indptr = np.concatenate([[0], np.cumsum([own.size for own in rows])]).astype(np.int64)
        indices = np.concatenate(rows).astype(np.int32)
        shortlist = Csr.of(indptr, indices, np.ones(indices.size, np.float32), features.rows)
        order = np.argsort(clusters, kind="stable").astype(np.int32)
        chunks = np.concatenate([[0], np.cumsum(np.bincount(clusters))])
        layer, seconds = self._solve(features, self._problem(_DEPTH, labels, shortlist, order, chunks))
        sizes = np.diff(chunks)
        work = sum(self._work(features, own) * lanes(int(size)) for own, size in zip(rows, sizes, strict=True))
        mean_rows = indices.size / len(rows)
        # The number of weights of a label depends on its positive rows rather than on the negatives, and the sample
        # contains all of its positive rows.
        positives = labels.indices.size / labels.cols
        return layer, self._rate(layer, seconds, work, mean_rows, positives, 0.0)

    def _problem(self, level: int, targets: Csr, shortlist: Csr | None, order: Any, chunks: Any) -> LayerProblem:
        return LayerProblem(
            level=level,
            seed=0,
            targets=targets,
            shortlist=shortlist,
            order=order,
            chunks=np.asarray(chunks, np.int64),
            transform=Transform.from_name("l3-hinge"),
            depth=_DEPTH,
        )

    def _solve(self, features: Features, problem: LayerProblem) -> tuple[Layer, float]:
        ((layer,), seconds) = _timed(lambda: self._model.linear_solver().train(features, [problem], threads=1))
        return layer, seconds

    def _work(self, features: Features, rows: NDArray[np.int64] | None) -> float:
        lengths = np.diff(features.sparse.indptr) + features.widths[1]
        return float(lengths.sum() if rows is None else lengths[rows].sum())

    def _rate(
        self, layer: Layer, seconds: float, work: float, rows: float, positives: float, growth: float
    ) -> SolverRate:
        n_weights = max(layer.weights.n_weights, 1)
        sizes = np.diff(layer.chunks)
        chunk_of_position = np.repeat(np.arange(sizes.size, dtype=np.int32), sizes)
        n_runs = layer.unpacked().merge_columns(chunk_of_position, sizes.size).indices.size
        return SolverRate(
            ns=1e9 * seconds / max(work, 1),
            rows=max(rows, 1.0),
            positives=max(positives, 1e-3),
            # The divisor compensates for labels that have fewer weights because only some of their rows are sampled.
            weights_per_node=n_weights / layer.n_nodes / (1.0 if growth else self._share**0.5),
            bytes_per_weight=(layer.weights.n_bytes - layer.weights.starts.nbytes) / n_weights,
            weights_per_run=n_weights / max(n_runs, 1),
            chunks=sizes.size,
            growth=min(max(growth, 0.0), 1.0),
        )

    def _capped_share(self) -> float:
        counts = np.bincount(self._sample.Y.indices, minlength=1)
        return float(np.minimum(counts, _MAX_LABEL_ROWS).sum() / min(counts.sum(), counts.size * _MAX_LABEL_ROWS))

    def _count_clusters(self) -> tuple[tuple[float, float], ...]:
        """Cluster the labels of some rows; return the mean number of clusters per row at each level of the tree."""
        sample = self._sample
        labels_per_row = max(sample.Y.nnz / sample.Y.shape[0], 1.0)
        n_rows = min(_TREE_ROWS, max(int(_TREE_LABELS / labels_per_row), 20), sample.Y.shape[0])
        drawn = np.sort(self._rng.choice(sample.Y.shape[0], n_rows, replace=False))
        labels = np.unique(sp.csr_array(sample.Y[drawn]).indices).astype(np.int64)
        if labels.size < 8:
            return ()
        of_labels = sample.labels_of(np.arange(sample.Y.shape[0]), labels)
        has_label = np.flatnonzero(np.diff(of_labels.indptr))
        max_rows = int(_MAX_ENTRIES / max(self._row_work, 1))
        has_label = has_label[:: math.ceil(has_label.size / max_rows)]
        vectors = representations.pifa_group(
            sample.take(has_label), of_labels.take(has_label), keep=self._model.index_features, threads=1
        )
        n_levels = max(int(math.log2(labels.size / 4)), 1)
        tree = clustering.cluster(vectors, branching=2, max_leaf_size=math.ceil(labels.size / 2**n_levels), threads=1)
        own = of_labels.take(drawn)
        own = own.take(np.flatnonzero(np.diff(own.indptr)))
        counts = [
            float(np.diff(own.merge_columns(tree.clusters(level), tree.level_sizes[level]).indptr).mean())
            for level in range(1, tree.depth)
        ]
        return tuple(
            (float(n_clusters), 1 + _SAMPLE_BIAS * (count - 1))
            for n_clusters, count in zip(tree.level_sizes[1:-1], counts, strict=True)
        )

    def _search(self, features: Features, inner: Layer, leaf: Layer) -> tuple[float, float, float]:
        """Return the time per query of a batch for each layer, and the overhead of a single query, in microseconds."""
        beam_width = self._model.beam_width
        queries = features.take(np.arange(0, features.rows, math.ceil(features.rows / _QUERIES)))
        searchers = [BeamSearcher([inner]), BeamSearcher([inner, leaf])]
        times = []
        for searcher in searchers:
            options: dict[str, Any] = {"top_k": beam_width, "beam_width": beam_width, "threads": 1}
            seconds = [_timed(lambda: searcher.predict(queries, **options))[1] for _ in range(4)]  # noqa: B023
            times.append(sum(seconds[1:]) / 3)
        sparse = queries.sparse
        rows = [
            (sparse.indices[begin:end], sparse.values[begin:end], queries.dense[row])
            for row, (begin, end) in enumerate(zip(sparse.indptr[:-1], sparse.indptr[1:], strict=True))
        ]
        # Measured without a warm-up run, because little of the data for a single query is usually in the cache.
        single = _timed(lambda: [searchers[1].rank(*row, 10, beam_width) for row in rows])[1]
        inner_us, both_us, single_us = (1e6 * seconds / queries.rows for seconds in (*times, single))
        # If the pilot model has fewer clusters than the beam width, it visits fewer clusters than the full model.
        visited = min(beam_width, inner.n_nodes)
        n_clusters = self._sample.sizes.labels / self._group_size
        leaf_us = max(both_us - inner_us, 0.0) * max(min(beam_width, n_clusters) / visited, 1.0)
        return inner_us, leaf_us, max(single_us - both_us, 0.0)


def lanes(n_nodes: float) -> int:
    """Round a number of siblings up to a multiple of 16, because the solver takes as long for one node as for 16.

    >>> lanes(1), lanes(16), lanes(95)
    (16, 16, 96)
    """
    return 16 * math.ceil(n_nodes / 16)


def _timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a call, and the CPU time that it took in seconds."""
    started = time.process_time()
    result = call()
    return result, time.process_time() - started
