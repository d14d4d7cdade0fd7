"""Saved models: a folder with a manifest and one file of arrays that memory-maps. docs/format.md is the specification.

No pickle, no code, no class names. A model is written beside its place and moved there when it is whole, so a reader
never sees half of one; every array carries a checksum, so a damaged file is an error and not a wrong answer.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.errors import ModelFormatError, SaveError

FORMAT = 1
_ALIGNMENT = 64
_DTYPES = {"float32": "<f4", "int32": "<i4", "int64": "<i8", "uint8": "|u1", "uint32": "<u4"}
_MANIFEST = "manifest.json"
_ARRAYS = "arrays.bin"
_MOST_MANIFEST_BYTES = 64 << 20


@dataclass(frozen=True)
class Saved:
    """What a model folder holds.

    Attributes
    ----------
    kind : str
        Which model, such as ``"xr-linear"``.
    parameters : dict
        The parameters it was trained with.
    shape : dict
        Sizes and names that the arrays alone do not tell.
    arrays : dict of str to ndarray
        Read-only; mapped from the file, not copied.
    """

    kind: str
    parameters: dict[str, Any]
    shape: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def save(path: str | os.PathLike[str], saved: Saved, *, version: str) -> None:
    """Write a model folder, replacing one that is there; nothing else is ever replaced."""
    place = Path(path)
    _refuse_foreign(place)
    try:
        beside = place.parent / f".{place.name}.{secrets.token_hex(8)}.tmp"
        beside.mkdir(parents=True)
    except OSError as error:
        raise SaveError(f"{place}: {error.strerror or error}") from error
    try:
        entries = _write_arrays(beside / _ARRAYS, saved.arrays)
        manifest = {
            "format": FORMAT,
            "written_by": f"carya {version}",
            "kind": saved.kind,
            "parameters": saved.parameters,
            "shape": saved.shape,
            "arrays": entries,
        }
        manifest["checksum"] = _checksum(_canonical(manifest))
        with (beside / _MANIFEST).open("w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1)
            _flush(file)
        _move_into_place(beside, place)
    except OSError as error:
        raise SaveError(f"{place}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def load(path: str | os.PathLike[str]) -> Saved:
    """Map a model folder; raises ModelFormatError for anything that is not a whole, unaltered one."""
    place = Path(path)
    manifest = _read_manifest(place)
    try:
        mapped = np.memmap(place / _ARRAYS, np.uint8, mode="r")
    except (OSError, ValueError) as error:
        raise ModelFormatError(f"{place}: {_ARRAYS} cannot be read: {error}") from None
    arrays = {}
    end = 0
    for entry in manifest["arrays"]:
        name, array, end = _map_array(place, mapped, entry, end)
        arrays[name] = array
    if end != mapped.size:
        raise ModelFormatError(f"{place}: {_ARRAYS} has {mapped.size} bytes, the manifest describes {end}")
    return Saved(manifest["kind"], manifest["parameters"], manifest["shape"], arrays)


def _read_manifest(place: Path) -> dict[str, Any]:
    file = place / _MANIFEST
    try:
        if file.stat().st_size > _MOST_MANIFEST_BYTES:
            raise ModelFormatError(f"{place}: {_MANIFEST} is too large to be one")
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFormatError(f"{place} is not a Carya model: it has no {_MANIFEST}") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ModelFormatError(f"{place}: {_MANIFEST} cannot be read: {error}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise ModelFormatError(f"{place}: {_MANIFEST} is not that of a Carya model")
    if manifest["format"] < 1:
        raise ModelFormatError(f"{place} has format {manifest['format']}, which never was one")
    if manifest["format"] > FORMAT:
        raise ModelFormatError(
            f"{place} has format {manifest['format']}, this version of Carya reads up to {FORMAT}: upgrade Carya"
        )
    expected = {"kind": str, "parameters": dict, "shape": dict, "arrays": list, "checksum": str}
    for key, kind in expected.items():
        if not isinstance(manifest.get(key), kind):
            raise ModelFormatError(f"{place}: {_MANIFEST} has no {key}")
    if _checksum(_canonical(manifest)) != manifest["checksum"]:
        raise ModelFormatError(f"{place}: {_MANIFEST} has been altered: its checksum does not match")
    return manifest


def _map_array(place: Path, mapped: NDArray[np.uint8], entry: object, after: int) -> tuple[str, NDArray[Any], int]:
    """One array, which must lie behind the last one, be inside the file and have its checksum."""
    match entry:
        case {
            "name": str(name),
            "dtype": str(dtype),
            "shape": list(shape),
            "offset": int(offset),
            "checksum": str(checksum),
        }:
            pass
        case _:
            raise ModelFormatError(f"{place}: {_MANIFEST} describes an array badly")
    if dtype not in _DTYPES or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise ModelFormatError(f"{place}: array {name!r} has an unknown type or shape")
    size = math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize
    if offset < after or offset % _ALIGNMENT or offset + size > mapped.size:
        raise ModelFormatError(f"{place}: {_ARRAYS} is cut short or array {name!r} lies outside it")
    if mapped[after:offset].any():
        raise ModelFormatError(f"{place}: {_ARRAYS} has something between its arrays")
    data = mapped[offset : offset + size]
    if _checksum(data) != checksum:
        raise ModelFormatError(f"{place}: array {name!r} has been altered: its checksum does not match")
    return name, np.asarray(data).view(_DTYPES[dtype]).reshape(shape), offset + size


def _write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    entries = []
    with path.open("wb") as file:
        for name, array in arrays.items():
            if str(array.dtype) not in _DTYPES:
                raise TypeError(f"array {name!r} has type {array.dtype}, which models do not hold")
            file.write(b"\0" * (-file.tell() % _ALIGNMENT))
            data = np.ascontiguousarray(array, _DTYPES[str(array.dtype)])
            raw = data.reshape(-1).view(np.uint8)
            entries.append(
                {
                    "name": name,
                    "dtype": str(array.dtype),
                    "shape": list(array.shape),
                    "offset": file.tell(),
                    "checksum": _checksum(raw),
                }
            )
            file.write(raw.data)
        _flush(file)
    return entries


def _checksum(data: NDArray[np.uint8] | bytes) -> str:
    if isinstance(data, bytes):
        data = np.frombuffer(data, np.uint8)
    return f"{_core.xxh64(data):016x}"


def _canonical(manifest: Mapping[str, Any]) -> bytes:
    rest = {key: value for key, value in manifest.items() if key != "checksum"}
    return json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()


def _refuse_foreign(place: Path) -> None:
    if not place.name:
        raise SaveError(f"{place} is not a place for a model: give the path of a folder")
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise SaveError(f"{place} exists and is not a folder")
    if place.is_dir() and any(place.iterdir()) and not _is_model(place):
        raise SaveError(f"{place} exists and is not a Carya model, or holds other files too; it is left alone")


def _is_model(place: Path) -> bool:
    """Whether a folder holds a model, whole or damaged, and nothing else."""
    if {entry.name for entry in place.iterdir()} - {_MANIFEST, _ARRAYS}:
        return False
    try:
        manifest = json.loads((place / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(manifest, dict) and {"format", "kind", "arrays", "checksum"} <= manifest.keys()


def _move_into_place(beside: Path, place: Path) -> None:
    """Rename the new folder to its place. An old model there is exchanged for it in one step where the system can."""
    if not place.exists():
        beside.rename(place)
    elif not _core.exchange_paths(os.fspath(beside), os.fspath(place)):
        old = beside.with_suffix(".old")
        place.rename(old)
        beside.rename(place)
        shutil.rmtree(old, ignore_errors=True)
    with contextlib.suppress(OSError):  # make the rename itself last through a crash
        folder = os.open(place.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _flush(file: Any | BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
