"""Saved models: a folder with a manifest and one file of arrays that memory-maps. docs/format.md is the specification.

No pickle, no code, no class names. A model is written beside its place and moved there when it is whole, so a reader
never sees half of one; every piece of it carries a checksum, so a damaged file is an error and not a wrong answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.errors import ModelFormatError, SaveError

FORMAT = 2
_ALIGNMENT = 64
_DTYPES = {
    "float32": "<f4",
    "int32": "<i4",
    "int64": "<i8",
    "uint8": "|u1",
    "uint16": "<u2",
    "uint64": "<u8",
}
_MANIFEST = "manifest.json"
_ARRAYS = "arrays.bin"


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
    folder : the opened folder that the arrays lie in, if they lie in one
    place : Path, optional
        Where that folder is, for models that keep other files beside their arrays.
    """

    kind: str
    parameters: dict[str, Any]
    shape: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    folder: _core.Folder | None = None
    place: Path | None = None

    def arrays_of(self, part: str) -> dict[str, NDArray[Any]]:
        """The arrays of a part, those called `part/…`, by their own names."""
        return {name.partition("/")[2]: array for name, array in self.arrays.items() if name.partition("/")[0] == part}

    def part(self, name: str, kind: str, parameters: Mapping[str, Any], shape: Mapping[str, Any]) -> Saved:
        """A model that this one is made of, with arrays called `name/…`."""
        return Saved(kind, dict(parameters), dict(shape), self.arrays_of(name), self.folder)


