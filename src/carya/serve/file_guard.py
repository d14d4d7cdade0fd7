"""Detect when the array file of a served model is overwritten in place.

The file is memory-mapped, so its new contents would be used for ranking without verification. Models that are saved by
Carya are never overwritten: a new folder replaces the old one, whose files remain unchanged as long as they are in use.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import sys
import threading
import weakref
from pathlib import Path

import numpy as np

from carya import _core
from carya.core import storage
from carya.errors import ModelFormatError

_ARRAY_FILE = "arrays.bin"
_BLOCK_BYTES = 64 << 10  # size of the blocks for which checksums are stored
_SAMPLED_BLOCKS = 16  # number of blocks verified per call, which takes less than a millisecond


class FileBusyError(OSError):
    """Raised if another process has opened the array file of a model for writing."""


class ArrayFileGuard:
    """Guard that detects changes to the array file of a model.

    Create the guard before loading the model, so that no change is missed.

    With a lease (`man 2 fcntl`), a process that opens the file for writing waits until the requests that use the model
    are complete; afterwards, the model is no longer used. Without a lease, changes are detected before and after each
    request, but a change while a request is being processed can cause the process to crash or hang. Leases require
    Linux, a local file system, and a file owned by the user who runs the server.

    Parameters
    ----------
    folder : Path
        The model folder. If it does not contain a model, ModelFormatError is raised.
    with_lease : bool
        Whether to obtain a lease if possible. If the file is open for writing, FileBusyError is raised.
    """

    def __init__(self, folder: Path, *, with_lease: bool = False) -> None:
        path = folder / _ARRAY_FILE
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise ModelFormatError(f"{path}: {error.strerror or error}.") from None
        self.close = weakref.finalize(self, os.close, self._descriptor)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise ModelFormatError(f"{path} is not a regular file.")
        self.has_lease = with_lease and _take_lease(self._descriptor, path)
        self._status = self._read_status()
        self._covered_bytes, self._checksums = self._read_checksums(folder)
        self._next_block = 0
        self._is_modified = False
        self._users = 0
        self._lock = threading.Lock()

    def is_modified(self) -> bool:
        """Return whether the file has been or is about to be modified; the check takes about a microsecond."""
        with self._lock:
            return self._check()

    def begin_use(self) -> bool:
        """Return whether the file can be used; if so, the lease is kept until :meth:`end_use` is called."""
        with self._lock:
            if self._check():
                return False
            self._users += 1
            return True

    def end_use(self) -> bool:
        """End a use of the file; return whether the file remained unmodified during this use."""
        with self._lock:
            self._users -= 1
            if not self.has_lease:
                return not self._check()
            # A writer that is waiting for the lease has not modified the file yet.
            is_unmodified = not self._is_lease_broken() or self._read_status() == self._status
            self._check()
            return is_unmodified

    def _check(self) -> bool:
        if not self._is_modified:
            self._is_modified = self._is_lease_broken() if self.has_lease else self._read_status() != self._status
        if self._is_modified and self.has_lease and not self._users:
            fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)  # lets the writer continue
            self.has_lease = False
        return self._is_modified

    def _is_lease_broken(self) -> bool:
        return fcntl.fcntl(self._descriptor, fcntl.F_GETLEASE) != fcntl.F_RDLCK

    def verify_sample(self) -> bool:
        """Return whether the file is unmodified and the checksums of the next few blocks match."""
        count = len(self._checksums)
        for _ in range(min(_SAMPLED_BLOCKS, count)):
            block = os.pread(self._descriptor, self._block_size(self._next_block), self._next_block * _BLOCK_BYTES)
            if _core.xxh64(np.frombuffer(block, np.uint8)) != self._checksums[self._next_block]:
                self._is_modified = True
            self._next_block = (self._next_block + 1) % count
        return not self.is_modified()

    def _block_size(self, block: int) -> int:
        return min(_BLOCK_BYTES, self._covered_bytes - block * _BLOCK_BYTES)

    def _read_status(self) -> tuple[int, int]:
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns

    def _read_checksums(self, folder: Path) -> tuple[int, list[int]]:
        """Return the number of bytes covered by checksums, and the checksums, which are stored after these bytes."""
        try:
            description = json.loads(storage.read_manifest(folder))["checksums"]
            covered, (count,) = int(description["offset"]), description["shape"]
            if count != -(-covered // _BLOCK_BYTES) or covered + 8 * count > self._status[0]:
                raise ValueError(f"the checksums do not match the size of {_ARRAY_FILE}.")
            data = os.pread(self._descriptor, 8 * count, covered)
        except ModelFormatError:
            raise
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ModelFormatError(f"{folder} is not a Carya model: {error}") from None
        return covered, np.frombuffer(data, "<u8").tolist()


def _take_lease(descriptor: int, path: Path) -> bool:
    """Try to obtain a read lease on a file and return whether it was obtained.

    Raises FileBusyError if the file is open for writing.
    """
    if sys.platform != "linux":
        return False
    try:
        # Leases are checked before each request, so the signal is not needed; SIGURG is ignored by default.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        raise FileBusyError(f"{path} is open for writing.") from None
    except OSError:  # leases are not supported or not permitted
        return False
    return True
