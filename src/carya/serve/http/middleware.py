"""Middleware for all requests: authentication, limits, error responses, metrics and the request log."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import re
import secrets
import time
import traceback
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from carya.errors import PartUnavailableError
from carya.serve.http.compression import accepts_gzip, compress, is_compressible
from carya.serve.http.errors import (
    BadRequestError,
    ContentTooLargeError,
    HttpError,
    InternalServerError,
    MethodNotAllowedError,
    RequestTimeoutError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
    UnknownPathError,
)
from carya.serve.http.hosts import check_host
from carya.serve.http.logging import JsonLogger
from carya.serve.http.metrics import UNKNOWN_ROUTE, ServerMetrics
from carya.serve.http.shared_limits import ServerLimits, client_key
from carya.serve.routes.route import ApiRoute, RouteTable
from carya.serve.settings import ServerSettings

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
# Responses are sent in chunks of this size, so a slow client delays only its own request, and only one chunk at a time
# is passed to the send buffer.
_CHUNK_BYTES = 64 << 10
# Maximum time for receiving the rest of a rejected body. Many clients read the response only after sending the body.
_DRAIN_SECONDS = 1.0
# Minimum upload rate in bytes per second: an upload may take `body_timeout` plus its size divided by this rate.
_MIN_UPLOAD_RATE = 64 << 10
_CLIENT_DISCONNECTED = 499
_CONTEXT_KEY = "carya.context"


def relative_path(scope: Scope) -> str:
    """Return the path relative to the mount point if the application is mounted in another application."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and (path == root or path.startswith(f"{root}/")) else path


