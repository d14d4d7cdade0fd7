"""Connections that cannot take a server's time or memory: uvicorn's HTTP/1.1 protocol with limits it does not have.

An application sees a request when its head is there, so what comes before is limited here: how many connections there
are, how long a head is and takes, how many requests come ahead of answers, and how long those may lie unread. A client
that has sent its request and closed its half of the connection still gets its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from carya.serve.http.errors import BadRequest, Problem, TooSlow, Unavailable
from carya.serve.http.metrics import Counters
from carya.serve.settings import Settings

_MOST_AHEAD = 100  # requests that a client sends without waiting for answers; those after are cut off
_LOOKS = 4  # looks at a connection in the time it may be idle
_NO_LINGER = struct.pack("ii", 1, 0)


class _TooManyAhead(Exception):  # noqa: N818 - stops the parser, and is seen by nobody
    pass


class _HeadTooLarge(Problem):
    status = 431


def protocol(settings: Settings, counters: Counters) -> type[HttpToolsProtocol]:
    """The protocol for connections of a server with some settings."""

    class Connection(_Connection):
        pass

    Connection.settings, Connection.counters = settings, counters
    return Connection


class _Connection(HttpToolsProtocol):
    settings: Settings
    counters: Counters

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_size: int | None = None  # None: no head has begun
        self._unparsed = 0
        self._problem: Problem | None = None
        self._running: Any = None
        self._look_task: asyncio.TimerHandle | None = None
        self._since: float | None = None  # when we began to wait for a head
        self._unread_since: float | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.counters.gauge("connections", len(self.connections))
        if len(self.connections) > self.settings.max_connections:
            self.counters.count("refused_connections")
            self._refuse(Unavailable(f"there are {self.settings.max_connections} connections, the most there may be"))
            return
        self._since = self.loop.time()
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._look_task is not None:
            self._look_task.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        for cycle in (self._running, *(waiting for waiting, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:  # uvicorn tells only the last one
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        self.counters.gauge("connections", len(self.connections))

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer a request that is whole, then close."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body or self.pipeline:
            return False
        cycle.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():  # refused, and still sending
            return
        super().data_received(data)
        if self._head_size is None:
            return
        before, self._unparsed = self._unparsed, self._unparsed + len(data)  # no end of a head yet: all of it is head,
        if before > self.settings.max_header:  # but the first of it, which may have come behind another request
            self._refuse(self._too_large())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_size = self._unparsed = 0
        self._since = self.loop.time()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._grow(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._grow(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        self._head_size = self._since = None
        if len(self.pipeline) >= _MOST_AHEAD:
            self._abort()  # no answer: it would stand where that of an earlier request should
            raise _TooManyAhead
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline and not self.transport.is_closing():
            self.flow.pause_reading()  # what has come is answered before more is read

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, or too much of it."""
        self._refuse(self._problem or BadRequest("this is not an HTTP/1.1 request"))

    def _grow(self, size: int) -> None:
        self._head_size = (self._head_size or 0) + size
        if self._head_size > self.settings.max_header:
            self._problem = self._too_large()
            raise self._problem  # through the parser, which ends in send_400_response

    def _too_large(self) -> Problem:
        return _HeadTooLarge(f"the head of the request has more than {self.settings.max_header} bytes")

    def _refuse(self, problem: Problem) -> None:
        if self.transport.is_closing():
            return
        response = problem.response()
        head = [f"HTTP/1.1 {problem.status} {problem.title}".encode(), b"connection: close"]
        head += [name + b": " + value for name, value in response.raw_headers]
        self.transport.write(b"\r\n".join(head) + b"\r\n\r\n" + bytes(response.body))
        self.transport.close()

    def _abort(self) -> None:
        """End the connection now, and tell the client.

        Closed in the ordinary way, the system would keep what the client does not read, for minutes, and let a client
        that is still sending wait with it.
        """
        with contextlib.suppress(OSError):
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.transport.abort()

    def _look_again(self) -> None:
        self._look_task = self.loop.call_later(self.settings.idle_seconds / _LOOKS, self._look)

    def _look(self) -> None:
        """Close a connection that waits for a head for too long, or for its client to read."""
        now = self.loop.time()
        unread = self.transport.get_write_buffer_size()
        if not unread:
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        elif now - self._unread_since >= self.settings.idle_seconds:
            self._abort()
            return
        if self._since is not None and self.flow.read_paused:
            self._since = now  # it is we who do not read the rest of the head
        if self._since is not None and now - self._since >= self.settings.idle_seconds:
            if unread:
                self._abort()  # to close would mean to wait until the client has read
                return
            if self._head_size is None:
                self.transport.close()
            else:
                self._refuse(
                    TooSlow(f"the head of the request took longer than {self.settings.idle_seconds:g} seconds")
                )
        self._look_again()
