"""The log: a line of JSON an event on standard error. Texts of requests are in it only if they were asked for."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


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
        if not self.wants(level):
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "level": level, "event": event, "worker": self._worker, **about}
        with contextlib.suppress(OSError, ValueError):  # if nobody reads the log, that is no reason to stop answering
            os.write(sys.stderr.fileno(), msgspec.json.encode(line) + b"\n")  # in one piece: others write there too


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
