"""The JSON API: /v1/suggest, /v1/explain, /v1/model, /v1/labels, and how the server does."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from carya.serve import asking, work
from carya.serve.errors import BadRequest
from carya.serve.messages import ExplainRequest, Health, SuggestRequest
from carya.serve.registry import Registry
from carya.serve.settings import Settings

T = TypeVar("T")


def routes(registry: Registry, settings: Settings) -> list[BaseRoute]:
    """The pages of the API."""

    async def suggest(request: Request) -> Response:
        asked = decoded(await request.body(), SuggestRequest)
        return answer(await work.run(asking.suggest, registry.get(asked.model), asked, settings))

    async def explain(request: Request) -> Response:
        asked = decoded(await request.body(), ExplainRequest)
        return answer(await work.run(asking.explain, registry.get(asked.model), asked, settings))

    async def model(request: Request) -> Response:
        return answer(asking.about(registry, registry.get(request.query_params.get("model")), settings))

    async def labels(request: Request) -> Response:
        asked = request.query_params
        loaded = registry.get(asked.get("model"))
        return answer(await work.run(asking.labels, loaded, asked.get("q", ""), whole(asked.get("limit"), "limit", 20)))

    async def healthz(request: Request) -> Response:
        return answer(Health("ok"))

    return [
        Route("/v1/suggest", suggest, methods=["POST"]),
        Route("/v1/explain", explain, methods=["POST"]),
        Route("/v1/model", model),
        Route("/v1/labels", labels),
        Route("/healthz", healthz),
        Route("/readyz", healthz),
    ]


def answer(message: Any) -> Response:
    """A message as JSON."""
    return Response(msgspec.json.encode(message), media_type="application/json")


def decoded(body: bytes, kind: type[T]) -> T:
    """The message in a body; raises BadRequest."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not what it must be: {error}") from None


def whole(given: str | None, name: str, default: int, most: int = 1000) -> int:
    """A whole number of the query string; raises BadRequest."""
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 10 and 1 <= int(given) <= most):
        raise BadRequest(f"{name} is {given!r}; it must be a whole number between 1 and {most}")
    return int(given)
