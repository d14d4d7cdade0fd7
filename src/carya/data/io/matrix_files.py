"""Matrices from files."""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core import validation
from carya.core.matrices import Csr
from carya.errors import InputError


def read_matrix(path: str | os.PathLike[str]) -> Any:
    """A sparse matrix from an ``.npz`` file that SciPy wrote, or an array from an ``.npy`` file that NumPy wrote.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.eye(2))
    ...     read_matrix(f"{folder}/x.npy").shape
    (2, 2)
    """
    place = Path(path)
    try:
        match place.suffix:
            case ".npz":
                return sp.load_npz(place)  # as it is: whoever takes it checks it before it is converted
            case ".npy":
                array: NDArray[Any] = np.load(place, allow_pickle=False)
                return array
    except OSError as error:
        raise InputError(f"{place}: {error.strerror or error}") from None
    except (
        ValueError,
        KeyError,
        EOFError,
        AttributeError,
        NotImplementedError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise InputError(f"{place} does not hold a matrix: {error}") from None
    raise InputError(f"{place}: matrices are read from .npz files of SciPy and .npy files of NumPy")


def read_labels(path: str | os.PathLike[str]) -> Csr:
    """Labels, rows x labels, from such a file; raises InputError if they are no labels."""
    return _plain_ones(Path(path)) or validation.labels(read_matrix(path), os.fspath(path))


def _plain_ones(place: Path) -> Csr | None:
    """The matrix of a file that holds sorted rows of ones, as most do: SciPy takes longer to import than to read it."""
    if place.suffix != ".npz":
        return None
    try:
        with np.load(place, allow_pickle=False) as held:
            if held["format"].item() != b"csr" or not (held["data"] == 1).all():
                return None
            indptr, indices = held["indptr"].astype(np.int64), held["indices"].astype(np.int32)
            rows, cols = held["shape"].tolist()
            if indptr.size != rows + 1 or not np.array_equal(indices, held["indices"]):
                return None
            return Csr.of(indptr, indices, np.ones(indices.size, np.float32), cols, str(place))
    except (OSError, ValueError, KeyError, EOFError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error):
        return None  # whoever reads it in full says what is wrong
