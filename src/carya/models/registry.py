"""The model kinds by the names used in saved files; a class is imported only when a model of its kind is opened."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from carya.core.storage import SavedModel
from carya.errors import ModelFormatError

#: Models over feature matrices: the kind in saved files, and the module and name of the class.
MODEL_CLASSES = {
    "xr-linear": ("carya.models.xr_linear.model", "XRLinear"),
    "nearest-neighbors": ("carya.models.neighbors.model", "NearestNeighbors"),
    "ensemble": ("carya.models.ensemble.model", "Ensemble"),
    "reranked": ("carya.models.reranked.model", "Reranked"),
}
#: Kinds that earlier versions wrote under another name.
_FORMER_KINDS = {"nearest-neighbours": "nearest-neighbors"}


def open_model(saved: SavedModel, classes: Mapping[str, tuple[str, str]] = MODEL_CLASSES) -> Any:
    """Create the model of a saved folder; raise ModelFormatError if its kind is not one of `classes`."""
    kind = _FORMER_KINDS.get(saved.kind, saved.kind)
    if kind not in classes:
        raise ModelFormatError(
            f"Unknown model kind {saved.kind!r}. It may have been written by a newer version of Carya."
        )
    module, name = classes[kind]
    return getattr(importlib.import_module(module), name).from_saved(saved)


def kind_of(model: Any) -> str:
    """Return the kind of a model over feature matrices, as in saved files."""
    return next(kind for kind, (_, name) in MODEL_CLASSES.items() if name == type(model).__name__)
