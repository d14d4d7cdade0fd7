"""Registry of the model kinds in saved files; a class is imported only when a model of its kind is opened."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from carya.core import storage
from carya.core.storage import SavedModel, consistent_parts
from carya.errors import MissingExtraError, ModelFormatError
from carya.upgrade import upgrade

#: Models for feature matrices: the kind in saved files, and the module and name of the class.
MODEL_CLASSES = {
    "xr-linear": ("carya.models.xr_linear.model", "XRLinear"),
    "nearest-neighbors": ("carya.models.neighbors.model", "NearestNeighbors"),
    "ensemble": ("carya.models.ensemble.model", "Ensemble"),
    "reranked": ("carya.models.reranked.model", "Reranked"),
    "routed": ("carya.models.routed.model", "RoutedModel"),
}
#: Text models: the kind in saved files, and the module and name of the class.
TEXT_MODEL_CLASSES = {
    "text-ranker": ("carya.text.text_ranker", "TextRanker"),
    "text-ensemble": ("carya.text.combined.text_ensemble", "TextEnsemble"),
    "text-reranker": ("carya.text.combined.text_reranker", "TextReranker"),
    "xr-transformer": ("carya.transformer.xr_transformer", "XRTransformer"),
    "x-transformer": ("carya.transformer.x_transformer", "XTransformer"),
}
#: All model kinds, parts of split models, and vectorizers.
ALL_CLASSES = {
    **MODEL_CLASSES,
    **TEXT_MODEL_CLASSES,
    "model-part": ("carya.models.routed.part", "ModelPart"),
    "tfidf": ("carya.text.tfidf", "Tfidf"),
}
#: Prefix of the arrays that store the label names of a model for feature matrices; these arrays are optional.
LABEL_IDS = "labels.ids"
#: Prefix of the arrays that store the calibration of a model for feature matrices; these arrays are optional.
CALIBRATION = "calibration."
#: The array that stores the fingerprints of the training rows; it is optional.
TRAINING_ROWS = "training_rows"


def open_model(saved: SavedModel, classes: Mapping[str, tuple[str, str]] = MODEL_CLASSES) -> Any:
    """Create a model from the contents of its folder; raise ModelFormatError if its kind is not in `classes`."""
    if saved.kind not in classes:
        raise ModelFormatError(
            f"Unknown model kind {saved.kind!r}. The model may have been written by a newer version of Carya."
        )
    module, name = classes[saved.kind]
    model_class = getattr(importlib.import_module(module), name)
    if saved.kind not in MODEL_CLASSES:
        return model_class.from_saved(saved)
    saved, label_ids = saved.without_strings(LABEL_IDS)
    arrays = dict(saved.arrays)
    calibration = {name: arrays.pop(name) for name in saved.arrays if name.startswith(CALIBRATION)}
    training_rows = arrays.pop(TRAINING_ROWS, None)
    model = model_class.from_saved(replace(saved, arrays=arrays))
    with consistent_parts():
        model.set_label_ids(label_ids)
        if calibration or training_rows is not None:
            from carya.models.calibration.calibration import Calibration
            from carya.models.calibration.training_rows import TrainingRows

            parts = {name.removeprefix(CALIBRATION): array for name, array in calibration.items()}
            model.set_calibration(
                Calibration.from_arrays(parts, model.n_labels_) if parts else None,
                None if training_rows is None else TrainingRows(training_rows),
            )
    return model


def load_model(path: str | os.PathLike[str], model_class: type | None = None) -> Any:
    """Load a saved model; if `model_class` is given, raise ModelFormatError for models of other classes."""

    def convert(saved: SavedModel) -> Any:
        try:
            model = open_model(upgrade(saved), ALL_CLASSES)
            if saved.data_options:
                model.data_options_ = saved.data_options
        except (ModelFormatError, MissingExtraError) as error:
            raise type(error)(f"{path}: {error}") from None
        return model

    model = storage.load_as(path, convert, lazy=storage.LAZY_ARRAYS)
    if model_class is not None and not isinstance(model, model_class):
        raise ModelFormatError(
            f"{path} contains a model of class {type(model).__name__}, not {model_class.__name__}. Use carya.load to "
            "load models of any class."
        )
    return model


def kind_of(model: Any) -> str:
    """Return the kind of a model, as in saved files; a subclass has the kind of its base class."""
    names = [cls.__name__ for cls in type(model).__mro__]
    return next(kind for kind, (_, name) in ALL_CLASSES.items() if name in names)
