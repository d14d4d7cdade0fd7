"""Upgrade models saved by earlier versions: replace former names and defaults before any class reads them.

docs/format.md lists the names. Only built-in kinds and rankers are changed; the contents of user-defined rankers are
unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from carya.core.storage import SavedModel, consistent_parts, prefixed
from carya.errors import InputError

_KINDS = {"nearest-neighbours": "nearest-neighbors"}

_TREE_PARAMETERS = {
    "max_leaf": "max_leaf_size",
    "copies": "clusters_per_label",
    "training_beam": "training_beam_width",
    "cost": "C",
    "positive_cost": "positive_weight",
    "negative_cost": "negative_weight",
    "tolerance": "tol",
    "max_passes": "max_iter",
    "precision": "weight_dtype",
}
_NEIGHBOR_PARAMETERS = _TREE_PARAMETERS | {
    "neighbours": "n_neighbors",
    "candidates": "max_candidates",
    "build_width": "ef_construction",
    "search_width": "ef_search",
    "similarity": "similarity_weight",
}
_ENSEMBLE_PARAMETERS = {"pool": "pool_size", "held_out": "validation_fraction"}
_RERANKED_PARAMETERS = _ENSEMBLE_PARAMETERS | {
    "neighbours": "n_neighbors",
    "extra": "extra_candidates",
    "rounds": "n_rounds",
    "ranker_rows": "max_ranker_rows",
}
_TFIDF_PARAMETERS = {"min_length": "min_word_length", "buckets": "n_buckets"}
#: Values for parameters that earlier versions did not have and for which the earlier behavior differs from the current
#: default.
_TFIDF_DEFAULTS = {"tokenizer": "sklearn", "lead_weight": 0.0}
_TRANSFORMER_PARAMETERS = {
    "layers": "pooled_layers",
    "shorter_first": "progressive_length",
    "matcher_leaf": "matcher_leaf_size",
    "objective": "head_loss",
    "head": "head_mode",
    "head_beam": "head_beam_width",
    "dropout": "head_dropout",
    "label_text_passes": "label_text_repeats",
    "warmup": "warmup_ratio",
    "accumulate": "gradient_accumulation_steps",
    "recompute": "gradient_checkpointing",
    "vector_weight": "embedding_weight",
    "neighbours": "n_neighbors",
    "held_out": "validation_fraction",
    "checkpoints": "checkpoint_dir",
    "cache": "cache_dir",
    "compiled": "compile",
}
_RANKER_PARAMETERS = {
    "boosted": {
        "n_trees": "n_estimators",
        "max_leaves": "max_leaf_nodes",
        "least_pairs": "min_samples_leaf",
        "feature_share": "max_features",
        "cuts": "max_bins",
        "depth": "truncation_level",
    },
    "neural": {
        "width": "hidden_units",
        "passes": "epochs",
        "batch": "batch_size",
        "decay": "weight_decay",
        "standardise": "standardize",
    },
}
_RANKER_ARRAYS: dict[str, dict[str, str]] = {"neural": {"centre": "mean"}}
_RERANKED_PARTS = {
    "near": "rows",
    "centres": "centroids",
    "texts": "names",
    "words": "name_words",
    "company": "cooccurrence",
}
#: Former and current prefixes of feature names.
_RERANKED_FEATURES = {
    "neighbours": "neighbors",
    "centre": "centroid",
    "text": "name",
    "features": "query_features",
    "company": "cooccurrence",
}
_TRANSFORMER_RANKERS = {"neighbours": "neighbors"}
#: Former and current suffixes of feature names.
_MIXTURE_FEATURES = {"share": "relative", "place": "rank"}
_TEXT_ARRAYS = {"calibration.chances": "calibration.probabilities"}


def upgrade(saved: SavedModel) -> SavedModel:
    """Return the contents of a model with former names replaced; models of unknown kinds are returned unchanged.

    Raises
    ------
    ModelFormatError
        If a part is missing or malformed, or if it contains both a former name and the current one.
    """
    with consistent_parts():
        return _upgrade(saved)


def _upgrade(saved: SavedModel) -> SavedModel:
    kind = _KINDS.get(saved.kind, saved.kind)
    function = _FUNCTIONS.get(kind)
    return saved if function is None else function(replace(saved, kind=kind))


def _upgrade_tree(saved: SavedModel) -> SavedModel:
    return replace(saved, parameters=_renamed(saved.parameters, _TREE_PARAMETERS))


def _upgrade_neighbors(saved: SavedModel) -> SavedModel:
    return replace(saved, parameters=_renamed(saved.parameters, _NEIGHBOR_PARAMETERS))


def _upgrade_ensemble(saved: SavedModel) -> SavedModel:
    parameters = _renamed(saved.parameters, _ENSEMBLE_PARAMETERS)
    kinds = parameters.get("kinds", ["xr-linear"] * len(parameters["members"]))
    parts = zip(kinds, parameters["members"], saved.shape["members"], strict=True)
    members = [
        _upgrade(saved.part(str(number), str(kind), own, shape)) for number, (kind, own, shape) in enumerate(parts)
    ]
    parameters["members"] = [member.parameters for member in members]
    if "kinds" in parameters:
        parameters["kinds"] = [member.kind for member in members]
    numbers = [str(number) for number in range(len(members))]
    arrays = {name: array for name, array in saved.arrays.items() if name.partition("/")[0] not in numbers}
    for number, member in zip(numbers, members, strict=True):
        arrays |= prefixed(number, member.arrays)
    shape = saved.shape | {"members": [member.shape for member in members]}
    return replace(saved, parameters=parameters, shape=shape, arrays=arrays)


def _upgrade_reranked(saved: SavedModel) -> SavedModel:
    parameters = _renamed(saved.parameters, _RERANKED_PARAMETERS)
    models = _renamed(parameters["models"], _RERANKED_PARTS)
    parameters["models"] = {name: _renamed(own, _TREE_PARAMETERS) for name, own in models.items()}
    parameters["ranker"] = _upgrade_ranker(parameters["ranker"], _reranked_feature)
    shape = saved.shape | {"models": _renamed(saved.shape["models"], _RERANKED_PARTS)}
    names = _part_names(saved, _RERANKED_PARTS) | _with_prefix("ranker/", _ranker_array_names(parameters["ranker"]))
    return replace(saved, parameters=parameters, shape=shape, arrays=_renamed(saved.arrays, names))


def _upgrade_text_ranker(saved: SavedModel) -> SavedModel:
    # The arrays include the text ranker's own arrays, whose names contain no slash and are therefore not changed.
    kind = str(saved.parameters.get("model_kind", "xr-linear"))
    model = _upgrade(replace(saved, kind=kind, parameters=dict(saved.parameters["model"])))
    parameters = _upgrade_vectorizer(saved.parameters) | {"model": model.parameters}
    if "model_kind" in parameters:
        parameters["model_kind"] = model.kind
    return replace(model, kind=saved.kind, parameters=parameters, arrays=_renamed(model.arrays, _TEXT_ARRAYS))


def _upgrade_transformer(saved: SavedModel) -> SavedModel:
    model = dict(saved.parameters["model"])
    model["own"] = _renamed(model["own"], _TRANSFORMER_PARAMETERS)
    model["weights"] = _renamed(model["weights"], _TRANSFORMER_RANKERS)
    model["rankers"] = {
        name: _renamed(own, _NEIGHBOR_PARAMETERS if name == "neighbors" else _TREE_PARAMETERS)
        for name, own in _renamed(model["rankers"], _TRANSFORMER_RANKERS).items()
    }
    names = _part_names(saved, _TRANSFORMER_RANKERS) | _TEXT_ARRAYS
    if model["mixture"] is not None:
        mixture = _upgrade_ranker({"name": "neural", "parameters": model["mixture"]}, _mixture_feature)
        model["mixture"] = mixture["parameters"]
        names |= _with_prefix("mixture/", _ranker_array_names(mixture))
    return replace(
        saved,
        parameters=_upgrade_vectorizer(saved.parameters) | {"model": model},
        shape=_renamed(saved.shape, _TRANSFORMER_RANKERS),
        arrays=_renamed(saved.arrays, names),
    )


_FUNCTIONS: dict[str, Callable[[SavedModel], SavedModel]] = {
    "xr-linear": _upgrade_tree,
    "nearest-neighbors": _upgrade_neighbors,
    "ensemble": _upgrade_ensemble,
    "reranked": _upgrade_reranked,
    "text-ranker": _upgrade_text_ranker,
    "xr-transformer": _upgrade_transformer,
    "x-transformer": _upgrade_transformer,
}


def _upgrade_vectorizer(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a text model, with the parameters of its vectorizer, if any, upgraded."""
    own = parameters["text"]
    return parameters | {"text": None if own is None else _TFIDF_DEFAULTS | _renamed(own, _TFIDF_PARAMETERS)}


