"""A text ranker to look at: the labels of a text and their way through a label tree, single labels, two rankers.

Everything here is made of plain strings and numbers, ready to be shown by a page or printed. What takes longer than
a query is found out when it is asked for, and remembered within bounds.

Any ranker can be looked at. Of one that has several trees, as an ensemble does, one tree at a time; of one that has
none only what does not need it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core import validation
from carya.errors import InputError
from carya.models.reranked.column_views import first_of_row
from carya.text.explore.tree_view import TreeView
from carya.text.explore.views import Branch, Card, Compared, Found, LabelNote, Walk
from carya.text.text_ranker import TextRanker

_CARDS = 256  # labels that are remembered


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
        self.ranker = ranker
        self.known = ranker.known()
        self._trees = ranker.trees_
        self._view = lru_cache(maxsize=None)(self._make_view)  # one for each tree
        self._card = lru_cache(_CARDS)(self._make_card)

    @property
    def scores_any_label(self) -> bool:
        """Whether it can say what a label scores that was not found: trees can, and neighbours among labels."""
        model = self.ranker.model_
        return hasattr(model, "predict_selected") and getattr(model, "over", "labels") == "labels"

    def tree(self, number: int = 0) -> TreeView:
        """One of the ranker's trees; raises InputError if there is no such tree."""
        if not self._trees:
            raise InputError(f"a model of kind {type(self.ranker.model_).__name__} has no label tree to look at")
        if not 0 <= number < len(self._trees):
            raise InputError(f"tree must be between 0 and {len(self._trees) - 1}, got {number!r}")
        return self._view(number)

    def walk(self, text: str, *, top_k: int = 10, beam_width: int | None = None, tree: int = 0) -> Walk:
        """The labels of a text, and the clusters that the beam of a tree holds on its way to them."""
        model, width = self.ranker.model_, beam_width
        if width is not None:
            validation.positive_int(width, "beam_width")
        features, values = self.ranker.vectorizer_.row(text)
        labels, scores = model.rank_sparse(features, values, top_k=top_k, beam_width=width)
        found = self._found(labels, scores)
        known = _covered(sorted((term.begin, term.end) for term in self.ranker.vectorizer_.terms_in(text)))
        if not self._trees:
            return Walk(found, known)
        view = self.tree(tree)
        width = view.model.beam_width if width is None else width
        features, values = first_of_row(features, values, view.model.widths_[0], self.ranker.vectorizer_.n_features_)
        if view.model is not model:
            labels, scores = view.model.rank_sparse(features, values, top_k=top_k, beam_width=width)
        levels = view.beam(features, values, width)
        held = levels[-1] if levels else ()
        return Walk(found, known, levels, view.reached(features, values, labels.tolist(), scores.tolist(), held), width)

    def found(self, text: str, *, top_k: int = 10) -> tuple[Found, ...]:
        """The labels of a text alone."""
        return self._found(*self.ranker.model_.rank_sparse(*self.ranker.vectorizer_.row(text), top_k=top_k))

    def scores(self, text: str, labels: Sequence[str]) -> tuple[Found, ...]:
        """What some labels score for a text, whether the beam would have found them or not."""
        if not self.scores_any_label:
            raise InputError(f"a model of kind {type(self.ranker.model_).__name__} scores only labels that it finds")
        numbers = np.array([self.known.number(label) for label in labels], np.int32)
        features, values = self.ranker.vectorizer_.row(text)
        x = sp.csr_array((values, features, [0, features.size]), shape=(1, self.ranker.vectorizer_.n_features_))
        wanted = np.unique(numbers)
        ends = [0, wanted.size]
        asked = sp.csr_array((np.ones(wanted.size, np.float32), wanted, ends), shape=(1, len(self.known)))
        scores = self.ranker.model_.predict_selected(x, asked).data[np.searchsorted(wanted, numbers)]
        return self._found(numbers, scores)

    def explain(self, text: str, label: str, *, tree: int = 0) -> dict[str, Any]:
        """Why a text gets a label, as :meth:`carya.TextRanker.explain` tells it, and the clusters of each level.

        The chance is that of the score, so there is none for the score of one tree of several.
        """
        view = self.tree(tree)
        why = self.ranker.explain(text, label, tree=tree)
        number = self.known.number(why.label)
        (found,) = self._found(np.array([number]), np.array([why.score]))
        chance = found.chance if view.model is self.ranker.model_ else None
        told = why.to_dict() | {"chance": chance, "count": found.label.count}
        for depth, level in enumerate(told["levels"], 1):
            (level["cluster"],) = [None] if level is told["levels"][-1] else view.clusters(depth, [level["node"]])
        return told

    def branch(self, level: int = 0, node: int = 0, *, begin: int = 0, most: int = 100, tree: int = 0) -> Branch:
        """A cluster, and `most` of its children from the one at `begin` on; the root is level 0, node 0."""
        return self.tree(tree).branch(level, node, begin=begin, most=most)

    def label(self, label: str, *, tree: int = 0) -> Card:
        """What there is to know of a label."""
        return self._card(self.known.number(label), tree)

    def frequent(self, most: int = 60) -> tuple[LabelNote, ...]:
        """The labels of most training texts; where these were not counted, the first ones."""
        counts = self.known.counts
        order = np.arange(len(self.known)) if counts is None else np.argsort(-counts, kind="stable")
        return tuple(LabelNote.of(self.known, label) for label in order[:most].tolist())

    def _found(self, labels: NDArray[Any], scores: NDArray[Any]) -> tuple[Found, ...]:
        known = self.ranker.calibration_
        chances = [None] * labels.size if known is None else known(scores).tolist()
        return tuple(
            Found(LabelNote.of(self.known, label), score, chance)
            for label, score, chance in zip(labels.tolist(), scores.tolist(), chances, strict=True)
        )

    def _make_view(self, number: int) -> TreeView:
        return TreeView(self.ranker, self._trees[number])

    def _make_card(self, label: int, tree: int) -> Card:
        note = LabelNote.of(self.known, label)
        text = None if self.known.texts is None else self.known.texts[label]
        if not self._trees:
            return Card(note, self.known.n_texts, text)
        return Card(note, self.known.n_texts, text, *self.tree(tree).label(label))


