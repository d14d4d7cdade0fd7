"""ASGI application: the router and its middleware."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from carya.serve.feedback import FeedbackStore
from carya.serve.http.errors import UnknownPathError
from carya.serve.http.logging import JsonLogger
from carya.serve.http.metrics import MetricsLayout, ServerMetrics, resident_bytes
from carya.serve.http.middleware import RequestMiddleware
from carya.serve.http.shared_limits import ServerLimits
from carya.serve.http.thread_pool import ThreadPool
from carya.serve.http.tracing import trace_requests
from carya.serve.jobs.folder import JobFolder
from carya.serve.jobs.runner import JobRunner
from carya.serve.projects import Project, read_projects
from carya.serve.registry import ModelRegistry
from carya.serve.reloading import ModelReloader
from carya.serve.routes.openapi import openapi_document
from carya.serve.routes.table import ROUTES
from carya.serve.settings import ServerSettings
from carya.serve.state import ServerState

_CHECK_SECONDS = 5.0  # time between file checks in workers that do not check for new models


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
        The logger; by default, a new one with the log level specified in `settings`.

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
    return application(create_state(models, settings, metrics=metrics, logger=logger))


def create_state(
    models: ModelRegistry | Mapping[str, str | os.PathLike[str]],
    settings: ServerSettings | None = None,
    *,
    metrics: ServerMetrics | None = None,
    logger: JsonLogger | None = None,
) -> ServerState:
    """Load the models and return the state of a worker; see :func:`create_app` for the parameters."""
    settings = ServerSettings() if settings is None else settings
    settings.check_parameters()
    registry = models if isinstance(models, ModelRegistry) else ModelRegistry.open(models, settings)
    metrics = ServerMetrics(MetricsLayout(ROUTES.metrics_labels, registry.all_names())) if metrics is None else metrics
    logger = JsonLogger(settings.log_level) if logger is None else logger
    limits = ServerLimits(settings)
    return ServerState(
        registry=registry,
        settings=settings,
        limits=limits,
        metrics=metrics,
        logger=logger,
        pool=ThreadPool(settings, limits.jobs),
        reloader=ModelReloader(registry, settings, metrics, logger),
        openapi=msgspec.json.encode(openapi_document(ROUTES, settings)),
        projects=annif_projects(registry.names(), settings),
        jobs=_job_runner(registry, settings, logger),
        feedback=feedback_store(settings),
    )


def job_folder(settings: ServerSettings) -> JobFolder | None:
    """Create and return the folder for batch jobs, or return None; raise InputError if it cannot be used."""
    if settings.jobs_folder is None:
        return None
    return JobFolder(Path(settings.jobs_folder), settings.max_jobs, settings.max_jobs_bytes)


def annif_projects(models: Collection[str], settings: ServerSettings) -> dict[str, Project]:
    """Return the Annif project of each model; raise InputError if the projects file is invalid."""
    path = None if settings.projects_file is None else Path(settings.projects_file)
    return read_projects(path, models, settings.language)


def _job_runner(registry: ModelRegistry, settings: ServerSettings, logger: JsonLogger) -> JobRunner | None:
    folder = job_folder(settings)
    return None if folder is None else JobRunner(folder, registry, settings, logger)


def feedback_store(settings: ServerSettings) -> FeedbackStore | None:
    """Open or create the feedback database; return None if feedback is disabled.

    Raises InputError if the database cannot be used.
    """
    if settings.feedback_file is None:
        return None
    return FeedbackStore(
        Path(settings.feedback_file), max_rows=settings.max_feedback, max_bytes=settings.max_feedback_bytes
    )


def application(state: ServerState) -> ASGIApp:
    """Return the ASGI application for the state of a worker."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        watcher = asyncio.create_task(watch_models(state))
        if state.jobs is not None:
            state.jobs.start()
        try:
            yield
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
            await state.reloader.close()
            if state.jobs is not None:
                await state.jobs.close()
            state.pool.close()

    router = Router(
        [Route(route.path, partial(route.handler, state), methods=[route.method]) for route in ROUTES],
        redirect_slashes=False,
        default=_raise_unknown_path,
        lifespan=lifespan,
    )
    app: ASGIApp = RequestMiddleware(router, ROUTES, state.settings, state.limits, state.metrics, state.logger)
    if state.settings.origins:
        app = CORSMiddleware(
            app,
            allow_origins=state.settings.origins,
            allow_methods=sorted({route.method for route in ROUTES}),
            allow_headers=["Authorization", "Content-Type", "X-Request-Id"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    if state.settings.trace_endpoint is not None:
        app = trace_requests(app, ROUTES, state.settings.trace_endpoint)
    return app


async def watch_models(state: ServerState) -> None:
    """Check the model files periodically until canceled; load new versions unless `reload_interval` is 0."""
    interval = state.settings.reload_interval
    while True:
        state.metrics.set_gauge("resident_bytes", resident_bytes())  # any worker may report this worker's value
        await asyncio.sleep(interval or _CHECK_SECONDS)
        state.registry.check_files()
        if interval:
            await state.reloader.reload()


async def _raise_unknown_path(scope: Scope, receive: Receive, send: Send) -> None:
    raise UnknownPathError
