"""Run worker processes and their supervisor.

Workers share memory-mapped models, metrics and a port, on which each worker has its own listening socket
(SO_REUSEPORT). The supervisor keeps all sockets open, so connections to a worker that has exited wait for its
replacement.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import resource
import signal
import socket
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import uvicorn
import uvloop

from carya.errors import InputError
from carya.serve.app import annif_projects, application, create_state, feedback_store, job_folder
from carya.serve.http.connections import connection_class
from carya.serve.http.hosts import LOOPBACK_HOSTS
from carya.serve.http.logging import JsonLogger, redirect_library_logs
from carya.serve.http.metrics import MetricsLayout, ServerMetrics
from carya.serve.listening import BACKLOG, ignore_new_connections, is_loopback, listen
from carya.serve.registry import ModelRegistry
from carya.serve.routes.table import ROUTES
from carya.serve.settings import ServerSettings

_SHORT_LIFE = 5.0  # seconds; a worker that exits sooner has probably failed to start
_MAX_SHORT_LIVES = 5  # number of early exits in a row after which restarts are increasingly delayed
_MAX_RESTART_DELAY = 300.0
_ACCEPT_SECONDS = 0.2  # time to wait for connections that are being established when the server stops
_ACCEPT_ROUNDS = 4
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class WorkerPlan:
    """Configuration shared by all workers and sent to their processes.

    Attributes
    ----------
    folders : mapping of str to path
        Model folders by name.
    settings : ServerSettings
    """

    folders: Mapping[str, str | os.PathLike[str]]
    settings: ServerSettings


def serve(
    folders: Mapping[str, str | os.PathLike[str]],
    settings: ServerSettings | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    workers: int = 1,
) -> None:
    """Serve models until SIGINT or SIGTERM is received; SIGHUP reloads the models.

    Parameters
    ----------
    folders : mapping of str to path
        Model folders by name; the first model is the default.
    settings : ServerSettings, optional
    host : str
        The address to listen on.
    port : int
        The port to listen on; 0 selects a free one.
    workers : int
        The number of worker processes.
    """
    settings = ServerSettings() if settings is None else settings.clone()
    settings.check_parameters()
    registry = ModelRegistry.open(
        folders, settings, with_leases=workers == 1
    )  # before any worker starts, so that errors are raised in this process
    job_folder(settings)
    feedback_store(settings)
    annif_projects(registry.names(), settings)
    sockets = listen(host, port, workers)
    _raise_file_limit(settings)
    address = sockets[0].getsockname()
    if settings.allowed_hosts is None and is_loopback(address[0]):
        settings.allowed_hosts = tuple(dict.fromkeys((*LOOPBACK_HOSTS, host, address[0])))
    url_host = f"[{address[0]}]" if ":" in address[0] else address[0]
    logger = JsonLogger(settings.log_level)
    logger.log("info", "listening", url=f"http://{url_host}:{address[1]}/", models=registry.versions(), workers=workers)
    if not settings.tokens and not is_loopback(address[0]):
        logger.log("warning", "reachable from other hosts without authentication", address=address[0])
    plan = WorkerPlan(folders, settings)
    if workers == 1:
        _run_worker(plan, sockets[0], None, 0, registry=registry)
        return
    del registry
    Supervisor(plan, sockets, logger).run()


def _raise_file_limit(settings: ServerSettings) -> None:
    """Raise the limit on open files to accommodate `max_connections`, if the system permits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.max_connections + 256
    if soft != resource.RLIM_INFINITY and soft < needed:
        limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _run_worker(
    plan: WorkerPlan,
    listener: socket.socket,
    shared_rows: Any,
    worker: int,
    supervisor_pid: int | None = None,
    registry: ModelRegistry | None = None,
) -> None:
    """Serve requests until a signal arrives or the supervisor exits."""
    settings = plan.settings
    logger = JsonLogger(settings.log_level, worker)
    redirect_library_logs(logger)
    layout = MetricsLayout(ROUTES.metrics_labels, list(plan.folders))
    rows = None
    if shared_rows is not None:
        values = memoryview(shared_rows).cast("B").cast("d")
        rows = [values[begin : begin + layout.size] for begin in range(0, len(values), layout.size)]
    registry = ModelRegistry.open(plan.folders, settings, with_leases=True) if registry is None else registry
    metrics = ServerMetrics(layout, rows, worker)
    state = create_state(registry, settings, metrics=metrics, logger=logger)
    config = uvicorn.Config(
        application(state),
        http=connection_class(settings, state.limits, metrics),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=max(1, round(settings.idle_timeout)),
        timeout_graceful_shutdown=max(1, round(settings.request_timeout)),
        backlog=BACKLOG,
    )
    server = DrainingServer(config)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()

        def reload() -> None:
            task = loop.create_task(state.reloader.reload(force=True))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        loop.add_signal_handler(signal.SIGHUP, reload)
        if supervisor_pid is not None:
            tasks.add(loop.create_task(_stop_without_supervisor(server, supervisor_pid)))
        await server.serve(sockets=[listener])

    def stop(number: int, frame: Any) -> None:
        server.should_exit = True

    for number in _STOP_SIGNALS:
        # uvicorn handles these signals while it is running and raises them again afterwards. This handler is active
        # before and after that, so that no signal is lost and the process exits with status 0.
        signal.signal(number, stop)
    gc.collect()
    gc.freeze()  # the models are never freed; scanning them in every full collection would delay requests by 10 ms
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    finally:
        gc.unfreeze()


