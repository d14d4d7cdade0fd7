"""Saved models: folders with a manifest and a memory-mapped array file. The format is specified in docs/format.md.

A model folder contains no pickled objects, code or class names. It is written to a temporary folder and then renamed,
so that readers never see an incomplete model. Every block has a checksum, so damage raises an error instead of
producing wrong rankings.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core.atomic import flush_to_disk, replace_folder, temporary_sibling
from carya.core.strings import StringArray
from carya.errors import CaryaError, MissingExtraError, ModelFormatError, SaveError

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
#: Arrays that the search verifies on first use, by the last part of their names.
LAZY_ARRAYS = frozenset({"data", "dense"})
_MANIFEST = "manifest.json"
_ARRAYS = "arrays.bin"
_MAX_MANIFEST_BYTES = 64 << 20


@dataclass(frozen=True)
class SavedModel:
    """Contents of a model folder.

    Attributes
    ----------
    kind : str
        The kind of model, such as ``"xr-linear"``.
    parameters : dict
        The parameters of the model.
    shape : dict
        Sizes and names that cannot be derived from the arrays.
    arrays : dict of str to ndarray
        The arrays by name.
    folder : _core.ModelFolder, optional
        The open folder that contains the arrays, which are then read-only and memory-mapped; None if they are in
        memory.
    path : Path, optional
        The path of the folder, for models that store additional files next to their arrays.
    data_options : mapping
        The options used to read the training data, for reading other data in the same way.
    """

    kind: str
    parameters: dict[str, Any]
    shape: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    folder: _core.ModelFolder | None = None
    path: Path | None = None
    data_options: Mapping[str, Any] = field(default_factory=dict)

    def with_strings(self, name: str, strings: StringArray) -> SavedModel:
        """Return the same contents with a list of strings, stored as the arrays ``name.bytes`` and ``name.ends``."""
        return replace(self, arrays=self.arrays | {f"{name}.bytes": strings.data, f"{name}.ends": strings.ends})

    def without_strings(self, name: str) -> tuple[SavedModel, StringArray | None]:
        """Return the contents without a list of strings, and the list itself, or None if there is no such list."""
        names = (f"{name}.bytes", f"{name}.ends")
        if names[1] not in self.arrays:
            return self, None
        with consistent_parts():
            data, ends = self.arrays[names[0]], self.arrays[names[1]]
            if data.dtype != np.uint8 or ends.dtype != np.int64:
                raise ValueError(f"The arrays of {name} have the wrong data type.")
            strings = StringArray(data, ends)
        rest = {array: values for array, values in self.arrays.items() if array not in names}
        return replace(self, arrays=rest), strings

    def arrays_of(self, part: str) -> dict[str, NDArray[Any]]:
        """Return the arrays named ``part/…``, without the prefix."""
        return {name.partition("/")[2]: array for name, array in self.arrays.items() if name.partition("/")[0] == part}

    def part(self, name: str, kind: str, parameters: Mapping[str, Any], shape: Mapping[str, Any]) -> SavedModel:
        """Return a nested model, whose arrays are named ``name/…``."""
        return SavedModel(kind, dict(parameters), dict(shape), self.arrays_of(name), self.folder)


def prefixed(part: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays with their names prefixed with ``part/``; the inverse of :meth:`SavedModel.arrays_of`."""
    return {f"{part}/{name}": array for name, array in arrays.items()}


@contextmanager
def consistent_parts() -> Iterator[None]:
    """Convert errors caused by inconsistent parts of a saved model to ModelFormatError."""
    problem = "The parts of the model are inconsistent"
    try:
        yield
    except (ModelFormatError, MissingExtraError):
        raise
    except KeyError as error:
        raise ModelFormatError(f"{problem}: {error} is missing.") from None
    except (CaryaError, ValueError, OverflowError) as error:
        raise ModelFormatError(f"{problem}: {error}") from None
    except (TypeError, AttributeError, IndexError) as error:
        raise ModelFormatError(f"{problem}: a value has the wrong type or size ({error}).") from None


