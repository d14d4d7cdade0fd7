"""Names for the clusters of a label tree, which have none: their most frequent labels and their strongest words."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.models.xr_linear.model import XRLinear
from carya.text.text_ranker import TextRanker
from carya.trees.layer import Layer

_KEPT = 24  # words of a cluster that are looked at: names are short, but words that say the same are left out of them
_LABELS_KEPT = 8
_UNPACKED_AT_ONCE = 1 << 22  # weights


class Namer:
    """What the nodes of one of a ranker's trees are about.

    Labels of clusters are found level by level when they are first asked for, and remembered: a few numbers for each.
    Words are found for the nodes that are asked for.
    """

    def __init__(self, ranker: TextRanker, model: XRLinear) -> None:
        self._vectorizer = ranker.vectorizer_
        self._tree = model.tree_
        self._layers = model.layers_
        self._counts = ranker.label_counts_
        self._labels: dict[int, tuple[NDArray[np.int32], NDArray[np.int64]]] = {}
        self._lock = threading.Lock()

    @cached_property
    def weight_of_label(self) -> NDArray[np.float64]:
        """What makes a label stand for its cluster: its texts or, where they were not counted, its largest bias."""
        if self._counts is not None:
            return self._counts.astype(np.float64)
        last = self._layers[-1]
        biases = last.offsets[last.positions].astype(np.float64)
        leaves = self._tree.leaf_labels
        if leaves is None:
            return biases
        return np.maximum.reduceat(biases, np.flatnonzero(np.diff(leaves, prepend=-1)))

    def labels(self, level: int, node: int) -> list[int]:
        """The strongest labels under a node (level 0 is the root), strongest first."""
        return [int(label) for label in self._labels_of(level)[0][node] if label >= 0]

    def size(self, level: int, node: int) -> int:
        """How many labels lie under a node."""
        return int(self._labels_of(level)[1][node])

    def words(self, level: int, nodes: Sequence[int], most: int = 8) -> list[list[str]]:
        """For each of some nodes, ascending, the terms that speak most for it, without those that say the same again.

        One pass over the weights of the level, or as many as memory wants; the root has no words.
        """
        if level == 0 or not nodes:
            return [[] for _ in nodes]
        layer = self._layers[level - 1]
        layer.verify()
        step = max(1, _UNPACKED_AT_ONCE * layer.n_nodes // max(layer.weights.n_weights, 1))
        found = [_strongest(layer, nodes[at : at + step]) for at in range(0, len(nodes), step)]
        return [
            distinct((self._vectorizer.term(feature) for feature in row if feature >= 0), most)
            for row in itertools.chain.from_iterable(some.tolist() for some in found)
        ]

    def weights(self, level: int, node: int) -> NDArray[np.float32]:
        """The weights of all features at a node."""
        layer = self._layers[level - 1]
        layer.verify()
        of_node = layer.unpacked(layer.positions[[node]]).transpose()
        weights = np.zeros(of_node.cols, np.float32)
        weights[of_node.indices] = of_node.values
        return weights

    def _labels_of(self, level: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The strongest labels of every node of a level, -1 where there are no more, and how many there are."""
        with self._lock:
            if level not in self._labels:
                clusters = self._tree.clusters(level)
                labels = np.arange(clusters.size)
                if self._tree.leaf_labels is not None:  # several leaves of a label may lie under one node
                    pairs = np.unique(clusters.astype(np.int64) * self._tree.n_labels + self._tree.leaf_labels)
                    clusters, labels = np.divmod(pairs, self._tree.n_labels)
                order = labels[np.lexsort((-self.weight_of_label[labels], clusters))]
                sizes = np.bincount(clusters, minlength=self._tree.level_sizes[level])
                ends = np.cumsum(sizes)[:, None]
                at = ends - sizes[:, None] + np.arange(_LABELS_KEPT)
                strongest = np.where(at < ends, order[np.minimum(at, order.size - 1)], -1)
                self._labels[level] = strongest.astype(np.int32), sizes
            return self._labels[level]


def _strongest(layer: Layer, nodes: Sequence[int]) -> NDArray[np.int32]:
    """The features of the largest weights of some nodes, largest first, -1 where there are no more above 0."""
    positions = layer.positions[np.asarray(nodes)]
    order = np.argsort(positions)
    by_node = layer.unpacked(positions[order]).transpose()
    features, values = _core.row_topk(by_node.native, min(_KEPT, by_node.cols), 1)
    strongest: NDArray[np.int32] = np.empty_like(features)
    strongest[order] = np.where(values > 0, features, -1)
    return strongest


def distinct(terms: Iterable[str | None], most: int) -> list[str]:
    """Some terms without those whose words are all in one before, or hold all of one before.

    >>> distinct(["web server", "web", "go", "go library", "fast"], 3)
    ['web server', 'go', 'fast']
    """
    chosen: list[tuple[str, set[str]]] = []
    for term in terms:
        if term is None or len(chosen) == most:
            continue
        words = set(term.split())
        if not any(words <= other or other <= words for _, other in chosen):
            chosen.append((term, words))
    return [term for term, _ in chosen]
