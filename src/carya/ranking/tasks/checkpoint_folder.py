"""Folder with the results of completed training steps, which are not recomputed when training is resumed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core import storage
from carya.core.matrices import Csr, Features
from carya.core.storage import SavedModel
from carya.errors import ModelFormatError, SaveError

_KIND = "checkpoint"
_HASH_BYTES = 16


class CheckpointFolder:
    """Results of training steps, identified by the hash of their inputs.

    Every result is written to a temporary folder, flushed to disk and renamed, so a training run that is killed leaves
    only complete results. A stored result is reused only if all of its inputs are identical, so a resumed training run
    produces the same model as an uninterrupted run.

    Parameters
    ----------
    path : path
        The folder; it is created when the first result is stored.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise SaveError(f"{self.path} is a file. Pass a folder for the checkpoints.")

    def contains(self, name: str, key: str) -> bool:
        """Return whether a result has been stored; :meth:`load` verifies it."""
        return self._folder(name, key).exists()

    def load(self, name: str, key: str) -> dict[str, NDArray[Any]] | None:
        """Return the memory-mapped arrays of a result, or None if it has not been stored yet.

        Parameters
        ----------
        name : str
            The name of the step, for example ``layer-3``.
        key : str
            The hash of its inputs.
        """
        folder = self._folder(name, key)
        if not folder.exists():
            return None
        try:
            saved = storage.load(folder)
        except ModelFormatError as error:
            raise ModelFormatError(f"{error} Delete {folder} to recompute this step.") from None
        if saved.kind != _KIND:
            raise ModelFormatError(f"{folder} is not a checkpoint. Pass another folder for the checkpoints.")
        return saved.arrays

    def store(self, name: str, key: str, arrays: dict[str, NDArray[Any]]) -> None:
        """Store the arrays of a result."""
        storage.save(self._folder(name, key), SavedModel(_KIND, {}, {}, arrays))

    def get_or_compute(
        self, name: str, inputs: Iterable[object], compute: Callable[[], dict[str, NDArray[Any]]]
    ) -> dict[str, NDArray[Any]]:
        """Return the stored result for these inputs; otherwise, compute and store it."""
        key = fingerprint(inputs)
        stored = self.load(name, key)
        if stored is not None:
            return stored
        arrays = compute()
        self.store(name, key, arrays)
        return arrays

    def _folder(self, name: str, key: str) -> Path:
        return self.path / f"{name}-{key}"


def csr_arrays(matrix: Csr, prefix: str = "") -> dict[str, NDArray[Any]]:
    """Return the arrays of a matrix, keyed by name, for storage."""
    return {f"{prefix}indptr": matrix.indptr, f"{prefix}indices": matrix.indices, f"{prefix}values": matrix.values}


def csr_of_arrays(arrays: dict[str, NDArray[Any]], cols: int, name: str, prefix: str = "") -> Csr:
    """Return the matrix whose arrays were stored with :func:`csr_arrays`; `name` is used in error messages."""
    indptr, indices, values = (arrays[f"{prefix}{part}"] for part in ("indptr", "indices", "values"))
    return Csr.of(indptr, indices, values, cols, name)


def fingerprint(inputs: Iterable[object]) -> str:
    """Return a hash of arrays, matrices, strings and numbers.

    >>> fingerprint([1, "a"]) == fingerprint([1, "a"]), fingerprint([1, "a"]) == fingerprint(["a", 1])
    (True, False)
    """
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    for value in inputs:
        _update(digest, value)
    return digest.hexdigest()


def _update(digest: Any, value: object) -> None:
    if isinstance(value, Features):
        _update(digest, value.sparse)
        _update(digest, value.dense)
    elif isinstance(value, Csr):
        digest.update(f"Csr {value.cols}".encode())
        for array in (value.indptr, value.indices, value.values):
            _update(digest, array)
    elif isinstance(value, np.ndarray):
        digest.update(f"array {value.dtype.str} {value.shape}".encode())
        digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
    elif isinstance(value, (list, tuple)):
        digest.update(f"list {len(value)}".encode())
        for item in value:
            _update(digest, item)
    elif value is None or isinstance(value, (str, bool, int, float, np.integer, np.floating)):
        digest.update(f"{type(value).__name__} {value!r};".encode())
    else:
        raise TypeError(f"Cannot hash a value of type {type(value).__name__}.")
