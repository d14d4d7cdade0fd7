"""Choose the weights of ensemble members on held-out rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya import _core, metrics
from carya.core import lazy_sparse as sp
from carya.core.rules import Real, Rule
from carya.errors import ParameterError
from carya.models.ensemble.combine import combine_rankings

_STEPS = 10  # candidate weights are multiples of 1/10


class MemberWeights(Rule):
    """Rule that allows one weight per member, or a method for choosing the weights."""

    text = "a list of numbers >= 0 (one per member), 'learned' or None"

    def allows(self, value: object) -> bool:
        """Return whether the value is a list of numbers >= 0, 'learned' or None."""
        if value is None or isinstance(value, str):
            return value in (None, "learned")
        rule = Real(0)
        return isinstance(value, (list, tuple, np.ndarray)) and all(rule.allows(weight) for weight in value)


def check_weights(weights: Any, n_members: int) -> NDArray[np.float32]:
    """Validate the weights and return them as an array; for None and 'learned', all weights are 1."""
    if weights is None or isinstance(weights, str):
        return np.ones(n_members, np.float32)
    checked = np.asarray(weights, np.float32)
    if checked.shape != (n_members,) or not checked.sum() > 0:
        raise ParameterError(f"weights must be {n_members} non-negative numbers that are not all 0, got {weights!r}.")
    return checked


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
    """Return candidate weights, equal weights first.

    For up to 4 members, the other candidates are all combinations of multiples of 1/10 that sum to 1. For more members,
    each of the other candidates triples the weight of one member.
    """
    equal = np.full(members, 1 / members, np.float32)
    if members > 4:
        tilted = [np.where(np.arange(members) == member, 3.0, 1.0).astype(np.float32) for member in range(members)]
        return [equal, *tilted]
    cuts = itertools.combinations_with_replacement(range(_STEPS + 1), members - 1)
    return [equal, *((np.diff([0, *cut, _STEPS]) / _STEPS).astype(np.float32) for cut in cuts)]
