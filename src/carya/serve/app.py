"""ASGI application: the router and its middleware."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import msgspec
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from carya.serve.http.errors import UnknownPathError
from carya.serve.http.logging import JsonLogger
from carya.serve.http.metrics import MetricsLayout, ServerMetrics, resident_bytes
from carya.serve.http.middleware import RequestMiddleware
from carya.serve.http.thread_pool import ThreadPool
from carya.serve.registry import ModelRegistry, ServedModel
from carya.serve.routes.openapi import openapi_document
from carya.serve.routes.table import ROUTES
from carya.serve.settings import ServerSettings
from carya.serve.state import ServerState

_METRICS_SECONDS = 5.0  # time between updates of the memory gauge if the worker does not check for new models


def create_app(
    models: ModelRegistry | Mapping[str, str | os.PathLike[str]],
    settings: ServerSettings | None = None,
    *,
    metrics: ServerMetrics | None = None,
    logger: JsonLogger | None = None,
) -> ASGIApp:
    """Return an ASGI application that serves models.

    Parameters
    ----------
    models : mapping of str to path, or ModelRegistry
        Model folders by name; the first model is the default.
    settings : ServerSettings, optional
    metrics : ServerMetrics, optional
        Metrics shared with other workers; by default, metrics for this process only.
    logger : JsonLogger, optional
        By default, a logger with the log level specified in `settings`.

    Examples
    --------
    >>> import asyncio, tempfile, carya, httpx
    >>> async def post(app, path, message):
    ...     async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://carya") as client:
    ...         return (await client.post(path, json=message)).json()
    >>> ranker = carya.TextRanker(carya.Tfidf(min_df=1)).fit(["a cat", "a dog"], [["pet"], ["pet", "barks"]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ranker.save(f"{folder}/pets")
    ...     app = create_app({"pets": f"{folder}/pets"}, ServerSettings(log_level="error"))
    >>> asyncio.run(post(app, "/v1/suggest", {"text": "a dog", "top_k": 1}))["results"][0]["suggestions"][0]["label"]
    'pet'
    """
    settings = ServerSettings() if settings is None else settings
    settings.check_parameters()
    state = ServerState(
        registry=models if isinstance(models, ModelRegistry) else ModelRegistry.open(models),
        settings=settings,
        metrics=ServerMetrics(MetricsLayout(ROUTES.metrics_labels)) if metrics is None else metrics,
        pool=ThreadPool(settings),
        openapi=msgspec.json.encode(openapi_document(ROUTES, settings)),
    )
    logger = JsonLogger(settings.log_level) if logger is None else logger

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        watcher = asyncio.create_task(watch_models(state, logger))
        try:
            yield
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
            state.pool.close()

    router = Router(
        [Route(route.path, partial(route.handler, state), methods=[route.method]) for route in ROUTES],
        redirect_slashes=False,
        default=_raise_unknown_path,
        lifespan=lifespan,
    )
    return RequestMiddleware(router, ROUTES, settings, state.metrics, logger, state.pool)


async def watch_models(state: ServerState, logger: JsonLogger) -> None:
    """Load new model versions periodically until canceled, unless `reload_interval` is 0."""
    interval = state.settings.reload_interval
    while True:
        state.metrics.set_gauge("resident_bytes", resident_bytes())  # another worker may report the metrics
        await asyncio.sleep(interval or _METRICS_SECONDS)
        if interval:
            await reload_models(state.registry, state.metrics, logger)


async def reload_models(
    registry: ModelRegistry, metrics: ServerMetrics, logger: JsonLogger, *, force: bool = False
) -> None:
    """Load new model versions and log the results; failures are logged, never raised.

    Parameters
    ----------
    force : bool
        Whether to load all models, including models whose folders have not changed.
    """
    try:
        results = await asyncio.to_thread(registry.refresh, force=force)
    except Exception as error:  # no failure may stop the watcher
        metrics.increment("reload_failures")
        logger.log("error", "reload failed", reason=f"{type(error).__name__}: {error}")
        return
    for result in results:
        if isinstance(result, ServedModel):
            metrics.increment("reloads")
            logger.log("info", "model reloaded", model=result.name, version=result.version)
        else:
            metrics.increment("reload_failures")
            logger.log("error", "reload failed", model=result.name, reason=result.reason)


async def _raise_unknown_path(scope: Scope, receive: Receive, send: Send) -> None:
    raise UnknownPathError