def save(path: str | os.PathLike[str], saved: SavedModel, *, extra: Callable[[Path], None] | None = None) -> None:
    """Write a model folder atomically. Only an existing model is ever replaced.

    `extra` is called with the folder's path and can write additional files in other formats.
    """
    from carya.version import __version__  # imported here because it is slow and most commands do not need it

    target = Path(path)
    check_output_path(target)
    try:
        folder = temporary_sibling(target)
        folder.mkdir(parents=True)
    except OSError as error:
        raise SaveError(f"The model cannot be written to {target}: {error.strerror or error}.") from error
    try:
        entries, checksums = _write_arrays(folder / _ARRAYS, saved.arrays)
        files: dict[str, Any] = {}
        if extra is not None:
            extra(folder)
            files = {"files": _describe_files(folder)}
        manifest = {
            "format": FORMAT,
            "written_by": f"carya {__version__}",
            "kind": saved.kind,
            "parameters": saved.parameters,
            "shape": saved.shape,
            "arrays": entries,
            "checksums": checksums,
            **files,
            **({"data_options": dict(saved.data_options)} if saved.data_options else {}),
        }
        with (folder / _MANIFEST).open("wb") as file:
            file.write(_seal(manifest))
            flush_to_disk(file)
        replace_folder(folder, target)
    except OSError as error:
        raise SaveError(f"The model cannot be written to {target}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def load(path: str | os.PathLike[str], *, lazy: Collection[str] = ()) -> SavedModel:
    """Memory-map a model folder; raise ModelFormatError if it is not a complete, unmodified model.

    Parameters
    ----------
    lazy : collection of str
        Suffixes of the names of arrays that are not verified on loading. They must be verified with ``folder.verify``
        before they are used.
    """
    if not Path(path).is_dir():
        problem = "it is a file, not a folder" if Path(path).exists() else "there is no such folder"
        raise ModelFormatError(f"{path} is not a Carya model: {problem}.")
    folder = _core.ModelFolder(os.fspath(path))
    try:
        manifest = json.loads(folder.manifest)
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"{path}: {_MANIFEST} is not valid JSON: {error}") from None
    arrays = {}
    for name, dtype, shape, raw in folder.arrays():
        if name.rpartition(".")[2] not in lazy:
            folder.verify(raw)
        try:
            arrays[name] = raw.view(_DTYPES[dtype]).reshape(shape)
        except ValueError as error:
            raise ModelFormatError(f"{path}: array {name!r} has an invalid shape: {error}") from None
    kind, parameters, sizes = (manifest[key] for key in ("kind", "parameters", "shape"))
    data_options = manifest.get("data_options", {})
    if not isinstance(kind, str) or not all(isinstance(part, dict) for part in (parameters, sizes, data_options)):
        raise ModelFormatError(f"{path}: {_MANIFEST} is not the manifest of a Carya model.")
    _verify_files(Path(path), manifest.get("files", []))
    return SavedModel(kind, parameters, sizes, arrays, folder, Path(path), data_options)


def read_manifest(folder: str | os.PathLike[str]) -> bytes:
    """Return the manifest of a model folder; raise ModelFormatError if it is not a regular file of limited size.

    Opening a FIFO would block until another process writes to it, and a device may never end.
    """
    path = Path(folder) / _MANIFEST
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ModelFormatError(f"{folder} is not a Carya model: {_MANIFEST} is not a regular file.")
            if status.st_size > _MAX_MANIFEST_BYTES:
                raise ModelFormatError(f"{folder} is not a Carya model: {_MANIFEST} is larger than 64 MiB.")
            return file.read(_MAX_MANIFEST_BYTES)
    except OSError as error:
        problem = f"{_MANIFEST}: {error.strerror or error}"
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            problem = f"{_MANIFEST} is missing" if Path(folder).is_dir() else "there is no such folder"
        raise ModelFormatError(f"{folder} is not a Carya model: {problem}.") from None


def check_output_path(path: str | os.PathLike[str]) -> None:
    """Raise SaveError if a path is not suitable for a model or if other files exist there."""
    target = Path(path)
    if not target.name:
        raise SaveError(f"{target} is not a valid model path. Pass the path of a folder.")
    try:
        target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:  # such as a name that is too long
        raise SaveError(f"The model cannot be written to {target}: {error.strerror or error}.") from error
    existing = next(parent for parent in target.parents if parent.exists())
    if not existing.is_dir():
        raise SaveError(f"{target} cannot be created, because {existing} is not a folder. Choose a different path.")
    if not os.access(existing, os.W_OK):
        raise SaveError(f"{target} cannot be created, because {existing} is not writable. Choose a different path.")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise SaveError(f"{target} exists and is not a folder. Choose a different path.")
    if target.is_dir() and any(target.iterdir()) and not _is_model(target):
        raise SaveError(
            f"{target} exists and is not a Carya model, or contains other files. It was not modified. Choose a "
            "different path."
        )


