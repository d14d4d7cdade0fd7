"""From scores to chances: how often suggestions of a score are right, learned from texts that no training saw.

A score is comparable between labels of one text, but it is no probability: a hinge form of 0.9 says that margins were
kept, not that nine of ten are right. Suggestions of held-out texts are sorted by score and cut into bins of equal
size; the share of right ones in each bin, made monotone (isotonic regression, Zadrozny and Elkan 2002), is what a score
is worth. Between the bins it is interpolated. One right and one wrong suggestion are added to each bin, so that no
bin claims to be certain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya.errors import InputError

_MOST_BINS = 100
_LEAST_IN_A_BIN = 50


@dataclass(frozen=True, eq=False)
class Calibration:
    """What scores are worth.

    Attributes
    ----------
    scores : ndarray of float32
        Some scores, ascending.
    chances : ndarray of float32
        Which share of suggestions with such a score is right; never falls.

    Examples
    --------
    >>> import numpy as np
    >>> scores, luck = np.random.default_rng(0).random((2, 20_000))
    >>> known = Calibration.learn(scores, luck < scores**2)  # suggestions are right by the square of their score
    >>> known([0.2, 0.5, 0.9]).round(1).tolist()
    [0.0, 0.2, 0.8]
    """

    scores: NDArray[np.float32]
    chances: NDArray[np.float32]

    def __post_init__(self) -> None:
        for array in (self.scores, self.chances):
            if array.dtype != np.float32 or array.shape != self.scores.shape or array.ndim != 1 or not array.size:
                raise InputError("a calibration needs as many chances as scores, at least one")
            if not np.isfinite(array).all():
                raise InputError("a calibration has a number that is not finite")
        ascending = (np.diff(self.scores) > 0).all() and (np.diff(self.chances) >= 0).all()
        if not ascending or self.chances[0] < 0 or self.chances[-1] > 1:
            raise InputError("the scores of a calibration must ascend, and its chances too, between 0 and 1")

    @classmethod
    def learn(cls, scores: ArrayLike, right: ArrayLike) -> Self:
        """From the scores of suggestions, and whether each was right."""
        from sklearn.isotonic import isotonic_regression

        given = np.asarray(scores, np.float32).ravel()
        hits = np.asarray(right).astype(bool).ravel()
        if given.size != hits.size or given.size == 0:
            raise InputError(
                f"there are {given.size} scores, and {hits.size} are right or wrong: give as many, and some"
            )
        order = np.argsort(given, kind="stable")
        given, hits = given[order], hits[order]
        means, shares, sizes = [], [], []
        for begin, end in _bins(given):
            means.append(given[begin:end].astype(np.float64).mean())
            shares.append((hits[begin:end].sum() + 1) / (end - begin + 2))
            sizes.append(end - begin)
        chances = isotonic_regression(np.array(shares), sample_weight=np.array(sizes, np.float64))
        knots, first = np.unique(np.array(means, np.float32), return_index=True)
        return cls(knots, np.clip(np.maximum.accumulate(chances[first].astype(np.float32)), 0, 1))

    def __call__(self, scores: ArrayLike) -> NDArray[np.float64]:
        """The chance of each score."""
        chances: NDArray[np.float64] = np.interp(np.asarray(scores, np.float64), self.scores, self.chances)
        return chances


def _bins(ascending: NDArray[np.float32]) -> Iterator[tuple[int, int]]:
    """Where bins begin and end; equal scores share one."""
    size = max(_LEAST_IN_A_BIN, -(-ascending.size // _MOST_BINS))
    begin = 0
    while begin < ascending.size:
        end = min(begin + size, ascending.size)
        end = int(np.searchsorted(ascending, ascending[end - 1], side="right"))
        if ascending.size - end < _LEAST_IN_A_BIN:
            end = ascending.size
        yield begin, end
        begin = end


def error(chances: NDArray[np.float64], right: NDArray[np.bool_], bins: int = 10) -> float:
    """The expected calibration error: how far chances are from the shares that were right, over bins of equal size.

    >>> error(np.array([0.5, 0.5, 0.5, 0.5]), np.array([True, False, True, False]), bins=1)
    0.0
    """
    order = np.argsort(chances, kind="stable")
    parts = np.array_split(order, min(bins, max(order.size, 1)))
    return float(sum(abs(chances[some].mean() - right[some].mean()) * some.size for some in parts if some.size)) / max(
        order.size, 1
    )
