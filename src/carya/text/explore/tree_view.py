"""One label tree of a ranker to look at: its clusters in words, and the way of a text through it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from carya.core import validation
from carya.core.matrices import Csr
from carya.errors import InputError
from carya.models.xr_linear.model import XRLinear
from carya.text.explore.cluster_names import Namer, distinct
from carya.text.explore.similar_labels import nearest
from carya.text.explore.views import Branch, ClusterNote, Held, LabelNote, Place, Reached
from carya.text.text_ranker import TextRanker
from carya.trees.beam_search import Searcher

_CLUSTERS = 4096  # that are remembered
_NAMES = 4  # labels of a cluster's name
_WORDS = 12  # of a label
_NEAREST = 8


class TreeView:
    """Looks into a tree of a text ranker. Any number of threads may ask.

    Examples
    --------
    >>> import carya
    >>> texts, labels = ["red apple", "red car", "green apple", "green car"], [["fruit"], ["car"], ["fruit"], ["car"]]
    >>> ranker = carya.TextRanker(carya.Tfidf(min_df=1)).fit(texts, labels)
    >>> view = TreeView(ranker, ranker.trees_[0])
    >>> [one.name for one in view.branch(0, 0).labels]
    ['car', 'fruit']
    >>> places, nearest = view.label(1)
    >>> places[0].words_for[0][0]
    'apple'
    """

    def __init__(self, ranker: TextRanker, model: XRLinear) -> None:
        self.model = model
        self._vectorizer = ranker.vectorizer_
        self._known = ranker.known()
        self._tree = model.tree_
        self._namer = Namer(ranker, model)
        self._searchers = [Searcher(model.layers_[:depth]) for depth in range(1, len(model.layers_))]
        self._children = lru_cache(maxsize=None)(self._tree.children)  # one for each level
        self._notes: dict[tuple[int, int], ClusterNote] = {}

    def clusters(self, level: int, nodes: Iterable[int]) -> tuple[ClusterNote, ...]:
        """Some clusters of a level in words; those that were not asked for before are looked at together."""
        wanted = list(nodes)
        found = {node: note for node in wanted if (note := self._notes.get((level, node))) is not None}
        missing = sorted({*wanted} - {*found})
        for node, words in zip(missing, self._namer.words(level, missing), strict=True):
            labels = tuple(LabelNote.of(self._known, one) for one in self._namer.labels(level, node)[:_NAMES])
            found[node] = ClusterNote(level, node, self._namer.size(level, node), labels, tuple(words))
        if len(self._notes) + len(missing) > _CLUSTERS:
            self._notes.clear()
        self._notes.update({(level, node): found[node] for node in missing})
        return tuple(found[node] for node in wanted)

    def beam(
        self, features: NDArray[np.int32], values: NDArray[np.float32], beam_width: int
    ) -> tuple[tuple[Held, ...], ...]:
        """What the beam holds at each level of clusters, best first."""
        levels = []
        for level, searcher in enumerate(self._searchers, 1):
            answer = searcher.rank(features, values, np.zeros(0, np.float32), top_k=beam_width, beam_width=beam_width)
            nodes, scores = ([], []) if answer is None else (one.tolist() for one in answer)
            parents = self._tree.parents[level - 1]
            levels.append(
                tuple(
                    Held(cluster, int(parents[cluster.node]), score)
                    for cluster, score in zip(self.clusters(level, nodes), scores, strict=True)
                )
            )
        return tuple(levels)

    def reached(
        self,
        features: NDArray[np.int32],
        values: NDArray[np.float32],
        labels: Sequence[int],
        scores: Sequence[float],
        held: Sequence[Held],
    ) -> tuple[Reached, ...]:
        """Labels that a text was brought to, each with the last cluster on its way, one of those the beam held."""
        parents = self._tree.parents[-1]
        if self._tree.leaf_labels is None:
            leaves = list(labels)
        else:
            leaves = self._best_leaves(features, values, labels, {one.cluster.node for one in held})
        return tuple(
            Reached(LabelNote.of(self._known, label), int(parents[leaf]), score)
            for label, leaf, score in zip(labels, leaves, scores, strict=True)
        )

    def path(self, level: int, node: int) -> tuple[ClusterNote, ...]:
        """A cluster behind those it lies in, from the root down."""
        path: list[ClusterNote] = []
        for at in range(level, -1, -1):
            path += self.clusters(at, [node])
            node = int(self._tree.parents[at - 1][node]) if at else 0
        return tuple(path[::-1])

    def branch(self, level: int, node: int, *, begin: int = 0, most: int = 100) -> Branch:
        """A cluster, and `most` of its children from the one at `begin` on; the root is level 0, node 0."""
        if not 0 <= level < self._tree.depth:
            raise InputError(f"level must be between 0 and {self._tree.depth - 1}, got {level!r}")
        if not 0 <= node < self._tree.level_sizes[level]:
            raise InputError(f"node must be between 0 and {self._tree.level_sizes[level] - 1}, got {node!r}")
        order, chunks = self._children(level + 1)
        children = order[chunks[node] : chunks[node + 1]]
        clusters: tuple[ClusterNote, ...] = ()
        labels: tuple[LabelNote, ...] = ()
        if level + 1 == self._tree.depth:
            those = children if self._tree.leaf_labels is None else self._tree.leaf_labels[children]
            by_weight = np.argsort(-self._namer.weight_of_label[those], kind="stable")
            labels = tuple(LabelNote.of(self._known, one) for one in those[by_weight][begin : begin + most].tolist())
        else:
            clusters = self.clusters(level + 1, children[begin : begin + most].tolist())
        *above, cluster = self.path(level, node)
        return Branch(cluster, tuple(above), children.size, clusters, labels)

    def label(self, label: int) -> tuple[tuple[Place, ...], tuple[tuple[LabelNote, float], ...]]:
        """Where a label is, with the words for and against it there; and the labels nearest to it, and how near."""
        places, own = [], []
        for leaf in self._tree.leaves(label):
            weights = self._namer.weights(self._tree.depth, leaf)
            order = np.argsort(weights, kind="stable")
            above = self.path(self._tree.depth - 1, int(self._tree.parents[-1][leaf]))
            most = [one for one in order[: -4 * _WORDS - 1 : -1].tolist() if weights[one] > 0]
            least = [one for one in order[: 4 * _WORDS].tolist() if weights[one] < 0]
            places.append(Place(above, self._terms(most, weights), self._terms(least, weights)))
            own.append(weights)
        near = nearest(self.model, label, np.mean(own, axis=0), _NEAREST)
        return tuple(places), tuple((LabelNote.of(self._known, other), alike) for other, alike in near)

    def _terms(self, features: list[int], weights: NDArray[np.float32]) -> tuple[tuple[str, float], ...]:
        by_term = {self._vectorizer.term(one): weights.item(one) for one in features}
        return tuple((term, by_term[term]) for term in distinct(by_term, _WORDS))

    @cached_property
    def _leaf_searcher(self) -> Searcher:
        return Searcher(self.model.layers_)  # of leaves, whatever labels they stand for

    def _best_leaves(
        self, features: NDArray[np.int32], values: NDArray[np.float32], labels: Sequence[int], held: set[int]
    ) -> list[int]:
        """For each label the leaf that gave it its score: the best of those whose clusters the beam held."""
        parents = self._tree.parents[-1]
        choices = []
        for label in labels:
            leaves = self._tree.leaves(label)
            choices.append([leaf for leaf in leaves if int(parents[leaf]) in held] or list(leaves))
        asked = np.array(sorted(leaf for leaves in choices for leaf in leaves), np.int32)
        ends = np.array([0, asked.size], np.int64)
        pairs = Csr.of(ends, asked, np.ones(asked.size, np.float32), parents.size)
        row = validation.sparse_rows(np.array([0, features.size], np.int64), features, values, self.model.widths_)
        scores = dict(zip(asked.tolist(), self._leaf_searcher.selected(row, pairs, threads=1).tolist(), strict=True))
        return [max(leaves, key=lambda leaf: scores[leaf]) for leaves in choices]
