"""Tests with attacks that try to exhaust shared server resources: buffers, connections, request slots or threads."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from carya.serve import service
from carya.serve.app import create_app
from carya.serve.settings import ServerSettings

from serving import Server, read_response, save_model, start_server

TEXT = "the telescope shows a planet and its moon"
LARGE = json.dumps({"texts": [TEXT] * 1024, "top_k": 100}).encode()
JSON = {"Content-Type": "application/json"}


def request(body: bytes, length: int | None = None) -> bytes:
    """Return a request for suggestions as bytes; `length` can exceed the body length to make the body incomplete."""
    lines = ["POST /v1/suggest HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(body) if length is None else length}", "", ""]
    return "\r\n".join(lines).encode() + body


def settled_memory(server: Server) -> int:
    """Wait until the server's memory usage has stopped growing for a second; return the peak memory usage."""
    maximum = server.resident_bytes()
    unchanged_since = time.monotonic()
    while time.monotonic() < unchanged_since + 1:
        memory = server.resident_bytes()
        if memory > maximum + (1 << 20):
            maximum, unchanged_since = memory, time.monotonic()
        time.sleep(0.05)
    return maximum


def test_unread_responses_count_toward_the_buffer_limit(tmp_path: Path) -> None:
    """Forty clients that do not read their 13 MB responses cannot make the server buffer 520 MB."""
    save_model(tmp_path / "m", uri="https://example.org/" + "x" * 150 + "/")
    limit = 32 << 20
    flags = ["--max-buffered-bytes", str(limit), "--idle-timeout", "60"]
    with start_server(tmp_path, str(tmp_path / "m"), *flags) as server:
        for _ in range(2):
            size = len(httpx.post(server.url("/v1/suggest"), content=LARGE, headers=JSON, timeout=60).content)
            assert 10_000_000 < size < limit / 2  # larger than the operating system's socket buffers
        before = settled_memory(server)
        with contextlib.ExitStack() as stack:
            connections = []
            for _ in range(40):
                connection = stack.enter_context(socket.socket())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.connect(("127.0.0.1", server.port))
                connection.settimeout(60)
                connection.sendall(request(LARGE))
                connections.append(connection)
            growth = settled_memory(server) - before
            assert growth < 3 * limit  # buffers up to the limit, plus the unencoded results of two requests
            with server.other_client() as other:
                assert other.post("/v1/suggest", json={"text": TEXT}).status_code == 200
                assert other.post("/v1/suggest", content=LARGE, headers=JSON).status_code == 200
            statuses = [connection.recv(64)[9:12] for connection in connections]
            assert set(statuses) == {b"200", b"429"}
            assert statuses.count(b"200") < 10


def test_incomplete_bodies_do_not_count_as_requests(tmp_path: Path) -> None:
    save_model(tmp_path / "m")
    flags = ["--max-requests", "8", "--max-client-share", "1", "--body-timeout", "60"]
    with start_server(tmp_path, str(tmp_path / "m"), *flags) as server, contextlib.ExitStack() as stack:
        for _ in range(64):
            stack.enter_context(server.connect()).sendall(request(b'{"text": ', length=100))
        deadline = time.monotonic() + 60
        while "carya_connections 65" not in httpx.get(server.url("/metrics")).text:
            assert time.monotonic() < deadline
        for _ in range(20):
            assert httpx.post(server.url("/v1/suggest"), json={"text": TEXT}).status_code == 200


def test_idle_connections_of_one_client_do_not_block_others(tmp_path: Path) -> None:
    save_model(tmp_path / "m")
    flags = ["--max-connections", "40", "--idle-timeout", "60"]
    with start_server(tmp_path, str(tmp_path / "m"), *flags) as server:
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(server.connect()) for _ in range(60)]
            with server.other_client() as other:
                for _ in range(20):
                    assert other.post("/v1/suggest", json={"text": TEXT}).status_code == 200
            rejected = read_response(connections[-1])
            assert rejected.startswith(b"HTTP/1.1 503")
            assert b"The client has reached its limit of 20 connections." in rejected
        deadline = time.monotonic() + 60
        while httpx.get(server.url("/healthz")).status_code != 200:  # wait until the connections are closed
            assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"threads": 1, "max_queued": 3}, "The client has reached its limit of 2 running and queued requests."),
        ({"max_requests": 4}, "The client has reached its limit of 2 concurrent requests."),
    ],
)
def test_requests_of_one_client_do_not_block_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], problem: str
) -> None:
    save_model(tmp_path / "m")
    finish = threading.Event()
    suggest = service.suggest

    def suggest_slowly(*args: Any) -> Any:
        assert finish.wait(60)
        return suggest(*args)

    monkeypatch.setattr(service, "suggest", suggest_slowly)
    monkeypatch.setattr(service, "is_short", lambda *_: False)
    app = create_app({"m": tmp_path / "m"}, ServerSettings(log_level="error", **settings))

    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            attacker, other = [
                await stack.enter_async_context(
                    httpx.AsyncClient(transport=httpx.ASGITransport(app, client=(address, 1)), base_url="http://m")
                )
                for address in ("10.0.0.1", "10.0.0.2")
            ]
            tasks = [asyncio.create_task(attacker.post("/v1/suggest", json={"text": TEXT})) for _ in range(6)]
            await asyncio.wait(tasks[2:])
            assert [task.done() for task in tasks] == [False] * 2 + [True] * 4
            assert all(task.result().status_code == 429 for task in tasks[2:])
            assert tasks[2].result().json()["detail"] == problem
            task = asyncio.create_task(other.post("/v1/suggest", json={"text": TEXT}))
            await asyncio.sleep(0.1)
            finish.set()
            assert (await task).status_code == 200
            assert [(await task).status_code for task in tasks[:2]] == [200] * 2

    asyncio.run(asyncio.wait_for(run(), 60))
