"""What every request passes, whatever page it asks for: token, limits, errors, counters and the log."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import re
import secrets
import time
import traceback
from collections.abc import MutableMapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from carya.serve.http import thread_pool
from carya.serve.http.errors import BadRequest, Problem, TooLarge, TooMany, TooSlow, Unauthorized
from carya.serve.http.logging import Journal
from carya.serve.http.metrics import Counters, route_of
from carya.serve.settings import Settings

_FOR_EVERYBODY = ("/healthz", "/readyz", "/", "/docs", "/docs.js", "/docs.css", "/openapi.json")
_ALWAYS = ("/healthz", "/readyz", "/metrics")  # answered however much there is to do
_IDENTITY = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_PIECE = 256 << 10  # of an answer: a client that does not read holds up its own request, and no more memory
_LINGER = 1.0  # seconds for the rest of a refused body: a client that is still sending does not see an answer
_CLIENT_GONE = 499


class _InternalProblem(Problem):
    status = 500


def _path(scope: Scope) -> str:
    """The path as the pages know it, less that of the application that this one is mounted in, if it is in one."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and (path == root or path.startswith(f"{root}/")) else path


class Passage:
    """One request on its way through.

    Attributes
    ----------
    about : dict
        What pages say of a request, for the log.
    counted : bool
        Whether it is one of those that are being answered.
    """

    def __init__(self, gate: Gate, scope: Scope, receive: Receive, send: Send) -> None:
        self.about: dict[str, Any] = {}
        self.counted = False
        self.status = 0
        self.received = 0
        self.sent = 0
        self._gate = gate
        self._scope = scope
        self._receive = receive
        self._send = send
        self._whole = False
        self._until: float | None = None
        self._headers: list[tuple[bytes, bytes]] = []

    @classmethod
    def of(cls, request: Request) -> Passage:
        """That of a request."""
        passage: Passage = request.scope["carya.passage"]
        return passage

    def texts(self, texts: list[str], model: str) -> None:
        """Note what was asked for."""
        self._gate.counters.count("texts", len(texts))
        self.about |= {"model": model, "texts": len(texts)}
        if self._gate.settings.log_texts:
            self.about["said"] = texts

    async def receive(self) -> Message:
        """A piece of the body, within the limits."""
        settings = self._gate.settings
        if self._whole:
            return await self._receive()
        now = asyncio.get_running_loop().time()
        if self._until is None:
            self._until = now + settings.body_seconds
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise TooSlow(f"the body did not arrive within {settings.body_seconds:g} seconds") from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        size = len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        self.received += size
        self._gate.held += size
        if self.received > settings.max_body:
            raise TooLarge(f"the body has more than {settings.max_body} bytes, which is the most there may be")
        if self._gate.held > settings.max_held:
            raise TooMany("the server holds as many bytes of requests and answers as it may")
        return message

    async def send(self, message: Message) -> None:
        """Send a piece of the answer; long ones in pieces."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
            await self._send(message)
            return
        body = message.get("body", b"")
        self.sent += len(body)
        if len(body) <= _PIECE:
            await self._send(message)
            return
        self._gate.held += len(body)
        try:
            for begin in range(0, len(body), _PIECE):
                piece = body[begin : begin + _PIECE]
                more = message.get("more_body", False) or begin + _PIECE < len(body)
                await self._send({"type": "http.response.body", "body": piece, "more_body": more})
        finally:
            self._gate.held -= len(body)

    def add_header(self, name: bytes, value: bytes) -> None:
        """Add a header to the answer."""
        self._headers.append((name, value))

    async def refuse(self, problem: Problem) -> None:
        """Answer with a problem."""
        if self.status:  # the answer had begun: all that can be done is to end it
            return
        if not await self._rest_of_body():
            self.add_header(b"connection", b"close")
        await problem.response()(self._scope, self._receive, self.send)

    async def _rest_of_body(self) -> bool:
        """Let go what is left of the body, for a while; whether that was all."""
        if not self.received and (b"expect", b"100-continue") in self._scope["headers"]:
            return False  # nothing is sent yet: to wait for it would be to ask for it
        try:
            async with asyncio.timeout(_LINGER):
                while not self._whole:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        return False
                    self._whole = not message.get("more_body", False)
        except TimeoutError:
            return False
        return True


class Gate:
    """An application that is asked only within the limits, and whose errors tell no secrets.

    Parameters
    ----------
    app : ASGI application
    settings : Settings
    counters : Counters
    journal : Journal
    """

    def __init__(self, app: ASGIApp, settings: Settings, counters: Counters, journal: Journal) -> None:
        self.settings = settings
        self.counters = counters
        self.journal = journal
        self.held = 0
        self._app = app
        self._begun = 0
        self._pool = thread_pool.Pool(settings)
        self._started = secrets.token_hex(4)  # with a number behind it, what a request is called in the log
        self._numbers = itertools.count(1)
        self._tokens = [token.encode() for token in settings.tokens or ()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            if scope["type"] == "lifespan":
                self._pool.close()
            return
        thread_pool.CURRENT.set(self._pool)
        started = time.perf_counter()
        passage = Passage(self, scope, receive, send)
        scope["carya.passage"] = passage
        try:
            await self._pass(scope, passage)
        finally:
            self.held -= passage.received
            self._begun -= passage.counted
            seconds = time.perf_counter() - started
            self._tell(scope, passage, seconds)

    async def _pass(self, scope: Scope, passage: Passage) -> None:
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        identity = given if _IDENTITY.fullmatch(given) else f"{self._started}-{next(self._numbers):x}".encode()
        passage.about["id"] = identity.decode()
        passage.add_header(b"x-request-id", identity)
        passage.add_header(b"x-content-type-options", b"nosniff")
        try:
            self._check(scope, headers)
            passage.counted = True  # only now: whoever is refused takes no place of those who are not
            self._begun += 1
            self.counters.gauge("requests_in_progress", self._begun)
            await self._app(scope, passage.receive, passage.send)
        except Problem as problem:
            await passage.refuse(problem)
        except ClientDisconnect:
            passage.status = passage.status or _CLIENT_GONE
        except Exception as error:
            self.journal.write(
                "error", "fault", id=identity.decode(), error=repr(error), trace=traceback.format_exc(limit=20)
            )
            await passage.refuse(
                _InternalProblem("the server failed to answer; its log says why, under the request's id")
            )

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        path = _path(scope)
        if self._tokens and path not in _FOR_EVERYBODY and not path.startswith("/page/"):
            kind, _, token = headers.get(b"authorization", b"").partition(b" ")
            secret = token.strip()
            known = [hmac.compare_digest(secret, one) for one in self._tokens]  # all, whichever it is: takes as long
            if kind.lower() != b"bearer" or not any(known):
                raise Unauthorized
        if self._begun >= self.settings.max_requests and path not in _ALWAYS:
            raise TooMany(f"{self.settings.max_requests} requests are being answered, which is the most there may be")
        length = headers.get(b"content-length")
        if length is not None:
            if not length.isdigit():
                raise BadRequest(f"Content-Length is {length[:20].decode('latin-1')!r}; it must be a whole number")
            if len(length) > 18 or int(length) > self.settings.max_body:
                raise TooLarge(f"the body has more than {self.settings.max_body} bytes, which is the most there may be")

    def _tell(self, scope: Scope, passage: Passage, seconds: float) -> None:
        route = route_of(_path(scope))
        status = passage.status or 500
        self.counters.request(route, status, seconds)
        self.counters.gauge("requests_in_progress", self._begun)
        self.counters.gauge("waiting", self._pool.begun)
        self.counters.gauge("held_bytes", self.held)
        level = "error" if status == 500 else "info"
        if not self.journal.wants(level):
            return
        client = scope.get("client")
        line: MutableMapping[str, Any] = {
            "method": scope["method"],
            "path": scope["path"][:200],
            "status": status,
            "ms": round(seconds * 1000, 3),
            "bytes_in": passage.received,
            "bytes_out": passage.sent,
            "client": client[0] if client else None,
            **passage.about,
        }
        self.journal.write(level, "request", **line)
