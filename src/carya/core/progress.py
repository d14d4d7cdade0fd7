"""Progress reporting for long operations: no output, progress bars in a terminal, or lines in a log."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

_LOG_INTERVAL = 5.0  # seconds between log lines
_NO_ANIMATION = ("dumb", "unknown")  # values of TERM for terminals that cannot move the cursor


class ProgressCallback(Protocol):
    """Callback that receives the number of completed items and the total number; training loops also pass the loss.

    A total of 0 means that the total number is unknown.
    """

    def __call__(self, done: int, total: int, /, *, loss: float | None = None) -> None:
        """Report progress."""


#: A progress callback, or None to report nothing.
Report = ProgressCallback | None


class Progress:
    """Silent progress reporting; base class for progress displays."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the display."""

    @contextmanager
    def stage(self, name: str) -> Iterator[Report]:
        """Start a named stage and yield its progress callback."""
        yield None


def show_progress(verbose: bool = True) -> Progress:
    """Return progress bars for a terminal, a log for other output, or a silent object if `verbose` is False."""
    stream = sys.stderr
    if not verbose or stream is None:  # stream is None in a program without a console
        return Progress()
    if has_animation(stream):
        return ProgressBars()
    return ProgressLog(stream)


def has_animation(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that can move the cursor."""
    return stream.isatty() and os.environ.get("TERM") not in _NO_ANIMATION


class ProgressBars(Progress):
    """One progress bar per stage on standard error, with percentage, rate, loss, and elapsed and remaining time.

    Parameters
    ----------
    console : rich.console.Console, optional
        The terminal to write to; standard error by default.
    clock : callable
        A function that returns the time in seconds.
    """

    def __init__(self, console: Any = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, ProgressColumn, Task, TaskProgressColumn, TextColumn
        from rich.progress import Progress as RichProgress
        from rich.text import Text

        class Times(ProgressColumn):
            def render(self, task: Task) -> Text:
                elapsed = task.finished_time if task.finished else task.elapsed
                times = f"elapsed {format_duration(elapsed or 0)}"
                if task.time_remaining is not None:
                    times += f", remaining {format_duration(task.time_remaining)}"
                return Text(times)

        self._clock = clock
        self._bars = RichProgress(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            TaskProgressColumn(show_speed=False),
            TextColumn("{task.fields[rate]:>10}"),
            TextColumn("{task.fields[loss]}"),
            Times(),
            console=Console(stderr=True) if console is None else console,
            get_time=clock,
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop updating the bars and leave them on the screen."""
        self._bars.stop()

    @contextmanager
    def stage(self, name: str) -> Iterator[ProgressCallback]:
        """Show a progress bar for a stage; it is filled when the stage finishes without an error."""
        task = self._bars.add_task(name, total=None, rate="", loss="")
        state = _Stage(name, self._clock)

        def report(done: int, total: int, /, *, loss: float | None = None) -> None:
            state.update(done, total, loss)
            loss_text = "" if loss is None else f"loss {loss:.4g}"
            self._bars.update(task, completed=done, total=total or None, rate=state.rate, loss=loss_text)

        yield report
        finished = max(state.done, 1)
        self._bars.update(task, completed=finished, total=finished)


class ProgressLog(Progress):
    """Progress as log lines every few seconds, for output that is not a terminal, such as the log of a CI job.

    A stage that runs for at least `interval` seconds is logged, with a final line when it ends; shorter stages produce
    no output.

    Parameters
    ----------
    stream : text stream
    interval : float
        Seconds between lines.
    clock : callable
        A function that returns the time in seconds.
    """

    def __init__(
        self, stream: TextIO, *, interval: float = _LOG_INTERVAL, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._interval = interval
        self._clock = clock
        self._stages: list[_Stage] = []  # the stages in progress
        self._lock = threading.Lock()  # protects the list, because stages can run in several threads
        self._closed = threading.Event()
        self._writer: threading.Thread | None = None

    def __enter__(self) -> Self:
        # A thread is needed because some stages do not call the callback before they end.
        self._closed.clear()
        self._writer = threading.Thread(target=self._write_regularly, name="carya-progress", daemon=True)
        self._writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop writing."""
        self._closed.set()
        if self._writer is not None:
            self._writer.join()
            self._writer = None

    @contextmanager
    def stage(self, name: str) -> Iterator[ProgressCallback]:
        """Return a context manager that logs the progress of a stage."""
        stage = _Stage(name, self._clock)
        with self._lock:
            self._stages.append(stage)

        def report(done: int, total: int, /, *, loss: float | None = None) -> None:
            stage.update(done, total, loss)

        try:
            yield report
            if stage.elapsed >= self._interval:
                self._write(stage.final_line())
        finally:
            with self._lock:
                self._stages.remove(stage)

    def write_lines(self) -> None:
        """Write one line for each stage that has been running for at least `interval` seconds."""
        with self._lock:
            stages = [stage for stage in self._stages if stage.elapsed >= self._interval]
        for stage in stages:
            self._write(stage.line())

    def _write_regularly(self) -> None:
        while not self._closed.wait(self._interval):
            self.write_lines()

    def _write(self, line: str) -> None:
        try:
            self._stream.write(f"{line}\n")
            self._stream.flush()
        except (OSError, ValueError):  # the stream is closed or the disk is full, which must not abort the operation
            self._closed.set()


class _Stage:
    """The state of a running stage."""

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self.name = name
        self.done = self.total = 0
        self.loss: float | None = None
        self._clock = clock
        self._started = clock()

    def update(self, done: int, total: int, loss: float | None) -> None:
        self.done, self.total, self.loss = done, total, loss

    @property
    def elapsed(self) -> float:
        return self._clock() - self._started

    @property
    def rate(self) -> str:
        return f"{_abbreviate(self.done / max(self.elapsed, 1e-3))}/s"

    @property
    def remaining(self) -> float | None:
        """The estimated remaining time in seconds; None if it is unknown."""
        if not 0 < self.done <= self.total:
            return None
        return self.elapsed * (self.total - self.done) / self.done

    def line(self) -> str:
        parts = []
        if self.done:
            count = f"{100 * self.done / self.total:.0f}%" if self.total else f"{self.done:,}"
            parts += [count, self.rate]
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4g}")
        parts.append(f"elapsed {format_duration(self.elapsed)}")
        if self.remaining is not None:
            parts.append(f"remaining {format_duration(self.remaining)}")
        return f"{self.name}: {', '.join(parts)}"

    def final_line(self) -> str:
        return f"{self.name}: done, elapsed {format_duration(self.elapsed)}"


def format_duration(seconds: float) -> str:
    """Format a duration as minutes and seconds, preceded by hours if it is at least one hour.

    >>> format_duration(92), format_duration(3600 + 62)
    ('1:32', '1:01:02')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _abbreviate(number: float) -> str:
    """Format a number compactly, with a metric suffix.

    >>> _abbreviate(1234), _abbreviate(2_500_000)
    ('1.2k', '2.5M')
    """
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{suffix}"
    return f"{number:.0f}"
