"""Explanations of label scores: the contribution of each term in a text."""

from __future__ import annotations

import math
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.models.xr_linear.explanation import Explanation
from carya.text.tfidf import Term, Tfidf


@dataclass(frozen=True)
class TermContribution:
    """Contribution of a term to a score.

    Attributes
    ----------
    term : str
    contribution : float
        The contribution to the score or to its logarithm.
    spans : tuple of (int, int)
        The character ranges of the term in the text.
    """

    term: str
    contribution: float
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class TextLevelExplanation:
    """Contributions of the terms at one level of the tree.

    Attributes
    ----------
    node : int
        The index of the cluster that contains the label or, at the last level, of the label's leaf.
    score : float
        The score of this level. If `log_scale` is True, the label's score is the product of the level scores.
    base : float
        The score for an empty text, or its logarithm if `log_scale` is True.
    terms : tuple of TermContribution
        Nonzero contributions, in descending order of absolute value.
    """

    node: int
    score: float
    base: float
    terms: tuple[TermContribution, ...]


@dataclass(frozen=True)
class TextExplanation:
    """Explanation of a label's score for a text.

    `base` and the contributions in `terms` add up to the score, or to its logarithm if `log_scale` is True. The bases
    and contributions of the individual levels have the same sum.

    Attributes
    ----------
    label, name : str
    score : float
    log_scale : bool
    base : float
    terms : tuple of TermContribution
        Contributions summed over all levels, in descending order of absolute value.
    levels : tuple of TextLevelExplanation
        The levels of the tree, from the root down.
    """

    label: str
    name: str
    score: float
    log_scale: bool
    base: float
    terms: tuple[TermContribution, ...]
    levels: tuple[TextLevelExplanation, ...]

    @classmethod
    def of(cls, explanation: Explanation, occurrences: Sequence[Term], label: str, name: str) -> TextExplanation:
        """Convert the contributions of features to contributions of the terms in the text.

        The contribution of a feature is divided equally among its occurrences.
        """
        by_feature: defaultdict[int, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
        for term in occurrences:
            by_feature[term.feature][term.text].append((term.begin, term.end))

        def by_size(contributions: NDArray[np.float64]) -> tuple[TermContribution, ...]:
            totals: defaultdict[str, list[float]] = defaultdict(list)
            spans: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
            for feature, contribution in zip(explanation.features.tolist(), contributions.tolist(), strict=True):
                if contribution == 0:
                    continue
                n_occurrences = sum(map(len, by_feature[feature].values()))
                for text, places in by_feature[feature].items():
                    totals[text].append(contribution * (len(places) / n_occurrences))
                    spans[text].update(places)
            terms = [
                TermContribution(text, math.fsum(parts), tuple(sorted(spans[text]))) for text, parts in totals.items()
            ]
            return tuple(sorted(terms, key=lambda term: -abs(term.contribution)))

        levels = tuple(
            TextLevelExplanation(level.node, level.score, level.base, by_size(level.contributions))
            for level in explanation.levels
        )
        terms = by_size(explanation.contributions)
        return cls(label, name, explanation.score, explanation.log_scale, explanation.base, terms, levels)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as a JSON-serializable dictionary."""

        def to_list(terms: tuple[TermContribution, ...]) -> list[dict[str, Any]]:
            return [{"term": term.term, "contribution": term.contribution, "spans": term.spans} for term in terms]

        return {
            "label": self.label,
            "name": self.name,
            "score": self.score,
            "log_scale": self.log_scale,
            "base": self.base,
            "terms": to_list(self.terms),
            "levels": [
                {"node": level.node, "score": level.score, "base": level.base, "terms": to_list(level.terms)}
                for level in self.levels
            ],
        }


def locate_contributions(vectorizer: Tfidf, text: str) -> list[Term]:
    """Return the occurrences of known terms; character n-grams within words are attributed to the words.

    If several hashed terms share a feature, its name lists all of them. N-grams keep their own names if there are no
    word features, or if they occur in a script without spaces, where word boundaries are unknown.
    """
    terms = vectorizer.terms_in(text)
    words = vectorizer.word_features_
    if vectorizer.fitted_parameters_["n_buckets"] is not None:
        variants: defaultdict[int, dict[str, None]] = defaultdict(dict)
        for term in terms:
            variants[term.feature][term.text] = None
        terms = [term._replace(text=" / ".join(variants[term.feature])) for term in terms]
    if len(words) == vectorizer.n_features_:
        return terms
    spans = list(_word_spans(text))
    span_at = {position: span for span in spans for position in range(*span)}
    names = {(term.begin, term.end): term.text for term in terms if term.feature in words}
    lowercase = vectorizer.fitted_parameters_["lowercase"]
    located = []
    for term in terms:
        covered = [span_at[position] for position in range(term.begin, term.end) if position in span_at]
        if term.feature in words or not covered:
            located.append(term)
            continue
        span = max(covered, key=covered.count)
        word = text[slice(*span)]
        located.append(Term(term.feature, *span, names.get(span) or (word.lower() if lowercase else word)))
    return located


def _word_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the character ranges of the words, except in scripts without spaces between words."""
    unspaced = {position for run in _core.unspaced_runs(text) for position in range(*run)}
    begin = None
    for position, c in enumerate(text):
        is_word = position not in unspaced and (
            c.isalnum() or c == "_" or (begin is not None and unicodedata.category(c) in ("Mn", "Mc", "Cf"))
        )
        if is_word and begin is None:
            begin = position
        elif not is_word and begin is not None:
            yield begin, position
            begin = None
    if begin is not None:
        yield begin, len(text)