def _upgrade_ranker(ranker: dict[str, Any], current_feature: Callable[[str], str]) -> dict[str, Any]:
    """Return the name and the upgraded parameters of a ranker; those of user-defined rankers are unchanged."""
    name, settings = ranker["name"], ranker["parameters"]
    if name == "averaged":
        rankers = [_upgrade_ranker(part, current_feature) for part in settings["rankers"]]
        return ranker | {"parameters": settings | {"rankers": rankers}}
    if name not in _RANKER_PARAMETERS:
        return ranker
    features = [current_feature(str(feature)) for feature in settings["names"]]
    parameters = _renamed(settings["parameters"], _RANKER_PARAMETERS[name])
    return ranker | {"parameters": settings | {"names": features, "parameters": parameters}}


def _ranker_array_names(ranker: dict[str, Any]) -> dict[str, str]:
    """Return a mapping from the former to the current names of a ranker's arrays."""
    if ranker["name"] != "averaged":
        return _RANKER_ARRAYS.get(ranker["name"], {})
    names: dict[str, str] = {}
    for number, part in enumerate(ranker["parameters"]["rankers"]):
        names |= _with_prefix(f"{number}.", _ranker_array_names(part))
    return names


def _part_names(saved: SavedModel, parts: Mapping[str, str]) -> dict[str, str]:
    """Return a mapping from the former to the current names of the arrays in the renamed parts."""
    names = {}
    for name in saved.arrays:
        part, separator, rest = name.partition("/")
        if separator and part in parts:
            names[name] = f"{parts[part]}/{rest}"
    return names


