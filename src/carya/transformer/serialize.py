"""What of a transformer model goes into a saved folder, beside its encoder. docs/format.md specifies it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from carya.core.parameters import from_json, to_json
from carya.core.storage import Saved
from carya.errors import CaryaError, ModelFormatError
from carya.models.neighbors.model import NearestNeighbours
from carya.models.neighbors.serialize import KIND as NEIGHBOURS_KIND
from carya.models.xr_linear.model import XRLinear
from carya.models.xr_linear.serialize import KIND as MODEL_KIND
from carya.ranking.neural import NeuralRanker
from carya.text.serialize import pack as pack_texts
from carya.text.serialize import unpack as unpack_texts
from carya.transformer.encoder.encoder import Encoder
from carya.transformer.rankers.mixture import Mixture, feature_names
from carya.transformer.rankers.rankers import NAMES, Model, Rankers

if TYPE_CHECKING:
    from carya.transformer.base import Fitted, TransformerRanker

#: Parameters that say how a model was to be trained here, not what it is.
_OF_THE_WORK = ("checkpoints", "cache", "device", "verbose")


def pack(fitted: Fitted, model: TransformerRanker, *, precision: str | None) -> Saved:
    """The content of the folder but for the encoder."""
    parts = {
        # What heads learned is kept as it is: there is no threshold on it, and it is small.
        name: one.to_saved(precision=precision if name in ("concatenated", "linear") else None)
        for name, one in fitted.rankers.models.items()
    }
    own = {name: to_json(value) for name, value in model.plain_parameters().items() if name not in _OF_THE_WORK}
    mixture, kept = _pack_mixture(fitted.rankers.mixture)
    members = Saved(
        MODEL_KIND,
        {
            "own": own,
            "mixture": mixture,
            "pooling": fitted.encoder.pooling,
            "weights": dict(fitted.rankers.weights),
            "rankers": {name: part.parameters for name, part in parts.items()},
        },
        {name: part.shape for name, part in parts.items()},
        {f"{name}/{key}": array for name, part in parts.items() for key, array in part.arrays.items()} | kept,
    )
    return replace(pack_texts(fitted.vectorizer, fitted.labels, members), kind=model.kind)


def unpack(saved: Saved, cls: type[TransformerRanker]) -> tuple[Fitted, dict[str, Any]]:
    """What was learned, and the parameters; raises ModelFormatError if the parts do not fit together."""
    from carya.transformer.base import Fitted

    vectorizer, labels, _, rest = unpack_texts(saved)
    try:
        weights = {name: float(value) for name, value in rest.parameters["weights"].items()}
        models: dict[str, Model] = {}
        for name, own in rest.parameters["rankers"].items():
            near = name == "neighbours"
            part = rest.part(name, NEIGHBOURS_KIND if near else MODEL_KIND, own, rest.shape[name])
            models[name] = NearestNeighbours.from_saved(part) if near else XRLinear.from_saved(part)
        parameters = {name: from_json(value) for name, value in rest.parameters["own"].items()}
        made = cls(**parameters)
        made.check_parameters()
        if not models or set(models) != set(weights) or not set(models) <= set(NAMES) or not sum(weights.values()) > 0:
            raise ValueError(f"the rankers are {sorted(models)}, with weights for {sorted(weights)}")
        if any(model.n_labels_ != len(labels) for model in models.values()):
            raise ValueError("rankers and labels differ in size")
        mixture = _unpack_mixture(rest.parameters["mixture"], rest.arrays_of("mixture"), models, len(labels))
        if saved.place is None:
            raise ValueError("there is no encoder")
        pooling = str(rest.parameters["pooling"])
        encoder = Encoder.load(saved.place / "encoder", pooling=pooling, layers=made.layers)
        expected = {
            "head": (0, encoder.width),
            "concatenated": (vectorizer.n_features_, encoder.width),
            "linear": (vectorizer.n_features_, 0),
            "neighbours": (0, encoder.width),
            "label_texts": (0, encoder.width),
        }
        if any(model.widths_ != expected[name] for name, model in models.items()):
            raise ValueError("rankers, terms and the encoder differ in size")
    except ModelFormatError:
        raise
    except KeyError as error:
        raise ModelFormatError(f"the parts of the model do not fit together: there is no {error}") from None
    except (CaryaError, TypeError, ValueError, AttributeError) as error:
        raise ModelFormatError(f"the parts of the model do not fit together: {error}") from None
    return Fitted(encoder, vectorizer, Rankers(models, weights, mixture), labels), parameters


def _pack_mixture(mixture: Mixture | None) -> tuple[dict[str, Any] | None, dict[str, NDArray[Any]]]:
    """Its parameters, and its arrays by their names in the folder."""
    if mixture is None:
        return None, {}
    parameters, arrays = mixture.ranker.to_saved()
    return parameters, {f"mixture/{key}": array for key, array in (arrays | {"frequency": mixture.frequency}).items()}


def _unpack_mixture(
    parameters: dict[str, Any] | None, arrays: dict[str, NDArray[Any]], models: Mapping[str, Model], n_labels: int
) -> Mixture | None:
    if parameters is None:
        return None
    frequency = arrays.pop("frequency")
    if frequency.shape != (n_labels,) or frequency.dtype != np.float32 or not np.isfinite(frequency).all():
        raise ValueError("the mixture does not know the labels")
    ranker = NeuralRanker.from_saved(dict(parameters), arrays)
    if ranker.names_ != feature_names(list(models)):
        raise ValueError("the mixture knows other rankers")
    return Mixture(ranker, frequency)