def save(path: str | os.PathLike[str], saved: Saved, *, others: Callable[[Path], None] | None = None) -> None:
    """Write a model folder, replacing one that is there; nothing else is ever replaced.

    `others` writes what else belongs to the model, in formats of its own, to the folder it is called with.
    """
    from carya.core.version import __version__

    place = Path(path)
    check_place(place)
    try:
        beside = place.parent / f".{place.name}.{secrets.token_hex(8)}.tmp"
        beside.mkdir(parents=True)
    except OSError as error:
        raise SaveError(f"{place}: {error.strerror or error}") from error
    try:
        entries, checksums = _write_arrays(beside / _ARRAYS, saved.arrays)
        files: dict[str, Any] = {}
        if others is not None:
            others(beside)
            files = {"files": _described(beside)}
        manifest = {
            "format": FORMAT,
            "written_by": f"carya {__version__}",
            "kind": saved.kind,
            "parameters": saved.parameters,
            "shape": saved.shape,
            "arrays": entries,
            "checksums": checksums,
            **files,
        }
        with (beside / _MANIFEST).open("wb") as file:
            file.write(_sealed(manifest))
            _flush(file)
        move_into_place(beside, place)
    except OSError as error:
        raise SaveError(f"{place}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def load(path: str | os.PathLike[str], *, lazily: Collection[str] = ()) -> Saved:
    """Map a model folder; raises ModelFormatError for anything that is not a whole, unaltered one.

    Parameters
    ----------
    lazily : collection of str
        Arrays whose names end in one of these are not verified yet: whoever uses them first asks the folder to.
    """
    folder = _core.Folder(os.fspath(path))
    try:
        manifest = json.loads(folder.manifest)
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{path}: {_MANIFEST} cannot be read: {error}") from None
    arrays = {}
    for name, dtype, shape, raw in folder.arrays():
        if name.rpartition(".")[2] not in lazily:
            folder.verify(raw)
        try:
            arrays[name] = raw.view(_DTYPES[dtype]).reshape(shape)
        except ValueError as error:
            raise ModelFormatError(f"{path}: array {name!r} has a shape that cannot be: {error}") from None
    kind, parameters, about = (manifest[key] for key in ("kind", "parameters", "shape"))
    if not isinstance(kind, str) or not isinstance(parameters, dict) or not isinstance(about, dict):
        raise ModelFormatError(f"{path}: {_MANIFEST} is not that of a Carya model")
    _verify_files(Path(path), manifest.get("files", []))
    return Saved(kind, parameters, about, arrays, folder, Path(path))


def _described(folder: Path) -> list[dict[str, Any]]:
    """Name, size and checksum of every file but those of the model itself."""
    described = []
    for file in sorted(one for one in folder.rglob("*") if one.is_file()):
        name = file.relative_to(folder).as_posix()
        if name != _ARRAYS:
            described.append({"name": name, "bytes": file.stat().st_size, "checksum": _checksum(_mapped(file))})
    return described


def _verify_files(folder: Path, described: Any) -> None:
    """Raise ModelFormatError unless files beside the arrays are as they were written."""
    try:
        for one in described:
            file = folder / str(one["name"])
            if Path(one["name"]).is_absolute() or ".." in Path(one["name"]).parts:
                raise ModelFormatError(f"{folder}: {one['name']!r} is not a file of the model")
            if file.stat().st_size != one["bytes"] or _checksum(_mapped(file)) != one["checksum"]:
                raise ModelFormatError(f"{file} is damaged: it is not what was written")
    except OSError as error:
        raise ModelFormatError(f"{folder}: {error.filename}: {error.strerror or error}") from None
    except (TypeError, KeyError) as error:
        raise ModelFormatError(f"{folder}: {_MANIFEST} describes its files wrongly: {error}") from None


def _mapped(file: Path) -> NDArray[np.uint8]:
    return np.memmap(file, np.uint8, mode="r") if file.stat().st_size else np.zeros(0, np.uint8)


def _write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The descriptions of the arrays, and of the checksums that follow them."""
    with path.open("wb") as file:
        entries = [_write_array(file, name, array) for name, array in arrays.items()]
        file.write(b"\0" * (-file.tell() % _ALIGNMENT))
        file.flush()
        sums = _core.seals(np.memmap(path, np.uint8, mode="r") if file.tell() else np.zeros(0, np.uint8))
        checksums = _write_array(file, "checksums", sums) | {"checksum": _checksum(sums)}
        _flush(file)
    return entries, checksums


def _write_array(file: BinaryIO, name: str, array: NDArray[Any]) -> dict[str, Any]:
    if str(array.dtype) not in _DTYPES:
        raise TypeError(f"array {name!r} has type {array.dtype}, which models do not hold")
    file.write(b"\0" * (-file.tell() % _ALIGNMENT))
    entry = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape), "offset": file.tell()}
    file.write(np.ascontiguousarray(array, _DTYPES[str(array.dtype)]).reshape(-1).view(np.uint8).data)
    return entry


def _sealed(manifest: Mapping[str, Any]) -> bytes:
    """A manifest as it is written: its last line but one is the checksum of all bytes before that line."""
    text = json.dumps(manifest, indent=1).removesuffix("\n}") + ",\n"
    return f'{text} "checksum": "{_checksum(np.frombuffer(text.encode(), np.uint8))}"\n}}\n'.encode()


def _checksum(data: NDArray[Any]) -> str:
    return f"{_core.xxh64(data.view(np.uint8)):016x}"


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse a place that a model cannot be written to, because something else is there."""
    place = Path(path)
    if not place.name:
        raise SaveError(f"{place} is not a place for a model: give the path of a folder")
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise SaveError(f"{place} exists and is not a folder")
    if place.is_dir() and any(place.iterdir()) and not _is_model(place):
        raise SaveError(f"{place} exists and is not a Carya model, or holds other files too; it is left alone")


def _is_model(place: Path) -> bool:
    """Whether a folder holds a model, whole or damaged, and nothing else."""
    try:
        manifest = json.loads((place / _MANIFEST).read_text(encoding="utf-8"))
        known = {Path(one["name"]).parts[0] for one in manifest.get("files", [])}
    except (OSError, ValueError, RecursionError, AttributeError, TypeError, KeyError, IndexError):
        return False
    if {entry.name for entry in place.iterdir()} - {_MANIFEST, _ARRAYS} - known:
        return False
    return isinstance(manifest, dict) and {"format", "kind", "arrays", "checksum"} <= manifest.keys()


def size_on_disk(path: str | os.PathLike[str]) -> int:
    """The bytes of a model folder's files."""
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())


def move_into_place(beside: Path, place: Path) -> None:
    """Rename a new folder to its place. An old one there is exchanged for it in one step where the system can."""
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
