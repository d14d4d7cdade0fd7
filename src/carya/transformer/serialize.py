"""Serialize transformer models: vectorizer, labels, rankers and mixture; the encoder is saved in a subfolder.

The format is specified in docs/format.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from carya.core.parameters import to_json
from carya.core.storage import SavedModel, consistent_parts, prefixed
from carya.errors import InputError
from carya.models.neighbors.model import NearestNeighbors
from carya.models.neighbors.serialize import KIND as NEIGHBORS_KIND
from carya.models.xr_linear.model import XRLinear
from carya.models.xr_linear.serialize import KIND as TREE_KIND
from carya.ranking.neural import NeuralRanker
from carya.text.serialize import VECTORIZER_KIND, pack_vectorizer, unpack_vectorizer
from carya.text.serialize import pack as pack_texts
from carya.text.serialize import unpack as unpack_texts
from carya.transformer.fitted import FittedTransformer
from carya.transformer.rankers.label_terms import TERM_RANKERS
from carya.transformer.rankers.mixture import Mixture, feature_names
from carya.transformer.rankers.rankers import RANKER_NAMES, CombinedRankers, RankerModel
from carya.transformer.settings import TransformerSettings

#: Name of the encoder's subfolder in the model folder.
ENCODER_FOLDER = "encoder"

_MIXTURE = "mixture"
_LABEL_VECTORIZER = "label_vectorizer"

Settings = TypeVar("Settings", bound=TransformerSettings)


def pack(
    fitted: FittedTransformer, settings: TransformerSettings, kind: str, *, weight_dtype: str | None
) -> SavedModel:
    """Return a serialized transformer model without the encoder."""
    rankers = {
        # The other rankers have few weights, all dense, which keep their data type.
        name: model.to_saved(weight_dtype=weight_dtype if name in ("concatenated", "linear") else None)
        for name, model in fitted.rankers.models.items()
    }
    arrays: dict[str, NDArray[Any]] = {}
    for name, ranker in rankers.items():
        arrays |= prefixed(name, ranker.arrays)
    label_vectorizer = pack_vectorizer(fitted.label_vectorizer)
    arrays |= prefixed(_LABEL_VECTORIZER, label_vectorizer.arrays)
    mixture, mixture_arrays = _pack_mixture(fitted.rankers.mixture)
    model = SavedModel(
        TREE_KIND,
        {
            "own": {name: to_json(value) for name, value in settings.parameters_to_save().items()},
            "mixture": mixture,
            "pooling": fitted.encoder.pooling,
            "weights": dict(fitted.rankers.weights),
            "rankers": {name: ranker.parameters for name, ranker in rankers.items()},
            **({} if fitted.label_vectorizer is None else {_LABEL_VECTORIZER: label_vectorizer.parameters}),
            **({"feature_widths": list(fitted.feature_widths)} if any(fitted.feature_widths) else {}),
        },
        {name: ranker.shape for name, ranker in rankers.items()},
        arrays | mixture_arrays,
    )
    return replace(pack_texts(fitted.vectorizer, fitted.labels, model, fitted.calibration), kind=kind)


def unpack(saved: SavedModel, cls: type[Settings]) -> tuple[Settings, FittedTransformer]:
    """Return the parameters of a saved model, as an instance of `cls`, and its fitted state.

    Raises
    ------
    ModelFormatError
        If the components are inconsistent.
    """
    from carya.transformer.encoder.encoder import Encoder

    vectorizer, labels, calibration, model = unpack_texts(saved)
    with consistent_parts():
        settings = cls.from_saved_parameters(model.parameters["own"])
        weights = {name: float(weight) for name, weight in model.parameters["weights"].items()}
        models = _unpack_rankers(model)
        if not models or set(models) != set(weights) or not sum(weights.values()) > 0:
            raise InputError(f"The rankers {sorted(models)} do not match the ranker weights {sorted(weights)}.")
        if any(ranker.n_labels_ != len(labels) for ranker in models.values()):
            raise InputError("The rankers and the label set have different numbers of labels.")
        mixture = _unpack_mixture(model, models, len(labels))
        if saved.path is None:
            raise InputError("The encoder is missing.")
        encoder = Encoder.load(
            saved.path / ENCODER_FOLDER,
            pooling=str(model.parameters["pooling"]),
            pooled_layers=settings.pooled_layers,
            saved=True,
        )
        n_sparse, n_dense = (int(width) for width in model.parameters.get("feature_widths", (0, 0)))
        n_columns = n_sparse + (0 if vectorizer is None else vectorizer.n_features_)
        width = encoder.width
        widths = {"linear": (n_columns, n_dense), "concatenated": (n_columns, n_dense + width)}
        label_vectorizer = None
        if _LABEL_VECTORIZER in model.parameters:
            parameters = dict(model.parameters[_LABEL_VECTORIZER])
            label_vectorizer = unpack_vectorizer(model.part(_LABEL_VECTORIZER, VECTORIZER_KIND, parameters, {}))
        if (label_vectorizer is None) != models.keys().isdisjoint(TERM_RANKERS):
            raise InputError("The rankers and the vectorizer of label texts do not match.")
        if label_vectorizer is not None:
            widths |= dict.fromkeys(TERM_RANKERS, (label_vectorizer.n_features_, 0))
        if any(ranker.widths_ != widths.get(name, (0, width)) for name, ranker in models.items()):
            raise InputError("The rankers, the vectorizer and the encoder have inconsistent numbers of features.")
    rankers = CombinedRankers(models, weights, mixture)
    return settings, FittedTransformer(
        encoder, rankers, labels, vectorizer, (n_sparse, n_dense), calibration, label_vectorizer
    )


def _unpack_rankers(saved: SavedModel) -> dict[str, RankerModel]:
    """Return the rankers by name."""
    models: dict[str, RankerModel] = {}
    for name, parameters in saved.parameters["rankers"].items():
        if name not in RANKER_NAMES:
            raise InputError(f"Unknown ranker {name!r}.")
        if name == "neighbors":
            models[name] = NearestNeighbors.from_saved(saved.part(name, NEIGHBORS_KIND, parameters, saved.shape[name]))
        else:
            models[name] = XRLinear.from_saved(saved.part(name, TREE_KIND, parameters, saved.shape[name]))
    return models


def _pack_mixture(mixture: Mixture | None) -> tuple[dict[str, Any] | None, dict[str, NDArray[Any]]]:
    """Return the parameters and the arrays of a mixture."""
    if mixture is None:
        return None, {}
    parameters, arrays = mixture.ranker.to_saved()
    return parameters, prefixed(_MIXTURE, arrays | {"frequency": mixture.log_frequency})


def _unpack_mixture(saved: SavedModel, models: Mapping[str, RankerModel], n_labels: int) -> Mixture | None:
    parameters, arrays = saved.parameters["mixture"], saved.arrays_of(_MIXTURE)
    if parameters is None:
        return None
    log_frequency = arrays.pop("frequency")
    if log_frequency.shape != (n_labels,) or log_frequency.dtype != np.float32 or not np.isfinite(log_frequency).all():
        raise InputError("The label frequencies of the mixture do not match the labels.")
    ranker = NeuralRanker.from_saved(parameters, arrays)
    if ranker.names_ != feature_names(list(models)):
        raise InputError("The features of the mixture do not match the rankers.")
    return Mixture(ranker, log_frequency)