class RequestContext:
    """State of a request.

    Attributes
    ----------
    client : str
        The key under which the resource usage of the client is counted.
    log_fields : dict
        Fields that handlers add to the request's log line.
    model : str or None
        The name of the model that ranks the texts, if any.
    accepts_gzip : bool
        Whether the response can be compressed.
    status : int
        The status of the response; 0 before it is sent.
    received_bytes, sent_bytes : int
        The numbers of body bytes received and sent so far.
    """

    def __init__(
        self,
        middleware: RequestMiddleware,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        is_upload: bool = False,
    ) -> None:
        address = scope.get("client")
        self.client = client_key(address[0] if address else None)
        self.log_fields: dict[str, Any] = {}
        self.model: str | None = None
        self.accepts_gzip = False
        self.status = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self._middleware = middleware
        self._scope = scope
        self._receive = receive
        self._send = send
        self._is_counted = False
        self._is_upload = is_upload
        self._buffered_bytes = 0  # bytes received, or reserved for the response; count toward max_buffered_bytes
        self._reserved_bytes = 0  # the part of the buffered bytes that is reserved for the response
        self._is_body_complete = False
        self._body_deadline: float | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._start: Message | None = None

    @classmethod
    def of(cls, request: Request) -> RequestContext:
        """Return the context of a request."""
        context: RequestContext = request.scope[_CONTEXT_KEY]
        return context

    @classmethod
    def of_scope(cls, scope: Scope) -> RequestContext | None:
        """Return the context of an ASGI scope, or None if no request has been processed in it."""
        return scope.get(_CONTEXT_KEY)

    def record_texts(self, texts: list[str], model: str) -> None:
        """Record the number of texts in the metrics and the log, and the texts themselves if `log_texts` is set."""
        self.record_rows(len(texts), model)
        if self._middleware.settings.log_texts:
            self.log_fields["texts"] = texts

    def record_rows(self, count: int, model: str) -> None:
        """Record the number of texts or feature vectors in the metrics and the log."""
        self._middleware.metrics.increment("texts", count)
        self._middleware.metrics.count_model_texts(model, count)
        self.model = self.log_fields["model"] = model
        self.log_fields["n_texts"] = count

    def count(self) -> None:
        """Count the request as in progress."""
        self._is_counted = True
        self._middleware.count_request(self.client, 1)

    def reserve_response(self, size: int) -> None:
        """Reserve buffer space for a response before it is computed.

        Raises TooManyRequestsError if there is not enough space.

        Parameters
        ----------
        size : int
            The estimated size of the response in bytes. Small responses need no reservation.
        """
        if size <= _CHUNK_BYTES:
            return
        self._resize_reservation(min(size, self._middleware.limits.buffered_bytes.client_limit))

    def release(self) -> None:
        """Release the resources of the request when it is complete."""
        self._add_buffered(-self._buffered_bytes)
        if self._is_counted:
            self._middleware.count_request(self.client, -1)

    async def receive(self) -> Message:
        """Receive the next chunk of the body; raise HttpError if a limit is exceeded."""
        settings = self._middleware.settings
        if self._is_body_complete:
            return await self._receive()
        if self._body_deadline is None:
            self._body_deadline = asyncio.get_running_loop().time() + settings.body_timeout
        deadline = self._body_deadline + (self.received_bytes / _MIN_UPLOAD_RATE if self._is_upload else 0.0)
        try:
            async with asyncio.timeout_at(deadline):
                message = await self._receive()
        except TimeoutError:
            raise RequestTimeoutError(
                f"The request body was not received within {settings.body_timeout:g} seconds."
            ) from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        size = len(message.get("body", b""))
        self._is_body_complete = not message.get("more_body", False)
        self.received_bytes += size
        limit = self._middleware.max_body_bytes(is_upload=self._is_upload)
        if self.received_bytes > limit:
            raise _body_too_large(limit)
        if self._is_upload:  # the previous chunk has been written to a file
            self._add_buffered(-self._buffered_bytes)
        problem = self._middleware.limits.buffered_bytes.problem(self.client, size)
        if problem is not None:
            raise TooManyRequestsError(problem)
        self._add_buffered(size)
        if self._is_body_complete and not self._is_counted:
            self._middleware.check_requests(self.client)
            self.count()
        return message

    async def send(self, message: Message) -> None:
        """Send an ASGI message of the response; large bodies are sent in chunks.

        Raises TooManyRequestsError instead of starting a large response if there is not enough buffer space for it.
        """
        if message["type"] == "http.response.start":
            self._start = message
            return
        body = message.get("body", b"")
        if self._start is not None:
            if len(body) > _CHUNK_BYTES or self._reserved_bytes:
                self._resize_reservation(len(body))
            start, self._start = self._start, None
            minimum = self._middleware.settings.min_gzip_bytes
            if minimum and len(body) >= minimum and not message.get("more_body") and is_compressible(start):
                self.add_header(b"vary", b"accept-encoding")
                if self.accepts_gzip:
                    start, body = await compress(start, body)
                    message = {**message, "body": body}
            self.status = start["status"]
            await self._send({**start, "headers": [*start.get("headers", ()), *self._headers]})
        self.sent_bytes += len(body)
        if len(body) <= _CHUNK_BYTES:
            await self._send(message)
            return
        for begin in range(0, len(body), _CHUNK_BYTES):
            chunk = body[begin : begin + _CHUNK_BYTES]
            more_body = message.get("more_body", False) or begin + _CHUNK_BYTES < len(body)
            await self._send({"type": "http.response.body", "body": chunk, "more_body": more_body})

    def _resize_reservation(self, size: int) -> None:
        """Reserve a number of bytes for the response, replacing the previous reservation.

        A response that exceeds a limit on its own is allowed if no other buffers count toward this limit. Without this
        exception, the response could never be sent.
        """
        buffers = self._middleware.limits.buffered_bytes
        additional = size - self._reserved_bytes
        problem = buffers.problem(self.client, additional)
        if problem is not None and additional > 0:
            is_only_request = buffers.used_by(self.client) == self._buffered_bytes
            if not is_only_request or buffers.used > max(self._buffered_bytes, buffers.limit - additional):
                raise TooManyRequestsError(problem)
        self._reserved_bytes = size
        self._add_buffered(additional)

    def _add_buffered(self, size: int) -> None:
        self._buffered_bytes += size
        self._middleware.limits.buffered_bytes.add(self.client, size)

    def add_header(self, name: bytes, value: bytes) -> None:
        """Add a header to the response."""
        self._headers.append((name, value))

    async def send_error(self, error: HttpError) -> None:
        """Send an error response unless the response has already started."""
        if self.status:
            return
        self._start = None
        if not await self._drain_body():
            self.add_header(b"connection", b"close")
        await error.response()(self._scope, self._receive, self.send)

    async def _drain_body(self) -> bool:
        """Receive and discard the rest of the body for a short time; return whether all of it was received."""
        if not self.received_bytes and (b"expect", b"100-continue") in self._scope["headers"]:
            return False  # the client waits for 100 Continue, which a call to `_receive` would send
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                while not self._is_body_complete:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        return False
                    self._is_body_complete = not message.get("more_body", False)
        except TimeoutError:
            return False
        return True


