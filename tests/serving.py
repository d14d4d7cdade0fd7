"""Helpers for server tests: a client for an in-process application, and `carya serve` in a separate process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

import carya
from carya.serve.http.metrics import MetricsLayout, ServerMetrics

from topics import TOPICS, corpus

CARYA = [sys.executable, "-c", "from carya.cli import main; main()"]


def run_carya(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the `carya` command and wait for it to exit."""
    return subprocess.run([*CARYA, *arguments], capture_output=True, text=True, check=False, timeout=120)


def save_model(folder: Path, *, seed: int = 0, uri: str = "", **parameters: Any) -> carya.TextRanker:
    """Train and save a small model whose label ids start with `uri`; only the labels for topics have names."""
    texts, labels = corpus(seed=seed)
    labels = [[uri + label for label in row] for row in labels]
    names = {uri + topic: topic.title() for topic in TOPICS}
    model = carya.XRLinear(branching=4, max_leaf_size=6, n_jobs=1, **parameters)
    ranker = carya.TextRanker(carya.Tfidf(n_jobs=1), model).fit(texts, labels, names=names)
    ranker.save(folder)
    return ranker


def new_metrics() -> ServerMetrics:
    """Return new metrics for a few routes."""
    return ServerMetrics(MetricsLayout(["/v1/suggest", "/v1/model", "/v1/labels", "/healthz", "/metrics"]))


class Client:
    """HTTP client for an in-process application."""

    def __init__(self, app: ASGIApp) -> None:
        self._runner = asyncio.Runner()
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://carya.test")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, message: Any = None, **options: Any) -> httpx.Response:
        if message is not None:
            options["json"] = message
        return self.request("POST", path, **options)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._runner.run(self.send(method, path, **options))

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request from a coroutine."""
        return await self._client.request(method, path, **options)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the client's event loop."""
        return self._runner.run(coroutine)

    def post_all(self, path: str, messages: list[Any]) -> list[httpx.Response]:
        """Send several requests concurrently."""

        async def send_all() -> list[httpx.Response]:
            return await asyncio.gather(*(self.send("POST", path, json=message) for message in messages))

        return self._runner.run(send_all())


class Server:
    """A running server process and its log."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log
        self.port = 0

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return the logged events, optionally only those with the given name."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if name in (None, line["event"])]

    def wait_for(self, event: str, timeout: float = 60, times: int = 1) -> dict[str, Any]:
        """Wait until an event has been logged `times` times; return its first occurrence."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            events = self.events(event)
            if len(events) >= times:
                return events[0]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"The event {event!r} was not logged. The log ends with: {self.log.read_text()[-2000:]}")

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def connect(self, timeout: float = 20, client: str = "127.0.0.1") -> socket.socket:
        """Open a connection to the server from a local address."""
        return socket.create_connection(("127.0.0.1", self.port), timeout, source_address=(client, 0))

    def other_client(self, address: str = "127.0.0.2") -> httpx.Client:
        """Return an HTTP client that connects from a different address."""
        transport = httpx.HTTPTransport(local_address=address)
        return httpx.Client(base_url=self.url(""), transport=transport, timeout=60)

    def resident_bytes(self) -> int:
        """Return the resident memory of the server process in bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096

    def send(self, data: bytes, *, close_half: bool = False) -> bytes:
        """Send bytes and return the response (see :func:`read_response`)."""
        with self.connect() as connection:
            with contextlib.suppress(ConnectionError, BrokenPipeError):
                connection.sendall(data)
                if close_half:
                    connection.shutdown(socket.SHUT_WR)
            return read_response(connection)


def read_response(connection: socket.socket) -> bytes:
    """Return one complete response, or else all bytes received before the connection was closed."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(65536):
            received += data
            head, separator, body = received.partition(b"\r\n\r\n")
            if separator and not head.startswith(b"HTTP/1.1 100"):
                lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if lengths and len(body) >= int(lengths[0].partition(b":")[2]):
                    break
    return received


@contextlib.contextmanager
def start_server(folder: Path, *arguments: str) -> Iterator[Server]:
    """Run `carya serve` on a free port for the duration of a `with` block; check that it exits with code 0."""
    log = folder / "serve.log"
    with log.open("wb") as file:
        process = subprocess.Popen([*CARYA, "serve", *arguments, "--port", "0"], stderr=file, stdout=subprocess.DEVNULL)
    server = Server(process, log)
    try:
        server.port = int(server.wait_for("listening")["url"].rstrip("/").rpartition(":")[2])
        httpx.get(server.url("/healthz"), timeout=60).raise_for_status()
        yield server
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()[-2000:]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def wait_for_two_workers(server: Server) -> None:
    """Wait until both workers have loaded the models; otherwise, a worker could load a new version when it starts."""
    for worker in ("0", "1"):
        deadline = time.monotonic() + 60
        has_started = re.compile(rf'carya_worker_start_time_seconds{{worker="{worker}"}} [1-9]')
        while not has_started.search(httpx.get(server.url("/metrics")).text):
            assert time.monotonic() < deadline
            time.sleep(0.1)
