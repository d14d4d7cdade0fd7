"""Send raw requests to an HTTP server over several connections, at maximum speed or at a fixed rate.

    python benchmarks/load.py REQUESTS --port PORT --connections 16 --seconds 10 [--rate 1000]

REQUESTS is a file of complete HTTP requests, each preceded by its length as a four-byte integer. The results are
printed as one line of JSON. At a fixed rate, the latency of a request is measured from its scheduled time, so it
includes the time that the request waited while the server was stalled.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import re
import struct
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def read_requests(path: Path) -> list[bytes]:
    data, requests, position = path.read_bytes(), [], 0
    while position < len(data):
        (size,) = struct.unpack_from("<I", data, position)
        requests.append(data[position + 4 : position + 4 + size])
        position += 4 + size
    return requests


def write_requests(path: Path, requests: list[bytes]) -> None:
    path.write_bytes(b"".join(struct.pack("<I", len(request)) + request for request in requests))


class Connection(asyncio.Protocol):
    """A connection with at most one pending request."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.transport: Any = None
        self.buffer = bytearray()
        self.response_size = -1  # unknown until all headers are received
        self.started = 0.0
        self.is_busy = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def send(self, request: bytes, started: float) -> None:
        self.started, self.is_busy = started, True
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.response_size < 0:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            length = CONTENT_LENGTH.search(self.buffer, 0, end + 2)
            self.response_size = end + 4 + (int(length.group(1)) if length else 0)
        if len(self.buffer) < self.response_size:
            return
        status, size = self.buffer[9:12], len(self.buffer)
        self.buffer.clear()
        self.response_size, self.is_busy = -1, False
        self.load.on_response(self, bytes(status), size)

    def connection_lost(self, error: Exception | None) -> None:
        self.load.on_disconnect(self)


class Load:
    """Connections, pending requests and measurements of one load test."""

    def __init__(self, requests: list[bytes], rate: float | None, port: int) -> None:
        self.port = port
        self.loop = asyncio.get_running_loop()
        self.requests: Iterator[bytes] = itertools.cycle(requests)
        self.rate = rate
        self.latencies: list[float] = []
        self.statuses: dict[str, int] = {}
        self.errors = 0
        self.received_bytes = 0
        self.is_running = True
        self.connections: list[Connection] = []
        self.idle: deque[Connection] = deque()
        self.overdue: deque[float] = deque()  # scheduled times of requests waiting for a connection

    def on_response(self, connection: Connection, status: bytes, size: int) -> None:
        self.latencies.append(time.perf_counter() - connection.started)
        self.statuses[status.decode()] = self.statuses.get(status.decode(), 0) + 1
        self.received_bytes += size
        if not self.is_running:
            return
        if self.rate is None:
            connection.send(next(self.requests), time.perf_counter())
        elif self.overdue:
            connection.send(next(self.requests), self.overdue.popleft())
        else:
            self.idle.append(connection)

    def on_disconnect(self, connection: Connection) -> None:
        if connection.is_busy:
            self.errors += 1
        elif connection in self.idle:  # replace connections that the server closes because they are idle
            self.idle.remove(connection)
            self.opening = self.loop.create_task(self.open_connection())

    async def open_connection(self) -> None:
        _, connection = await self.loop.create_connection(lambda: Connection(self), "127.0.0.1", self.port)
        self.connections.append(connection)
        self.idle.append(connection)

    async def send_at_rate(self, rate: float, deadline: float) -> None:
        begin = time.perf_counter()
        sent = 0
        while (now := time.perf_counter()) < deadline:
            while sent < (now - begin) * rate:
                scheduled = begin + sent / rate
                sent += 1
                if self.idle:
                    self.idle.popleft().send(next(self.requests), scheduled)
                else:
                    self.overdue.append(scheduled)
            await asyncio.sleep(0.001)


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    load = Load(read_requests(arguments.requests), arguments.rate, arguments.port)
    for _ in range(arguments.connections):
        await load.open_connection()
    begin = time.perf_counter()
    if arguments.rate is None:
        load.idle.clear()
        for connection in load.connections:
            connection.send(next(load.requests), time.perf_counter())
        await asyncio.sleep(arguments.seconds)
    else:
        await load.send_at_rate(arguments.rate, begin + arguments.seconds)
    load.is_running = False
    seconds = time.perf_counter() - begin
    completed = len(load.latencies)
    await asyncio.sleep(min(2.0, arguments.seconds))  # wait for pending responses
    load.idle.clear()
    for connection in load.connections:
        connection.is_busy = False
        connection.transport.close()
    latencies = sorted(load.latencies)

    def percentile(fraction: float) -> float:
        if not latencies:
            return float("nan")
        return round(1000 * latencies[min(len(latencies) - 1, int(fraction * len(latencies)))], 3)

    return {
        "requests": completed,
        "per_second": round(completed / seconds, 1),
        "p50_ms": percentile(0.5),
        "p99_ms": percentile(0.99),
        "max_ms": percentile(1.0),
        "statuses": load.statuses,
        "errors": load.errors,
        "late": len(load.overdue),
        "mb_per_second": round(load.received_bytes / seconds / 1e6, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requests", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float)
    arguments = parser.parse_args()
    loop_factory = None
    with contextlib.suppress(ImportError):
        import uvloop

        loop_factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        print(json.dumps(runner.run(measure(arguments))))


if __name__ == "__main__":
    main()
