"""Confidence intervals for proportions and for ratios of counts."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

#: Lower and upper bounds.
Bounds = tuple[NDArray[np.float64], NDArray[np.float64]]


def wilson_interval(successes: ArrayLike, totals: ArrayLike, confidence: float = 0.95) -> Bounds:
    """Return Wilson score intervals for proportions; the interval for 0 out of 0 is [0, 1].

    >>> low, high = wilson_interval([8, 0], [10, 0])
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.49, 0.0], [0.943, 1.0])
    """
    n = np.asarray(totals, np.float64)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = np.divide(np.asarray(successes, np.float64), n, out=np.zeros_like(n), where=n > 0)
    center = n * share + z**2 / 2
    spread = z * np.sqrt(n * share * (1 - share) + z**2 / 4)
    low, high = (center - spread) / (n + z**2), (center + spread) / (n + z**2)
    return np.where(n > 0, np.maximum(low, 0), 0.0), np.where(n > 0, np.minimum(high, 1), 1.0)


def ratio_interval(first: ArrayLike, second: ArrayLike, scale: float, confidence: float = 0.95) -> Bounds:
    """Return confidence intervals for ``scale * first / second``, computed on a logarithmic scale.

    The value 0.5 is added to both counts so that the bounds are positive and finite even if a count is 0.

    >>> low, high = ratio_interval([40], [10], scale=1.0)
    >>> bool(low[0] > 1.9), bool(high[0] < 7.7)
    (True, True)
    """
    a, b = np.asarray(first, np.float64) + 0.5, np.asarray(second, np.float64) + 0.5
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    middle, spread = np.log(scale * a / b), z * np.sqrt(1 / a + 1 / b)
    return np.exp(middle - spread), np.exp(middle + spread)
