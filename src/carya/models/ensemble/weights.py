"""How much each member of an ensemble should count: tried out on rows that the members did not see."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from carya import _core, metrics
from carya.core import lazy_sparse as sp
from carya.models.ensemble.combine import combine_rankings

_STEPS = 10  # learned weights are multiples of a tenth


def best_weights(
    rankings: Sequence[_core.Csr], truth: sp.csr_array, *, combine: str, threads: int
) -> NDArray[np.float32]:
    """The weights of the members with which P@1, P@3 and P@5 are highest in sum; equal ones if nothing is better."""
    best, most = None, -1.0
    for weights in _mixtures(len(rankings)):
        indptr, guessed, scores = combine_rankings(rankings, combine=combine, weights=weights, top_k=5, threads=threads)
        S = sp.csr_array((scores, guessed, indptr), shape=truth.shape)
        report = metrics.report(truth, S, k=(1, 3, 5))
        value = report["P@1"] + report["P@3"] + report["P@5"]
        if value > most:
            best, most = weights, value
    assert best is not None  # there is at least one mixture
    return best


def _mixtures(members: int) -> list[NDArray[np.float32]]:
    """All weights that are multiples of a tenth and add up to 1, equal ones first; for many members a few of them."""
    equal = np.full(members, 1 / members, np.float32)
    if members > 4:
        tilted = [np.where(np.arange(members) == one, 3.0, 1.0).astype(np.float32) for one in range(members)]
        return [equal, *tilted]
    cuts = itertools.combinations_with_replacement(range(_STEPS + 1), members - 1)
    return [equal, *((np.diff([0, *cut, _STEPS]) / _STEPS).astype(np.float32) for cut in cuts)]
