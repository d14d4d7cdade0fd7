"""Names for the clusters of a label tree, which have none: their most frequent labels and their strongest words."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.layer import Layer
from carya.matrices import Csr
from carya.text.ranker import TextRanker

_KEPT = 24  # words of a cluster that are kept: names are short, but words that say the same are left out of them
_LABELS_KEPT = 8
_UNPACKED_AT_ONCE = 1 << 24  # weights; a larger level is looked at node by node, which is slow but takes no memory
_LOOKED_AT = 4096  # nodes of such levels that are remembered


class Namer:
    """What the nodes of a ranker's tree are about.

    Found out when it is first asked for, level by level, and remembered: a few dozen numbers for each cluster.
    """

    def __init__(self, ranker: TextRanker) -> None:
        self._vectorizer = ranker.vectorizer_
        self._tree = ranker.model_.tree_
        self._layers = ranker.model_.layers_
        self._counts = ranker.label_counts_
        self._words: dict[int, NDArray[np.int32]] = {}
        self._labels: dict[int, tuple[NDArray[np.int32], NDArray[np.int64]]] = {}
        self._lock = threading.Lock()
        self._looked_at = lru_cache(_LOOKED_AT)(self._look_at)

    @cached_property
    def weight_of_label(self) -> NDArray[np.float64]:
        """What makes a label stand for its cluster: its texts or, where they were not counted, its bias."""
        if self._counts is not None:
            return self._counts.astype(np.float64)
        last = self._layers[-1]
        weight = np.empty(last.n_nodes)
        weight[last.order] = last.offsets
        return weight

    def labels(self, level: int, node: int) -> list[int]:
        """The strongest labels under a node (level 0 is the root), strongest first."""
        return [int(label) for label in self._labels_of(level)[0][node] if label >= 0]

    def size(self, level: int, node: int) -> int:
        """How many labels lie under a node."""
        return int(self._labels_of(level)[1][node])

    def words(self, level: int, node: int, most: int = 8) -> list[str]:
        """The terms that speak most for a node of level 1 or below, without those that say the same again."""
        layer = self._layers[level - 1]
        with self._lock:
            small = level < len(self._layers) and layer.weights.n_weights <= _UNPACKED_AT_ONCE
            if small and level not in self._words:
                self._words[level] = _strongest_words(layer)
        found = self._words[level][node] if small else self._looked_at(level, node)
        return distinct((self._vectorizer.term(int(feature)) for feature in found if feature >= 0), most)

    def weights(self, level: int, node: int) -> NDArray[np.float32]:
        """The weights of all features at a node."""
        layer = self._layers[level - 1]
        layer.verify()
        position = int(np.flatnonzero(layer.order == node)[0])
        found: NDArray[np.float32] = layer.weights_at(np.arange(layer.weights.n_features, dtype=np.int32), position)
        return found

    def _look_at(self, level: int, node: int) -> NDArray[np.int32]:
        weights = self.weights(level, node)
        best = np.argpartition(-weights, min(_KEPT, weights.size - 1))[:_KEPT]
        best = best[np.argsort(-weights[best], kind="stable")]
        return best[weights[best] > 0].astype(np.int32)

    def _labels_of(self, level: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The strongest labels of every node of a level, -1 where there are no more, and how many there are."""
        with self._lock:
            if level not in self._labels:
                clusters = self._tree.clusters(level)
                order = np.lexsort((-self.weight_of_label, clusters))
                sizes = np.bincount(clusters, minlength=self._tree.level_sizes[level])
                ends = np.cumsum(sizes)[:, None]
                at = ends - sizes[:, None] + np.arange(_LABELS_KEPT)
                strongest = np.where(at < ends, order[np.minimum(at, order.size - 1)], -1)
                self._labels[level] = strongest.astype(np.int32), sizes
            return self._labels[level]


def _strongest_words(layer: Layer) -> NDArray[np.int32]:
    """The features of the largest weights of every node, largest first, -1 where there are no more above 0."""
    layer.verify()
    weights = layer.unpacked()
    by_node = Csr.of_triple(_core.transpose(weights.native), weights.rows)
    features, values = _core.row_topk(by_node.native, min(_KEPT, by_node.cols), 1)
    strongest = np.full((layer.n_nodes, features.shape[1]), -1, np.int32)
    strongest[layer.order] = np.where(values > 0, features, -1)
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
