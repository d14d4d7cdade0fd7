"""Extreme multi-label ranking: for a query, the few right labels out of thousands to millions.

The public names are listed in ``__all__``; each is imported when it is first used, so ``import carya`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carya import data, errors, indexing, metrics, ranking
    from carya.models.ensemble import Ensemble
    from carya.models.neighbours import NearestNeighbours
    from carya.models.presets import preset
    from carya.models.reranked import Reranked
    from carya.models.xr_linear import XRLinear
    from carya.opening import load
    from carya.text.ranker import TextRanker
    from carya.text.tfidf import Tfidf
    from carya.transformer.x_transformer import XTransformer
    from carya.transformer.xr_transformer import XRTransformer
    from carya.tree import LabelTree
    from carya.version import __version__

__all__ = [
    "Ensemble",
    "LabelTree",
    "NearestNeighbours",
    "Reranked",
    "TextRanker",
    "Tfidf",
    "XRLinear",
    "XRTransformer",
    "XTransformer",
    "__version__",
    "data",
    "errors",
    "indexing",
    "load",
    "metrics",
    "preset",
    "ranking",
]

_HOMES = {
    "Ensemble": "carya.models.ensemble",
    "LabelTree": "carya.tree",
    "NearestNeighbours": "carya.models.neighbours",
    "Reranked": "carya.models.reranked",
    "TextRanker": "carya.text.ranker",
    "Tfidf": "carya.text.tfidf",
    "XRLinear": "carya.models.xr_linear",
    "XRTransformer": "carya.transformer.xr_transformer",
    "XTransformer": "carya.transformer.x_transformer",
    "__version__": "carya.version",
    "load": "carya.opening",
    "preset": "carya.models.presets",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in __all__:
        return importlib.import_module(f"carya.{name}")
    raise AttributeError(f"module 'carya' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
