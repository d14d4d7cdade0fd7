"""Explanations of label scores: the contribution of each term in a text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.models.xr_linear.explanation import Explanation
from carya.text.tfidf import Term


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
        The cluster that contains the label or, at the last level, the label itself.
    score : float
        The score of this level. If `log_scale` is True, the label's score is the product of the level scores.
    base : float
        The score of an empty text, or its logarithm if `log_scale` is True.
    terms : tuple of TermContribution
        Nonzero contributions, largest first.
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
        Contributions summed over all levels, largest first.
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
    def of(cls, explanation: Explanation, located: Sequence[Term], label: str, name: str) -> TextExplanation:
        """Convert an explanation in terms of features to one in terms of the text's terms."""
        texts: defaultdict[int, dict[str, None]] = defaultdict(dict)
        spans: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for term in located:
            texts[term.feature][term.text] = None
            spans[term.feature].append((term.begin, term.end))
        # Hashed terms can share a feature; its name then lists all of them.
        names = {feature: " / ".join(variants) for feature, variants in texts.items()}

        def by_size(contributions: NDArray[np.float64]) -> tuple[TermContribution, ...]:
            terms = [
                TermContribution(names[feature], float(contribution), tuple(spans[feature]))
                for feature, contribution in zip(explanation.features.tolist(), contributions, strict=True)
                if contribution != 0
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
