"""Progress reporting for long operations: silent, or progress bars in a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self


class ProgressCallback(Protocol):
    """Callback that receives the numbers of finished and total units; training loops also pass their loss."""

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


class ProgressBars(Progress):
    """One progress bar per stage on standard error, with percentage, rate, loss, and elapsed and remaining time.

    Nothing is printed if standard error is not a terminal.
    """

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        console = Console(stderr=True)
        self._bars = RichProgress(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            TaskProgressColumn(show_speed=False),
            TextColumn("{task.fields[rate]:>10}"),
            TextColumn("{task.fields[loss]}"),
            TextColumn("elapsed"),
            TimeElapsedColumn(),
            TextColumn("remaining"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
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
        started = time.monotonic()

        def report(done: int, total: int, /, *, loss: float | None = None) -> None:
            rate = f"{_abbreviate(done / max(time.monotonic() - started, 1e-3))}/s"
            loss_text = "" if loss is None else f"loss {loss:.4g}"
            self._bars.update(task, completed=done, total=max(total, 1), rate=rate, loss=loss_text)

        yield report
        self._bars.update(task, completed=1, total=1)


def progress_bars(verbose: bool) -> Progress:
    """Return progress bars if `verbose`, otherwise a silent progress object."""
    return ProgressBars() if verbose else Progress()


def _abbreviate(number: float) -> str:
    """Format a number compactly, with a metric suffix.

    >>> _abbreviate(1234), _abbreviate(2_500_000)
    ('1.2k', '2.5M')
    """
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{suffix}"
    return f"{number:.0f}"
