"""Phase 3, ranking: one linear ranker per node, and rerankers for the candidate (query, label) pairs.

Rerankers are imported on first use because most models do not need them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from carya.ranking.linear import LayerProblem, LinearSolver

if TYPE_CHECKING:
    from carya.ranking.averaged import AveragedRanker
    from carya.ranking.boosted import BoostedRanker
    from carya.ranking.neural import NeuralRanker
    from carya.ranking.pairs import Pairs
    from carya.ranking.ranker import Ranker, register

__all__ = [
    "AveragedRanker",
    "BoostedRanker",
    "LayerProblem",
    "LinearSolver",
    "NeuralRanker",
    "Pairs",
    "Ranker",
    "register",
]

_MODULES = {
    "AveragedRanker": "averaged",
    "BoostedRanker": "boosted",
    "NeuralRanker": "neural",
    "Pairs": "pairs",
    "Ranker": "ranker",
    "register": "ranker",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"carya.ranking.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'carya.ranking' has no attribute {name!r}")
