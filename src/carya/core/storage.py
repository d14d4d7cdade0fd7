"""Saved models: folders with a manifest and a memory-mapped array file. The format is specified in docs/format.md.

A model folder contains no pickled objects, code or class names. It is written to a temporary folder and then renamed,
so that readers never see an incomplete model. Every block has a checksum, so that corruption raises an error instead of
producing wrong rankings.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core.atomic import replace_folder, temporary_folder
from carya.core.memory import page_out
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
#: Arrays whose names end with one of these components are verified by the search on first use.
LAZY_ARRAYS = frozenset({"data", "dense"})
_MANIFEST = "manifest.json"
_ARRAYS = "arrays.bin"
_MAX_MANIFEST_BYTES = 64 << 20
#: Number of bytes to write or read at a time, a multiple of the size of the blocks that have checksums.
_SLICE = 64 << 20
#: Maximum number of attempts to open a folder while other processes are replacing it.
_MAX_ATTEMPTS = 100

T = TypeVar("T")


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
        The path of the folder, for models that store additional files next to their arrays; None for other models.
        The path refers to the open folder, even if another model has replaced it in the meantime.
    data_options : mapping
        The options used to read the training data; they are the defaults for reading other data.
    """

    kind: str
    parameters: dict[str, Any]
    shape: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    folder: _core.ModelFolder | None = None
    path: Path | None = None
    data_options: Mapping[str, Any] = field(default_factory=dict)

    def with_strings(self, name: str, strings: StringArray) -> SavedModel:
        """Return a copy with an additional list of strings, stored as the arrays ``name.bytes`` and ``name.ends``."""
        return replace(self, arrays=self.arrays | {f"{name}.bytes": strings.data, f"{name}.ends": strings.ends})

    def without_strings(self, name: str) -> tuple[SavedModel, StringArray | None]:
        """Return the contents without a list of strings, and this list (None if there is no such list)."""
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
        """Return the arrays named ``part/…``, with this prefix removed from their names."""
        return {name.partition("/")[2]: array for name, array in self.arrays.items() if name.partition("/")[0] == part}

    def part(self, name: str, kind: str, parameters: Mapping[str, Any], shape: Mapping[str, Any]) -> SavedModel:
        """Return a nested model, whose arrays are named ``name/…``."""
        return SavedModel(kind, dict(parameters), dict(shape), self.arrays_of(name), self.folder)


