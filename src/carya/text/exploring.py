"""A text ranker to look at: the way of a text through the label tree, its clusters in words, labels, two rankers.

Everything here is made of plain strings and numbers, ready to be shown by a page or printed. What takes longer than
a query is found out when it is asked for, and remembered within bounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya import checks
from carya import sparse as sp
from carya.errors import InputError
from carya.search import Searcher
from carya.text.naming import Namer, distinct
from carya.text.nearness import nearest
from carya.text.ranker import TextRanker

_CARDS = 256  # labels that are remembered
_CLUSTERS = 4096  # and clusters
_NAMES = 4  # labels of a cluster's name
_WORDS = 12  # of a label
_NEAREST = 8


@dataclass(frozen=True)
class LabelNote:
    """A label.

    Attributes
    ----------
    label, name : str
    count : int or None
        How many training texts had it, if that is known.
    """

    label: str
    name: str
    count: int | None


@dataclass(frozen=True)
class ClusterNote:
    """A cluster of labels, named by what is strongest in it.

    Attributes
    ----------
    level, node : int
        Where it is in the tree; the root is level 0, node 0.
    n_labels : int
        How many labels lie in it.
    labels : tuple of LabelNote
        The most frequent of them.
    words : tuple of str
        The words that speak most for it; none for the root.
    """

    level: int
    node: int
    n_labels: int
    labels: tuple[LabelNote, ...]
    words: tuple[str, ...]


@dataclass(frozen=True)
class Held:
    """A cluster that the beam held.

    Attributes
    ----------
    cluster : ClusterNote
    parent : int
        The node of the level above that it lies in.
    score : float
        Of the path to it.
    """

    cluster: ClusterNote
    parent: int
    score: float


@dataclass(frozen=True)
class Found:
    """A label that was found for a text.

    Attributes
    ----------
    label : LabelNote
    parent : int
        The last cluster it lies in.
    score : float
    chance : float or None
        How often suggestions with such a score are right, if the ranker is calibrated.
    """

    label: LabelNote
    parent: int
    score: float
    chance: float | None


@dataclass(frozen=True)
class Walk:
    """The way of a text through the label tree.

    Attributes
    ----------
    levels : tuple of tuple of Held
        What the beam held at each level of clusters, from the root down, best first.
    found : tuple of Found
        The labels at the end, best first: those of :meth:`carya.TextRanker.suggest`, with the same scores.
    beam_width : int
    known : tuple of (int, int)
        Which characters of the text belong to terms that the ranker knows.
    """

    levels: tuple[tuple[Held, ...], ...]
    found: tuple[Found, ...]
    beam_width: int
    known: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Branch:
    """A cluster and what is in it.

    Attributes
    ----------
    cluster : ClusterNote
    above : tuple of ClusterNote
        The clusters it lies in, from the root down.
    n_children : int
    clusters : tuple of ClusterNote
        Some of its children; empty above labels.
    labels : tuple of LabelNote
        Some of its labels, most frequent first; empty above clusters.
    """

    cluster: ClusterNote
    above: tuple[ClusterNote, ...]
    n_children: int
    clusters: tuple[ClusterNote, ...]
    labels: tuple[LabelNote, ...]


@dataclass(frozen=True)
class Card:
    """A label by itself.

    Attributes
    ----------
    label : LabelNote
    n_texts : int or None
        How many training texts there were, if that is known.
    text : str or None
        What is written about it.
    above : tuple of ClusterNote
        The clusters it lies in, from the root down.
    words_for, words_against : tuple of (str, float)
        The terms with the largest weights, and with the smallest below 0, in its own cluster.
    nearest : tuple of (LabelNote, float)
        Labels that weigh its strongest words alike, and how much, at most 1.
    """

    label: LabelNote
    n_texts: int | None
    text: str | None
    above: tuple[ClusterNote, ...]
    words_for: tuple[tuple[str, float], ...]
    words_against: tuple[tuple[str, float], ...]
    nearest: tuple[tuple[LabelNote, float], ...]


class Explorer:
    """Looks into a text ranker. Any number of threads may ask.

    Examples
    --------
    >>> import carya
    >>> texts = ["a fast web server", "a mail server", "an image editor", "a photo editor", "a fast mail client"]
    >>> labels = [["net", "web"], ["net", "mail"], ["graphics"], ["graphics"], ["mail"]]
    >>> model = carya.XRLinear(tree=carya.LabelTree([[0, 0], [1, 0, 0, 0]]))      # graphics by itself
    >>> explorer = Explorer(carya.TextRanker(carya.Tfidf(min_df=1), model).fit(texts, labels))
    >>> walk = explorer.walk("another photo editor", top_k=1)
    >>> walk.found[0].label.name
    'graphics'
    >>> [one.label for one in walk.levels[0][0].cluster.labels]
    ['graphics']
    >>> explorer.label("mail").label.count
    2
    """

    def __init__(self, ranker: TextRanker) -> None:
        if getattr(ranker.model_, "tree_", None) is None:
            raise InputError(f"a {type(ranker.model_).__name__} has no single label tree to look at")
        if ranker.model_.tree_.leaf_labels is not None:
            raise InputError("the clusters of this label tree overlap (copies above 1): it cannot be looked at")
        self.ranker = ranker
        self._known = ranker.known()
        self._tree = ranker.model_.tree_
        self._namer = Namer(ranker)
        layers = ranker.model_.layers_
        self._searchers = [Searcher(layers[:depth]) for depth in range(1, len(layers))]
        self._children = lru_cache(maxsize=None)(self._tree.children)  # one for each level
        self._card = lru_cache(_CARDS)(self._make_card)
        self.cluster = lru_cache(_CLUSTERS)(self._make_cluster)

    def walk(self, text: str, *, top_k: int = 10, beam_width: int | None = None) -> Walk:
        """The clusters that the beam holds on the way of a text, and the labels it ends at."""
        model = self.ranker.model_
        width = checks.positive_int(model.beam_width if beam_width is None else beam_width, "beam_width")
        features, values = self.ranker.vectorizer_.row(text)
        levels = []
        for level, searcher in enumerate(self._searchers, 1):
            answer = searcher.rank(features, values, np.zeros(0, np.float32), top_k=width, beam_width=width)
            nodes, scores = ([], []) if answer is None else (one.tolist() for one in answer)
            parents = self._tree.parents[level - 1]
            levels.append(
                tuple(
                    Held(self.cluster(level, node), int(parents[node]), score)
                    for node, score in zip(nodes, scores, strict=True)
                )
            )
        found, scores = model.rank_sparse(features, values, top_k=top_k, beam_width=width)
        known = _covered(sorted((term.begin, term.end) for term in self.ranker.vectorizer_.terms_in(text)))
        return Walk(tuple(levels), self._found(found, scores), width, known)

    def scores(self, text: str, labels: Sequence[str]) -> tuple[Found, ...]:
        """What some labels score for a text, whether the beam would have found them or not."""
        numbers = np.array([self._known.number(label) for label in labels], np.int32)
        features, values = self.ranker.vectorizer_.row(text)
        x = sp.csr_array((values, features, [0, features.size]), shape=(1, self.ranker.vectorizer_.n_features_))
        wanted = np.unique(numbers)
        ends = [0, wanted.size]
        asked = sp.csr_array((np.ones(wanted.size, np.float32), wanted, ends), shape=(1, len(self._known)))
        scores = self.ranker.model_.predict_selected(x, asked).data[np.searchsorted(wanted, numbers)]
        return self._found(numbers, scores)

    def explain(self, text: str, label: str) -> dict[str, Any]:
        """Why a text gets a label, as :meth:`carya.TextRanker.explain` tells it, and the clusters of each level."""
        why = self.ranker.explain(text, label)
        number = self._known.number(why.label)
        (found,) = self._found(np.array([number]), np.array([why.score]))
        told = why.to_dict() | {"chance": found.chance, "count": found.label.count}
        for level, cluster in zip(told["levels"], [*self._above(number)[1:], None], strict=True):
            level["cluster"] = cluster
        return told

    def branch(self, level: int = 0, node: int = 0, *, begin: int = 0, most: int = 100) -> Branch:
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
            by_weight = np.argsort(-self._namer.weight_of_label[children], kind="stable")
            labels = tuple(self.note(int(one)) for one in children[by_weight][begin : begin + most])
        else:
            clusters = tuple(self.cluster(level + 1, int(one)) for one in children[begin : begin + most])
        above = self._path(level, node)[:-1]
        return Branch(self.cluster(level, node), tuple(above), children.size, clusters, labels)

    def label(self, label: str) -> Card:
        """What there is to know of a label."""
        return self._card(self._known.number(label))

    def note(self, label: int) -> LabelNote:
        """A label in words."""
        counts = self._known.counts
        return LabelNote(
            self._known.ids[label], self._known.name(label), None if counts is None else counts.item(label)
        )

    def _found(self, labels: NDArray[Any], scores: NDArray[Any]) -> tuple[Found, ...]:
        known = self.ranker.calibration_
        chances = [None] * labels.size if known is None else known(scores).tolist()
        parents = self._tree.parents[-1]
        return tuple(
            Found(self.note(label), int(parents[label]), score, chance)
            for label, score, chance in zip(labels.tolist(), scores.tolist(), chances, strict=True)
        )

    def _path(self, level: int, node: int) -> list[ClusterNote]:
        path = []
        for at in range(level, -1, -1):
            path.append(self.cluster(at, node))
            node = int(self._tree.parents[at - 1][node]) if at else 0
        return path[::-1]

    def _above(self, label: int) -> list[ClusterNote]:
        return self._path(self._tree.depth - 1, int(self._tree.parents[-1][label]))

    def _make_cluster(self, level: int, node: int) -> ClusterNote:
        labels = tuple(self.note(one) for one in self._namer.labels(level, node)[:_NAMES])
        words = tuple(self._namer.words(level, node)) if level else ()
        return ClusterNote(level, node, self._namer.size(level, node), labels, words)

    def _make_card(self, label: int) -> Card:
        weights = self._namer.weights(self._tree.depth, label)
        order = np.argsort(weights, kind="stable")

        def told(features: list[int]) -> tuple[tuple[str, float], ...]:
            by_term = {self.ranker.vectorizer_.term(one): weights.item(one) for one in features}
            return tuple((term, by_term[term]) for term in distinct(by_term, _WORDS))

        return Card(
            self.note(label),
            self._known.n_texts,
            None if self._known.texts is None else self._known.texts[label],
            tuple(self._above(label)),
            told([one for one in order[: -4 * _WORDS - 1 : -1].tolist() if weights[one] > 0]),
            told([one for one in order[: 4 * _WORDS].tolist() if weights[one] < 0]),
            tuple((self.note(other), alike) for other, alike in nearest(self.ranker.model_, label, weights, _NEAREST)),
        )


@dataclass(frozen=True)
class Compared:
    """A label as two rankers see it: its rank, from 1, if it is among the best, and its score if they know it."""

    label: LabelNote
    ranks: tuple[int | None, int | None]
    found: tuple[Found | None, Found | None]


def compare(one: Explorer, other: Explorer, text: str, *, top_k: int = 10) -> tuple[Compared, ...]:
    """What two rankers find for a text, in the order of the first, then what only the second found.

    A label that is not among a ranker's best has the score that it would have been given.

    Examples
    --------
    >>> import carya
    >>> texts, labels = ["red apple", "red car", "green apple", "green car"], [["fruit"], ["car"], ["fruit"], ["car"]]
    >>> tfidf = carya.Tfidf(min_df=1)
    >>> explorers = [Explorer(carya.TextRanker(tfidf).fit(texts[:k], labels[:k])) for k in (4, 1)]
    >>> [(row.label.name, row.ranks) for row in compare(*explorers, "an apple", top_k=1)]
    [('fruit', (1, 1))]
    """
    rankings = [[found.label.label for found in explorer.walk(text, top_k=top_k).found] for explorer in (one, other)]
    labels = list(dict.fromkeys(itertools.chain(*rankings)))
    scored: list[dict[str, Found]] = []
    for explorer in (one, other):
        mine = [label for label in labels if label in explorer._known.ids.numbers]
        scored.append(dict(zip(mine, explorer.scores(text, mine), strict=True)) if mine else {})
    places = [{label: rank for rank, label in enumerate(ranking, 1)} for ranking in rankings]
    return tuple(
        Compared(
            (scored[0].get(label) or scored[1][label]).label,
            (places[0].get(label), places[1].get(label)),
            (scored[0].get(label), scored[1].get(label)),
        )
        for label in labels
    )


def _covered(places: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Sorted stretches of characters, those that overlap made one.

    >>> _covered([(0, 4), (0, 8), (5, 8), (9, 12)])
    ((0, 8), (9, 12))
    """
    merged: list[tuple[int, int]] = []
    for begin, end in places:
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return tuple(merged)
