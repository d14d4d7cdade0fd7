"""Inspect a text ranker: trace a search through the label tree, describe labels, and compare two rankers.

Results are plain strings and numbers. Expensive results are computed on first use and cached up to a limit.

Any text model can be inspected. If the model has several trees, as ensembles do, one tree is inspected at a time. For a
transformer model, the inspected tree is the label tree of its linear ranker on TF-IDF features. If a model has no tree,
only the operations that do not require a tree are available.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core import validation
from carya.errors import InputError
from carya.text.base import BaseTextRanker
from carya.text.explore.tree_view import TreeView
from carya.text.explore.views import (
    ClusterPage,
    ComparedLabel,
    LabelCard,
    LabelView,
    ScoredLabel,
    SearchTrace,
    TreeExplanation,
)
from carya.text.tfidf import Tfidf

_MAX_CACHED_CARDS = 256


class Explorer:
    """Thread-safe inspector for a text model.

    Parameters
    ----------
    ranker : TextRanker, XRTransformer, XTransformer or another text model

    Examples
    --------
    >>> import carya
    >>> texts = ["a fast web server", "a mail server", "an image editor", "a photo editor", "a fast mail client"]
    >>> labels = [["net", "web"], ["net", "mail"], ["graphics"], ["graphics"], ["mail"]]
    >>> model = carya.XRLinear(tree=carya.LabelTree([[0, 0], [1, 0, 0, 0]]))  # "graphics" has its own cluster
    >>> explorer = Explorer(carya.TextRanker(carya.Tfidf(min_df=1), model).fit(texts, labels))
    >>> trace = explorer.search("another photo editor", top_k=1)
    >>> trace.labels[0].label.name
    'graphics'
    >>> [label.name for label in trace.levels[0][0].cluster.labels]
    ['graphics']
    >>> explorer.label_card("mail").label.count
    2
    """

    def __init__(self, ranker: BaseTextRanker[Any]) -> None:
        self.ranker = ranker
        self.labels = ranker.label_set_
        self._trees = ranker.text_trees_
        self._tree_view = lru_cache(maxsize=None)(self._make_tree_view)  # one per tree
        self._card = lru_cache(_MAX_CACHED_CARDS)(self._make_card)

    def tree(self, number: int = 0) -> TreeView:
        """Return a view of one of the ranker's trees; raise InputError if the tree does not exist."""
        if not self._trees:
            raise InputError(f"{self.ranker.model_kind_} models have no label tree.")
        if not 0 <= number < len(self._trees):
            raise InputError(f"tree must be between 0 and {len(self._trees) - 1}, got {number!r}.")
        return self._tree_view(number)

    def search(self, text: str, *, top_k: int = 10, beam_width: int | None = None, tree: int = 0) -> SearchTrace:
        """Rank the labels for a text and trace the beam search in one tree."""
        if beam_width is not None:
            validation.check_positive_int(beam_width, "beam_width")
        numbers, scores = self.ranker.rank(text, top_k=top_k, beam_width=beam_width)
        labels = self._scored_labels(numbers, scores, is_ranking=True)
        if not self._trees:
            vectorizers = self.ranker.vectorizers_
            return SearchTrace(labels, _known_spans(vectorizers, text), _known_word_spans(vectorizers, text))
        view = self.tree(tree)
        vectorizers = (view.text_tree.vectorizer,)
        spans = _known_spans(vectorizers, text), _known_word_spans(vectorizers, text)
        width = view.model.beam_width if beam_width is None else beam_width
        features, values = view.text_tree.row(text)
        if view.model is not self.ranker.single_tree_:
            numbers, scores = view.model.rank_sparse(features, values, top_k=top_k, beam_width=width)
        levels = view.beam(features, values, width)
        last_beam = levels[-1] if levels else ()
        reached = view.reached_labels(features, values, numbers.tolist(), scores.tolist(), last_beam)
        return SearchTrace(labels, *spans, levels, reached, width)

    def rank(self, text: str, *, top_k: int = 10) -> tuple[ScoredLabel, ...]:
        """Return the best labels for a text."""
        return self._scored_labels(*self.ranker.rank(text, top_k=top_k), is_ranking=True)

    def score_labels(self, text: str, labels: Sequence[str]) -> tuple[ScoredLabel, ...]:
        """Return the scores of the given labels, including labels that the beam search does not reach."""
        if not self.ranker.scores_any_label:
            raise InputError(f"{self.ranker.model_kind_} models can score only the labels that a search returns.")
        numbers = np.array([self.labels.number(label) for label in labels], np.int32)
        distinct = np.unique(numbers)
        pairs = sp.csr_array(
            (np.ones(distinct.size, np.float32), distinct, [0, distinct.size]), shape=(1, len(self.labels))
        )
        scores = self.ranker.predict_selected([text], pairs).data[np.searchsorted(distinct, numbers)]
        return self._scored_labels(numbers, scores, is_ranking=False)

    def explain(self, text: str, label: str, *, tree: int = 0) -> TreeExplanation:
        """Explain a label's score as :meth:`carya.TextRanker.explain` does, and add the cluster at each level.

        `probability` is None unless the tree is the entire model, because a calibration of several trees applies to
        their combined score.
        """
        view = self.tree(tree)
        explanation = self.ranker.explain(text, label, tree=tree)
        number = self.labels.number(explanation.label)
        (scored,) = self._scored_labels(np.array([number]), np.array([explanation.score]), is_ranking=False)
        probability = scored.probability if view.model is self.ranker.single_tree_ else None
        result = explanation.to_dict() | {"probability": probability, "count": scored.label.count}
        *inner, last = result["levels"]
        for depth, level in enumerate(inner, 1):
            (level["cluster"],) = view.clusters(depth, [level["node"]])
        last["cluster"] = None
        return cast(TreeExplanation, result)

    def cluster_page(
        self, level: int = 0, node: int = 0, *, begin: int = 0, limit: int = 100, tree: int = 0
    ) -> ClusterPage:
        """Return a cluster and at most `limit` of its children; the root is level 0, node 0."""
        return self.tree(tree).cluster_page(level, node, begin=begin, limit=limit)

    def label_card(self, label: str, *, tree: int = 0) -> LabelCard:
        """Return all available information about a label, given its id or name."""
        return self._card(self.labels.number(label), tree)

    def frequent_labels(self, limit: int = 60) -> tuple[LabelView, ...]:
        """Return the labels with the most training texts, or the first labels if the counts are unknown."""
        counts = self.labels.counts
        order = np.arange(len(self.labels)) if counts is None else np.argsort(-counts, kind="stable")
        return tuple(LabelView.of(self.labels, number) for number in order[:limit].tolist())

    def _scored_labels(
        self, numbers: NDArray[Any], scores: NDArray[Any], *, is_ranking: bool
    ) -> tuple[ScoredLabel, ...]:
        """Return labels with their probabilities, which depend on the ranks if the labels are a ranking."""
        calibration = self.ranker.calibration_
        probabilities: list[Any] = [None] * numbers.size
        if calibration is not None:
            ranks = np.arange(1, numbers.size + 1)
            probabilities = (
                calibration.of_labels(numbers, scores, ranks) if is_ranking else calibration(scores)
            ).tolist()
        return tuple(
            ScoredLabel(LabelView.of(self.labels, number), score, probability)
            for number, score, probability in zip(numbers.tolist(), scores.tolist(), probabilities, strict=True)
        )

    def _make_tree_view(self, number: int) -> TreeView:
        return TreeView(self._trees[number], self.labels)

    def _make_card(self, number: int, tree: int) -> LabelCard:
        label = LabelView.of(self.labels, number)
        description = None if self.labels.texts is None else self.labels.texts[number]
        if not self._trees:
            return LabelCard(label, self.labels.n_texts, description)
        positions, similar_labels = self.tree(tree).describe_label(number)
        return LabelCard(label, self.labels.n_texts, description, positions, similar_labels)


