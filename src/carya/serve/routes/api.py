"""The JSON API: /v1/suggest, /v1/explain, /v1/model, /v1/labels, and how the server does."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from carya.serve import service
from carya.serve.http import thread_pool
from carya.serve.http.errors import BadRequest, WrongType
from carya.serve.http.metrics import Counters
from carya.serve.http.middleware import Passage
from carya.serve.registry import Loaded, Registry
from carya.serve.routes.schemas import ExplainRequest, Health, SuggestRequest, SuggestResponse
from carya.serve.settings import Settings

T = TypeVar("T")


def routes(registry: Registry, settings: Settings, counters: Counters) -> list[BaseRoute]:
    """The pages of the API."""

    async def suggest(request: Request) -> Response:
        asked = await message(request, SuggestRequest)
        return await suggested(request, registry.get(asked.model), asked, settings)

    async def explain(request: Request) -> Response:
        asked = await message(request, ExplainRequest)
        service.check_texts([asked.text], settings)
        loaded = registry.get(asked.model)
        Passage.of(request).texts([asked.text], loaded.name)
        return await answered(service.explain, loaded, asked)

    async def model(request: Request) -> Response:
        return answer(service.about(registry, registry.get(request.query_params.get("model")), settings))

    async def labels(request: Request) -> Response:
        asked = request.query_params
        loaded = registry.get(asked.get("model"))
        limit = whole(asked.get("limit"), "limit", 20, least=1, most=1000)
        return await answered(service.labels, loaded, asked.get("q", ""), limit)

    async def healthz(request: Request) -> Response:
        return answer(Health("ok"))

    async def readyz(request: Request) -> Response:
        registry.get()  # there is a model, or the server had not started
        return answer(Health("ready"))

    async def metrics(request: Request) -> Response:
        models = [(name, registry.get(name).version) for name in registry.names()]
        return PlainTextResponse(counters.text(models), media_type="text/plain; version=0.0.4")

    return [
        Route("/v1/suggest", suggest, methods=["POST"]),
        Route("/v1/explain", explain, methods=["POST"]),
        Route("/v1/model", model),
        Route("/v1/labels", labels),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", metrics),
    ]


def _as_it_is(said: SuggestResponse) -> Any:
    return said


async def suggested(
    request: Request,
    loaded: Loaded,
    asked: SuggestRequest,
    settings: Settings,
    shape: Callable[[SuggestResponse], Any] = _as_it_is,
) -> Response:
    """The rankings that a request asks for, in some shape; short ones at once, long ones by a thread.

    Handing a text to a thread and taking its answer back costs more than to rank it, and gathering texts of several
    requests gains nothing over ranking each as it comes (docs/serve.md has the figures).
    """
    texts = service.checked(asked, settings)
    Passage.of(request).texts(texts, loaded.name)
    if service.is_short(loaded, asked, texts):
        return answer(shape(service.suggest(loaded, asked, texts, settings)))
    return await answered(_shaped, shape, loaded, asked, texts, settings)


def _shaped(shape: Callable[[SuggestResponse], Any], *asked: Any) -> Any:
    return shape(service.suggest(*asked))


async def message(request: Request, kind: type[T]) -> T:
    """The message in a request's body; raises BadRequest or WrongType."""
    given = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if given != "application/json":
        raise WrongType(f"Content-Type is {given[:100]!r}; it must be application/json")
    body = await request.body()
    try:
        found: T = _decoder(kind).decode(body)  # type: ignore[arg-type]
        return found
    except msgspec.ValidationError as error:
        raise BadRequest(f"the body is not what it must be: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise BadRequest("the body is not what it must be: it is nested too deeply") from None


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def answer(said: Any) -> Response:
    """A message as JSON."""
    return Response(msgspec.json.encode(said), media_type="application/json")


async def answered(function: Callable[..., Any], *args: Any) -> Response:
    """What a function says, found and written as JSON by a thread."""
    return Response(await thread_pool.run(_written, function, *args), media_type="application/json")


def _written(function: Callable[..., Any], *args: Any) -> bytes:
    """JSON of what a function says.

    Writing does not let other threads run, and an answer may have 20 MB; so results are written one by one.
    """
    said = function(*args)
    results = said if isinstance(said, list) else getattr(said, "results", None)
    if not isinstance(results, list):
        return msgspec.json.encode(said)
    empty: Any = [] if results is said else msgspec.structs.replace(said, results=[])
    head, _, tail = msgspec.json.encode(empty).rpartition(b"[]")
    return b"%b[%b]%b" % (head, b",".join([msgspec.json.encode(one) for one in results]), tail)


def whole(given: str | None, name: str, default: int, *, least: int, most: int) -> int:
    """A whole number of a query string or form; raises BadRequest."""
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 10 and least <= int(given) <= most):
        raise BadRequest(f"{name} is {given[:100]!r}; it must be a whole number between {least} and {most}")
    return int(given)
