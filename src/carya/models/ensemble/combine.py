"""Combine the rankings of several models into one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core.matrices import Features
from carya.core.progress import Report
from carya.trees.beam_search import BeamSearcher, Rankings

#: Methods for combining rankings; native/search/ensemble.hpp defines each of them.
COMBINATIONS = ("mean", "rank", "count", "softmax", "sigmoid", "round_robin")

_MIN_POOL_SIZE = 20


def predict_combined(
    searchers: Sequence[BeamSearcher],
    queries: Features,
    *,
    top_k: int,
    beam_width: int,
    pool_size: int,
    combine: str,
    weights: NDArray[np.float32],
    threads: int,
    report: Report = None,
) -> Rankings:
    """Search several trees in one pass and combine the `pool_size` best labels of each."""
    native = [searcher.native for searcher in searchers]
    method = getattr(_core.CombineMethod, combine)
    return _core.predict_combined(
        native, queries.native, top_k, beam_width, pool_size, method, weights, threads, report
    )


def combine_rankings(
    rankings: Sequence[_core.Csr], *, combine: str, weights: NDArray[np.float32], top_k: int, threads: int
) -> Rankings:
    """Combine rankings that were converted by :func:`to_native` or :func:`matrix_to_native`."""
    return _core.combine(list(rankings), getattr(_core.CombineMethod, combine), weights, top_k, threads)


def to_native(rankings: tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]], n_labels: int) -> _core.Csr:
    """Convert rankings, with labels sorted by score, to the native type that :func:`combine_rankings` requires."""
    indptr, labels, scores = rankings
    return _core.Csr(
        indptr.astype(np.int64), labels.astype(np.int32), scores, n_labels, "ranking", _core.Validation.structure
    )


def matrix_to_native(S: Any) -> _core.Csr:
    """Convert a prediction matrix of shape (rows, labels) to the native type that :func:`combine_rankings` requires."""
    return to_native((S.indptr, S.indices, S.data), S.shape[1])


def pool_size(requested: int | None, top_k: int) -> int:
    """Return the number of labels that each member contributes; by default, twice `top_k`, but at least 20."""
    return max(top_k, requested or max(2 * top_k, _MIN_POOL_SIZE))


def drop_below(rankings: Rankings, min_score: float) -> Rankings:
    """Remove labels with scores below a minimum."""
    if min_score == -math.inf:
        return rankings
    indptr, labels, scores = rankings
    kept = scores >= min_score
    return np.concatenate([[0], np.cumsum(kept)])[indptr], labels[kept], scores[kept]