def prefixed(part: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Add the prefix ``part/`` to the names of arrays; the inverse of :meth:`SavedModel.arrays_of`."""
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
    """Write a model folder atomically. An existing folder is replaced only if it is empty or contains a model.

    `extra` is called with the folder's path and can write additional files in other formats.
    """
    target = Path(path)
    check_output_path(target)
    with ExitStack() as cleanup:
        try:
            folder = cleanup.enter_context(temporary_folder(target))
            _write_model(folder, saved, extra)
            check_output_path(target)  # checked again, because writing a large model takes a while
            replace_folder(folder, target)
        except SaveError:
            raise
        except OSError as error:
            raise SaveError(f"The model cannot be written to {target}: {error.strerror or error}.") from error


def load(path: str | os.PathLike[str], *, lazy: Collection[str] = ()) -> SavedModel:
    """Memory-map a model folder; raise ModelFormatError if it is not a complete, unmodified model.

    Parameters
    ----------
    lazy : collection of str
        Arrays whose names end with one of these components are not verified on loading. They must be verified with
        ``folder.verify`` before they are used.
    """
    return load_as(path, lambda saved: saved, lazy=lazy)


def load_as(path: str | os.PathLike[str], convert: Callable[[SavedModel], T], *, lazy: Collection[str] = ()) -> T:
    """Load a model folder and convert its contents.

    If `convert` raises ModelFormatError because another model has replaced the folder in the meantime and the files of
    the old model are gone, the new model is loaded instead.
    """
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        folder = _open_folder(path)
        try:
            return convert(_read(folder, path, lazy))
        except ModelFormatError:
            if attempt == _MAX_ATTEMPTS or not _was_replaced(folder, path):
                raise
    raise AssertionError("unreachable")


def check_output_path(path: str | os.PathLike[str]) -> None:
    """Raise SaveError if a path is not suitable for a model or if other files exist there."""
    target = Path(path)
    if not target.name:
        raise SaveError(f"{target} is not a valid model path. Pass the path of a folder.")
    try:
        status = target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        status = None
    except ValueError:
        raise SaveError(f"{str(target)!r} is not a valid model path, because it contains a null byte.") from None
    except OSError as error:  # such as a name that is too long
        raise SaveError(f"The model cannot be written to {target}: {error.strerror or error}.") from error
    existing = next(parent for parent in target.parents if parent.exists())
    if not existing.is_dir():
        raise SaveError(f"{target} cannot be created, because {existing} is not a folder. Choose a different path.")
    if not os.access(existing, os.W_OK):
        raise SaveError(f"{target} cannot be created, because {existing} is not writable. Choose a different path.")
    if status is not None and not stat.S_ISDIR(status.st_mode):
        raise SaveError(f"{target} exists and is not a folder. Choose a different path.")
    if _is_mount_point(target):
        raise SaveError(
            f"{target} is a mount point, which cannot be replaced by a model. Choose a path inside this folder, such "
            f"as {target / 'model'}."
        )
    try:
        contains_other_files = _contains_other_files(target)
    except OSError as error:
        raise SaveError(f"The model cannot be written to {target}: {error.strerror or error}.") from error
    if contains_other_files:
        raise SaveError(
            f"{target} contains files that are not part of a Carya model. It was not modified. Choose a different path."
        )


def size_on_disk(path: str | os.PathLike[str]) -> int:
    """Return the total size of the files in a folder, in bytes."""
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())


def _write_model(folder: Path, saved: SavedModel, extra: Callable[[Path], None] | None) -> None:
    """Write the arrays, the additional files and the manifest to a folder."""
    from carya.version import __version__  # imported here because it is slow and most commands do not need it

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


def _open_folder(path: str | os.PathLike[str]) -> _core.ModelFolder:
    try:
        return _core.ModelFolder(os.fsencode(path))
    except UnicodeEncodeError:
        raise ModelFormatError(f"{os.fspath(path)!r} is not a valid path.") from None
    except ModelFormatError:
        # The functions of os.path return False for invalid paths.
        if not os.path.isdir(path):  # noqa: PTH112
            problem = "it is a file, not a folder" if os.path.exists(path) else "there is no such folder"  # noqa: PTH110
            raise ModelFormatError(f"{_printable(path)} is not a Carya model: {problem}.") from None
        raise


def _read(folder: _core.ModelFolder, path: str | os.PathLike[str], lazy: Collection[str]) -> SavedModel:
    """Return the contents of an open folder; `path` is used in error messages."""
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
    if "files" not in manifest:
        return SavedModel(kind, parameters, sizes, arrays, folder, None, data_options)
    _verify_files(folder.descriptor, manifest["files"], path)
    opened = Path(f"/proc/self/fd/{folder.descriptor}")
    return SavedModel(kind, parameters, sizes, arrays, folder, opened if opened.exists() else Path(path), data_options)


def read_manifest(folder: str | os.PathLike[str]) -> bytes:
    """Return the manifest of a model folder; raise ModelFormatError if it is too large or not a regular file.

    Opening a FIFO would block until another process writes to it, and reading a device might never end.
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


def _was_replaced(folder: _core.ModelFolder, path: str | os.PathLike[str]) -> bool:
    """Return whether a path no longer refers to the given open folder."""
    try:
        return not os.path.samestat(os.fstat(folder.descriptor), os.stat(path))  # noqa: PTH116
    except OSError:
        return True


def _printable(path: str | os.PathLike[str]) -> str:
    """Return a path for error messages, with null bytes escaped."""
    return os.fspath(path).replace("\0", "\\0")


def _describe_files(folder: Path) -> list[dict[str, Any]]:
    """Return the name, size and checksum of every file except the array file."""
    described = []
    for file in sorted(entry for entry in folder.rglob("*") if entry.is_file()):
        name = file.relative_to(folder).as_posix()
        if name != _ARRAYS:
            with file.open("rb") as stream:
                data = _map_file(stream.fileno())
            described.append({"name": name, "bytes": data.size, "checksum": _checksum(data)})
    return described


def _verify_files(folder: int, described: Any, path: str | os.PathLike[str]) -> None:
    """Raise ModelFormatError unless the additional files match their descriptions and there are no other files.

    Parameters
    ----------
    folder : int
        The descriptor of the model folder.
    path : path
        The path of the model folder, for error messages.
    """
    try:
        for entry in described:
            name = PurePosixPath(entry["name"])
            if name.is_absolute() or ".." in name.parts:
                raise ModelFormatError(f"{path}: {entry['name']!r} is outside the model folder.")
            descriptor = _open_regular(str(name), folder)
            try:
                data = _map_file(descriptor)
            finally:
                os.close(descriptor)
            if data.size != entry["bytes"] or _checksum(data) != entry["checksum"]:
                raise ModelFormatError(
                    f"{Path(path) / name} is damaged: its size or checksum does not match the manifest."
                )
        others = [name for name in _files_in_subfolders(folder) if name not in {entry["name"] for entry in described}]
        if others:
            raise ModelFormatError(
                f"{path} contains the file {others[0]!r}, which is not part of the model. Remove it, or copy the "
                "original model again."
            )
    except ModelFormatError:
        raise
    except OSError as error:
        raise ModelFormatError(f"{path}: {error.filename}: {error.strerror or error}") from None
    except (TypeError, KeyError, ValueError) as error:  # ValueError: a null byte in a name
        raise ModelFormatError(f"{path}: {_MANIFEST} contains an invalid file list: {error}") from None


def _files_in_subfolders(folder: int) -> list[str]:
    """Return the relative paths of all files in subfolders, except in hidden subfolders, which are never read."""
    return [name for name in _list_files(folder) if "/" in name and not name.startswith(".")]


def _list_files(folder: int) -> list[str]:
    """Return the relative paths of all files, links and empty folders in a folder and its subfolders."""

    def fail(error: OSError) -> None:  # by default, folders that cannot be read are skipped
        raise error

    names = []
    for root, folders, files, descriptor in os.fwalk(".", onerror=fail, dir_fd=folder):
        prefix = "" if root == "." else f"{root[2:]}/"
        names += [prefix + name for name in files]
        names += [
            f"{prefix}{name}/"
            for name in folders
            if stat.S_ISLNK(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode)  # links are not followed
        ]
        if prefix and not folders and not files:
            names.append(prefix)
    return sorted(names)


def _open_regular(name: str, folder: int) -> int:
    """Open a file in a folder for reading; raise OSError if it is not a regular file but, for example, a pipe."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a regular file", name)


def _map_file(descriptor: int) -> NDArray[np.uint8]:
    """Memory-map an open file; the mapping remains valid after the file is closed."""
    if not os.fstat(descriptor).st_size:
        return np.zeros(0, np.uint8)
    return np.frombuffer(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ), np.uint8)


def _write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Write the arrays and the checksums of their blocks; return the manifest entries for both."""
    with path.open("wb") as file:
        entries = [_write_array(file, name, array) for name, array in arrays.items()]
        # An empty file cannot be memory-mapped, so a model whose arrays are all empty has one block of zeros.
        file.write(b"\0" * (-file.tell() % _ALIGNMENT if file.tell() else _ALIGNMENT))
        file.flush()
        sums = _block_checksums(path, file.tell())
        checksums = _write_array(file, "checksums", sums) | {"checksum": _checksum(sums)}
    return entries, checksums


def _write_array(file: BinaryIO, name: str, array: NDArray[Any]) -> dict[str, Any]:
    if str(array.dtype) not in _DTYPES:
        raise TypeError(f"Array {name!r} has dtype {array.dtype}, which the model format does not support.")
    file.write(b"\0" * (-file.tell() % _ALIGNMENT))
    entry = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape), "offset": file.tell()}
    data = np.ascontiguousarray(array, _DTYPES[str(array.dtype)]).reshape(-1).view(np.uint8)
    for first in range(0, data.size, _SLICE):
        file.write(data[first : first + _SLICE].data)
        page_out()
    return entry


