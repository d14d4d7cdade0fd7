"""A server as processes: workers that share the port, the mapped models and the counters, and one that watches them.

Every worker has a socket of its own on the same port, all of them held by the watching process too: connections that
came to a worker that stopped wait there for the one that takes its place.
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
from pathlib import Path
from typing import Any

import uvicorn

from carya.errors import InputError
from carya.serve.app import create_app, refresh
from carya.serve.http.connections import protocol
from carya.serve.http.logging import Journal, take_over
from carya.serve.http.metrics import WIDTH, Counters
from carya.serve.registry import Registry
from carya.serve.settings import Settings

_BACKLOG = 1024
_SHORT_LIFE = 5.0  # seconds of a worker; after some such lives in a row there is no use in starting another at once
_SHORT_LIVES = 5
_LONGEST_WAIT = 300.0


@dataclass(frozen=True)
class Plan:
    """What to serve, and how.

    Attributes
    ----------
    folders : mapping of str to Path
        Models by name, the first is the default.
    settings : dict
        Of :class:`Settings`.
    """

    folders: Mapping[str, Path]
    settings: dict[str, Any]


def serve(plan: Plan, *, host: str, port: int, workers: int) -> None:
    """Serve until SIGINT or SIGTERM; SIGHUP opens the models again at once."""
    settings = Settings(**plan.settings)
    settings.check_parameters()
    registry = Registry.open(plan.folders)  # what is wrong with a model should be said before anything is started
    sockets = _listen(host, port, workers)
    _allow_files(settings, workers)
    where = sockets[0].getsockname()
    shown = f"[{where[0]}]" if ":" in where[0] else where[0]
    journal = Journal(settings.log)
    about = {name: registry.get(name).version for name in registry.names()}
    journal.write("info", "listening", url=f"http://{shown}:{where[1]}/", models=about, workers=workers)
    if not settings.tokens and not _is_loopback(where[0]):
        journal.write("warning", "no token is asked for, and others can reach this address", address=where[0])
    if workers == 1:
        _work(plan, sockets[0], None, 0, registry=registry)
        return
    del registry
    _Watcher(plan, sockets, journal).run()


def _listen(host: str, port: int, count: int) -> list[socket.socket]:
    """A listening socket for each worker, all on one port."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:  # without sharing: fails if another server is there
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            address = probe.getsockname()
        sockets = []
        for _ in range(count):
            one = socket.socket(family, socket.SOCK_STREAM)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.bind(address)
            one.listen(_BACKLOG)
            one.setblocking(False)
            sockets.append(one)
    except OSError as error:
        raise InputError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from None
    return sockets


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")


def _allow_files(settings: Settings, workers: int) -> None:
    """Let the process have as many files open as it may have connections, if the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.max_connections + 256
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class _Server(uvicorn.Server):
    """A uvicorn server that ends quietly on signals, and looks for new models on SIGHUP."""

    hang_up: Any = None
    watcher: int | None = None

    async def on_tick(self, counter: int) -> bool:
        """Whether to end: also when nobody watches any more."""
        return (self.watcher not in (None, os.getppid())) or await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        loop.add_signal_handler(signal.SIGHUP, self._refresh)
        yield

    def _refresh(self) -> None:
        self._refreshing = asyncio.ensure_future(self.hang_up())


def _work(
    plan: Plan,
    listening: socket.socket,
    shared: Any,
    worker: int,
    watcher: int | None = None,
    registry: Registry | None = None,
) -> None:
    """Be a worker until told to stop."""
    settings = Settings(**plan.settings)
    journal = Journal(settings.log, worker)
    take_over(journal)
    rows = None
    if shared is not None:
        numbers = memoryview(shared).cast("B").cast("d")
        rows = [numbers[begin : begin + WIDTH] for begin in range(0, len(numbers), WIDTH)]
    registry = Registry.open(plan.folders) if registry is None else registry
    counters = Counters(rows, worker)
    app = create_app(registry, settings, counters=counters, journal=journal)
    config = uvicorn.Config(
        app,
        http=protocol(settings, counters),
        loop="uvloop",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=max(1, round(settings.idle_seconds)),
        timeout_graceful_shutdown=max(1, round(settings.request_seconds)),
        backlog=_BACKLOG,
    )
    server = _Server(config)
    server.hang_up = lambda: refresh(registry, counters, journal, anyway=True)
    server.watcher = watcher
    gc.collect()
    gc.freeze()  # what is here now stays: looking through it again and again would hold up requests for 10 ms each time
    try:
        server.run(sockets=[listening])
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def _ignored(*numbers: signal.Signals) -> Generator[None, None, None]:
    """Ignore signals, and so do processes that are started meanwhile, until they say otherwise."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Watcher:
    """Starts workers, starts those again that end, and passes signals on."""

    def __init__(self, plan: Plan, sockets: list[socket.socket], journal: Journal) -> None:
        self._context = multiprocessing.get_context("spawn")  # nothing of this process but what it is given
        self._plan = plan
        self._sockets = sockets
        self._journal = journal
        self._shared = self._context.RawArray("d", WIDTH * len(sockets))
        self._workers: list[Any] = [None] * len(sockets)
        self._started = [0.0] * len(sockets)
        self._short_lives = [0] * len(sockets)
        self._due = [0.0] * len(sockets)
        self._stopping = False

    def run(self) -> None:
        """Watch until told to stop, then wait for what workers have begun."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._pass_on)
        try:
            while not self._stopping:
                for worker, process in enumerate(self._workers):
                    if process is None or not process.is_alive():
                        self._replace(worker, process)
                time.sleep(0.2)
        finally:
            self._end()

    def _replace(self, worker: int, before: Any) -> None:
        """Start a worker when it is time to; raises InputError if none is left and they end as soon as they begin."""
        now = time.monotonic()
        if before is not None:
            self._workers[worker] = None
            short = now - self._started[worker] < _SHORT_LIFE
            lives = self._short_lives[worker] = self._short_lives[worker] + 1 if short else 0
            wait = 0.0
            if lives >= _SHORT_LIVES:  # others that are well go on meanwhile
                if not any(one is not None and one.is_alive() for one in self._workers):
                    raise InputError(
                        f"worker {worker} ended {lives} times within {_SHORT_LIFE:g} seconds, and no other is left"
                    )
                wait = min(_LONGEST_WAIT, _SHORT_LIFE * 2 ** min(lives - _SHORT_LIVES, 10))
            self._due[worker] = now + wait
            self._journal.write(
                "error", "a worker ended and is started again", ended=worker, code=before.exitcode, in_seconds=wait
            )
        if now >= self._due[worker]:
            self._start(worker)

    def _start(self, worker: int) -> None:
        self._started[worker] = time.monotonic()
        process = self._context.Process(
            target=_work,
            args=(self._plan, self._sockets[worker], self._shared, worker, os.getpid()),
            name=f"carya-{worker}",
        )
        with _ignored(
            signal.SIGINT, signal.SIGHUP
        ):  # they come to all processes; a worker that begins would die of them
            process.start()
        self._workers[worker] = process

    def _stop(self, number: int, frame: Any) -> None:
        self._stopping = True

    def _pass_on(self, number: int, frame: Any) -> None:
        for process in self._workers:
            if process is not None and process.is_alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGHUP)

    def _end(self) -> None:
        for process in self._workers:
            if process is not None and process.is_alive():
                process.terminate()
        until = time.monotonic() + Settings(**self._plan.settings).request_seconds + 5
        for process in self._workers:
            if process is not None:
                process.join(max(0.0, until - time.monotonic()))
                if process.is_alive():
                    process.kill()
                    process.join()