class DrainingServer(uvicorn.Server):
    """Server that accepts all established connections before it closes its listening socket."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Complete all requests, including those on connections that have not been accepted yet."""
        for listener in sockets or ():
            ignore_new_connections(listener)
        for _ in range(_ACCEPT_ROUNDS):  # several rounds, because the event loop may have been busy during the first
            await asyncio.sleep(_ACCEPT_SECONDS / _ACCEPT_ROUNDS)
        await super().shutdown(sockets)


async def _stop_without_supervisor(server: uvicorn.Server, supervisor_pid: int) -> None:
    """Stop the server when the parent process id changes, which means that the supervisor has exited."""
    while os.getppid() == supervisor_pid:
        await asyncio.sleep(0.1)
    server.should_exit = True


@contextlib.contextmanager
def _ignore_signals(*numbers: signal.Signals) -> Generator[None, None, None]:
    """Ignore signals in a context.

    Processes that are started in the context also ignore these signals until they install their own handlers.
    """
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class Supervisor:
    """Supervisor that starts the workers, restarts workers that exit, and forwards signals.

    Parameters
    ----------
    plan : WorkerPlan
    sockets : list of socket
        One listening socket per worker.
    logger : JsonLogger
    """

    def __init__(self, plan: WorkerPlan, sockets: list[socket.socket], logger: JsonLogger) -> None:
        self._context = multiprocessing.get_context("spawn")  # workers inherit no state from this process
        self._plan = plan
        self._sockets = sockets
        self._logger = logger
        layout = MetricsLayout(ROUTES.metrics_labels, list(plan.folders))
        self._shared_rows = self._context.RawArray("d", layout.size * len(sockets))
        self._workers: list[Any] = [None] * len(sockets)
        self._started = [0.0] * len(sockets)
        self._short_lives = [0] * len(sockets)
        self._restart_times = [0.0] * len(sockets)
        self._is_stopping = False

    def run(self) -> None:
        """Supervise the workers until a signal arrives, then wait for their pending requests to finish."""
        for number in _STOP_SIGNALS:
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_hangup)
        try:
            while not self._is_stopping:
                for worker, process in enumerate(self._workers):
                    if process is None or not process.is_alive():
                        self._restart(worker, process)
                time.sleep(0.2)
        finally:
            self._stop_workers()

    def _restart(self, worker: int, exited: Any) -> None:
        """Start a worker, or schedule its restart if it keeps failing.

        Raises InputError if the worker keeps failing and no other worker is running.
        """
        now = time.monotonic()
        if exited is not None:
            self._workers[worker] = None
            is_short = now - self._started[worker] < _SHORT_LIFE
            lives = self._short_lives[worker] = self._short_lives[worker] + 1 if is_short else 0
            delay = 0.0
            if lives >= _MAX_SHORT_LIVES:
                if not any(process is not None and process.is_alive() for process in self._workers):
                    raise InputError(
                        f"Worker {worker} exited {lives} times in a row within {_SHORT_LIFE:g} seconds of starting, "
                        "and no other worker is running. See the log for the cause."
                    )
                delay = min(_MAX_RESTART_DELAY, _SHORT_LIFE * 2 ** min(lives - _MAX_SHORT_LIVES, 10))
            self._restart_times[worker] = now + delay
            self._logger.log(
                "error", "worker exited, restarting", exited=worker, exit_code=exited.exitcode, delay_seconds=delay
            )
        if now >= self._restart_times[worker]:
            self._start(worker)

    def _start(self, worker: int) -> None:
        self._started[worker] = time.monotonic()
        process = self._context.Process(
            target=_run_worker,
            args=(self._plan, self._sockets[worker], self._shared_rows, worker, os.getpid()),
            name=f"carya-{worker}",
        )
        # Terminals send these signals to the whole process group, which would kill a worker that is still starting.
        with _ignore_signals(signal.SIGINT, signal.SIGHUP):
            process.start()
        self._workers[worker] = process

    def _on_stop(self, number: int, frame: Any) -> None:
        self._is_stopping = True

    def _on_hangup(self, number: int, frame: Any) -> None:
        for process in self._workers:
            if process is not None and process.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGHUP)

    def _stop_workers(self) -> None:
        for listener in self._sockets:
            ignore_new_connections(listener)
            listener.close()  # otherwise, clients could still connect after a worker has closed its copy of the socket
        for process in self._workers:
            if process is not None and process.is_alive():
                process.terminate()
        deadline = time.monotonic() + self._plan.settings.request_timeout + 5
        for process in self._workers:
            if process is not None:
                process.join(max(0.0, deadline - time.monotonic()))
                if process.is_alive():
                    process.kill()
                    process.join()
