"""Engine that runs training tasks on a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from carya.core.extras import require
from carya.core.progress import Report
from carya.core.rules import Integer, check
from carya.errors import InputError
from carya.ranking.tasks.engine import Task


@dataclass(frozen=True)
class RayEngine:
    """Engine that runs training tasks on a Ray cluster (``pip install 'carya[ray]'``).

    Tasks read their inputs from the model's `checkpoint_dir`, which must be on storage that all machines share, and
    store their results there. They are retried if a machine fails, and the trained model has the same bytes as one
    trained on a single machine.

    Parameters
    ----------
    address : str, optional
        The address of the cluster: ``"auto"`` for a cluster running on this machine, or ``"host:port"``. By default, a
        cluster running on this machine is used if there is one; otherwise, a new one is started.
    threads_per_task : int
        The number of CPUs per task.

    Examples
    --------
    >>> RayEngine("auto")
    RayEngine(address='auto', threads_per_task=1)
    """

    address: str | None = None
    threads_per_task: int = 1

    def __post_init__(self) -> None:
        check("threads_per_task", self.threads_per_task, Integer(1))

    def run(self, tasks: Sequence[Task], report: Report = None) -> None:
        """Run all tasks, largest first."""
        if not tasks:
            return
        ray = self._connect()
        cpus = max((node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
        if cpus < self.threads_per_task:
            raise InputError(
                f"threads_per_task must be at most {cpus:g}, the number of CPUs of the largest machine in the cluster, "
                f"got {self.threads_per_task}."
            )
        remote = ray.remote(num_cpus=self.threads_per_task, max_retries=-1)(_run)
        largest_first = sorted(tasks, key=lambda task: -task.work)
        pending = {remote.remote(task, self.threads_per_task): task.work for task in largest_first}
        total, done = sum(pending.values()), 0.0
        try:
            while pending:
                finished, _ = ray.wait(list(pending), num_returns=1)
                for reference in finished:
                    ray.get(reference)
                    done += pending.pop(reference)
                if report is not None:
                    report(int(done), int(total))
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)

    def check_dependencies(self) -> None:
        """Raise MissingExtraError if Ray is not installed."""
        _import_ray()

    def _connect(self) -> Any:
        ray = _import_ray()
        if not ray.is_initialized():
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level="error")
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise InputError(f"Cannot connect to a Ray cluster at {self.address!r}: {error}") from None
        return ray


def _import_ray() -> Any:
    return require("ray", extra="ray", purpose="RayEngine", alternative="engine=None to train on this machine")


def _run(task: Task, threads: int) -> None:
    task.run(threads)
