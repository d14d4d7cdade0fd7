"""What of an XR-Linear model goes into a saved folder, and back. docs/format.md specifies the arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.errors import InputError, ModelFormatError
from carya.layer import PRECISIONS, Layer, Transform, Weights
from carya.store import Saved
from carya.tree import LabelTree

KIND = "xr-linear"

#: Arrays that the search verifies as it uses them, by the last part of their names.
LAZY = frozenset({"data", "dense"})

_ARRAYS_PER_LAYER = 7


@dataclass(frozen=True, eq=False)
class Learned:
    """All that training an XR-Linear model finds out.

    Attributes
    ----------
    tree : LabelTree
    layers : list of Layer
    widths : tuple of int
        How many features are sparse, how many dense.
    """

    tree: LabelTree
    layers: Sequence[Layer]
    widths: tuple[int, int]

    def with_precision(self, precision: str, *, threads: int = 1) -> Learned:
        """The same with weights kept otherwise."""
        return replace(self, layers=[layer.with_precision(precision, threads=threads) for layer in self.layers])


def pack(learned: Learned, parameters: dict[str, Any]) -> Saved:
    """The content of a model folder."""
    shape = {
        "sparse_features": learned.widths[0],
        "dense_features": learned.widths[1],
        "transforms": [layer.transform.name for layer in learned.layers],
        "precisions": [layer.weights.precision for layer in learned.layers],
    }
    arrays: dict[str, NDArray[Any]] = {}
    for level, (layer, parents) in enumerate(zip(learned.layers, learned.tree.parents, strict=True), 1):
        layer.verify()  # damage must not be sealed
        arrays |= {
            f"{level}.parents": parents,
            f"{level}.weights.groups": layer.weights.groups,
            f"{level}.weights.within": layer.weights.within,
            f"{level}.weights.data": layer.weights.data,
            f"{level}.weights.scales": layer.weights.scales,
            f"{level}.dense": layer.dense,
            f"{level}.offsets": layer.offsets,
        }
    return Saved(KIND, {name: _plain(value) for name, value in parameters.items()}, shape, arrays)


def _plain(value: Any) -> Any:
    """A parameter as JSON knows it."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def unpack(saved: Saved) -> tuple[Learned, dict[str, Any]]:
    """What was learned, and the parameters; raises ModelFormatError if the parts do not fit together."""
    try:
        widths = (int(saved.shape["sparse_features"]), int(saved.shape["dense_features"]))
        transforms = [Transform.named(name) for name in saved.shape["transforms"]]
        precisions = saved.shape["precisions"]
        tree = LabelTree([saved.arrays[f"{level}.parents"] for level in range(1, len(transforms) + 1)])
        layers = [
            _layer(saved, tree, level, widths, transform, precision)
            for level, (transform, precision) in enumerate(zip(transforms, precisions, strict=True), 1)
        ]
        if len(saved.arrays) != _ARRAYS_PER_LAYER * len(layers):
            raise InputError(f"{len(saved.arrays)} arrays are too many for {len(layers)} layers")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelFormatError(f"the parts of the model do not fit together: {error}") from None
    parameters = {name: tuple(value) if isinstance(value, list) else value for name, value in saved.parameters.items()}
    return Learned(tree, layers, widths), parameters


def _layer(
    saved: Saved, tree: LabelTree, level: int, widths: tuple[int, int], transform: Transform, precision: str
) -> Layer:
    order, chunks = tree.children(level)
    parts = {part: saved.arrays[f"{level}.weights.{part}"] for part in ("groups", "within", "data", "scales")}
    dense = saved.arrays[f"{level}.dense"]
    if precision not in PRECISIONS:
        raise InputError(f"layer {level} has precision {precision!r}")
    if parts["within"].size != widths[0] + 1 or dense.shape != (order.size, widths[1]):
        raise InputError(f"layer {level} has weights of another shape")
    if not np.isfinite(saved.arrays[f"{level}.offsets"]).all():
        raise InputError(f"layer {level} has offsets that are not finite")
    return Layer(
        weights=Weights(**parts, precision=precision),
        dense=dense,
        offsets=saved.arrays[f"{level}.offsets"],
        chunks=chunks,
        order=order,
        transform=transform,
        folder=saved.folder,
    )
