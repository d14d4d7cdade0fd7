"""The ASGI application: every page of the server behind one gate."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from carya.serve.http.errors import NotAllowed, NotFound
from carya.serve.http.logging import Journal
from carya.serve.http.metrics import Counters, resident_bytes
from carya.serve.http.middleware import Gate
from carya.serve.registry import Loaded, Registry
from carya.serve.routes import annif, api, explorer, openapi
from carya.serve.settings import Settings

_LOOK_SECONDS = 5.0


def create_app(
    models: Registry | Mapping[str, str | os.PathLike[str]],
    settings: Settings | None = None,
    *,
    counters: Counters | None = None,
    journal: Journal | None = None,
) -> ASGIApp:
    """An ASGI application that serves models.

    Parameters
    ----------
    models : mapping of str to path, or Registry
        Names and folders; the first is the default.
    settings : Settings, optional
    counters : Counters, optional
        Shared by the workers of a server; otherwise its own.
    journal : Journal, optional
        Where the log goes; otherwise to standard error.

    Examples
    --------
    >>> import asyncio, tempfile, carya, httpx
    >>> async def ask(app, path, message):
    ...     async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://carya") as client:
    ...         return (await client.post(path, json=message)).json()
    >>> ranker = carya.TextRanker(carya.Tfidf(min_df=1)).fit(["a cat", "a dog"], [["pet"], ["pet", "barks"]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ranker.save(f"{folder}/pets")
    ...     app = create_app({"pets": f"{folder}/pets"}, Settings(log="error"))
    >>> asyncio.run(ask(app, "/v1/suggest", {"text": "a dog", "top_k": 1}))["results"][0]["suggestions"][0]["label"]
    'pet'
    """
    settings = Settings() if settings is None else settings
    settings.check_parameters()
    registry = models if isinstance(models, Registry) else Registry.open(models)
    counters = Counters() if counters is None else counters
    journal = Journal(settings.log) if journal is None else journal
    routes: list[BaseRoute] = [
        *api.routes(registry, settings, counters),
        *annif.routes(registry, settings),
        *openapi.routes(settings),
        *explorer.routes(registry, settings),
    ]

    @contextlib.asynccontextmanager
    async def watching(app: Any) -> AsyncIterator[None]:
        watcher = asyncio.create_task(watch(registry, settings.watch_seconds, counters, journal))
        try:
            yield
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher

    router = Router(routes, redirect_slashes=False, default=_nowhere, lifespan=watching)
    return Gate(_methods_as_problems(router), settings, counters, journal)


async def watch(registry: Registry, seconds: float, counters: Counters, journal: Journal) -> None:
    """Open new versions of models when they are there, unless `seconds` is 0; never ends."""
    while True:
        counters.gauge("resident_bytes", resident_bytes())  # other workers tell it too
        await asyncio.sleep(seconds or _LOOK_SECONDS)
        if seconds:
            await refresh(registry, counters, journal)


async def refresh(registry: Registry, counters: Counters, journal: Journal, *, anyway: bool = False) -> None:
    """Open new versions of models, or all `anyway`, and tell; whatever happens is told too, and raises nothing."""
    try:
        news = await asyncio.to_thread(registry.refresh, anyway=anyway)
    except Exception as error:  # as whoever watches must go on
        counters.count("reload_failures")
        journal.write("error", "reload failed, the old version stays", reason=f"{type(error).__name__}: {error}")
        return
    for one in news:
        if isinstance(one, Loaded):
            counters.count("reloads")
            journal.write("info", "reloaded", model=one.name, version=one.version)
        else:
            counters.count("reload_failures")
            journal.write("error", "reload failed, the old version stays", model=one.name, reason=one.reason)


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotFound("there is no such page; /docs shows those there are")


def _methods_as_problems(router: Router) -> ASGIApp:
    """A page asked with another method than it has is a problem like others; Starlette would answer in plain text."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["app"] = router  # then Starlette raises instead of answering
        try:
            await router(scope, receive, send)
        except HTTPException as error:
            if error.status_code != 405:
                raise NotFound("there is no such page; /docs shows those there are") from None
            allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
            raise NotAllowed(f"the method {scope['method']} is not one of {allowed}", {"Allow": allowed}) from None

    return app
