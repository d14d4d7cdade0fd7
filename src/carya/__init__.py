"""Extreme multi-label ranking: find the few labels that are relevant to a query among thousands or millions.

The public names are listed in ``__all__``. Each name is imported on first use to keep ``import carya`` fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carya import data, errors, indexing, metrics, ranking
    from carya.cluster.ray_engine import RayEngine
    from carya.loading import load, load_routed
    from carya.models.ensemble.model import Ensemble
    from carya.models.neighbors.model import NearestNeighbors
    from carya.models.presets import preset
    from carya.models.reranked.model import Reranked
    from carya.models.routed.model import RoutedModel
    from carya.models.routed.split import split_model
    from carya.models.xr_linear.model import XRLinear
    from carya.planning.plan import plan
    from carya.text.combined.text_ensemble import TextEnsemble
    from carya.text.combined.text_reranker import TextReranker
    from carya.text.text_ranker import TextRanker
    from carya.text.tfidf import Tfidf
    from carya.transformer.reranking.cross_encoder import CrossEncoderRanker
    from carya.transformer.x_transformer import XTransformer
    from carya.transformer.xr_transformer import XRTransformer
    from carya.trees.label_tree import LabelTree
    from carya.version import __version__

__all__ = [
    "CrossEncoderRanker",
    "Ensemble",
    "LabelTree",
    "NearestNeighbors",
    "RayEngine",
    "Reranked",
    "RoutedModel",
    "TextEnsemble",
    "TextRanker",
    "TextReranker",
    "Tfidf",
    "XRLinear",
    "XRTransformer",
    "XTransformer",
    "__version__",
    "data",
    "errors",
    "indexing",
    "load",
    "load_routed",
    "metrics",
    "plan",
    "preset",
    "ranking",
    "split_model",
]

_HOMES = {
    "CrossEncoderRanker": "carya.transformer.reranking.cross_encoder",
    "Ensemble": "carya.models.ensemble.model",
    "LabelTree": "carya.trees.label_tree",
    "NearestNeighbors": "carya.models.neighbors.model",
    "RayEngine": "carya.cluster.ray_engine",
    "Reranked": "carya.models.reranked.model",
    "RoutedModel": "carya.models.routed.model",
    "TextEnsemble": "carya.text.combined.text_ensemble",
    "TextRanker": "carya.text.text_ranker",
    "TextReranker": "carya.text.combined.text_reranker",
    "Tfidf": "carya.text.tfidf",
    "XRLinear": "carya.models.xr_linear.model",
    "XRTransformer": "carya.transformer.xr_transformer",
    "XTransformer": "carya.transformer.x_transformer",
    "__version__": "carya.version",
    "load": "carya.loading",
    "load_routed": "carya.loading",
    "plan": "carya.planning.plan",
    "preset": "carya.models.presets",
    "split_model": "carya.models.routed.split",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in __all__:
        return importlib.import_module(f"carya.{name}")
    raise AttributeError(f"module 'carya' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
