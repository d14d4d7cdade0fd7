"""Combine the rankings of several models into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core.matrices import Features
from carya.core.progress import Report
from carya.trees.beam_search import Searcher

#: How an ensemble makes several rankings one (native/ensemble.hpp says what each means).
COMBINATIONS = ("mean", "rank", "count", "softmax", "sigmoid")


def predict_combined(
    members: Sequence[Searcher],
    queries: Features,
    *,
    top_k: int,
    beam_width: int,
    pool: int,
    combine: str,
    weights: NDArray[np.float32],
    threads: int,
    report: Report = None,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Row offsets, labels and scores of what several searches find together; each gives its `pool` best labels."""
    searches = [member._search for member in members]
    how = getattr(_core.Combine, combine)
    return _core.predict_combined(searches, queries.native, top_k, beam_width, pool, how, weights, threads, report)


def ranking(
    indptr: NDArray[np.integer], labels: NDArray[np.integer], scores: NDArray[np.float32], n_labels: int
) -> _core.Csr:
    """Rankings to be combined: rows are best first and so not sorted by label."""
    return _core.Csr(indptr.astype(np.int64), labels.astype(np.int32), scores, n_labels, "ranking", False)


def ranking_of(S: Any) -> _core.Csr:
    """The same from a prediction."""
    return ranking(S.indptr, S.indices, S.data, S.shape[1])


def combine_rankings(
    rankings: Sequence[_core.Csr], *, combine: str, weights: NDArray[np.float32], top_k: int, threads: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """The same from rankings that are there already: matrices whose rows are best first."""
    how = getattr(_core.Combine, combine)
    return _core.combine(list(rankings), how, weights, top_k, threads)
