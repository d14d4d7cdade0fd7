"""Serialize ensembles. docs/format.md specifies the parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core.storage import SavedModel, consistent_parts, prefixed
from carya.models.registry import open_model
from carya.models.xr_linear.serialize import KIND as TREE_KIND

KIND = "ensemble"


def pack(
    members: Sequence[Any], weights: NDArray[np.float32], own: Mapping[str, Any], weight_dtype: str | None
) -> SavedModel:
    """Return the contents of a model folder; `own` contains the ensemble's own parameters."""
    parts = [member.to_saved(weight_dtype=weight_dtype) for member in members]
    parameters: dict[str, Any] = dict(own)
    kinds = [part.kind for part in parts]
    if kinds != [TREE_KIND] * len(parts):
        parameters["kinds"] = kinds
    arrays: dict[str, NDArray[Any]] = {}
    for number, part in enumerate(parts):
        arrays |= prefixed(str(number), part.arrays)
    return SavedModel(
        KIND,
        parameters | {"members": [part.parameters for part in parts], "weights": weights.tolist()},
        {"members": [part.shape for part in parts]},
        arrays,
    )


def unpack(saved: SavedModel) -> tuple[list[Any], dict[str, Any]]:
    """Restore the members and the ensemble's own parameters."""
    with consistent_parts():
        parameters, shapes = saved.parameters["members"], saved.shape["members"]
        kinds = saved.parameters.get("kinds", [TREE_KIND] * len(parameters))
        members = [
            open_model(saved.part(str(number), str(kind), own, shape))
            for number, (kind, own, shape) in enumerate(zip(kinds, parameters, shapes, strict=True))
        ]
        return members, {name: value for name, value in saved.parameters.items() if name not in ("kinds", "members")}
