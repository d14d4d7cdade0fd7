"""A live table of the trials of a tuning run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from carya.core.memory import format_size
from carya.core.progress import format_duration, has_animation

if TYPE_CHECKING:
    from carya.tuning.results import TunedTrial
    from carya.tuning.search import Search

_MAX_ROWS = 12


@contextmanager
def show_trials(quiet: bool) -> Iterator[Callable[[Search], None] | None]:
    """Yield a callback that shows the best trials in a terminal or logs one line per trial; None if `quiet`."""
    if quiet or sys.stderr is None:
        yield None
    elif has_animation(sys.stderr):
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as live:
            yield lambda search: live.update(_live_view(search))
    else:
        yield _LogLines()


class _LogLines:
    """Callback that writes one line per finished trial."""

    def __init__(self) -> None:
        self._n_written = 0

    def __call__(self, search: Search) -> None:
        for trial in search.trials[self._n_written :]:
            self._n_written += 1
            result = trial.error
            if trial.measured is not None:
                value = 100 * search.value(trial.measured)
                result = f"{search.metric} {value:.2f}%, {trial.measured.seconds:.1f} s"
            elapsed = format_duration(search.budget.elapsed)
            print(
                f"{elapsed} trial {trial.number}, {trial.n_rows:,} rows: {result} ({trial.description})",
                file=sys.stderr,
            )


def _live_view(search: Search) -> Any:
    from rich.console import Group
    from rich.text import Text

    ranked = sorted(
        (trial for trial in search.trials if trial.measured is not None),
        key=lambda trial: (-trial.n_rows, -search.value(trial.measured) if trial.measured else 0.0),
    )
    elapsed, remaining = format_duration(search.budget.elapsed), format_duration(max(0.0, search.budget.remaining))
    running = "; ".join(
        f"{attempt.number}: {search.describe(attempt.point)}, {search.rungs[attempt.rung]:,} rows"
        for attempt in search.running()
    )
    status = f"{len(search.attempts)} configurations; elapsed {elapsed}, remaining {remaining}"
    return Group(trial_table(ranked[:_MAX_ROWS], search.metric), Text(status), Text(f"running: {running}"))


def trial_table(trials: list[TunedTrial], metric: str) -> Any:
    """Return a table of trials, one per line."""
    from rich.table import Table

    table = Table("trial", "rows", metric, "µs per query", "size", "seconds", "settings")
    for column in table.columns[:-1]:
        column.justify = "right"
    for trial in trials:
        measured = trial.measured
        if measured is not None:
            table.add_row(
                str(trial.number),
                f"{trial.n_rows:,}",
                f"{100 * measured.metrics[metric]:.2f}",
                f"{measured.microseconds:,.0f}",
                format_size(measured.n_bytes),
                f"{measured.seconds:.1f}",
                trial.description,
            )
    return table
