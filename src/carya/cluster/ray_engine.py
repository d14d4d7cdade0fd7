"""Engine that trains models and ranks labels on a Ray cluster."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from carya import errors
from carya.cluster.actor_pool import ActorPool
from carya.cluster.prediction import predict_rows
from carya.core.extras import require
from carya.core.progress import Report
from carya.core.rules import Integer, check
from carya.errors import CaryaError, InputError
from carya.ranking.tasks.engine import Task

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

_CONNECTION_TIMEOUT = 10  # seconds


@dataclass(frozen=True)
class RayEngine:
    """Engine that trains models and ranks labels on a Ray cluster (``pip install 'carya[ray]'``).

    Training tasks read their inputs from the model's `checkpoint_dir` and store their results there; this folder must
    be on storage that all machines share. Tasks are retried if a machine fails. Training and prediction give the same
    results as on a single machine.

    Parameters
    ----------
    address : str, optional
        The address of the cluster: ``"auto"`` for a cluster running on this machine, or ``"host:port"``. By default, a
        cluster running on this machine is used if there is one; otherwise, a new one is started.
    threads_per_task : int
        The number of CPUs for each training task and for each worker that ranks labels.

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
        self.count_workers()
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

    def map(self, function: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> Iterator[ResultT]:
        """Yield ``function(item)`` for each item, in the order of the items.

        Every worker is an actor with its own copy of `function`, so the function can keep a loaded model or an open
        file between calls. If a machine fails, its items are processed again by other workers.

        Parameters
        ----------
        function : callable
            A picklable function. Carya exceptions that it raises are re-raised in the calling process.
        items : sequence of picklable objects
        """
        if not items:
            return
        n_workers = min(self.count_workers(), len(items))
        data = _import_ray("ray.data")
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        dataset = data.from_items([{"item": _Boxed(item)} for item in items], override_num_blocks=len(items))
        dataset.context.execution_options.preserve_order = True
        dataset.context.enable_progress_bars = False
        results = dataset.map(
            _Worker,
            fn_constructor_args=(function,),
            compute=data.ActorPoolStrategy(size=n_workers),
            num_cpus=self.threads_per_task,
        )
        for row in results.iter_rows():
            outcome: _Outcome = row["outcome"].content
            if outcome.error is not None:
                raise outcome.error
            yield outcome.result

    def open_pool(self, make_function: Callable[[], Callable[..., Any]], n_workers: int) -> ActorPool:
        """Return actors that call a function; :func:`carya.tune` runs its trials in them.

        Parameters
        ----------
        make_function : callable
            A picklable callable that takes no arguments; every actor calls it once to create its function.
        n_workers : int
        """
        return ActorPool(self._connect(), make_function, n_workers, self.threads_per_task)

    def predict(
        self,
        model: str | os.PathLike[str],
        data: str | os.PathLike[str] | Sequence[str],
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        **reading: Any,
    ) -> Any:
        """Return the scores of the best labels as a (rows, labels) matrix, like the model's own `predict` method.

        The workers memory-map the model, so all workers on a machine share one copy. Each worker reads its rows
        directly from the files of the data set. The model and the data set must be on storage that all machines share,
        or at the same path on every machine.

        Parameters
        ----------
        model : path
            The folder of a saved model.
        data : path or list of str
            A file or folder in any format of :func:`carya.data.open_data`, a feature matrix (``.npz`` or ``.npy``), or
            texts, which are sent to the workers.
        top_k, beam_width, min_score
            See the `predict` method of the model.
        **reading
            Options of :func:`carya.data.open_data`, such as `part` (``"test"`` by default), `format` and `text_column`.

        Returns
        -------
        csr_array of shape (rows, labels)
            The entries of each row are sorted by descending score.
        """
        options = {"top_k": top_k, "beam_width": beam_width, "min_score": min_score}
        return predict_rows(self.map, model, data, options, reading, self.threads_per_task)

    def check_dependencies(self) -> None:
        """Raise MissingExtraError if Ray is not installed."""
        _import_ray()

    def count_workers(self) -> int:
        """Return the number of workers for which the cluster has enough CPUs; raise InputError if it is 0."""
        cpus = [int(node["Resources"].get("CPU", 0)) for node in self._connect().nodes() if node["Alive"]]
        n_workers = sum(count // self.threads_per_task for count in cpus)
        if not n_workers:
            raise InputError(
                f"threads_per_task must be at most {max(cpus, default=0)}, the number of CPUs of the largest machine "
                f"in the cluster, got {self.threads_per_task}."
            )
        return n_workers

    def _connect(self) -> Any:
        ray = _import_ray()
        if not ray.is_initialized():
            _check_reachable(self.address)
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level="error")
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise InputError(f"Cannot connect to a Ray cluster at {self.address!r}: {error}") from None
        return ray


def _import_ray(module: str = "ray") -> Any:
    return require(module, extra="ray", purpose="RayEngine", alternative="this machine alone, without RayEngine")


def _check_reachable(address: str | None) -> None:
    """Raise InputError if no server accepts connections at ``host:port``; Ray itself would retry for many minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # None, "auto", or an invalid address, which Ray rejects immediately
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECTION_TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"Cannot connect to a Ray cluster at {address!r}: {error}. Pass the address of a running cluster, which "
            "`ray start` prints, or 'auto' for the cluster on this machine."
        ) from None


def _run(task: Task, threads: int) -> None:
    task.run(threads)


class _Boxed:
    """Wrapper for objects such as lists and arrays, which Ray Data would otherwise convert to its own types."""

    def __init__(self, content: Any) -> None:
        self.content = content


class _Outcome(NamedTuple):
    """The result of a call, or the error that it raised."""

    result: Any
    error: CaryaError | None = None


class _Worker:
    """Actor that calls a function for one item at a time.

    Errors are returned as results: if a call raised an exception, Ray would log and wrap the exception and retry the
    call.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        try:
            outcome = _Outcome(self._function(row["item"].content))
        except CaryaError as error:
            is_public = type(error).__name__ in errors.__all__  # others may require more arguments
            outcome = _Outcome(None, error if is_public else InputError(str(error)))
        return {"outcome": _Boxed(outcome)}
