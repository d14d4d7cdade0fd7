"""Serialize reranked models. docs/format.md specifies the parts."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from carya.core.matrices import Csr
from carya.core.parameters import to_json
from carya.core.storage import SavedModel, consistent_parts, prefixed
from carya.errors import InputError
from carya.models.reranked.features import CandidateFeatures
from carya.models.xr_linear.model import XRLinear
from carya.models.xr_linear.serialize import KIND as TREE_KIND
from carya.ranking.ranker import Ranker, restore_ranker

KIND = "reranked"

_MATRICES = ("labels", "cooccurrence")
_MODELS = ("rows", "centroids", "names", "name_words")
_OPTIONAL_MODELS = ("names", "name_words")


def pack(
    features: CandidateFeatures, ranker: Ranker, parameters: dict[str, Any], weight_dtype: str | None
) -> SavedModel:
    """Return the contents of a model folder."""
    models = {
        f"member{number}": member.to_saved(weight_dtype=weight_dtype) for number, member in enumerate(features.members)
    }
    models |= {name: model.to_saved() for name in _MODELS if (model := getattr(features, name)) is not None}
    arrays: dict[str, NDArray[Any]] = {}
    for name, model in models.items():
        arrays |= prefixed(name, model.arrays)
    for name in _MATRICES:
        matrix: Csr = getattr(features, name)
        arrays |= prefixed(name, {"indptr": matrix.indptr, "indices": matrix.indices, "values": matrix.values})
    settings, ranker_arrays = ranker.to_saved()
    arrays |= prefixed("ranker", ranker_arrays)
    return SavedModel(
        KIND,
        {name: to_json(value) for name, value in parameters.items()}
        | {"models": {name: model.parameters for name, model in models.items()}}
        | {"ranker": {"name": ranker.name, "parameters": settings}},
        {"members": len(features.members), "models": {name: model.shape for name, model in models.items()}},
        arrays,
    )


def unpack(saved: SavedModel) -> tuple[CandidateFeatures, Ranker, dict[str, Any]]:
    """Restore the fitted components and the parameters; raise ModelFormatError if they are inconsistent."""
    with consistent_parts():
        parameters = {name: value for name, value in saved.parameters.items() if name not in ("models", "ranker")}
        models = {
            name: XRLinear.from_saved(saved.part(name, TREE_KIND, saved.parameters["models"][name], shape))
            for name, shape in saved.shape["models"].items()
        }
        members = [models[f"member{number}"] for number in range(int(saved.shape["members"]))]
        if not members:
            raise InputError("The model has no trees.")
        others = {name: models[name] for name in _MODELS if name in models or name not in _OPTIONAL_MODELS}
        unknown = models.keys() - others.keys() - {f"member{number}" for number in range(len(members))}
        if unknown:
            raise InputError(f"The model contains unknown parts: {', '.join(sorted(unknown))}.")
        n_labels = members[0].tree_.n_labels
        labels, cooccurrence = (_unpack_matrix(saved.arrays_of(name), n_labels, name) for name in _MATRICES)
        features = CandidateFeatures(members=members, labels=labels, cooccurrence=cooccurrence, **others)
        _check_consistency(features)
        name, settings = saved.parameters["ranker"]["name"], saved.parameters["ranker"]["parameters"]
        ranker = restore_ranker(name, dict(settings), saved.arrays_of("ranker"))
        return features, ranker, parameters


def _unpack_matrix(arrays: dict[str, NDArray[Any]], cols: int, name: str) -> Csr:
    indptr, indices, values = (arrays[key] for key in ("indptr", "indices", "values"))
    if [str(array.dtype) for array in (indptr, indices, values)] != ["int64", "int32", "float32"]:
        raise InputError(f"The arrays of {name} do not form a matrix.")
    return Csr.of(indptr, indices, values, cols, name)


def _check_consistency(features: CandidateFeatures) -> None:
    """Raise InputError unless the numbers of rows, labels and features of all components match."""
    n_labels, widths = features.n_labels, features.widths
    over_labels = [*features.members, features.centroids, features.names, features.name_words]
    if any(model.tree_.n_labels != n_labels for model in over_labels if model is not None):
        raise InputError("The parts have different numbers of labels.")
    tree_widths = features.rows.widths_  # the trees use only the leading sparse columns
    if any(model.widths_ != tree_widths for model in (*features.members, features.centroids)):
        raise InputError("The parts have different numbers of features.")
    name_words = features.name_words
    if tree_widths[0] > widths[0] or tree_widths[1] != widths[1]:
        raise InputError(
            "The models of label names must have the features of the trees, optionally followed by additional sparse "
            "features."
        )
    if (features.names is None) != (name_words is None) or (name_words is not None and name_words.widths_ != widths):
        raise InputError("The two models of label names do not match.")
    if features.rows.tree_.n_labels != features.labels.rows or features.cooccurrence.rows != n_labels:
        raise InputError("The parts have different numbers of rows.")
