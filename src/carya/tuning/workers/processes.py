"""Worker processes that run trials and can be stopped at any time."""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.connection
import os
import signal
from pathlib import Path
from typing import Any, Self

from carya.errors import InputError
from carya.tuning.space import Point, Space
from carya.tuning.workers.interface import Outcome
from carya.tuning.workers.trial_runner import TrialRunner, space_to_json

_STOP_SECONDS = 5.0


class WorkerProcesses:
    """Pool of worker processes on this machine; each runs one trial at a time.

    Parameters
    ----------
    folder : Path
        The folder of the data; see :class:`HeldOutData`.
    space : Space
    n_workers : int
    threads : int
        The number of threads per worker.
    """

    def __init__(self, folder: Path, space: Space, *, n_workers: int, threads: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._arguments = (str(folder), space_to_json(space), threads)
        self._idle: list[_TrialWorker] = [_TrialWorker(self._context, self._arguments) for _ in range(n_workers)]
        self._busy: dict[int, _TrialWorker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop all workers, including those that are running trials."""
        workers = [*self._idle, *self._busy.values()]
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.close()

    @property
    def n_idle(self) -> int:
        """The number of idle workers."""
        return len(self._idle)

    @property
    def running(self) -> list[int]:
        """The numbers of the running trials."""
        return list(self._busy)

    def start(self, number: int, point: Point, n_rows: int) -> None:
        """Run a trial in an idle worker."""
        worker = self._idle.pop()
        worker.connection.send_bytes(json.dumps({"point": point, "rows": n_rows}).encode())
        self._busy[number] = worker

    def wait(self, timeout: float) -> list[Outcome]:
        """Wait until a trial finishes, for at most `timeout` seconds, and return the outcomes of finished trials."""
        connections = {worker.connection: number for number, worker in self._busy.items()}
        ready = multiprocessing.connection.wait(list(connections), max(0.0, timeout))
        outcomes = [self._receive(connections[connection]) for connection in ready]
        return [outcome for outcome in outcomes if outcome is not None]

    def _receive(self, number: int) -> Outcome | None:
        """Return the result of a trial, or None if the worker has only reported that it is ready."""
        worker = self._busy.pop(number)
        try:
            message = json.loads(worker.connection.recv_bytes())
        except (EOFError, OSError):
            worker.close()
            if not worker.is_ready:
                raise InputError(
                    "A worker process could not start. In a script, call carya.tune inside an "
                    "if __name__ == '__main__' block."
                ) from None
            self._idle.append(_TrialWorker(self._context, self._arguments))
            return Outcome(number, None, f"the process ended with exit code {worker.process.exitcode}")
        if not worker.is_ready:
            worker.is_ready = True
            self._busy[number] = worker
            return None
        self._idle.append(worker)
        return Outcome.of_result(number, message)


class _TrialWorker:
    """A worker process and the connection to it."""

    def __init__(self, context: Any, arguments: tuple[str, str, int]) -> None:
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_run_worker, args=(other, *arguments), daemon=True)
        self.is_ready = False  # whether the process has sent its first message
        self.process.start()
        other.close()

    def close(self) -> None:
        """Wait for the process to end, kill it if it does not, and free its resources."""
        self.process.join(_STOP_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()


def _run_worker(connection: Any, folder: str, space_json: str, threads: int) -> None:
    """Run trials until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is handled by the main process, which stops its workers
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    run = TrialRunner(folder, space_json, threads)
    connection.send_bytes(b"{}")  # signals that the process has started
    while True:
        try:
            task = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        connection.send_bytes(json.dumps(run(task["point"], task["rows"])).encode())
