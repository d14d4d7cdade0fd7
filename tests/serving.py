"""Servers for tests: an application that is asked in this process, and `carya serve` as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

import carya
from test_text_ranker import TOPICS, corpus


def saved(place: Path, *, seed: int = 0, uri: str = "", **parameters: Any) -> carya.TextRanker:
    """A small model in a folder; topics have names, and ids that begin with `uri`."""
    texts, some = corpus(seed=seed)
    labels = [[uri + label for label in row] for row in some]
    names = {uri + topic: topic.title() for topic in TOPICS}
    model = carya.XRLinear(branching=4, max_leaf=6, n_jobs=1, **parameters)
    ranker = carya.TextRanker(carya.Tfidf(n_jobs=1), model).fit(texts, labels, names=names)
    ranker.save(place)
    return ranker


class Client:
    """Asks an application in this process."""

    def __init__(self, app: ASGIApp) -> None:
        self._runner = asyncio.Runner()
        transport = httpx.ASGITransport(app)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://carya.test")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()

    def get(self, path: str, **how: Any) -> httpx.Response:
        return self._runner.run(self._client.get(path, **how))

    def post(self, path: str, message: Any = None, **how: Any) -> httpx.Response:
        if message is not None:
            how["json"] = message
        return self._runner.run(self._client.post(path, **how))

    def run(self, made: Any) -> Any:
        return self._runner.run(made)

    def posts(self, path: str, messages: list[Any]) -> list[httpx.Response]:
        """All at once."""

        async def together() -> list[httpx.Response]:
            return await asyncio.gather(*(self._client.post(path, json=one) for one in messages))

        return self._runner.run(together())


class Server:
    """A server process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log
        self.port = 0

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def wait_for(self, event: str, seconds: float = 60, times: int = 1) -> dict[str, Any]:
        """The first line of the log about an event, when there are so many."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = [line for line in self.lines() if line["event"] == event]
            if len(found) >= times:
                return found[0]
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"no {event!r} in the log: {self.log.read_text()[-2000:]}")

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def say(self, data: bytes, *, close_half: bool = False, seconds: float = 20) -> bytes:
        """What is answered to some bytes until the connection ends, or one answer is whole."""
        with socket.create_connection(("127.0.0.1", self.port), seconds) as connection:
            with contextlib.suppress(ConnectionError, BrokenPipeError):
                connection.sendall(data)
                if close_half:
                    connection.shutdown(socket.SHUT_WR)
            return read_answer(connection)


def read_answer(connection: socket.socket) -> bytes:
    """One answer, or what came before the connection ended."""
    got = b""
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(65536):
            got += data
            head, separator, body = got.partition(b"\r\n\r\n")
            if separator and not head.startswith(b"HTTP/1.1 100"):
                lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if lengths and len(body) >= int(lengths[0].partition(b":")[2]):
                    break
    return got


@contextlib.contextmanager
def server(folder: Path, *arguments: str) -> Iterator[Server]:
    """`carya serve` on a free port, until the end of the block; it must end well."""
    log = folder / "serve.log"
    command = [sys.executable, "-c", "from carya.cli import main; main()", "serve", *arguments, "--port", "0"]
    with log.open("wb") as file:
        process = subprocess.Popen(command, stderr=file, stdout=subprocess.DEVNULL)
    running = Server(process, log)
    try:
        running.port = int(running.wait_for("listening")["url"].rstrip("/").rpartition(":")[2])
        httpx.get(running.url("/healthz"), timeout=60).raise_for_status()
        yield running
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()[-2000:]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
