"""Read matrices from ``.npz`` and ``.npy`` files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core import validation
from carya.core.matrices import Csr
from carya.errors import InputError


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
        # Given a path, NumPy does not close damaged files.
        match file.suffix:
            case ".npz":
                with file.open("rb") as stream:
                    return sp.load_npz(stream)
            case ".npy":
                with file.open("rb") as stream:
                    array: NDArray[Any] = np.load(stream, allow_pickle=False)
                    return array
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}.") from None
    except Exception as error:  # NumPy, SciPy and zipfile raise unrelated exceptions for damaged files
        # Omit NumPy's advice to allow pickles, and use a single line.
        message = re.sub(r"<_io\.[^>]*>", file.name, str(error))  # the name, not the stream
        reason = " ".join(message.partition(". ")[0].split()).removesuffix(".") or type(error).__name__
        raise InputError(f"{file} does not contain a matrix: {reason}.") from None
    raise InputError(f'{file}: Unknown matrix file type "{file.suffix}". Use .npz (SciPy) or .npy (NumPy).')


def read_labels(path: str | os.PathLike[str]) -> Csr:
    """Read a (rows, labels) matrix from an ``.npz`` or ``.npy`` file; raise InputError if it is invalid."""
    return _read_binary_csr(Path(path)) or validation.check_labels(read_matrix(path), os.fspath(path))


def _read_binary_csr(file: Path) -> Csr | None:
    """Read a CSR matrix of ones without SciPy, because importing SciPy takes longer than reading the file.

    Returns None for any other file, including damaged files, whose errors the complete reader reports.
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
    except Exception:  # see above
        return None