def size_on_disk(path: str | os.PathLike[str]) -> int:
    """Return the total size of the files in a folder, in bytes."""
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())


def _describe_files(folder: Path) -> list[dict[str, Any]]:
    """Return the name, size and checksum of every file except the array file."""
    described = []
    for file in sorted(entry for entry in folder.rglob("*") if entry.is_file()):
        name = file.relative_to(folder).as_posix()
        if name != _ARRAYS:
            described.append({"name": name, "bytes": file.stat().st_size, "checksum": _checksum(_map_file(file))})
    return described


def _verify_files(folder: Path, described: Any) -> None:
    """Raise ModelFormatError if an additional file does not match its description in the manifest."""
    try:
        for entry in described:
            name = Path(entry["name"])
            file = folder / name
            if name.is_absolute() or ".." in name.parts:
                raise ModelFormatError(f"{folder}: {entry['name']!r} is outside the model folder.")
            if file.stat().st_size != entry["bytes"] or _checksum(_map_file(file)) != entry["checksum"]:
                raise ModelFormatError(f"{file} is damaged: its size or checksum does not match the manifest.")
    except ModelFormatError:
        raise
    except OSError as error:
        raise ModelFormatError(f"{folder}: {error.filename}: {error.strerror or error}") from None
    except (TypeError, KeyError, ValueError) as error:  # ValueError: a null byte in a name
        raise ModelFormatError(f"{folder}: {_MANIFEST} contains an invalid file list: {error}") from None


def _map_file(file: Path) -> NDArray[np.uint8]:
    return np.memmap(file, np.uint8, mode="r") if file.stat().st_size else np.zeros(0, np.uint8)


def _write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Write the arrays and the checksums of their blocks; return the manifest entries for both."""
    with path.open("wb") as file:
        entries = [_write_array(file, name, array) for name, array in arrays.items()]
        # An empty file cannot be memory-mapped, so a model whose arrays are all empty has one block of zeros.
        file.write(b"\0" * (-file.tell() % _ALIGNMENT if file.tell() else _ALIGNMENT))
        file.flush()
        sums = _core.block_checksums(np.memmap(path, np.uint8, mode="r") if file.tell() else np.zeros(0, np.uint8))
        checksums = _write_array(file, "checksums", sums) | {"checksum": _checksum(sums)}
        flush_to_disk(file)
    return entries, checksums


def _write_array(file: BinaryIO, name: str, array: NDArray[Any]) -> dict[str, Any]:
    if str(array.dtype) not in _DTYPES:
        raise TypeError(f"Array {name!r} has dtype {array.dtype}, which the model format does not support.")
    file.write(b"\0" * (-file.tell() % _ALIGNMENT))
    entry = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape), "offset": file.tell()}
    file.write(np.ascontiguousarray(array, _DTYPES[str(array.dtype)]).reshape(-1).view(np.uint8).data)
    return entry


def _seal(manifest: Mapping[str, Any]) -> bytes:
    """Encode a manifest and append the checksum of all preceding bytes as its last entry."""
    text = json.dumps(manifest, indent=1).removesuffix("\n}") + ",\n"
    return f'{text} "checksum": "{_checksum(np.frombuffer(text.encode(), np.uint8))}"\n}}\n'.encode()


def _checksum(data: NDArray[Any]) -> str:
    return f"{_core.xxh64(data.view(np.uint8)):016x}"


def _is_model(folder: Path) -> bool:
    """Return whether a folder contains a model, intact or damaged, and no other files."""
    try:
        manifest = json.loads(read_manifest(folder))
        listed = {Path(entry["name"]).parts[0] for entry in manifest.get("files", [])}
    except (ModelFormatError, ValueError, RecursionError, AttributeError, TypeError, KeyError, IndexError):
        return False
    if {entry.name for entry in folder.iterdir()} - {_MANIFEST, _ARRAYS} - listed:
        return False
    return isinstance(manifest, dict) and {"format", "kind", "arrays", "checksum"} <= manifest.keys()
