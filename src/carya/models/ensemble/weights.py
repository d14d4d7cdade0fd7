"""Choose the weights of ensemble members on held-out rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from carya import _core, metrics
from carya.core import lazy_sparse as sp
from carya.models.ensemble.combine import combine_rankings

_STEPS = 10  # candidate weights are multiples of 1/10


def best_weights(
    rankings: Sequence[_core.Csr], truth: sp.csr_array, *, combine: str, threads: int
) -> NDArray[np.float32]:
    """Return the weights that maximize the mean of P@1, P@3 and P@5; equal weights if no others are better."""
    best, best_value = None, -1.0
    for weights in _candidate_weights(len(rankings)):
        indptr, labels, scores = combine_rankings(rankings, combine=combine, weights=weights, top_k=5, threads=threads)
        value = metrics.mean_precision(truth, sp.csr_array((scores, labels, indptr), shape=truth.shape))
        if value > best_value:
            best, best_value = weights, value
    assert best is not None  # there is always at least one candidate
    return best


def _candidate_weights(members: int) -> list[NDArray[np.float32]]:
    """Return all weights that are multiples of 1/10 and sum to 1, equal weights first; for many members, only some."""
    equal = np.full(members, 1 / members, np.float32)
    if members > 4:
        tilted = [np.where(np.arange(members) == member, 3.0, 1.0).astype(np.float32) for member in range(members)]
        return [equal, *tilted]
    cuts = itertools.combinations_with_replacement(range(_STEPS + 1), members - 1)
    return [equal, *((np.diff([0, *cut, _STEPS]) / _STEPS).astype(np.float32) for cut in cuts)]
