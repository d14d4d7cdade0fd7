"""The log: a line of JSON an event on standard error. Texts of requests are in it only if they were asked for.

A thread writes it: whoever does not read the log, or reads it slowly, holds up no request.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
from collections import deque
from datetime import UTC, datetime
from typing import Any

import msgspec

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

_MOST_WAITING = 10_000  # lines, a few megabytes; beyond that they are dropped and counted
_PIECE = 4096  # bytes that a pipe takes as one, so that lines of several processes are not mixed
_GATHERED = 0.02  # seconds of lines that are written together: cheaper than one by one


class _Writer:
    """Writes lines to standard error, in the background; what cannot be written for long is dropped."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._due = threading.Event()
        self._dropped = 0
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def put(self, line: bytes) -> None:
        """Take a line, without waiting for anybody."""
        if len(self._lines) >= _MOST_WAITING:
            self._dropped += 1
            return
        self._lines.append(line)
        if not self._due.is_set():
            self._due.set()
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="carya-log", daemon=True)
                    self._thread.start()
                    atexit.register(self.flush)

    def flush(self, seconds: float = 1.0) -> None:
        """Wait until all is written, but no longer than that."""
        until = time.monotonic() + seconds
        while (self._due.is_set() or self._lines) and time.monotonic() < until:
            time.sleep(0.002)

    def _run(self) -> None:
        while True:
            self._due.wait()
            time.sleep(_GATHERED)
            while self._lines:
                piece = [self._lines.popleft()]
                size = len(piece[0])
                while self._lines and (size := size + len(self._lines[0])) <= _PIECE:
                    piece.append(self._lines.popleft())
                with contextlib.suppress(OSError, ValueError):  # nobody reads it: no reason to stop answering
                    os.write(sys.stderr.fileno(), b"".join(piece))
                if self._dropped and not self._lines:
                    dropped, self._dropped = self._dropped, 0
                    self._lines.append(
                        _line("warning", "lines of the log were dropped: nobody read them", lines=dropped)
                    )
            self._due.clear()
            if self._lines:  # one came in between
                self._due.set()


_WRITER = _Writer()


def flush() -> None:
    """Wait a moment for what was logged to be written."""
    _WRITER.flush()


def _line(level: str, event: str, **about: Any) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return msgspec.json.encode({"time": now, "level": level, "event": event, **about}) + b"\n"


class Journal:
    """Writes events of at least some importance.

    Parameters
    ----------
    level : {"debug", "info", "warning", "error"}
    worker : int
        Which process of the server writes; it is in every line.
    """

    def __init__(self, level: str, worker: int = 0) -> None:
        self._least = LEVELS[level]
        self._worker = worker

    def wants(self, level: str) -> bool:
        """Whether such events are written."""
        return LEVELS[level] >= self._least

    def write(self, level: str, event: str, **about: Any) -> None:
        """Write an event."""
        if self.wants(level):
            _WRITER.put(_line(level, event, worker=self._worker, **about))


class _Lines(logging.Handler):
    """What libraries log, in the same form."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; what uvicorn says of each start and stop is of no interest to most."""
        level = record.levelname.lower() if record.levelname.lower() in LEVELS else "error"
        about = {"message": record.getMessage()}
        if record.exc_info and record.exc_info[1] is not None:
            about["trace"] = logging.Formatter().formatException(record.exc_info)
        self._journal.write("debug" if level == "info" else level, record.name, **about)


def take_over(journal: Journal) -> None:
    """Let the loggers of uvicorn and asyncio write to the journal."""
    for name in ("uvicorn", "uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [] if name == "uvicorn.error" else [_Lines(journal)]
        logger.propagate = name == "uvicorn.error"
        logger.setLevel(logging.INFO)
