"""Inspect a single label tree: its clusters, its labels, and the beam during a search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from carya.core import validation
from carya.core.matrices import Csr
from carya.errors import InputError
from carya.fork_safety import cached_property
from carya.text.explore.cluster_names import ClusterNamer, select_distinct_terms
from carya.text.explore.similar_labels import find_similar_labels
from carya.text.explore.views import (
    BeamNode,
    ClusterPage,
    ClusterView,
    LabelPosition,
    LabelView,
    ReachedLabel,
    SimilarLabel,
)
from carya.text.labels import LabelSet
from carya.text.text_tree import TextTree
from carya.trees.beam_search import BeamSearcher

_MAX_CACHED_CLUSTERS = 4096
_N_CLUSTER_LABELS = 4
_N_LABEL_TERMS = 12
_N_SIMILAR_LABELS = 8


class TreeView:
    """Thread-safe inspector for one tree of a text model.

    Parameters
    ----------
    tree : TextTree
        One of the trees of a text model.
    labels : LabelSet
        The labels of the model.

    Examples
    --------
    >>> import carya
    >>> texts, labels = ["red apple", "red car", "green apple", "green car"], [["fruit"], ["car"], ["fruit"], ["car"]]
    >>> ranker = carya.TextRanker(carya.Tfidf(min_df=1)).fit(texts, labels)
    >>> view = TreeView(ranker.text_trees_[0], ranker.label_set_)
    >>> [label.name for label in view.cluster_page(0, 0).labels]
    ['car', 'fruit']
    >>> positions, similar_labels = view.describe_label(1)
    >>> positions[0].positive_terms[0][0]
    'apple'
    """

    def __init__(self, tree: TextTree, labels: LabelSet) -> None:
        self.model = model = tree.model
        self.text_tree = tree
        self._vectorizer = tree.vectorizer
        self._labels = labels
        self._tree = model.tree_
        self._namer = ClusterNamer(tree, labels)
        self._searchers = [BeamSearcher(model.layers_[:depth]) for depth in range(1, len(model.layers_))]
        self._children = lru_cache(maxsize=None)(self._tree.children)  # one entry per level
        self._clusters: dict[tuple[int, int], ClusterView] = {}

    def clusters(self, level: int, nodes: Iterable[int]) -> tuple[ClusterView, ...]:
        """Return views of the given clusters at a level; views that are not cached are computed in one batch."""
        requested = list(nodes)
        views = {node: view for node in requested if (view := self._clusters.get((level, node))) is not None}
        missing = sorted({*requested} - {*views})
        for node, terms in zip(missing, self._namer.terms(level, missing), strict=True):
            labels = self._namer.labels(level, node)[:_N_CLUSTER_LABELS]
            views[node] = ClusterView(
                level,
                node,
                self._namer.size(level, node),
                tuple(LabelView.of(self._labels, label) for label in labels),
                tuple(terms),
                self._namer.count(level, node),
            )
        if len(self._clusters) + len(missing) > _MAX_CACHED_CLUSTERS:
            self._clusters.clear()
        self._clusters.update({(level, node): views[node] for node in missing})
        return tuple(views[node] for node in requested)

    def beam(
        self, features: NDArray[np.int32], values: NDArray[np.float32], beam_width: int
    ) -> tuple[tuple[BeamNode, ...], ...]:
        """Return the beam at each cluster level, best cluster first."""
        levels = []
        for level, searcher in enumerate(self._searchers, 1):
            ranking = searcher.rank(features, values, np.zeros(0, np.float32), top_k=beam_width, beam_width=beam_width)
            nodes, scores = ([], []) if ranking is None else (array.tolist() for array in ranking)
            parents = self._tree.parents[level - 1]
            levels.append(
                tuple(
                    BeamNode(cluster, int(parents[cluster.node]), score)
                    for cluster, score in zip(self.clusters(level, nodes), scores, strict=True)
                )
            )
        return tuple(levels)

    def reached_labels(
        self,
        features: NDArray[np.int32],
        values: NDArray[np.float32],
        labels: Sequence[int],
        scores: Sequence[float],
        beam: Sequence[BeamNode],
    ) -> tuple[ReachedLabel, ...]:
        """Return the labels retrieved by a search, each with its leaf cluster in the last beam."""
        parents = self._tree.parents[-1]
        if self._tree.leaf_labels is None:
            leaves = list(labels)
        else:
            leaves = self._best_leaves(features, values, labels, {node.cluster.node for node in beam})
        return tuple(
            ReachedLabel(LabelView.of(self._labels, label), int(parents[leaf]), score)
            for label, leaf, score in zip(labels, leaves, scores, strict=True)
        )

    def path(self, level: int, node: int) -> tuple[ClusterView, ...]:
        """Return the clusters from the root down to a cluster."""
        path: list[ClusterView] = []
        for depth in range(level, -1, -1):
            path += self.clusters(depth, [node])
            node = int(self._tree.parents[depth - 1][node]) if depth else 0
        return tuple(path[::-1])

    def label_path(self, label: int) -> tuple[int, ...]:
        """Return the node index of the cluster that contains a label's first leaf at each level below the root."""
        node = self._tree.leaves(label)[0]
        path = []
        for parents in self._tree.parents[:0:-1]:
            node = int(parents[node])
            path.append(node)
        return tuple(path[::-1])

    def cluster_page(self, level: int, node: int, *, begin: int = 0, limit: int = 100) -> ClusterPage:
        """Return a cluster and at most `limit` of its children; the root is level 0, node 0."""
        if not 0 <= level < self._tree.depth:
            raise InputError(f"level must be between 0 and {self._tree.depth - 1}, got {level!r}.")
        if not 0 <= node < self._tree.level_sizes[level]:
            raise InputError(f"node must be between 0 and {self._tree.level_sizes[level] - 1}, got {node!r}.")
        order, chunks = self._children(level + 1)
        children = order[chunks[node] : chunks[node + 1]]
        clusters: tuple[ClusterView, ...] = ()
        labels: tuple[LabelView, ...] = ()
        if level + 1 == self._tree.depth:
            numbers = children if self._tree.leaf_labels is None else self._tree.leaf_labels[children]
            by_importance = numbers[np.argsort(-self._namer.label_importance[numbers], kind="stable")]
            page = by_importance[begin : begin + limit].tolist()
            labels = tuple(LabelView.of(self._labels, number) for number in page)
        else:
            clusters = self.clusters(level + 1, children[begin : begin + limit].tolist())
        *ancestors, cluster = self.path(level, node)
        return ClusterPage(cluster, tuple(ancestors), children.size, clusters, labels)

    def describe_label(self, label: int) -> tuple[tuple[LabelPosition, ...], tuple[SimilarLabel, ...]]:
        """Return the positions of a label in the tree and the labels with similar weights."""
        positions, weights_of_leaves = [], []
        for leaf in self._tree.leaves(label):
            weights = self._namer.weights(self._tree.depth, leaf)
            words = self._vectorizer.word_features_
            shown = np.zeros_like(weights)
            shown[words.start : words.stop] = weights[words.start : words.stop]
            order = np.argsort(shown, kind="stable")
            ancestors = self.path(self._tree.depth - 1, int(self._tree.parents[-1][leaf]))
            positive = [feature for feature in order[: -4 * _N_LABEL_TERMS - 1 : -1].tolist() if shown[feature] > 0]
            negative = [feature for feature in order[: 4 * _N_LABEL_TERMS].tolist() if shown[feature] < 0]
            positions.append(LabelPosition(ancestors, self._terms(positive, weights), self._terms(negative, weights)))
            weights_of_leaves.append(weights)
        similar = find_similar_labels(self.model, label, np.mean(weights_of_leaves, axis=0), _N_SIMILAR_LABELS)
        return tuple(positions), tuple(
            SimilarLabel(LabelView.of(self._labels, other), similarity) for other, similarity in similar
        )

    def _terms(self, features: list[int], weights: NDArray[np.float32]) -> tuple[tuple[str, float], ...]:
        by_term = {self._vectorizer.term(feature, prefix=False): weights.item(feature) for feature in features}
        return tuple((term, by_term[term]) for term in select_distinct_terms(by_term, _N_LABEL_TERMS))

    @cached_property
    def _leaf_searcher(self) -> BeamSearcher:
        return BeamSearcher(self.model.layers_)  # ranks leaves instead of labels

    def _best_leaves(
        self, features: NDArray[np.int32], values: NDArray[np.float32], labels: Sequence[int], beam: set[int]
    ) -> list[int]:
        """Return the leaf that determines the score of each label: the best leaf in a cluster of the beam."""
        parents = self._tree.parents[-1]
        options = []
        for label in labels:
            leaves = self._tree.leaves(label)
            options.append([leaf for leaf in leaves if int(parents[leaf]) in beam] or list(leaves))
        candidates = np.array(sorted(leaf for leaves in options for leaf in leaves), np.int32)
        indptr = np.array([0, candidates.size], np.int64)
        pairs = Csr.of(indptr, candidates, np.ones(candidates.size, np.float32), parents.size)
        row = validation.check_sparse_rows(np.array([0, features.size], np.int64), features, values, self.model.widths_)
        scores = self._leaf_searcher.score_pairs(row, pairs, threads=1).tolist()
        score_of = dict(zip(candidates.tolist(), scores, strict=True))
        return [max(leaves, key=lambda leaf: score_of[leaf]) for leaves in options]
