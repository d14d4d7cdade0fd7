"""Serialize text models that contain other text models. The format is specified in docs/format.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from carya.core.parameters import to_json
from carya.core.storage import SavedModel, consistent_parts, prefixed
from carya.models.calibration.calibration import Calibration
from carya.models.registry import TEXT_MODEL_CLASSES, open_model
from carya.text.base import BaseTextRanker

#: The subfolder with the additional files of the members, in one numbered folder per member.
MEMBERS_FOLDER = "members"

_CALIBRATION = "calibration"
_OWN_KEYS = ("kinds", "members")


def pack_members(
    kind: str,
    own: Mapping[str, Any],
    members: Sequence[BaseTextRanker[Any]],
    calibration: Calibration | None,
    weight_dtype: str | None,
) -> SavedModel:
    """Return the contents of a model folder; `own` contains the parameters of the combined model itself."""
    parts = [member.to_saved(weight_dtype=weight_dtype) for member in members]
    arrays: dict[str, NDArray[Any]] = {}
    for number, part in enumerate(parts):
        arrays |= prefixed(str(number), part.arrays)
    if calibration is not None:
        arrays |= prefixed(_CALIBRATION, calibration.to_arrays())
    return SavedModel(
        kind,
        {name: to_json(value) for name, value in own.items()}
        | {"kinds": [part.kind for part in parts], "members": [part.parameters for part in parts]},
        {"members": [part.shape for part in parts]},
        arrays,
    )


def save_member_files(members: Sequence[BaseTextRanker[Any]], folder: Path) -> None:
    """Write the additional files of the members to subfolders of the model folder."""
    for number, member in enumerate(members):
        if member.has_files:
            subfolder = folder / MEMBERS_FOLDER / str(number)
            subfolder.mkdir(parents=True)
            member.save_files(subfolder)


def unpack_members(saved: SavedModel) -> tuple[list[BaseTextRanker[Any]], dict[str, Any], Calibration | None]:
    """Restore the members, the parameters of the combined model itself, and the calibration.

    Raises
    ------
    ModelFormatError
        If the parts are inconsistent.
    """
    with consistent_parts():
        members = []
        parts = zip(saved.parameters["kinds"], saved.parameters["members"], saved.shape["members"], strict=True)
        for number, (kind, parameters, shape) in enumerate(parts):
            part = saved.part(str(number), str(kind), parameters, shape)
            if saved.path is not None:
                part = replace(part, path=saved.path / MEMBERS_FOLDER / str(number))
            members.append(open_model(part, TEXT_MODEL_CLASSES))
        own = {name: value for name, value in saved.parameters.items() if name not in _OWN_KEYS}
        arrays = saved.arrays_of(_CALIBRATION)
        calibration = Calibration.from_arrays(arrays, len(members[0].labels_)) if arrays else None
        return members, own, calibration
