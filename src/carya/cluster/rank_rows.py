"""Rank labels for the shards of a data set, in a worker process of a cluster."""

from __future__ import annotations

import hashlib
import os
import socket
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from carya.cluster.row_sources import RowSource, Shard, check_visible, take_rows
from carya.core.parameters import set_in_all
from carya.errors import InputError, UnknownTextWarning
from carya.loading import load


@dataclass(frozen=True)
class SharedModel:
    """A saved model that every machine of a cluster memory-maps from the same path.

    Attributes
    ----------
    path : Path
        The absolute path of the model folder.
    checksum : str
        The hash of the model's manifest, which contains the checksums of all files.
    """

    path: Path
    checksum: str

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Self:
        """Return a reference to the model in a folder: its absolute path and its checksum."""
        absolute = Path(path).absolute()
        return cls(absolute, _manifest_hash(absolute))

    def load(self, threads: int) -> Any:
        """Memory-map the model; raise InputError if it does not exist on this machine or has a different checksum."""
        check_visible(self.path, "The model")
        model = load(self.path)
        if _manifest_hash(self.path) != self.checksum:
            raise InputError(
                f"{self.path} on the machine {socket.gethostname()} differs from the model on the calling machine. All "
                "machines must have the same model, and it must not be replaced during prediction."
            )
        set_in_all(model, n_jobs=threads, verbose=False)
        return model


class Rankings(NamedTuple):
    """The ranked labels for the rows of a shard.

    Attributes
    ----------
    indptr, labels, scores : ndarray
        Row offsets, label indices and scores.
    seconds : float
        The time spent on ranking, in seconds.
    """

    indptr: NDArray[np.int64]
    labels: NDArray[np.int32]
    scores: NDArray[np.float32]
    seconds: float


class RankRows:
    """Callable that ranks labels for a shard; the model is loaded when the first shard is ranked.

    Parameters
    ----------
    model : SharedModel
    source : RowSource
        A source of features, texts or examples; the labels of examples are ignored.
    options : dict
        Arguments of the model's `predict`.
    batch_size : int
        The number of rows per call to `predict`.
    threads : int
    """

    def __init__(
        self, model: SharedModel, source: RowSource, options: dict[str, Any], batch_size: int, threads: int
    ) -> None:
        self._model = model
        self._source = source
        self._options = options
        self._batch_size = batch_size
        self._threads = threads
        self._loaded: Any = None

    def __call__(self, shard: Shard) -> Rankings:
        """Return the ranked labels for the rows of a shard."""
        if self._loaded is None:
            self._loaded = self._model.load(self._threads)
        rows = self._source.read(shard)
        if isinstance(rows, list):
            rows = [row if isinstance(row, str) else row.text for row in rows]
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnknownTextWarning)  # the caller issues one warning for all shards
            parts = [
                self._loaded.predict(take_rows(rows, first, first + self._batch_size), **self._options)
                for first in range(0, shard.n_rows, self._batch_size)
            ]
        seconds = time.perf_counter() - started
        return Rankings(*concatenate([(part.indptr, part.indices, part.data) for part in parts]), seconds)


def concatenate(
    parts: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]],
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Concatenate the row offsets, label indices and scores of consecutive blocks of rows."""
    lengths = [np.diff(indptr) for indptr, _, _ in parts]
    indptr = np.concatenate([np.zeros(1, np.int64), *lengths]).cumsum(dtype=np.int64)
    labels = np.concatenate([np.zeros(0, np.int32), *(labels for _, labels, _ in parts)])
    scores = np.concatenate([np.zeros(0, np.float32), *(scores for _, _, scores in parts)])
    return indptr, labels.astype(np.int32, copy=False), scores


def _manifest_hash(folder: Path) -> str:
    try:
        return hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
    except OSError:
        return ""  # loading the model will raise an error
