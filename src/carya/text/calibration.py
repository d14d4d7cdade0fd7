"""Calibration: a mapping from scores to probabilities, learned from held-out texts.

The scores of different labels for the same text are comparable, but they are not probabilities: a hinge score of 0.9
does not mean that nine out of ten suggestions with this score are correct. Suggestions for held-out texts are sorted by
score and divided into bins of equal size. The fraction of correct suggestions in each bin, made monotonic by isotonic
regression (Zadrozny and Elkan, 2002), is the probability at the bin's mean score. Probabilities between bins are
interpolated linearly. One correct and one incorrect suggestion are added to each bin, so that no bin has a probability
of 0 or 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya.errors import InputError

_MAX_BINS = 100
_MIN_BIN_SIZE = 50


@dataclass(frozen=True, eq=False)
class Calibration:
    """Monotonic mapping from scores to probabilities.

    Attributes
    ----------
    scores : ndarray of float32
        Scores in ascending order.
    probabilities : ndarray of float32
        The probability at each score, in non-decreasing order.

    Examples
    --------
    >>> import numpy as np
    >>> scores, uniform = np.random.default_rng(0).random((2, 20_000))
    >>> calibration = Calibration.learn(scores, uniform < scores**2)  # P(correct) is the square of the score
    >>> calibration([0.2, 0.5, 0.9]).round(1).tolist()
    [0.0, 0.2, 0.8]
    """

    scores: NDArray[np.float32]
    probabilities: NDArray[np.float32]

    def __post_init__(self) -> None:
        for array in (self.scores, self.probabilities):
            if array.dtype != np.float32 or array.shape != self.scores.shape or array.ndim != 1 or not array.size:
                raise InputError("scores and probabilities must be non-empty float32 vectors of equal length.")
            if not np.isfinite(array).all():
                raise InputError("scores and probabilities must be finite.")
        ascending = (np.diff(self.scores) > 0).all() and (np.diff(self.probabilities) >= 0).all()
        if not ascending or self.probabilities[0] < 0 or self.probabilities[-1] > 1:
            raise InputError(
                "scores must be strictly increasing; probabilities must be non-decreasing and between 0 and 1."
            )

    @classmethod
    def learn(cls, scores: ArrayLike, correct: ArrayLike) -> Self:
        """Learn a calibration from the score of each suggestion and whether the suggestion is correct."""
        from sklearn.isotonic import isotonic_regression

        values = np.asarray(scores, np.float32).ravel()
        hits = np.asarray(correct).astype(bool).ravel()
        if values.size != hits.size or values.size == 0:
            raise InputError(
                f"scores and correct must have the same nonzero length, got {values.size} and {hits.size}."
            )
        order = np.argsort(values, kind="stable")
        values, hits = values[order], hits[order]
        means, fractions, sizes = [], [], []
        for begin, end in _bins(values):
            means.append(values[begin:end].astype(np.float64).mean())
            fractions.append((hits[begin:end].sum() + 1) / (end - begin + 2))
            sizes.append(end - begin)
        monotone = isotonic_regression(np.array(fractions), sample_weight=np.array(sizes, np.float64))
        knots, first = np.unique(np.array(means, np.float32), return_index=True)
        return cls(knots, np.clip(np.maximum.accumulate(monotone[first].astype(np.float32)), 0, 1))

    def __call__(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Return the probability at each score."""
        probabilities: NDArray[np.float64] = np.interp(np.asarray(scores, np.float64), self.scores, self.probabilities)
        return probabilities


def _bins(ascending: NDArray[np.float32]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each bin; equal scores are assigned to the same bin."""
    size = max(_MIN_BIN_SIZE, -(-ascending.size // _MAX_BINS))
    begin = 0
    while begin < ascending.size:
        end = min(begin + size, ascending.size)
        end = int(np.searchsorted(ascending, ascending[end - 1], side="right"))
        if ascending.size - end < _MIN_BIN_SIZE:
            end = ascending.size
        yield begin, end
        begin = end


def expected_calibration_error(probabilities: NDArray[np.float64], correct: NDArray[np.bool_], bins: int = 10) -> float:
    """Return the mean absolute difference between predicted and observed probabilities in bins of equal size.

    >>> expected_calibration_error(np.array([0.5, 0.5, 0.5, 0.5]), np.array([True, False, True, False]), bins=1)
    0.0
    """
    order = np.argsort(probabilities, kind="stable")
    parts = [part for part in np.array_split(order, min(bins, max(order.size, 1))) if part.size]
    differences = (abs(probabilities[part].mean() - correct[part].mean()) * part.size for part in parts)
    return float(sum(differences)) / max(order.size, 1)
