"""Describe clusters, which have no names, by their most frequent labels and strongest terms."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core.matrices import Csr
from carya.fork_safety import ForkSafeLock, cached_property
from carya.text.labels import LabelSet
from carya.text.text_tree import TextTree
from carya.trees.layer import Layer

_N_CANDIDATE_TERMS = 24  # per cluster; more than are displayed, because redundant terms are removed
_N_LABELS = 8
_MAX_UNPACKED = 1 << 22  # maximum number of weights unpacked at a time


class _LevelLabels(NamedTuple):
    """The labels of the nodes at a level: the most important ones, padded with -1, and the numbers of labels and of
    their training texts; the latter is None if it is unknown.
    """

    most_important: NDArray[np.int32]
    sizes: NDArray[np.int64]
    counts: NDArray[np.float64] | None


class ClusterNamer:
    """Descriptive labels and terms for the nodes of a tree.

    The labels of all clusters at a level are computed on first use and cached as a few integers per cluster.
    Terms are computed only for the requested nodes.

    Parameters
    ----------
    tree : TextTree
    labels : LabelSet
    """

    def __init__(self, tree: TextTree, labels: LabelSet) -> None:
        self._vectorizer = tree.vectorizer
        self._tree = tree.model.tree_
        self._layers = tree.model.layers_
        self._counts = labels.counts
        self._levels: dict[int, _LevelLabels] = {}
        self._lock = ForkSafeLock()

    @cached_property
    def label_importance(self) -> NDArray[np.float64]:
        """For each label, the number of training texts or, if unknown, the largest bias of its leaves."""
        if self._counts is not None:
            return self._counts.astype(np.float64)
        last = self._layers[-1]
        biases = last.biases[last.positions].astype(np.float64)
        leaf_labels = self._tree.leaf_labels
        if leaf_labels is None:
            return biases
        return np.maximum.reduceat(biases, np.flatnonzero(np.diff(leaf_labels, prepend=-1)))

    def labels(self, level: int, node: int) -> list[int]:
        """Return the most important labels in a cluster, most important first; level 0 is the root."""
        return [int(label) for label in self._labels_of_level(level).most_important[node] if label >= 0]

    def size(self, level: int, node: int) -> int:
        """Return the number of labels in a cluster."""
        return int(self._labels_of_level(level).sizes[node])

    def count(self, level: int, node: int) -> int | None:
        """Return the sum of the numbers of training texts of the labels in a cluster, or None if they are unknown."""
        counts = self._labels_of_level(level).counts
        return None if counts is None else int(counts[node])

    def terms(self, level: int, nodes: Sequence[int], limit: int = 8) -> list[list[str]]:
        """Return the strongest terms of each node, without redundant terms; the root has no terms.

        The weights of the level are read in one pass, or in several passes if unpacking all of them would use too much
        memory.

        Parameters
        ----------
        nodes : sequence of int
            The nodes, in ascending order.
        limit : int
            Maximum number of terms per node.
        """
        if level == 0 or not nodes:
            return [[] for _ in nodes]
        layer = self._layers[level - 1]
        layer.verify()
        step = max(1, _MAX_UNPACKED * layer.n_nodes // max(layer.weights.n_weights, 1))
        shown = self._vectorizer.word_features_
        blocks = [
            _strongest_features(layer, nodes[begin : begin + step], shown) for begin in range(0, len(nodes), step)
        ]
        return [
            select_distinct_terms(
                (self._vectorizer.term(feature, prefix=False) for feature in row if feature >= 0), limit
            )
            for row in itertools.chain.from_iterable(block.tolist() for block in blocks)
        ]

    def weights(self, level: int, node: int) -> NDArray[np.float32]:
        """Return the weights of all features at a node."""
        layer = self._layers[level - 1]
        layer.verify()
        row = layer.unpacked(layer.positions[[node]]).transpose()
        weights = np.zeros(row.cols, np.float32)
        weights[row.indices] = row.values
        return weights

    def _labels_of_level(self, level: int) -> _LevelLabels:
        """Return the labels of the nodes at a level."""
        with self._lock:
            if level not in self._levels:
                clusters = self._tree.clusters(level)
                labels = np.arange(clusters.size)
                if self._tree.leaf_labels is not None:  # a node can contain several leaves of the same label
                    pairs = np.unique(clusters.astype(np.int64) * self._tree.n_labels + self._tree.leaf_labels)
                    clusters, labels = np.divmod(pairs, self._tree.n_labels)
                order = labels[np.lexsort((-self.label_importance[labels], clusters))]
                sizes = np.bincount(clusters, minlength=self._tree.level_sizes[level])
                ends = np.cumsum(sizes)[:, None]
                places = ends - sizes[:, None] + np.arange(_N_LABELS)
                best = np.where(places < ends, order[np.minimum(places, order.size - 1)], -1)
                counts: NDArray[np.float64] | None = None
                if self._counts is not None:
                    weights = self._counts[labels].astype(np.float64)
                    counts = np.bincount(clusters, weights=weights, minlength=sizes.size).astype(np.float64)
                self._levels[level] = _LevelLabels(best.astype(np.int32), sizes, counts)
            return self._levels[level]


def _strongest_features(layer: Layer, nodes: Sequence[int], shown: range) -> NDArray[np.int32]:
    """Return the features in `shown` with the largest positive weights at each node, padded with -1."""
    positions = layer.positions[np.asarray(nodes)]
    order = np.argsort(positions)
    by_node = layer.unpacked(positions[order]).transpose()
    if len(shown) < by_node.cols:
        values = np.where((by_node.indices >= shown.start) & (by_node.indices < shown.stop), by_node.values, 0)
        by_node = Csr.of_triple((by_node.indptr, by_node.indices, values.astype(np.float32)), by_node.cols)
    features, values = _core.row_topk(by_node.native, min(_N_CANDIDATE_TERMS, by_node.cols), 1)
    strongest: NDArray[np.int32] = np.empty_like(features)
    strongest[order] = np.where(values > 0, features, -1)
    return strongest


def select_distinct_terms(terms: Iterable[str | None], limit: int) -> list[str]:
    """Select up to `limit` terms; skip a term if its words are a subset or superset of a selected term's words.

    >>> select_distinct_terms(["web server", "web", "go", "go library", "fast"], 3)
    ['web server', 'go', 'fast']
    """
    selected: list[tuple[str, set[str]]] = []
    for term in terms:
        if term is None or len(selected) == limit:
            continue
        words = set(term.split())
        if not any(words <= other or other <= words for _, other in selected):
            selected.append((term, words))
    return [term for term, _ in selected]
