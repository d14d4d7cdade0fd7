"""The explorer: a page to look at models, and what it asks for.

The page is plain files in ``page/``. It may load nothing but them and ask nobody but this server, which the browser
sees to (Content-Security-Policy); it works without any other network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from carya.errors import InputError
from carya.models.xr_linear.explanation import adds_up
from carya.serve import service
from carya.serve.http.errors import BadRequest, NotFound
from carya.serve.http.middleware import Passage
from carya.serve.registry import Loaded, Registry
from carya.serve.routes.api import answer, answered, message, whole
from carya.serve.settings import Settings
from carya.text.explore.explorer import Explorer, compare

PAGE = Path(__file__).parents[1] / "page" / "explorer"

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # the browser asks whether its copy is still the newest
}
_MOST_NODES = 1 << 30


class TextAsked(Struct, forbid_unknown_fields=True):
    """A text to follow through the tree."""

    text: str
    top_k: Annotated[int, Meta(ge=1)] = 12
    beam_width: Annotated[int, Meta(ge=1)] | None = None


class LabelAsked(Struct, forbid_unknown_fields=True):
    """A text, and a label to explain."""

    text: str
    label: str


@dataclass(frozen=True)
class TreeNote:
    """A label tree of a model: how many clusters each level has, and whether it says which words spoke for a label."""

    levels: tuple[int, ...]
    beam_width: int
    overlaps: bool
    explains: bool


@dataclass(frozen=True)
class ModelNote:
    """A model of the server, as the page shows it; it may have several trees, or none."""

    name: str
    kind: str
    labels: int
    terms: int
    texts: int | None
    trees: tuple[TreeNote, ...]
    calibrated: bool


def routes(registry: Registry, settings: Settings) -> list[BaseRoute]:
    """The page, and what it asks for."""
    explorers: WeakKeyDictionary[Loaded, Explorer] = WeakKeyDictionary()  # gone when a new version is loaded

    def explorer(loaded: Loaded) -> Explorer:
        found = explorers.get(loaded)
        if found is None:
            found = explorers[loaded] = Explorer(loaded.ranker)
        return found

    def model(request: Request, name: str = "model") -> Loaded:
        return registry.get(request.query_params.get(name))

    def number(request: Request, name: str) -> int:
        return whole(request.query_params.get(name), name, 0, least=0, most=_MOST_NODES)

    async def text_of(request: Request, loaded: Loaded) -> TextAsked:
        asked = await message(request, TextAsked)
        service.check_texts([asked.text], settings)
        for name, given, most in (
            ("top_k", asked.top_k, settings.max_top_k),
            ("beam_width", asked.beam_width, settings.max_beam_width),
        ):
            if given is not None and given > most:
                raise BadRequest(f"{name} is {given}; it must be at most {most}")
        Passage.of(request).texts([asked.text], loaded.name)
        return asked

    async def models(request: Request) -> Response:
        notes = [_note(registry.get(name)) for name in registry.names()]
        return answer({"default": registry.default, "models": notes})

    async def text(request: Request) -> Response:
        loaded, tree = model(request), number(request, "tree")
        asked = await text_of(request, loaded)
        return await _answered(
            lambda: explorer(loaded).walk(asked.text, top_k=asked.top_k, beam_width=asked.beam_width, tree=tree)
        )

    async def compared(request: Request) -> Response:
        loaded, other = model(request), model(request, "other")
        asked = await text_of(request, loaded)
        return await _answered(lambda: compare(explorer(loaded), explorer(other), asked.text, top_k=asked.top_k))

    async def explain(request: Request) -> Response:
        loaded, tree = model(request), number(request, "tree")
        asked = await message(request, LabelAsked)
        service.check_texts([asked.text], settings)
        Passage.of(request).texts([asked.text], loaded.name)
        return await _answered(lambda: explorer(loaded).explain(asked.text, _known(loaded, asked.label), tree=tree))

    async def branch(request: Request) -> Response:
        loaded = model(request)
        level, node, begin, tree = (number(request, name) for name in ("level", "node", "begin", "tree"))
        return await _answered(lambda: explorer(loaded).branch(level, node, begin=begin, tree=tree))

    async def labels(request: Request) -> Response:
        loaded = model(request)
        return await _answered(lambda: explorer(loaded).frequent())

    async def label(request: Request) -> Response:
        loaded, wanted, tree = model(request), request.query_params.get("label", ""), number(request, "tree")
        return await _answered(lambda: explorer(loaded).label(_known(loaded, wanted), tree=tree))

    return [
        Route("/v1/explore/models", models),
        Route("/v1/explore/text", text, methods=["POST"]),
        Route("/v1/explore/compare", compared, methods=["POST"]),
        Route("/v1/explore/explain", explain, methods=["POST"]),
        Route("/v1/explore/tree", branch),
        Route("/v1/explore/labels", labels),
        Route("/v1/explore/label", label),
        Route("/", _file),
        Route("/page/{name}", _file),
    ]


async def _answered(function: Callable[[], Any]) -> Response:
    """What a function gives, found by a thread; what it refuses is a bad request."""

    def run() -> Any:
        try:
            return function()
        except InputError as error:
            raise BadRequest(str(error)) from None

    return await answered(run)


def _known(loaded: Loaded, label: str) -> str:
    """A label that the model has, by id or name; raises NotFound, and spends no time on what else was meant."""
    if label not in loaded.ranker.known():
        raise NotFound(f"there is no label {label[:100]!r}")
    return label


def _note(loaded: Loaded) -> ModelNote:
    ranker = loaded.ranker
    return ModelNote(
        name=loaded.name,
        kind=type(ranker.model_).__name__,
        labels=len(ranker.labels_),
        terms=int(ranker.vectorizer_.n_features_),
        texts=ranker.known().n_texts,
        trees=tuple(
            TreeNote(
                levels=one.tree_.level_sizes[1:-1],
                beam_width=one.beam_width,
                overlaps=one.tree_.leaf_labels is not None,
                explains=adds_up(one.layers_),
            )
            for one in ranker.trees_
        ),
        calibrated=ranker.calibration_ is not None,
    )


async def _file(request: Request) -> Response:
    """A file of the page; there are no others than those of the package."""
    name = request.path_params.get("name", "index.html")
    if name not in {file.name for file in PAGE.iterdir()}:
        raise NotFound("there is no such page; /docs shows those there are")
    content = (PAGE / name).read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = _HEADERS | {"ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=_TYPES.get(Path(name).suffix, "application/octet-stream"))
