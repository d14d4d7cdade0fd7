"""What every request passes: the limits of the server, its errors, its log."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from carya.serve import work
from carya.serve.errors import Problem
from carya.serve.settings import Settings


class Gate:
    """An application that is asked only for what is within the limits."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._pool = work.Pool(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        work.CURRENT.set(self._pool)
        try:
            await self._app(scope, receive, send)
        except Problem as problem:
            await problem.response()(scope, receive, send)
