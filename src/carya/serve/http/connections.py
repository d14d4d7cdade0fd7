"""Extend uvicorn's HTTP/1.1 protocol with limits on connections, request heads and unread responses.

An ASGI application receives a request only after its head is complete, so it cannot itself limit the number of
connections, the size of a head, the time taken to receive it, the number of pipelined requests, or the time for which
responses remain unread. A client that sends a complete request and then closes its side of the connection still
receives the response.

uvicorn accepts a protocol class (`Config(http=...)`), but has no public interface for extending its own class. The
subclass in this module uses attributes that can change in any release of uvicorn. Therefore, pyproject.toml pins the
version of uvicorn, and tests/test_serve_uvicorn.py checks that all of these attributes exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from carya.serve.http.errors import (
    BadRequestError,
    HeadersTooLargeError,
    HttpError,
    RequestTimeoutError,
    ServiceUnavailableError,
)
from carya.serve.http.metrics import ServerMetrics
from carya.serve.http.shared_limits import ServerLimits, client_key
from carya.serve.settings import ServerSettings

_MAX_PIPELINED = 100  # maximum number of queued requests per connection; if there are more, the connection is aborted
_CHECKS_PER_TIMEOUT = 4  # number of timeout checks per idle timeout
# When the server stops, idle connections are closed after this time. A client that is sending a request would not
# receive a response if its connection were closed immediately.
_DRAIN_SECONDS = 1.0
_LINGER_OFF = struct.pack("ii", 1, 0)


class _TooManyPipelinedError(Exception):
    """Raised in a parser callback to stop the parser; never propagated to the application."""


def connection_class(settings: ServerSettings, limits: ServerLimits, metrics: ServerMetrics) -> type[HttpToolsProtocol]:
    """Return a protocol class that enforces the limits of a worker."""
    attributes = {"settings": settings, "limits": limits, "metrics": metrics}
    return type("Connection", (LimitedConnection,), attributes)


class LimitedConnection(HttpToolsProtocol):
    """An HTTP/1.1 connection that enforces the limits of the server."""

    settings: ServerSettings
    limits: ServerLimits
    metrics: ServerMetrics

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes: int | None = None  # parsed bytes of the current head; None outside a head
        self._fed_bytes = 0  # bytes passed to the parser since the current head began
        self._error: HttpError | None = None
        self._running_cycle: Any = None
        self._check_timer: asyncio.TimerHandle | None = None
        self._waiting_since: float | None = None  # when the wait for a complete head began
        self._unread_since: float | None = None
        self._client_key = ""
        self._is_draining = False
        self._unread_bytes = 0  # size of the write buffer when writing was paused; counts toward max_buffered_bytes

    def connection_made(self, transport: Any) -> None:
        """Reject the connection if there are too many connections; otherwise, start checking it for timeouts."""
        super().connection_made(transport)
        self.metrics.set_gauge("connections", len(self.connections))
        self._client_key = client_key(self.client[0] if self.client else None)
        problem = self.limits.connections.problem(self._client_key)
        self.limits.connections.add(self._client_key)
        if problem is not None:
            self.metrics.increment("rejected_connections")
            self._reject(ServiceUnavailableError(problem))
            return
        self._waiting_since = self.loop.time()
        self._schedule_check()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify all requests that the connection was lost; uvicorn notifies only the last one."""
        if self._check_timer is not None:
            self._check_timer.cancel()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        for cycle in (self._running_cycle, *(queued for queued, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        self._set_unread_bytes(0)
        self.limits.connections.add(self._client_key, -1)
        self.metrics.set_gauge("connections", len(self.connections))

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection open for the response if the request is complete."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body or self.pipeline:
            return False
        cycle.keep_alive = False
        return True

    def data_received(self, data: bytes) -> None:
        """Parse data; reject a request head that is too long, even if the current header is incomplete."""
        if self.transport.is_closing():  # the connection was rejected, but the client is still sending
            return
        super().data_received(data)
        if self._head_bytes is None:
            return
        # The head is still incomplete, so all data received since it began belongs to it. The first block of data is
        # not counted because it may also contain the end of the previous request.
        counted, self._fed_bytes = self._fed_bytes, self._fed_bytes + len(data)
        if counted > self.settings.max_header_bytes:
            self._reject(self._head_too_large())

    def on_message_begin(self) -> None:
        """Start counting the bytes of a request head."""
        super().on_message_begin()
        self._head_bytes = self._fed_bytes = 0
        self._waiting_since = self.loop.time()

    def on_url(self, url: bytes) -> None:
        """Count the bytes of the URL."""
        super().on_url(url)
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count the bytes of a header."""
        super().on_header(name, value)
        self._count_head(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        """Start the request, or abort the connection if too many requests are pipelined."""
        self._head_bytes = self._waiting_since = None
        if len(self.pipeline) >= _MAX_PIPELINED:
            self._abort()  # no response is sent, because the client would attribute it to an earlier request
            raise _TooManyPipelinedError
        super().on_headers_complete()
        if self._is_draining:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """Process the pipelined requests before reading more data."""
        super().on_response_complete()
        if self.pipeline and not self.transport.is_closing():
            self.flow.pause_reading()

    def shutdown(self) -> None:
        """Complete the current request, or wait briefly for a request that the client may already have sent."""
        self._is_draining = True
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            self.loop.call_later(_DRAIN_SECONDS, self._close_if_idle)
        else:
            cycle.keep_alive = False

    def _close_if_idle(self) -> None:
        cycle = self.cycle
        if self._head_bytes is None and (cycle is None or cycle.response_complete):
            self.transport.close()

    def pause_writing(self) -> None:
        """Count response data that the client has not read yet toward the limit on buffered bytes."""
        self._set_unread_bytes(self.transport.get_write_buffer_size())
        super().pause_writing()

    def resume_writing(self) -> None:
        """Stop counting unread data."""
        self._set_unread_bytes(0)
        super().resume_writing()

    def _set_unread_bytes(self, size: int) -> None:
        self.limits.buffered_bytes.add(self._client_key, size - self._unread_bytes)
        self._unread_bytes = size

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running_cycle = cycle
        super()._start_asgi_task(cycle, app)

    def send_400_response(self, msg: str) -> None:
        """Send an error response for data that the parser rejected."""
        self._reject(self._error or BadRequestError("The data received is not a valid HTTP/1.1 request."))

    def _count_head(self, size: int) -> None:
        self._head_bytes = (self._head_bytes or 0) + size
        if self._head_bytes > self.settings.max_header_bytes:
            self._error = self._head_too_large()
            raise self._error  # stops the parser; uvicorn then calls send_400_response

    def _head_too_large(self) -> HttpError:
        return HeadersTooLargeError(
            f"The request line and headers exceed the limit of {self.settings.max_header_bytes} bytes."
        )

    def _reject(self, error: HttpError) -> None:
        if self.transport.is_closing():
            return
        response = error.response()
        head = [f"HTTP/1.1 {error.status} {error.title}".encode(), b"connection: close"]
        head += [name + b": " + value for name, value in response.raw_headers]
        self.transport.write(b"\r\n".join(head) + b"\r\n\r\n" + bytes(response.body))
        self.transport.close()

    def _abort(self) -> None:
        """Reset the connection.

        After an orderly close, the operating system would keep unread data for minutes, and a client that is still
        sending would not notice the close.
        """
        with contextlib.suppress(OSError):
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_OFF)
        self.transport.abort()

    def _schedule_check(self) -> None:
        self._check_timer = self.loop.call_later(self.settings.idle_timeout / _CHECKS_PER_TIMEOUT, self._check_timeouts)

    def _check_timeouts(self) -> None:
        """Close the connection if the client has not sent a complete head or has not read its responses in time."""
        timeout = self.settings.idle_timeout
        now = self.loop.time()
        unread = self.transport.get_write_buffer_size()
        if not unread:
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now
        elif now - self._unread_since >= timeout:
            self._abort()
            return
        if self._waiting_since is not None and self.flow.read_paused:
            self._waiting_since = now  # time during which the server has paused reading does not count
        if self._waiting_since is not None and now - self._waiting_since >= timeout:
            if unread:
                self._abort()  # an orderly close would wait until the client has read the response
                return
            if self._head_bytes is None:
                self.transport.close()
            else:
                self._reject(RequestTimeoutError(f"The request head was not received within {timeout:g} seconds."))
        self._schedule_check()
