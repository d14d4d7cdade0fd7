"""Interface for engines, which run training tasks in other processes or on other machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from carya.core.progress import Report


class Task(Protocol):
    """A task that reads its inputs from a checkpoint folder and stores its result there."""

    @property
    def work(self) -> float:
        """The estimated amount of work, in arbitrary units."""
        ...

    def run(self, threads: int) -> None:
        """Compute and store the result. A task can be run several times, because the result is always the same."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Engine that runs independent tasks."""

    def run(self, tasks: Sequence[Task], report: Report = None) -> None:
        """Run all tasks and return when they are finished; if a task fails, raise its error."""
        ...
