"""Load on an HTTP server from a process of its own: raw requests over some connections, as fast as they are answered
or at a fixed rate.

    python benchmarks/load.py REQUESTS --port PORT --connections 16 --seconds 10 [--rate 1000]

REQUESTS is a file of whole HTTP requests, each behind its length in four bytes. Prints a line of JSON. At a fixed rate
the time of a request counts from when it should have been sent, so a server that stalls cannot hide it.
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

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def read_requests(path: Path) -> list[bytes]:
    data, found, at = path.read_bytes(), [], 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def write_requests(path: Path, requests: list[bytes]) -> None:
    path.write_bytes(b"".join(struct.pack("<I", len(one)) + one for one in requests))


class Client(asyncio.Protocol):
    """A connection that has one request under way."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.transport: Any = None
        self.buffer = bytearray()
        self.wanted = -1
        self.begun = 0.0
        self.busy = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def ask(self, request: bytes, begun: float) -> None:
        self.begun, self.busy = begun, True
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.wanted < 0:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            found = LENGTH.search(self.buffer, 0, end + 2)
            self.wanted = end + 4 + (int(found.group(1)) if found else 0)
        if len(self.buffer) < self.wanted:
            return
        status, size = self.buffer[9:12], len(self.buffer)
        self.buffer.clear()
        self.wanted, self.busy = -1, False
        self.load.answered(self, bytes(status), size)

    def connection_lost(self, error: Exception | None) -> None:
        self.load.lost(self)


class Load:
    """Requests, and what became of them."""

    def __init__(self, requests: list[bytes], rate: float | None, port: int) -> None:
        self.port = port
        self.loop = asyncio.get_running_loop()
        self.next: Iterator[bytes] = itertools.cycle(requests)
        self.rate = rate
        self.latencies: list[float] = []
        self.statuses: dict[str, int] = {}
        self.errors = 0
        self.bytes = 0
        self.running = True
        self.clients: list[Client] = []
        self.idle: deque[Client] = deque()
        self.due: deque[float] = deque()

    def answered(self, client: Client, status: bytes, size: int) -> None:
        self.latencies.append(time.perf_counter() - client.begun)
        self.statuses[status.decode()] = self.statuses.get(status.decode(), 0) + 1
        self.bytes += size
        if not self.running:
            return
        if self.rate is None:
            client.ask(next(self.next), time.perf_counter())
        elif self.due:
            client.ask(next(self.next), self.due.popleft())
        else:
            self.idle.append(client)

    def lost(self, client: Client) -> None:
        if client.busy:
            self.errors += 1
        elif client in self.idle:  # servers close connections that are not used; another takes its place
            self.idle.remove(client)
            self.opening = self.loop.create_task(self.open())

    async def open(self) -> None:
        _, client = await self.loop.create_connection(lambda: Client(self), "127.0.0.1", self.port)
        self.clients.append(client)
        self.idle.append(client)

    async def at_rate(self, until: float) -> None:
        begun = time.perf_counter()
        sent = 0
        while (now := time.perf_counter()) < until:
            while sent < (now - begun) * self.rate:
                when = begun + sent / self.rate
                sent += 1
                if self.idle:
                    self.idle.popleft().ask(next(self.next), when)
                else:
                    self.due.append(when)
            await asyncio.sleep(0.001)


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    load = Load(read_requests(arguments.requests), arguments.rate, arguments.port)
    for _ in range(arguments.connections):
        await load.open()
    begun = time.perf_counter()
    until = begun + arguments.seconds
    if arguments.rate is None:
        load.idle.clear()
        for client in load.clients:
            client.ask(next(load.next), time.perf_counter())
        await asyncio.sleep(arguments.seconds)
    else:
        await load.at_rate(until)
    load.running = False
    seconds = time.perf_counter() - begun
    done = len(load.latencies)
    await asyncio.sleep(min(2.0, arguments.seconds))
    load.idle.clear()
    for client in load.clients:
        client.busy = False
        client.transport.close()
    times = sorted(load.latencies)

    def percentile(share: float) -> float:
        return round(1000 * times[min(len(times) - 1, int(share * len(times)))], 3) if times else float("nan")

    return {
        "requests": done,
        "per_second": round(done / seconds, 1),
        "p50_ms": percentile(0.5),
        "p99_ms": percentile(0.99),
        "max_ms": percentile(1.0),
        "statuses": load.statuses,
        "errors": load.errors,
        "late": len(load.due),
        "mb_per_second": round(load.bytes / seconds / 1e6, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requests", type=Path)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float)
    arguments = parser.parse_args()
    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    print(json.dumps(asyncio.run(measure(arguments))))


if __name__ == "__main__":
    main()