class RequestMiddleware:
    """ASGI middleware that enforces the limits and converts exceptions to error responses.

    Parameters
    ----------
    app : ASGI application
    routes : RouteTable
    settings : ServerSettings
    limits : ServerLimits
    metrics : ServerMetrics
    logger : JsonLogger
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: RouteTable,
        settings: ServerSettings,
        limits: ServerLimits,
        metrics: ServerMetrics,
        logger: JsonLogger,
    ) -> None:
        self.settings = settings
        self.limits = limits
        self.metrics = metrics
        self._app = app
        self._routes = routes
        self._logger = logger
        self._id_prefix = secrets.token_hex(4)  # request ids consist of this prefix and a number
        self._id_numbers = itertools.count(1)
        self._host_names = settings.host_names
        self._tokens = [token.encode() for token in settings.tokens or ()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        route = self._routes.find(relative_path(scope))
        context = RequestContext(self, scope, receive, send, is_upload=route is not None and route.is_upload)
        scope[_CONTEXT_KEY] = context
        try:
            await self._process(scope, context, route)
        finally:
            context.release()
            self._record(scope, context, route, time.perf_counter() - started)

    async def _process(self, scope: Scope, context: RequestContext, route: ApiRoute | None) -> None:
        headers = dict(scope["headers"])
        request_id = headers.get(b"x-request-id", b"")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = f"{self._id_prefix}-{next(self._id_numbers):x}".encode()
        context.log_fields["id"] = request_id.decode()
        context.add_header(b"x-request-id", request_id)
        context.add_header(b"x-content-type-options", b"nosniff")
        context.accepts_gzip = accepts_gzip(headers.get(b"accept-encoding", b""))
        try:
            # HTTP/1.0 clients, such as the health checks of some load balancers, may omit the header.
            check_host(scope["headers"], self._host_names, is_required=scope.get("http_version") != "1.0")
            self._check(headers, route)
            if route is not None and route.request is not None:
                # The request is counted once its body has arrived, so that slow clients do not block others. If the
                # limit has already been reached, rejecting the request now avoids receiving the body.
                self.check_requests(context.client)
            else:
                if route is None or not route.is_always_answered:
                    self.check_requests(context.client)
                context.count()
            scope["app"] = self._app  # makes Starlette's router raise exceptions instead of sending plain text
            await self._app(scope, context.receive, context.send)
        except HttpError as error:
            await context.send_error(error)
        except HTTPException as error:
            await context.send_error(_convert_router_error(error, scope))
        except PartUnavailableError as error:
            self._logger.log(
                "error", "part unavailable", id=request_id.decode(), part=error.part, problems=error.problems
            )
            await context.send_error(ServiceUnavailableError(f"{error.part} of the model is not available."))
        except ClientDisconnect:
            context.status = context.status or _CLIENT_DISCONNECTED
        except Exception as error:
            self._logger.log(
                "error",
                "internal error",
                id=request_id.decode(),
                error=repr(error),
                traceback=traceback.format_exc(limit=20),
            )
            await context.send_error(
                InternalServerError("An internal error occurred. See the entry for this request id in the server log.")
            )

    def _check(self, headers: dict[bytes, bytes], route: ApiRoute | None) -> None:
        """Raise HttpError if the request must be rejected before its body is read."""
        if self._tokens and not (route is not None and route.is_public):
            scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
            # Compare the token with every accepted token, so that the time taken does not reveal which one matches.
            matches = [hmac.compare_digest(token.strip(), accepted) for accepted in self._tokens]
            if scheme.lower() != b"bearer" or not any(matches):
                raise UnauthorizedError
        length = headers.get(b"content-length")
        if length is not None:
            if not length.isdigit():
                raise BadRequestError(f"Content-Length must be an integer, got {length[:20].decode('latin-1')!r}.")
            limit = self.max_body_bytes(is_upload=route is not None and route.is_upload)
            if len(length) > 18 or int(length) > limit:
                raise _body_too_large(limit)

    def max_body_bytes(self, *, is_upload: bool) -> int:
        """Return the maximum size of a request body."""
        return self.settings.max_job_bytes if is_upload else self.settings.max_body_bytes

    def check_requests(self, client: str) -> None:
        """Raise TooManyRequestsError if a client cannot start another request."""
        problem = self.limits.requests.problem(client)
        if problem is not None:
            raise TooManyRequestsError(problem)

    def count_request(self, client: str, change: int) -> None:
        """Increase or decrease the number of requests in progress by 1."""
        self.limits.requests.add(client, change)
        self.metrics.set_gauge("requests_in_progress", self.limits.requests.used)

    def _record(self, scope: Scope, context: RequestContext, route: ApiRoute | None, seconds: float) -> None:
        """Update the metrics and log the request."""
        label = UNKNOWN_ROUTE if route is None else route.metrics_label or route.path
        status = context.status or 500
        self.metrics.observe_request(label, status, seconds)
        if context.model is not None:
            self.metrics.observe_model(context.model, status, seconds)
        self.metrics.set_gauge("thread_pool_requests", self.limits.jobs.used)
        self.metrics.set_gauge("buffered_bytes", self.limits.buffered_bytes.used)
        level = "error" if status == 500 else "info"
        if not self._logger.is_enabled(level):
            return
        client = scope.get("client")
        self._logger.log(
            level,
            "request",
            method=scope["method"],
            path=scope["path"][:200],
            status=status,
            ms=round(seconds * 1000, 3),
            bytes_in=context.received_bytes,
            bytes_out=context.sent_bytes,
            client=client[0] if client else None,
            **context.log_fields,
        )


def _convert_router_error(error: HTTPException, scope: Scope) -> HttpError:
    if error.status_code != 405:
        return UnknownPathError()
    allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
    return MethodNotAllowedError(f"Method {scope['method']} is not allowed. Use {allowed}.", {"Allow": allowed})


def _body_too_large(limit: int) -> ContentTooLargeError:
    return ContentTooLargeError(f"The request body exceeds the limit of {limit} bytes.")