def compare(one: Explorer, other: Explorer, text: str, *, top_k: int = 10) -> tuple[Compared, ...]:
    """What two rankers find for a text, in the order of the first, then what only the second found.

    A label that is not among a ranker's best has the score that it would have been given, if the ranker can tell.

    Examples
    --------
    >>> import carya
    >>> texts, labels = ["red apple", "red car", "green apple", "green car"], [["fruit"], ["car"], ["fruit"], ["car"]]
    >>> tfidf = carya.Tfidf(min_df=1)
    >>> explorers = [Explorer(carya.TextRanker(tfidf).fit(texts[:k], labels[:k])) for k in (4, 1)]
    >>> [(row.label.name, row.ranks) for row in compare(*explorers, "an apple", top_k=1)]
    [('fruit', (1, 1))]
    """
    explorers = (one, other)
    best = [{found.label.label: found for found in explorer.found(text, top_k=top_k)} for explorer in explorers]
    labels = list(dict.fromkeys(itertools.chain(*best)))
    ranks = [{label: rank for rank, label in enumerate(some, 1)} for some in best]
    numbers = [explorer.known.ids.numbers for explorer in explorers]
    for explorer, some, mine in zip(explorers, best, numbers, strict=True):
        rest = [label for label in labels if label in mine and label not in some]
        if rest and explorer.scores_any_label:
            some.update(zip(rest, explorer.scores(text, rest), strict=True))
    return tuple(
        Compared(
            next(found[label].label for found in best if label in found),
            (label in numbers[0], label in numbers[1]),
            (ranks[0].get(label), ranks[1].get(label)),
            (best[0].get(label), best[1].get(label)),
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
