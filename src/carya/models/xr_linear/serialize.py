"""Serialize XR-Linear models and trained trees. docs/format.md specifies the arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core.parameters import to_json
from carya.core.storage import SavedModel, consistent_parts
from carya.errors import InputError
from carya.trees.label_tree import LabelTree
from carya.trees.layer import WEIGHT_DTYPES, Layer, Weights
from carya.trees.trained_tree import TrainedTree
from carya.trees.transforms import Transform

KIND = "xr-linear"

#: The value of `max_bit_chunks` in models saved by earlier versions, which did not store it.
EARLIER_MAX_BIT_CHUNKS = 1024

_ARRAYS_PER_LAYER = 6
_PER_LAYER = ("precisions", "weights", "features_used", "max_bit_chunks")


def pack(trained: TrainedTree, parameters: dict[str, Any]) -> SavedModel:
    """Return the contents of a model folder."""
    shape = {
        "sparse_features": trained.widths[0],
        "dense_features": trained.widths[1],
        "transforms": [layer.transform.name for layer in trained.layers],
        "precisions": [layer.weights.dtype for layer in trained.layers],
        "weights": [layer.weights.n_weights for layer in trained.layers],
        "features_used": [layer.weights.n_used for layer in trained.layers],
        "max_bit_chunks": [layer.weights.max_bit_chunks for layer in trained.layers],
        "row_features": trained.row_features,
    }
    arrays: dict[str, NDArray[Any]] = {}
    if trained.tree.leaf_labels is not None:
        arrays["leaf_labels"] = trained.tree.leaf_labels
    for level, (layer, parents) in enumerate(zip(trained.layers, trained.tree.parents, strict=True), 1):
        layer.verify()  # damaged weights must not be saved with valid checksums
        arrays |= {
            f"{level}.parents": parents,
            f"{level}.weights.starts": layer.weights.starts,
            f"{level}.weights.data": layer.weights.data,
            f"{level}.weights.scales": layer.weights.scales,
            f"{level}.dense": layer.dense,
            f"{level}.offsets": layer.biases,
        }
    return SavedModel(KIND, {name: to_json(value) for name, value in parameters.items()}, shape, arrays)


def unpack(saved: SavedModel) -> TrainedTree:
    """Restore a trained tree; raise ModelFormatError if its parts are inconsistent."""
    with consistent_parts():
        widths = (int(saved.shape["sparse_features"]), int(saved.shape["dense_features"]))
        transforms = [Transform.from_name(name) for name in saved.shape["transforms"]]
        shape = {"max_bit_chunks": [EARLIER_MAX_BIT_CHUNKS] * len(transforms)} | saved.shape
        row_features = float(saved.shape["row_features"])
        if not 0 <= row_features < math.inf:
            raise InputError(f"row_features must be finite and >= 0, got {row_features}.")
        for key in _PER_LAYER:
            if not isinstance(shape[key], list) or len(shape[key]) != len(transforms):
                raise InputError(f"{key} must be a list with one value for each of the {len(transforms)} layers.")
        leaf_labels = saved.arrays.get("leaf_labels")
        tree = LabelTree([saved.arrays[f"{level}.parents"] for level in range(1, len(transforms) + 1)], leaf_labels)
        values = zip(*(shape[key] for key in _PER_LAYER), strict=True)
        layers = [
            _layer(saved, tree, level, widths, transform, *of_layer)
            for level, (transform, of_layer) in enumerate(zip(transforms, values, strict=True), 1)
        ]
        if len(saved.arrays) != _ARRAYS_PER_LAYER * len(layers) + (leaf_labels is not None):
            raise InputError(f"The model contains {len(saved.arrays)} arrays, too many for {len(layers)} layers.")
        return TrainedTree(tree, layers, widths, row_features)


def check_max_bit_chunks(value: Any) -> int:
    """Validate the value of `max_bit_chunks` in a saved model."""
    limit = int(value)
    if not 0 <= limit <= _core.MAX_BIT_CHUNKS:
        raise InputError(f"max_bit_chunks must be at most {_core.MAX_BIT_CHUNKS}, got {limit}.")
    return limit


def _layer(
    saved: SavedModel,
    tree: LabelTree,
    level: int,
    widths: tuple[int, int],
    transform: Transform,
    dtype: Any,
    count: Any,
    used: Any,
    max_bit_chunks: Any,
) -> Layer:
    order, chunks = tree.children(level)
    parts = {part: saved.arrays[f"{level}.weights.{part}"] for part in ("starts", "data", "scales")}
    dense, biases = saved.arrays[f"{level}.dense"], saved.arrays[f"{level}.offsets"]
    if dtype not in WEIGHT_DTYPES:
        raise InputError(f"Layer {level} has the unknown weight type {dtype!r}.")
    if not 0 <= int(used) <= widths[0] or not 0 <= int(count) <= parts["data"].size:
        raise InputError(f"Layer {level} cannot have {count} weights for {used} features.")
    if parts["starts"].ndim != 2 or dense.shape != (order.size, widths[1]):
        raise InputError(f"Layer {level} has weights with the wrong shape.")
    if not np.isfinite(biases).all():
        raise InputError(f"Layer {level} has biases that are not finite.")
    return Layer(
        weights=Weights(
            **parts,
            dtype=dtype,
            n_features=widths[0],
            n_weights=int(count),
            n_used=int(used),
            max_bit_chunks=check_max_bit_chunks(max_bit_chunks),
        ),
        dense=dense,
        biases=biases,
        chunks=chunks,
        order=order,
        transform=transform,
        folder=saved.folder,
    )
