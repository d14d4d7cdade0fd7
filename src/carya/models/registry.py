"""What every model can do, and where models of each kind live: only the one that is needed is imported."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from carya.core.storage import Saved
from carya.errors import ModelFormatError
from carya.models.base import Model

#: Saved kinds, and the classes they are opened as.
KINDS = {
    "xr-linear": ("carya.models.xr_linear.model", "XRLinear"),
    "nearest-neighbours": ("carya.models.neighbors.model", "NearestNeighbours"),
    "ensemble": ("carya.models.ensemble.model", "Ensemble"),
    "reranked": ("carya.models.reranked.model", "Reranked"),
}


def fresh(model: Model) -> Any:
    """An untrained model with the same parameters."""
    return type(model)(**model.get_params(deep=False))


def open_saved(saved: Saved, kinds: Mapping[str, tuple[str, str]] = KINDS) -> Any:
    """The model of what a folder holds; raises ModelFormatError for a kind that is none of `kinds`."""
    if saved.kind not in kinds:
        raise ModelFormatError(f"it holds a model of kind {saved.kind!r}, which this version of Carya does not know")
    module, name = kinds[saved.kind]
    return getattr(importlib.import_module(module), name).from_saved(saved)
