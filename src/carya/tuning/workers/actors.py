"""Workers on a cluster, which read the data from a shared folder."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, Self

from carya.tuning.space import Point, Space
from carya.tuning.workers.interface import Outcome
from carya.tuning.workers.trial_runner import TrialRunner, space_to_json


class TrialEngine(Protocol):
    """Engine that can run trials, such as :class:`carya.RayEngine`."""

    @property
    def threads_per_task(self) -> int:
        """The number of CPUs per worker."""
        ...

    def count_workers(self) -> int:
        """Return the number of workers for which the cluster has enough CPUs."""
        ...

    def open_pool(self, make_function: Callable[[], Callable[..., Any]], n_workers: int) -> Any:
        """Return a :class:`carya.cluster.actor_pool.ActorPool`."""
        ...

    def check_dependencies(self) -> None:
        """Raise MissingExtraError if a required package is not installed."""
        ...


class ClusterWorkers:
    """Pool of actors on a cluster; each runs one trial at a time.

    Parameters
    ----------
    engine : TrialEngine
    folder : Path
        The data folder, on storage shared by all machines.
    space : Space
    n_workers : int
    """

    def __init__(self, engine: TrialEngine, folder: Path, space: Space, *, n_workers: int) -> None:
        make_runner = functools.partial(TrialRunner, str(folder), space_to_json(space), engine.threads_per_task)
        self._pool = engine.open_pool(make_runner, n_workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop all workers, including those that are running trials."""
        self._pool.close()

    @property
    def n_idle(self) -> int:
        """The number of idle workers."""
        n_idle: int = self._pool.n_idle
        return n_idle

    @property
    def running(self) -> list[int]:
        """The numbers of the running trials."""
        running: list[int] = self._pool.running
        return running

    def start(self, number: int, point: Point, n_rows: int) -> None:
        """Run a trial in an idle worker."""
        self._pool.start(number, point, n_rows)

    def wait(self, timeout: float) -> list[Outcome]:
        """Wait until a trial finishes, for at most `timeout` seconds, and return the outcomes of finished trials."""
        return [
            Outcome(number, None, error) if error is not None else Outcome.of_result(number, result)
            for number, result, error in self._pool.wait(timeout)
        ]
