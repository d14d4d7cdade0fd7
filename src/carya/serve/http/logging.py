"""Log events to standard error as JSON, one line per event.

A background thread writes the lines, so a slow or blocked log reader does not delay requests. Request texts are logged
only if `log_texts` is set.
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

from carya.serve.settings import LOG_LEVELS

_SEVERITY = {level: severity for severity, level in enumerate(LOG_LEVELS)}
_MAX_WAITING = 10_000  # lines (a few megabytes); further lines are dropped and counted
_MAX_WRITE = 4096  # bytes; smaller writes to a pipe are atomic, so lines from several processes are not interleaved
_BATCH_SECONDS = 0.02  # lines logged within this period are written together, which is more efficient


class _BackgroundWriter:
    """Thread that writes queued lines to standard error; if the queue is full, new lines are dropped."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._has_lines = threading.Event()
        self._dropped = 0
        self._thread: threading.Thread | None = None
        self._start_lock = threading.Lock()

    def put(self, line: bytes) -> None:
        """Queue a line without blocking."""
        if len(self._lines) >= _MAX_WAITING:
            self._dropped += 1
            return
        self._lines.append(line)
        if not self._has_lines.is_set():
            self._has_lines.set()
            with self._start_lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="carya-log", daemon=True)
                    self._thread.start()
                    atexit.register(self.flush)

    def flush(self, timeout: float = 1.0) -> None:
        """Wait up to `timeout` seconds for all lines to be written."""
        deadline = time.monotonic() + timeout
        while (self._has_lines.is_set() or self._lines) and time.monotonic() < deadline:
            time.sleep(0.002)

    def _run(self) -> None:
        while True:
            self._has_lines.wait()
            time.sleep(_BATCH_SECONDS)
            while self._lines:
                batch = [self._lines.popleft()]
                size = len(batch[0])
                while self._lines and (size := size + len(self._lines[0])) <= _MAX_WRITE:
                    batch.append(self._lines.popleft())
                with contextlib.suppress(OSError, ValueError):  # the server keeps running if the log is closed
                    os.write(sys.stderr.fileno(), b"".join(batch))
                if self._dropped and not self._lines:
                    dropped, self._dropped = self._dropped, 0
                    self._lines.append(_format_line("warning", "log lines dropped", lines=dropped))
            self._has_lines.clear()
            if self._lines:  # a line was added in the meantime
                self._has_lines.set()


_WRITER = _BackgroundWriter()


def flush() -> None:
    """Wait up to one second for all log lines to be written."""
    _WRITER.flush()


def _format_line(level: str, event: str, **fields: Any) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return msgspec.json.encode({"time": now, "level": level, "event": event, **fields}) + b"\n"


class JsonLogger:
    """Logger that writes the events at or above a given level.

    Parameters
    ----------
    level : {"debug", "info", "warning", "error"}
    worker : int
        The index of the worker process, included in every line.
    """

    def __init__(self, level: str, worker: int = 0) -> None:
        self._min_severity = _SEVERITY[level]
        self._worker = worker

    def is_enabled(self, level: str) -> bool:
        """Return whether events at a level are logged."""
        return _SEVERITY[level] >= self._min_severity

    def log(self, level: str, event: str, **fields: Any) -> None:
        """Log an event."""
        if self.is_enabled(level):
            _WRITER.put(_format_line(level, event, worker=self._worker, **fields))


class _JsonHandler(logging.Handler):
    """Handler that forwards records from the standard `logging` module to a JsonLogger."""

    def __init__(self, logger: JsonLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        """Log a record; info records, such as uvicorn's start and stop messages, are logged as debug events."""
        level = record.levelname.lower() if record.levelname.lower() in _SEVERITY else "error"
        fields = {"message": record.getMessage()}
        if record.exc_info and record.exc_info[1] is not None:
            fields["traceback"] = logging.Formatter().formatException(record.exc_info)
        self._logger.log("debug" if level == "info" else level, record.name, **fields)


def redirect_library_logs(logger: JsonLogger) -> None:
    """Redirect log messages from uvicorn and asyncio to the logger."""
    for name in ("uvicorn", "uvicorn.error", "asyncio"):
        library = logging.getLogger(name)
        library.handlers = [] if name == "uvicorn.error" else [_JsonHandler(logger)]
        library.propagate = name == "uvicorn.error"
        library.setLevel(logging.INFO)
