"""Phase 3, ranking: one linear classifier a node, and rankers of the (query, label) pairs that models find.

Rankers of pairs are imported when they are first used: most models do without.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from carya.ranking.linear import LinearRanker, Problem

if TYPE_CHECKING:
    from carya.ranking.averaged import AveragedRanker
    from carya.ranking.boosted import BoostedRanker
    from carya.ranking.neural import NeuralRanker
    from carya.ranking.pairs import Pairs
    from carya.ranking.ranker import Ranker, register

__all__ = [
    "AveragedRanker",
    "BoostedRanker",
    "LinearRanker",
    "NeuralRanker",
    "Pairs",
    "Problem",
    "Ranker",
    "register",
]

_HOMES = {
    "AveragedRanker": "averaged",
    "BoostedRanker": "boosted",
    "NeuralRanker": "neural",
    "Pairs": "pairs",
    "Ranker": "ranker",
    "register": "ranker",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"carya.ranking.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'carya.ranking' has no attribute {name!r}")