def _with_prefix(prefix: str, names: Mapping[str, str]) -> dict[str, str]:
    return {prefix + former: prefix + current for former, current in names.items()}


def _reranked_feature(name: str) -> str:
    """Return the current name of a feature of a reranked model.

    >>> _reranked_feature("tree0.above1"), _reranked_feature("centre.rank")
    ('tree0.ancestor1', 'centroid.rank')
    """
    first, separator, rest = name.partition(".")
    return _RERANKED_FEATURES.get(first, first) + separator + rest.replace("above", "ancestor")


def _mixture_feature(name: str) -> str:
    """Return the current name of a feature of a transformer model's mixture.

    >>> _mixture_feature("neighbours.place"), _mixture_feature("head.log")
    ('neighbors.rank', 'head.log')
    """
    ranker, separator, suffix = name.partition(".")
    return _TRANSFORMER_RANKERS.get(ranker, ranker) + separator + _MIXTURE_FEATURES.get(suffix, suffix)


def _renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Replace former names in the keys; raise InputError if the current name is also present."""
    renamed = {names.get(name, name): value for name, value in values.items()}
    if len(renamed) != len(values):
        current = next(current for former, current in names.items() if former in values and current in values)
        raise InputError(f"Both {current} and one of its former names are present.")
    return renamed
