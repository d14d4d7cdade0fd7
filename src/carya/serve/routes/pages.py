"""Handlers for the web pages: the explorer, the API page, and the OpenAPI document.

The pages are static files in the package. Their Content-Security-Policy allows the browser to load only these files
and to send requests only to this server, so the pages work without any other network access.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from carya.serve.http.errors import UnknownPathError
from carya.serve.routes.parameters import Parameter
from carya.serve.state import ServerState

#: The folder that contains the files of the explorer page.
EXPLORER_FOLDER = Path(__file__).parents[1] / "page" / "explorer"

FILE_NAME = Parameter(name="name", description="Name of the file.", location="path", required=True)

_API_FOLDER = Path(__file__).parents[1] / "page" / "api"
_API_POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_EXPLORER_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # the browser revalidates its cached copy by ETag
}


async def explorer_page(state: ServerState, request: Request) -> Response:
    """Return the explorer page."""
    return _explorer_file(request, "index.html")


async def explorer_file(state: ServerState, request: Request) -> Response:
    """Return a script, style sheet or image for the explorer page."""
    return _explorer_file(request, request.path_params[FILE_NAME.name])


async def api_page(state: ServerState, request: Request) -> Response:
    """Return the API page, which displays the OpenAPI document."""
    return _api_file("docs.html")


async def api_script(state: ServerState, request: Request) -> Response:
    """Return the script for the API page."""
    return _api_file("docs.js")


async def api_style(state: ServerState, request: Request) -> Response:
    """Return the style sheet for the API page."""
    return _api_file("docs.css")


async def openapi_document(state: ServerState, request: Request) -> Response:
    """Return the OpenAPI document."""
    return Response(state.openapi, media_type="application/json")


def _explorer_file(request: Request, name: str) -> Response:
    if name not in {file.name for file in EXPLORER_FOLDER.iterdir()}:  # prevents access to files outside the folder
        raise UnknownPathError
    content = (EXPLORER_FOLDER / name).read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = _EXPLORER_HEADERS | {"ETag": tag}
    if request.headers.get("if-none-match", "").removeprefix("W/") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=_media_type(name))


def _api_file(name: str) -> Response:
    return Response(
        _read_api_file(name), media_type=_media_type(name), headers={"Content-Security-Policy": _API_POLICY}
    )


@cache
def _read_api_file(name: str) -> bytes:
    return (_API_FOLDER / name).read_bytes()


def _media_type(name: str) -> str:
    return _MEDIA_TYPES.get(Path(name).suffix, "application/octet-stream")
