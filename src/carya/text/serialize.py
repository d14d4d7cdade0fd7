"""Serialize text rankers: the vectorizer, the labels and the calibration. docs/format.md specifies the arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core.parameters import to_json
from carya.core.storage import SavedModel, consistent_parts
from carya.core.strings import StringArray
from carya.models.calibration.calibration import Calibration
from carya.models.xr_linear.serialize import KIND as TREE_KIND
from carya.text.labels import LabelSet
from carya.text.tfidf import Tfidf

KIND = "text-ranker"
VECTORIZER_KIND = "tfidf"

_TERMS = ("bytes", "ends", "slots")
_LABELS = ("ids", "names", "texts")
_COUNTS = "labels.counts"
_TEXTS = "texts"
_CALIBRATION = "calibration."


def pack(
    vectorizer: Tfidf | None, labels: LabelSet, model: SavedModel, calibration: Calibration | None = None
) -> SavedModel:
    """Return a serialized text ranker; `model` is its serialized underlying model."""
    text = pack_vectorizer(vectorizer)
    arrays: dict[str, NDArray[Any]] = dict(model.arrays) | text.arrays
    for name in _LABELS:
        strings: StringArray | None = getattr(labels, name)
        if strings is not None:
            arrays |= {f"labels.{name}.bytes": strings.data, f"labels.{name}.ends": strings.ends}
    shape = dict(model.shape)
    if labels.counts is not None:
        arrays[_COUNTS] = labels.counts
        shape[_TEXTS] = labels.n_texts
    if calibration is not None:
        arrays |= {f"{_CALIBRATION}{name}": array for name, array in calibration.to_arrays().items()}
    parameters: dict[str, Any] = {"model": model.parameters, **text.parameters}
    if model.kind != TREE_KIND:
        parameters["model_kind"] = model.kind
    return SavedModel(KIND, parameters, shape, arrays)


def unpack(saved: SavedModel) -> tuple[Tfidf | None, LabelSet, Calibration | None, SavedModel]:
    """Return the vectorizer, the labels, the calibration and the serialized underlying model.

    Raises
    ------
    ModelFormatError
        If the parts are inconsistent.
    """
    arrays = saved.arrays
    with consistent_parts():
        vectorizer = None if saved.parameters["text"] is None else unpack_vectorizer(saved)
        n_text_arrays = 0 if vectorizer is None else len(_TERMS) * len(vectorizer.terms_) + 1
        strings = {
            name: StringArray(arrays[f"labels.{name}.bytes"], arrays[f"labels.{name}.ends"])
            for name in _LABELS
            if name == "ids" or f"labels.{name}.ends" in arrays
        }
        if len({len(array) for array in strings.values()}) != 1:
            raise ValueError("The numbers of label ids, names and texts differ.")
        counts, n_texts = _unpack_counts(arrays, saved.shape, len(strings["ids"]))
        calibration = None
        parts = {
            name.removeprefix(_CALIBRATION): array for name, array in arrays.items() if name.startswith(_CALIBRATION)
        }
        if parts:
            calibration = Calibration.from_arrays(parts, len(strings["ids"]))
        own = [name for name in arrays if name.startswith(("text.", "labels.", _CALIBRATION))]
        optional = (counts is not None) + len(parts)
        if len(own) != n_text_arrays + 2 * len(strings) + optional:
            raise ValueError("The model contains unknown arrays.")
        model = replace(
            saved,
            kind=str(saved.parameters.get("model_kind", TREE_KIND)),
            parameters=dict(saved.parameters["model"]),
            arrays={name: array for name, array in arrays.items() if name not in own},
        )
        return vectorizer, LabelSet(**strings, counts=counts, n_texts=n_texts), calibration, model


def pack_vectorizer(vectorizer: Tfidf | None) -> SavedModel:
    """Serialize a vectorizer; None means that the model has no TF-IDF features."""
    arrays: dict[str, NDArray[Any]] = {}
    if vectorizer is None:
        return SavedModel(VECTORIZER_KIND, {"text": None}, {}, arrays)
    for part, terms in enumerate(vectorizer.terms_):
        arrays |= {f"text.{part}.{name}": array for name, array in zip(_TERMS, terms, strict=True)}
    arrays["text.idf"] = vectorizer.idf_
    changeable = {"n_jobs": vectorizer.n_jobs, "verbose": vectorizer.verbose}  # may have changed since training
    parameters = {name: to_json(value) for name, value in (vectorizer.fitted_parameters_ | changeable).items()}
    return SavedModel(VECTORIZER_KIND, {"text": parameters}, {}, arrays)


def unpack_vectorizer(saved: SavedModel) -> Tfidf:
    """Return the vectorizer of a saved text ranker, or a separately saved vectorizer.

    Raises
    ------
    ModelFormatError
        If the parts are inconsistent.
    """
    with consistent_parts():
        vectorizer = Tfidf.from_saved_parameters(saved.parameters["text"])
        parts = 1 if isinstance(vectorizer.analyzer, str) else len(vectorizer.analyzer)
        terms = [tuple(saved.arrays[f"text.{part}.{name}"] for name in _TERMS) for part in range(parts)]
        vectorizer.set_fitted(terms, saved.arrays["text.idf"])  # type: ignore[arg-type]
        if not np.isfinite(vectorizer.idf_).all():
            raise ValueError("The idf weights must be finite.")
        for data, _, _ in vectorizer.terms_:
            data.tobytes().decode()  # raises UnicodeDecodeError, which is a ValueError, if the UTF-8 is invalid
        if saved.kind == VECTORIZER_KIND and len(saved.arrays) != len(_TERMS) * parts + 1:
            raise ValueError("The model contains unknown arrays.")
        return vectorizer


def _unpack_counts(
    arrays: dict[str, NDArray[Any]], shape: dict[str, Any], n_labels: int
) -> tuple[NDArray[np.int64] | None, int | None]:
    """Return the label counts and the number of texts; both are None for models saved by early versions."""
    counts = arrays.get(_COUNTS)
    if counts is None:
        return None, None
    n_texts = shape[_TEXTS]
    if counts.dtype != np.int64 or counts.shape != (n_labels,) or type(n_texts) is not int:
        raise ValueError("The label counts do not match the labels.")
    if counts.min(initial=0) < 0 or counts.max(initial=0) > n_texts:
        raise ValueError("A label count is negative or exceeds the number of texts.")
    return counts, n_texts
