"""Report progress while large files are read."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO

from carya.core.progress import Progress, Report

#: No progress is reported for files with fewer bytes, because reading them takes too little time.
MIN_SIZE = 8 << 20

_progress: ContextVar[Progress | None] = ContextVar("reading progress", default=None)


@contextmanager
def showing_progress(progress: Progress) -> Iterator[None]:
    """Report the progress of all file reads in this context, with one stage per file of at least `MIN_SIZE` bytes.

    Examples
    --------
    >>> with showing_progress(Progress()):
    ...     pass
    """
    token = _progress.set(progress)
    try:
        with progress:
            yield
    finally:
        _progress.reset(token)


@contextmanager
def open_counted(path: str | os.PathLike[str], buffer_size: int) -> Iterator[BinaryIO]:
    """Open a file for reading bytes; within :func:`showing_progress`, report the reading progress."""
    progress = _progress.get()
    with open(path, "rb", buffering=buffer_size) as file:  # noqa: PTH123  (the path may be a string)
        total = os.fstat(file.fileno()).st_size
        if progress is None or total < MIN_SIZE:
            yield file
            return
        with (
            progress.stage(f"read {Path(path).name}") as report,
            io.BufferedReader(_CountedFile(file, total, report), buffer_size) as counted,
        ):
            yield counted


class _CountedFile(io.RawIOBase):
    """A stream that reports the number of bytes read from a file."""

    def __init__(self, file: BinaryIO, total: int, report: Report) -> None:
        self._file = file
        self._total = total
        self._report = report
        self._n_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._file.read(len(buffer))
        buffer[: len(chunk)] = chunk
        self._n_read += len(chunk)
        if self._report is not None:
            self._report(self._n_read, self._total)
        return len(chunk)
