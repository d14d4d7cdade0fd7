"""The ASGI application: every page of the server behind one gate."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from carya.serve import api
from carya.serve.gate import Gate
from carya.serve.registry import Registry
from carya.serve.settings import Settings

PAGE = Path(__file__).parent / "page"


def create_app(models: Registry | Mapping[str, str | os.PathLike[str]], settings: Settings | None = None) -> ASGIApp:
    """An ASGI application that serves models.

    Parameters
    ----------
    models : mapping of str to path, or Registry
        Names and folders; the first is the default.
    settings : Settings, optional
    """
    settings = Settings() if settings is None else settings
    settings.check_parameters()
    registry = models if isinstance(models, Registry) else Registry.open(models)
    routes: list[BaseRoute] = [*api.routes(registry, settings), *_explorer(registry, settings)]
    return Gate(Router(routes), settings)


def _explorer(registry: Registry, settings: Settings) -> list[BaseRoute]:
    """The page, if this installation has one."""
    if not (PAGE / "index.html").is_file():
        return []
    found: list[BaseRoute] = []
    if importlib.util.find_spec("carya.serve.explorer") is not None:
        found += importlib.import_module("carya.serve.explorer").routes(registry, settings)

    async def index(request: Request) -> FileResponse:
        return FileResponse(PAGE / "index.html")

    return [*found, Route("/", index), Mount("/page", StaticFiles(directory=PAGE))]
