"""Matrices from files."""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

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