def _block_checksums(path: Path, size: int) -> NDArray[np.uint64]:
    """Return the checksums of the blocks of a file; only a part of the file is memory-mapped at a time."""
    sums = [np.zeros(0, np.uint64)]
    for first in range(0, size, _SLICE):
        part = np.memmap(path, np.uint8, mode="r", offset=first, shape=(min(_SLICE, size - first),))
        sums.append(_core.block_checksums(part))
    return np.concatenate(sums)


def _seal(manifest: Mapping[str, Any]) -> bytes:
    """Encode a manifest and append the checksum of all preceding bytes as its last entry."""
    text = json.dumps(manifest, indent=1).removesuffix("\n}") + ",\n"
    return f'{text} "checksum": "{_checksum(np.frombuffer(text.encode(), np.uint8))}"\n}}\n'.encode()


def _checksum(data: NDArray[Any]) -> str:
    return f"{_core.xxh64(data.view(np.uint8)):016x}"


def _is_mount_point(path: Path) -> bool:
    """Return whether a path is a mount point, including a bind mount."""
    if os.path.ismount(path):  # Path.is_mount fails if another process replaces the folder
        return True
    try:  # a bind mount within the same file system is listed only in /proc/self/mountinfo
        mounts = Path("/proc/self/mountinfo").read_bytes().splitlines()
        points = {mount.split(b" ")[4] for mount in mounts}
    except (OSError, IndexError):
        return False
    resolved = os.fsencode(path.resolve())
    return re.sub(rb"[ \t\n\\]", lambda match: b"\\%03o" % ord(match[0]), resolved) in points


def _contains_other_files(target: Path) -> bool:
    """Return whether a folder contains anything other than an intact or damaged model."""
    for _ in range(_MAX_ATTEMPTS):
        try:
            descriptor = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            if _is_empty_or_model(descriptor):
                return False
            if os.path.samestat(os.fstat(descriptor), target.stat()):
                return True
        except FileNotFoundError:
            pass  # another process is replacing the model
        finally:
            os.close(descriptor)
    return True


def _is_empty_or_model(folder: int) -> bool:
    """Return whether an open folder is empty, or contains a model and no other files."""
    found = set(_list_files(folder))
    if not found:
        return True
    try:
        manifest = _read_manifest(folder)
        listed = {str(entry["name"]) for entry in manifest.get("files", [])}
    except (OSError, ValueError, RecursionError, AttributeError, TypeError, KeyError):
        return False
    return found <= listed | {_MANIFEST, _ARRAYS} and {"format", "kind", "arrays", "checksum"} <= manifest.keys()


def _read_manifest(folder: int) -> Any:
    """Return the manifest in an open folder, without validating it."""
    with open(_open_regular(_MANIFEST, folder), "rb") as file:
        text = file.read(_MAX_MANIFEST_BYTES + 1)
    if len(text) > _MAX_MANIFEST_BYTES:
        raise ValueError("The manifest is too large.")
    return json.loads(text)
