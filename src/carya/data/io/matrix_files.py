"""Read matrices from ``.npz`` and ``.npy`` files."""

from __future__ import annotations

import os
import re
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core import memory, validation
from carya.core.matrices import Csr
from carya.errors import InputError

_BLOCK_BYTES = 1 << 24


def read_matrix(path: str | os.PathLike[str]) -> Any:
    """Read a sparse matrix from SciPy's ``.npz`` format or an array from NumPy's ``.npy`` format, without validation.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.eye(2))
    ...     read_matrix(f"{folder}/x.npy").shape
    (2, 2)
    """
    file = Path(path)
    try:
        # The file is opened here because NumPy, given a path, does not close damaged files.
        match file.suffix:
            case ".npz":
                return _read_large_csr(file) if memory.is_limited() else _read_npz(file)
            case ".npy":
                with file.open("rb") as stream:
                    array: NDArray[Any] = np.load(stream, allow_pickle=False)
                    return array
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}.") from None
    except Exception as error:  # damaged files cause exceptions of unrelated types
        # Omit NumPy's advice to allow pickles, and join the message into a single line.
        message = re.sub(r"<_io\.[^>]*>", file.name, str(error))  # the file name instead of the stream's repr
        reason = " ".join(message.partition(". ")[0].split()).removesuffix(".") or type(error).__name__
        raise InputError(f"{file} does not contain a matrix: {reason}.") from None
    raise InputError(f'{file}: Unknown matrix file type "{file.suffix}". Use .npz (SciPy) or .npy (NumPy).')


def _read_npz(file: Path) -> Any:
    with file.open("rb") as stream:
        return sp.load_npz(stream)


def _read_large_csr(file: Path) -> Any:
    """Read a CSR matrix, keeping large arrays in temporary files; matrices in other formats are read into memory."""
    with zipfile.ZipFile(file) as archive:
        arrays = {name: _read_array(archive, name) for name in ("format", "shape", "indptr", "indices", "data")}
    if arrays["format"].item() not in (b"csr", "csr"):
        return _read_npz(file)
    shape = tuple(arrays["shape"].tolist())
    return sp.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)


def _read_array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(f"{name}.npy") as stream:
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(stream)
        if dtype.hasobject:
            raise ValueError("Object arrays are not supported")
        array = memory.empty(shape, dtype)
        bytes_of_array = array.reshape(-1).view(np.uint8)
        for begin in range(0, bytes_of_array.size, _BLOCK_BYTES):
            block = bytes_of_array[begin : begin + _BLOCK_BYTES]
            content = stream.read(block.size)
            if len(content) != block.size:
                raise ValueError("The file is truncated")
            block[:] = np.frombuffer(content, np.uint8)
    return array


def map_matrix(path: str | os.PathLike[str]) -> Any:
    """Open a matrix like :func:`read_matrix`, but memory-map its arrays, so that only accessed data is read.

    Compressed files, and sparse matrices in formats other than CSR, are read into memory.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.eye(2))
    ...     type(map_matrix(f"{folder}/x.npy")).__name__
    'memmap'
    """
    file = Path(path)
    try:
        if file.suffix == ".npy":
            return np.load(file, mmap_mode="r", allow_pickle=False)
        with zipfile.ZipFile(file) as archive:
            members = {name: _map_member(file, archive, f"{name}.npy") for name in ("data", "indices", "indptr")}
            with archive.open("format.npy") as form, archive.open("shape.npy") as shape:
                is_csr = np.lib.format.read_array(form, allow_pickle=False).item() in (b"csr", "csr")
                n_rows, n_columns = np.lib.format.read_array(shape, allow_pickle=False).tolist()
        if is_csr and all(array is not None for array in members.values()):
            return sp.csr_array((members["data"], members["indices"], members["indptr"]), shape=(n_rows, n_columns))
    except Exception:  # damaged and unknown files; read_matrix reports their errors
        return read_matrix(path)
    return read_matrix(path)


def _map_member(file: Path, archive: zipfile.ZipFile, name: str) -> NDArray[Any] | None:
    """Memory-map an array in an archive, or return None if it is compressed."""
    member = archive.getinfo(name)
    if member.compress_type != zipfile.ZIP_STORED:
        return None
    with file.open("rb") as stream:
        stream.seek(member.header_offset + 26)  # the lengths of the name and of the extra field
        name_length, extra_length = struct.unpack("<HH", stream.read(4))
        stream.seek(name_length + extra_length, os.SEEK_CUR)
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(stream)
        if dtype.hasobject:
            return None
        return np.memmap(file, dtype, "r", stream.tell(), shape)


def read_labels(path: str | os.PathLike[str]) -> Csr:
    """Read a matrix of shape (rows, labels) from an ``.npz`` or ``.npy`` file; raise InputError if it is invalid."""
    return _read_binary_csr(Path(path)) or validation.check_labels(read_matrix(path), os.fspath(path))


def _read_binary_csr(file: Path) -> Csr | None:
    """Read a CSR matrix of ones without SciPy, because importing SciPy takes longer than reading the file.

    Returns None for any other file, including damaged files, whose errors `read_matrix` reports.
    """
    if file.suffix != ".npz":
        return None
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            if arrays["format"].item() != b"csr" or not (arrays["data"] == 1).all():
                return None
            indptr, indices = arrays["indptr"].astype(np.int64), arrays["indices"].astype(np.int32)
            n_rows, n_columns = arrays["shape"].tolist()
            if indptr.size != n_rows + 1 or not np.array_equal(indices, arrays["indices"]):
                return None
            return Csr.of(indptr, indices, np.ones(indices.size, np.float32), n_columns, str(file))
    except Exception:  # damaged or unknown files; read_matrix reports their errors
        return None
