"""Row sources: cluster workers read shards of a data set directly from files, so only row ranges are sent to them."""

from __future__ import annotations

import itertools
import socket
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from carya.core import lazy_sparse as sp
from carya.errors import InputError

_MAX_SHARDS = 1000


class Shard(NamedTuple):
    """A range of consecutive rows of a data set.

    Attributes
    ----------
    first : int
        The index of the first row, starting at 0.
    n_rows : int
    rows : list or features, optional
        The rows themselves, if workers cannot read them from files.
    """

    first: int
    n_rows: int
    rows: Any = None


class RowSource(Protocol):
    """A data set that can be read in shards."""

    def read(self, shard: Shard) -> Any:
        """Return the rows of a shard: a list of texts, or features."""
        ...


class TextFiles:
    """Source of texts that are read sequentially from files.

    Reading a later shard skips the rows in between; reading an earlier shard restarts at the first row.

    Parameters
    ----------
    path : path
        The absolute path of the file or folder.
    open_rows : callable
        A picklable function that returns an iterable over all rows.
    """

    def __init__(self, path: Path, open_rows: Callable[[], Any]) -> None:
        self._path = path
        self._open_rows = open_rows
        self._rows: Iterator[Any] | None = None
        self._next = 0

    def read(self, shard: Shard) -> list[Any]:
        """Return the rows of a shard."""
        check_visible(self._path)
        if self._rows is None or shard.first < self._next:
            self._rows, self._next = iter(self._open_rows()), 0
        deque(itertools.islice(self._rows, shard.first - self._next), maxlen=0)
        rows = list(itertools.islice(self._rows, shard.n_rows))
        self._next = shard.first + len(rows)
        _check_count(self._path, shard, self._next)
        return rows


class FeatureFiles:
    """Source of features in files. The whole matrix is read when the first shard is read.

    Parameters
    ----------
    path : path
        The absolute path of the file or folder.
    read_features : callable
        A picklable function that returns the features: a matrix, or a (sparse, dense) pair.
    """

    def __init__(self, path: Path, read_features: Callable[[], Any]) -> None:
        self._path = path
        self._read_features = read_features
        self._features: Any = None

    def read(self, shard: Shard) -> Any:
        """Return the features of a shard."""
        if self._features is None:
            check_visible(self._path)
            X = self._read_features()
            self._features = tuple(map(_sliceable, X)) if isinstance(X, tuple) else _sliceable(X)
        end = shard.first + shard.n_rows
        _check_count(self._path, shard, min(count_rows(self._features), end))
        return take_rows(self._features, shard.first, end)


class GivenRows:
    """Source of rows that are not stored in files and are therefore sent to the workers as part of the shards."""

    def read(self, shard: Shard) -> Any:
        """Return the rows of a shard."""
        return shard.rows


def divide_rows(n_rows: int, batch_size: int, rows: Any = None) -> list[Shard]:
    """Divide rows into at most 1,000 shards of whole batches; `rows` contains the rows if they are not in files."""
    n_batches = -(-n_rows // batch_size)
    size = batch_size * max(1, -(-n_batches // _MAX_SHARDS))
    if rows is not None and not isinstance(rows, list):
        rows = tuple(map(_sliceable, rows)) if isinstance(rows, tuple) else _sliceable(rows)
    return [
        Shard(first, min(size, n_rows - first), None if rows is None else take_rows(rows, first, first + size))
        for first in range(0, n_rows, size)
    ]


def count_rows(rows: Any) -> int:
    """Return the number of texts in a list, or the number of rows in a matrix or a (sparse, dense) pair."""
    if isinstance(rows, tuple):
        return count_rows(rows[0])
    return len(rows) if isinstance(rows, list) else int(rows.shape[0])


def take_rows(rows: Any, first: int, end: int) -> Any:
    """Return the rows from `first` up to, but not including, `end` of a list, a matrix or a (sparse, dense) pair."""
    return tuple(block[first:end] for block in rows) if isinstance(rows, tuple) else rows[first:end]


def _sliceable(block: Any) -> Any:
    return block.tocsr() if sp.issparse(block) else block


def check_visible(path: Path, name: str = "The data") -> None:
    """Raise InputError if a file or folder does not exist on this machine."""
    if not path.exists():
        raise InputError(
            f"{path} does not exist on the machine {socket.gethostname()}. {name} must be on storage that all machines "
            "share, or at the same path on every machine."
        )


def _check_count(path: Path, shard: Shard, end: int) -> None:
    if end != shard.first + shard.n_rows:
        raise InputError(
            f"{path} has only {end:,} rows on the machine {socket.gethostname()}, but at least "
            f"{shard.first + shard.n_rows:,} rows are expected. The data must be the same on all machines, and must "
            "not be modified during prediction."
        )
