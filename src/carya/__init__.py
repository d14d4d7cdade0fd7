"""Extreme multi-label ranking: find the few labels, out of thousands or millions, that are relevant to a query.

The public names are listed in ``__all__``. Each name is imported on first use to keep ``import carya`` fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from carya.interpreter import check_main_interpreter

if TYPE_CHECKING:
    from carya import data, errors, indexing, metrics, ranking
    from carya.cluster.ray_engine import RayEngine
    from carya.diagnostics.report import label_report
    from carya.hub.repository import from_pretrained, push_to_hub
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
    from carya.tuning.recipe import Recipe
    from carya.tuning.tune import tune
    from carya.version import __version__

__all__ = [
    "CrossEncoderRanker",
    "Ensemble",
    "LabelTree",
    "NearestNeighbors",
    "RayEngine",
    "Recipe",
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
    "from_pretrained",
    "indexing",
    "label_report",
    "load",
    "load_routed",
    "metrics",
    "plan",
    "preset",
    "push_to_hub",
    "ranking",
    "split_model",
    "tune",
]

check_main_interpreter()

_HOMES = {
    "CrossEncoderRanker": "carya.transformer.reranking.cross_encoder",
    "Ensemble": "carya.models.ensemble.model",
    "LabelTree": "carya.trees.label_tree",
    "NearestNeighbors": "carya.models.neighbors.model",
    "RayEngine": "carya.cluster.ray_engine",
    "Recipe": "carya.tuning.recipe",
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
    "from_pretrained": "carya.hub.repository",
    "label_report": "carya.diagnostics.report",
    "load": "carya.loading",
    "load_routed": "carya.loading",
    "plan": "carya.planning.plan",
    "preset": "carya.models.presets",
    "push_to_hub": "carya.hub.repository",
    "split_model": "carya.models.routed.split",
    "tune": "carya.tuning.tune",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in __all__:
        return importlib.import_module(f"carya.{name}")
    raise AttributeError(f"module 'carya' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
