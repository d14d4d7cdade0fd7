"""Why a text gets a label, in words."""

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
class TermShare:
    """What a term adds.

    Attributes
    ----------
    term : str
    share : float
        What it adds to the score, or to its logarithm.
    places : tuple of (int, int)
        Where it stands in the text, by characters.
    """

    term: str
    share: float
    places: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class LevelExplanation:
    """What terms add at one level of the tree.

    Attributes
    ----------
    node : int
        The cluster that the label lies in, or, at the last level, the label.
    score : float
        The level's own score; those of all levels multiplied are the label's.
    base : float
        What an empty text has.
    terms : tuple of TermShare
        Largest first, those that add nothing left out.
    """

    node: int
    score: float
    base: float
    terms: tuple[TermShare, ...]


@dataclass(frozen=True)
class TextExplanation:
    """Why a text gets a label.

    `base` and the shares of `terms` add up to the score or, if `in_logs`, to its logarithm; so do those of the levels.

    Attributes
    ----------
    label, name : str
    score : float
    in_logs : bool
    base : float
    terms : tuple of TermShare
        Over all levels, largest first.
    levels : tuple of LevelExplanation
        From the root down.
    """

    label: str
    name: str
    score: float
    in_logs: bool
    base: float
    terms: tuple[TermShare, ...]
    levels: tuple[LevelExplanation, ...]

    @classmethod
    def of(cls, why: Explanation, found: Sequence[Term], label: str, name: str) -> TextExplanation:
        """The explanation of a text's features in terms of what was found in it."""
        said: defaultdict[int, dict[str, None]] = defaultdict(dict)
        places: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for term in found:
            said[term.feature][term.text] = None
            places[term.feature].append((term.begin, term.end))
        terms = {feature: " / ".join(some) for feature, some in said.items()}  # several only if they share a bucket

        def listed(shares: NDArray[np.float64]) -> tuple[TermShare, ...]:
            told = [
                TermShare(terms[feature], float(share), tuple(places[feature]))
                for feature, share in zip(why.features.tolist(), shares, strict=True)
                if share != 0
            ]
            return tuple(sorted(told, key=lambda one: -abs(one.share)))

        levels = tuple(
            LevelExplanation(level.node, level.score, level.base, listed(level.shares)) for level in why.levels
        )
        return cls(label, name, why.score, why.in_logs, why.base, listed(why.shares), levels)

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON."""

        def listed(terms: tuple[TermShare, ...]) -> list[dict[str, Any]]:
            return [{"term": one.term, "share": one.share, "places": one.places} for one in terms]

        return {
            "label": self.label,
            "name": self.name,
            "score": self.score,
            "in_logs": self.in_logs,
            "base": self.base,
            "terms": listed(self.terms),
            "levels": [
                {"node": level.node, "score": level.score, "base": level.base, "terms": listed(level.terms)}
                for level in self.levels
            ],
        }
