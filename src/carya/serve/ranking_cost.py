"""Estimate the CPU time of ranking, which differs between models by a factor of more than a thousand.

Requests with a low estimate are processed in the event loop, where they delay all other requests, so the estimate must
be reliable.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from typing import Any

from carya.text.base import BaseTextRanker

_SHORT_TERMS, _LONG_TERMS = 10, 200  # number of terms in the texts used for measurements
_RUNS = 3  # the fastest of several runs is used, because the first one loads pages of the model into memory
# If ranking takes longer than this and longer than estimated, later estimates are increased for some time. Because a
# busy machine can also be the cause, the correction is limited and decays.
_SLOW_SECONDS = 0.05
_MAX_CORRECTION = 100.0
_HALF_LIFE = 10.0  # seconds
_SEED = 0


class RankingCost:
    """Estimated CPU time of ranking texts with a model.

    The estimate is a linear function of the numbers of texts and characters; for larger beam widths than `beam_width`,
    it is scaled in proportion. The coefficients are measured when a model is loaded, using texts that consist of terms
    from its vocabulary. If requests take longer than estimated, later estimates are increased.

    Parameters
    ----------
    per_text, per_character : float
        The CPU time per text and per character, in seconds.
    beam_width : int
        The beam width for which the time was measured.

    Examples
    --------
    >>> cost = RankingCost(per_text=0.001, per_character=0.00001, beam_width=10)
    >>> round(cost.estimate(["a" * 100, "b" * 200]), 6), round(cost.estimate(["a" * 100], beam_width=100), 6)
    (0.005, 0.02)
    """

    def __init__(self, per_text: float, per_character: float, beam_width: int) -> None:
        self._per_text = per_text
        self._per_character = per_character
        self._beam_width = beam_width
        self._correction = 1.0
        self._corrected = 0.0  # time at which the correction was last updated

    @classmethod
    def measure(cls, ranker: BaseTextRanker[Any]) -> RankingCost | None:
        """Measure the cost of ranking with a model; return None if the model is not a single label tree."""
        tree = ranker.single_tree_
        if tree is None:
            return None
        short, long = (_sample_text(ranker, count) for count in (_SHORT_TERMS, _LONG_TERMS))
        short_seconds, long_seconds = _measure(ranker, short), _measure(ranker, long)
        per_character = max(0.0, long_seconds - short_seconds) / max(1, len(long) - len(short))
        return cls(max(0.0, short_seconds - per_character * len(short)), per_character, tree.beam_width)

    def estimate(self, texts: Sequence[str], beam_width: int | None = None) -> float:
        """Return the estimated CPU time for ranking texts, in seconds."""
        seconds = self._per_text * len(texts) + self._per_character * sum(map(len, texts))
        if beam_width is not None:
            seconds *= max(1.0, beam_width / self._beam_width)
        return seconds * self._current_correction()

    def observe(self, seconds: float, texts: Sequence[str], beam_width: int | None = None) -> None:
        """Increase later estimates if ranking the texts took a long time, and longer than estimated."""
        if seconds < _SLOW_SECONDS:
            return
        estimate = self.estimate(texts, beam_width)
        if seconds > estimate > 0:
            self._correction = min(_MAX_CORRECTION, self._current_correction() * seconds / estimate)
            self._corrected = time.monotonic()

    def _current_correction(self) -> float:
        if self._correction == 1.0:
            return 1.0
        age = time.monotonic() - self._corrected
        return 1.0 + (self._correction - 1.0) * math.exp2(-age / _HALF_LIFE)


def _measure(ranker: BaseTextRanker[Any], text: str) -> float:
    seconds = []
    for _ in range(_RUNS):
        started = time.thread_time()
        ranker.rank_texts([text])
        seconds.append(time.thread_time() - started)
    return min(seconds)


def _sample_text(ranker: BaseTextRanker[Any], count: int) -> str:
    """Return a text that consists of random terms from the vocabulary."""
    rng = random.Random(_SEED)
    terms = []
    for vectorizer in ranker.vectorizers_:
        for _ in range(count):
            feature = rng.randrange(max(1, int(vectorizer.n_features_)))
            term = vectorizer.term(feature, prefix=False) if vectorizer.n_features_ else None
            terms.append(f"word{feature}" if term is None else term)  # hashed features have no terms
    return " ".join(terms)
