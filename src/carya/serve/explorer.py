"""The explorer: a page to look at models, and what it asks for.

The page is plain files in ``page/``. It may load nothing but them and ask nobody but this server, which the browser
sees to (Content-Security-Policy); it works without any other network.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from carya.errors import InputError
from carya.serve import work
from carya.serve.errors import BadRequest, NotFound, TooLarge
from carya.serve.registry import Loaded, Registry
from carya.serve.settings import Settings
from carya.text.exploring import Explorer, compare

PAGE = Path(__file__).parent / "page"

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # the browser asks whether its copy is still the newest
}


class TextAsked(Struct, forbid_unknown_fields=True):
    """A text to follow through the tree."""

    text: str
    top_k: Annotated[int, Meta(ge=1)] = 12
    beam_width: Annotated[int, Meta(ge=1)] | None = None


class LabelAsked(Struct, forbid_unknown_fields=True):
    """A text and a label of it."""

    text: str
    label: str


@dataclass(frozen=True)
class ModelNote:
    """A model of the server, as the page shows it."""

    name: str
    labels: int
    terms: int
    texts: int | None
    levels: tuple[int, ...]
    beam_width: int
    calibrated: bool


def routes(registry: Registry, settings: Settings) -> list[BaseRoute]:
    """The page, and what it asks for."""
    explorers: WeakKeyDictionary[Loaded, Explorer] = WeakKeyDictionary()  # gone when a new version is loaded

    def explorer(name: str | None) -> Explorer:
        loaded = registry.get(name)
        found = explorers.get(loaded)
        if found is None:
            found = explorers[loaded] = Explorer(loaded.ranker)
        return found

    async def models(request: Request) -> Response:
        notes = [await work.run(_note, name, registry.get(name)) for name in registry.names()]
        return _answer({"default": registry.default, "models": notes})

    async def text(request: Request) -> Response:
        asked = await _body(request, TextAsked, settings)
        _within(asked.top_k, settings.max_top_k, "top_k")
        _within(asked.beam_width or 1, settings.max_beam_width, "beam_width")

        def walk(name: str | None) -> Any:
            return explorer(name).walk(asked.text, top_k=asked.top_k, beam_width=asked.beam_width)

        return _answer(await work.run(_refusing(walk), _model(request)))

    async def explain(request: Request) -> Response:
        asked = await _body(request, LabelAsked, settings)

        def why(name: str | None) -> Any:
            mine = explorer(name)
            return mine.explain(asked.text, _known(mine, asked.label))

        return _answer(await work.run(_refusing(why), _model(request)))

    async def compared(request: Request) -> Response:
        asked = await _body(request, TextAsked, settings)
        _within(asked.top_k, settings.max_top_k, "top_k")

        def both(name: str | None, other: str | None) -> Any:
            return compare(explorer(name), explorer(other), asked.text, top_k=asked.top_k)

        return _answer(await work.run(_refusing(both), _model(request), request.query_params.get("other")))

    async def tree(request: Request) -> Response:
        level, node, begin = (_number(request, name) for name in ("level", "node", "begin"))

        def branch(name: str | None) -> Any:
            return explorer(name).branch(level, node, begin=begin)

        return _answer(await work.run(_refusing(branch), _model(request)))

    async def label(request: Request) -> Response:
        wanted = request.query_params.get("label", "")

        def card(name: str | None) -> Any:
            mine = explorer(name)
            return mine.label(_known(mine, wanted))

        return _answer(await work.run(_refusing(card), _model(request)))

    return [
        Route("/v1/explore/models", models),
        Route("/v1/explore/text", text, methods=["POST"]),
        Route("/v1/explore/explain", explain, methods=["POST"]),
        Route("/v1/explore/compare", compared, methods=["POST"]),
        Route("/v1/explore/tree", tree),
        Route("/v1/explore/label", label),
        Route("/", _file),
        Route("/page/{name}", _file),
    ]


async def _file(request: Request) -> Response:
    """A file of the page; there are no others than those of the package."""
    name = request.path_params.get("name", "index.html")
    if name not in {file.name for file in PAGE.iterdir()}:
        raise NotFound(f"the page has no file {name!r}")
    path = PAGE / name
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = _HEADERS | {"ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=_TYPES.get(path.suffix, "application/octet-stream"))


def _note(name: str, loaded: Loaded) -> ModelNote:
    ranker = loaded.ranker
    return ModelNote(
        name=name,
        labels=len(ranker.labels_),
        terms=int(ranker.vectorizer_.n_features_),
        texts=ranker.known().n_texts,
        levels=ranker.model_.tree_.level_sizes[1:],
        beam_width=int(ranker.model_.beam_width),
        calibrated=ranker.calibration_ is not None,
    )


def _model(request: Request) -> str | None:
    return request.query_params.get("model")


def _answer(message: Any) -> Response:
    return Response(msgspec.json.encode(message), media_type="application/json")


async def _body(request: Request, kind: type[Any], settings: Settings) -> Any:
    try:
        asked = msgspec.json.decode(await request.body(), type=kind)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not what it must be: {error}") from None
    if len(asked.text) > settings.max_text_length:
        raise TooLarge(f"the text has {len(asked.text)} characters; it may have {settings.max_text_length}")
    return asked


def _within(value: int, most: int, name: str) -> None:
    if value > most:
        raise BadRequest(f"{name} is {value}; it must be at most {most}")


def _number(request: Request, name: str) -> int:
    given = request.query_params.get(name, "0")
    if not (given.isascii() and given.isdigit() and len(given) < 10):
        raise BadRequest(f"{name} is {given!r}; it must be a whole number of at least 0")
    return int(given)


def _known(explorer: Explorer, label: str) -> str:
    """A label that the model has, by id or name; raises NotFound."""
    try:
        explorer.ranker.known().number(label)
    except InputError as error:
        raise NotFound(str(error)) from None
    return label


def _refusing(function: Any) -> Any:
    """The same function; what it refuses is a bad request."""

    def run(*args: Any) -> Any:
        try:
            return function(*args)
        except InputError as error:
            raise BadRequest(str(error)) from None

    return run
