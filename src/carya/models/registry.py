"""The model kinds by the names used in saved files; a class is imported only when a model of its kind is opened."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from carya.core.storage import SavedModel
from carya.errors import ModelFormatError

#: Models for feature matrices: the kind in saved files, and the module and name of the class.
MODEL_CLASSES = {
    "xr-linear": ("carya.models.xr_linear.model", "XRLinear"),
    "nearest-neighbors": ("carya.models.neighbors.model", "NearestNeighbors"),
    "ensemble": ("carya.models.ensemble.model", "Ensemble"),
    "reranked": ("carya.models.reranked.model", "Reranked"),
}


def open_model(saved: SavedModel, classes: Mapping[str, tuple[str, str]] = MODEL_CLASSES) -> Any:
    """Create a model from its saved form; raise ModelFormatError if its kind is not in `classes`."""
    if saved.kind not in classes:
        raise ModelFormatError(
            f"Unknown model kind {saved.kind!r}. It may have been written by a newer version of Carya."
        )
    module, name = classes[saved.kind]
    return getattr(importlib.import_module(module), name).from_saved(saved)


def kind_of(model: Any) -> str:
    """Return the kind of a model for feature matrices or of a subclass, as in saved files."""
    names = [cls.__name__ for cls in type(model).__mro__]
    return next(kind for kind, (_, name) in MODEL_CLASSES.items() if name in names)
