"""What of an XR-Linear model goes into a saved folder, and back. docs/format.md specifies the arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core.parameters import from_json, to_json
from carya.core.storage import Saved
from carya.errors import InputError, ModelFormatError
from carya.trees.label_tree import LabelTree
from carya.trees.layer import PRECISIONS, Layer, Weights
from carya.trees.trained_tree import Learned
from carya.trees.transforms import Transform

KIND = "xr-linear"

#: Arrays that the search verifies as it uses them, by the last part of their names.
LAZY = frozenset({"data", "dense"})

_ARRAYS_PER_LAYER = 6


def pack(learned: Learned, parameters: dict[str, Any]) -> Saved:
    """The content of a model folder."""
    shape = {
        "sparse_features": learned.widths[0],
        "dense_features": learned.widths[1],
        "transforms": [layer.transform.name for layer in learned.layers],
        "precisions": [layer.weights.precision for layer in learned.layers],
        "weights": [layer.weights.n_weights for layer in learned.layers],
        "features_used": [layer.weights.n_used for layer in learned.layers],
        "row_features": learned.row_features,
    }
    arrays: dict[str, NDArray[Any]] = {}
    if learned.tree.leaf_labels is not None:
        arrays["leaf_labels"] = learned.tree.leaf_labels
    for level, (layer, parents) in enumerate(zip(learned.layers, learned.tree.parents, strict=True), 1):
        layer.verify()  # damage must not be sealed
        arrays |= {
            f"{level}.parents": parents,
            f"{level}.weights.starts": layer.weights.starts,
            f"{level}.weights.data": layer.weights.data,
            f"{level}.weights.scales": layer.weights.scales,
            f"{level}.dense": layer.dense,
            f"{level}.offsets": layer.offsets,
        }
    return Saved(KIND, {name: to_json(value) for name, value in parameters.items()}, shape, arrays)


def unpack(saved: Saved) -> tuple[Learned, dict[str, Any]]:
    """What was learned, and the parameters; raises ModelFormatError if the parts do not fit together."""
    try:
        widths = (int(saved.shape["sparse_features"]), int(saved.shape["dense_features"]))
        transforms = [Transform.named(name) for name in saved.shape["transforms"]]
        row_features = float(saved.shape["row_features"])
        if not 0 <= row_features < math.inf:
            raise InputError(f"rows cannot have {row_features} features")
        for key in ("precisions", "weights", "features_used"):
            if not isinstance(saved.shape[key], list) or len(saved.shape[key]) != len(transforms):
                raise InputError(f"{key} must be a list of {len(transforms)}, one for each layer")
        leaf_labels = saved.arrays.get("leaf_labels")
        tree = LabelTree([saved.arrays[f"{level}.parents"] for level in range(1, len(transforms) + 1)], leaf_labels)
        layers = [_layer(saved, tree, level, widths, transform) for level, transform in enumerate(transforms, 1)]
        if len(saved.arrays) != _ARRAYS_PER_LAYER * len(layers) + (leaf_labels is not None):
            raise InputError(f"{len(saved.arrays)} arrays are too many for {len(layers)} layers")
    except KeyError as error:
        raise ModelFormatError(f"the parts of the model do not fit together: there is no {error}") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelFormatError(f"the parts of the model do not fit together: {error}") from None
    parameters = {name: from_json(value) for name, value in saved.parameters.items()}
    return Learned(tree, layers, widths, row_features), parameters


def _layer(saved: Saved, tree: LabelTree, level: int, widths: tuple[int, int], transform: Transform) -> Layer:
    order, chunks = tree.children(level)
    parts = {part: saved.arrays[f"{level}.weights.{part}"] for part in ("starts", "data", "scales")}
    dense = saved.arrays[f"{level}.dense"]
    precision, count, used = (saved.shape[key][level - 1] for key in ("precisions", "weights", "features_used"))
    if precision not in PRECISIONS:
        raise InputError(f"layer {level} has precision {precision!r}")
    if not 0 <= int(used) <= widths[0] or not 0 <= int(count) <= parts["data"].size:
        raise InputError(f"layer {level} cannot have {count} weights of {used} features")
    if parts["starts"].ndim != 2 or dense.shape != (order.size, widths[1]):
        raise InputError(f"layer {level} has weights of another shape")
    if not np.isfinite(saved.arrays[f"{level}.offsets"]).all():
        raise InputError(f"layer {level} has offsets that are not finite")
    return Layer(
        weights=Weights(**parts, precision=precision, n_features=widths[0], n_weights=int(count), n_used=int(used)),
        dense=dense,
        offsets=saved.arrays[f"{level}.offsets"],
        chunks=chunks,
        order=order,
        transform=transform,
        folder=saved.folder,
    )