def compare(first: Explorer, second: Explorer, text: str, *, top_k: int = 10) -> tuple[ComparedLabel, ...]:
    """Return the best labels from two rankers: the labels from `first`, then those returned only by `second`.

    A label that is not in the top k of a ranker still has a score if the ranker can score arbitrary labels.

    Examples
    --------
    >>> import carya
    >>> texts, labels = ["red apple", "red car", "green apple", "green car"], [["fruit"], ["car"], ["fruit"], ["car"]]
    >>> tfidf = carya.Tfidf(min_df=1)
    >>> explorers = [Explorer(carya.TextRanker(tfidf).fit(texts[:k], labels[:k])) for k in (4, 1)]
    >>> [(row.label.name, row.ranks) for row in compare(*explorers, "an apple", top_k=1)]
    [('fruit', (1, 1))]
    """
    explorers = (first, second)
    scores = [{scored.label.label: scored for scored in explorer.rank(text, top_k=top_k)} for explorer in explorers]
    labels = list(dict.fromkeys(itertools.chain(*scores)))
    ranks = [{label: rank for rank, label in enumerate(best, 1)} for best in scores]
    is_known = [{label: explorer.labels.index.find_id(label) is not None for label in labels} for explorer in explorers]
    for explorer, best, known in zip(explorers, scores, is_known, strict=True):
        missing = [label for label in labels if known[label] and label not in best]
        if missing and explorer.ranker.scores_any_label:
            best.update(zip(missing, explorer.score_labels(text, missing), strict=True))
    return tuple(
        ComparedLabel(
            label=next(best[label].label for best in scores if label in best),
            is_known=(is_known[0][label], is_known[1][label]),
            ranks=(ranks[0].get(label), ranks[1].get(label)),
            scores=(scores[0].get(label), scores[1].get(label)),
        )
        for label in labels
    )


def _known_spans(vectorizers: Sequence[Tfidf], text: str) -> tuple[tuple[int, int], ...]:
    """Return the character ranges of a text that are covered by the vectorizers' terms."""
    terms = itertools.chain.from_iterable(vectorizer.terms_in(text) for vectorizer in vectorizers)
    return _merge_spans(sorted((term.begin, term.end) for term in terms))


def _known_word_spans(vectorizers: Sequence[Tfidf], text: str) -> tuple[tuple[int, int], ...]:
    """Return the ranges covered by words; n-grams of characters count only for vectorizers without words."""
    spans = []
    for vectorizer in vectorizers:
        words = vectorizer.word_features_
        spans += [(term.begin, term.end) for term in vectorizer.terms_in(text) if not words or term.feature in words]
    return _merge_spans(sorted(spans))


def _merge_spans(spans: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Merge overlapping or adjacent character ranges; the ranges must be sorted.

    >>> _merge_spans([(0, 4), (0, 8), (5, 8), (9, 12)])
    ((0, 8), (9, 12))
    """
    merged: list[tuple[int, int]] = []
    for begin, end in spans:
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return tuple(merged)
