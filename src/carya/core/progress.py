"""Progress of long work: silent, or bars in a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol, Self


class Reporter(Protocol):
    """Called by the kernels now and then with (done, total), and by training with its loss besides."""

    def __call__(self, done: int, total: int, /, *, loss: float | None = None) -> None:
        """So much of all is done."""


Report = Reporter | None


class Progress:
    """Says nothing. Base of those that do."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the display."""

    @contextmanager
    def stage(self, name: str) -> Iterator[Report]:
        """A named piece of work; gives what the kernel is to call."""
        yield None


class Bars(Progress):
    """One bar a stage on standard error, with share done, rate, loss, time spent and left; quiet without a terminal."""

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
            TimeElapsedColumn(),
            TextColumn("left"),
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
        """Leave the bars as they are."""
        self._bars.stop()

    @contextmanager
    def stage(self, name: str) -> Iterator[Report]:
        """A bar of its own, full when the stage ends without an error."""
        task = self._bars.add_task(name, total=None, rate="", loss="")
        started = time.monotonic()

        def report(done: int, total: int, /, *, loss: float | None = None) -> None:
            rate = f"{_short(done / max(time.monotonic() - started, 1e-3))}/s"
            told = "" if loss is None else f"loss {loss:.4g}"
            self._bars.update(task, completed=done, total=max(total, 1), rate=rate, loss=told)

        yield report
        self._bars.update(task, completed=1, total=1)


def _short(number: float) -> str:
    """A number in few characters.

    >>> _short(1234), _short(2_500_000)
    ('1.2k', '2.5M')
    """
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{name}"
    return f"{number:.0f}"
