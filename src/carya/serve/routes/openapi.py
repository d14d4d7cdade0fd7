"""The OpenAPI document, made from the messages, and a page that shows it without anything from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from carya.core.version import __version__
from carya.serve.routes import schemas
from carya.serve.settings import Settings

_PAGES = Path(__file__).parents[1] / "page" / "api"
_POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_STRUCTS = [kind for kind in vars(schemas).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]
_STRUCTS.remove(msgspec.Struct)


def routes(settings: Settings) -> list[BaseRoute]:
    """The document and its page."""
    made = msgspec.json.encode(document(settings))

    async def openapi(request: Request) -> Response:
        return Response(made, media_type="application/json")

    return [
        Route("/openapi.json", openapi),
        Route("/docs", page),
        Route("/docs.js", _file("docs.js", "text/javascript")),
        Route("/docs.css", _file("docs.css", "text/css")),
    ]


async def page(request: Request) -> Response:
    """The page that shows the document."""
    shown = (_PAGES / "docs.html").read_bytes()
    return Response(shown, media_type="text/html", headers={"Content-Security-Policy": _POLICY})


def _file(name: str, kind: str) -> Any:
    content = (_PAGES / name).read_bytes()

    async def give(request: Request) -> Response:
        return Response(content, media_type=kind)

    return give


def document(settings: Settings) -> dict[str, Any]:
    """The OpenAPI 3.1 document of a server with some settings.

    >>> made = document(Settings())
    >>> made["openapi"], sorted(made["paths"])[:2]
    ('3.1.0', ['/healthz', '/metrics'])
    """
    _, components = msgspec.json.schema_components(_STRUCTS, ref_template="#/components/schemas/{name}")
    _limit(components, settings)
    secured = bool(settings.tokens)
    about: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Carya",
            "version": __version__,
            "summary": "Ranks labels for texts, and says why.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": _paths(settings),
        "components": {"schemas": components},
    }
    if secured:
        about["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        about["security"] = [{"token": []}]
    return about


def _limit(components: dict[str, Any], settings: Settings) -> None:
    """Write this server's limits into the schemas."""
    fields = components["SuggestRequest"]["properties"]
    components["SuggestRequest"]["oneOf"] = [{"required": ["text"]}, {"required": ["texts"]}]
    fields["top_k"]["maximum"] = settings.max_top_k
    fields["texts"]["maxItems"] = settings.max_texts
    for one in fields["beam_width"]["anyOf"]:
        if one.get("type") != "null":
            one["maximum"] = settings.max_beam_width
    form = components["AnnifForm"]["properties"]
    form["limit"]["maximum"] = settings.max_top_k
    form["language"] = {"type": "string", "enum": [settings.language], "description": "Of the names of labels."}
    components["AnnifBatch"]["properties"]["documents"]["maxItems"] = settings.max_texts
    for name in ("SuggestRequest", "ExplainRequest", "AnnifForm", "AnnifDocument"):
        components[name]["properties"]["text"]["maxLength"] = settings.max_text_length


def _paths(settings: Settings) -> dict[str, Any]:
    model = _query("model", {"type": "string"}, "The model; the server's first one if not given.")
    project = {
        "name": "project_id",
        "in": "path",
        "required": True,
        "schema": {"type": "string"},
        "description": "The name of a model.",
    }
    limit = _query("limit", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 20}, "The most labels.")
    annif_options = [
        _query("limit", {"type": "integer", "minimum": 0, "maximum": settings.max_top_k}, "The most labels."),
        _query("threshold", {"type": "number", "minimum": 0, "maximum": 1}, "Leave out labels that score less."),
        _query("language", {"type": "string", "enum": [settings.language]}, "Of the names of labels."),
    ]
    many = {"type": "array", "items": _ref("AnnifBatchResults")}
    metrics = _operation("Numbers for Prometheus", None, [])
    metrics["responses"]["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    return {
        "/v1/suggest": {
            "post": _operation(
                "Rank labels for texts", "SuggestResponse", [400, 404, 408, 413, 415], body="SuggestRequest"
            )
        },
        "/v1/explain": {
            "post": _operation(
                "Say which words speak for a label", "ExplainResponse", [400, 404, 408, 413, 415], body="ExplainRequest"
            )
        },
        "/v1/model": {"get": _operation("Describe a model", "ModelAbout", [404], parameters=[model])},
        "/v1/labels": {
            "get": _operation(
                "Find labels by how they begin",
                "LabelsResponse",
                [400, 404],
                parameters=[
                    _query("q", {"type": "string"}, "How the name or the id begins, in any case."),
                    limit,
                    model,
                ],
            )
        },
        "/v1/": {"get": _operation("Say what answers here", "AnnifInfo", [], tag="Annif")},
        "/v1/vocabs": {"get": _operation("List vocabularies", "AnnifVocabularies", [], tag="Annif")},
        "/v1/projects": {"get": _operation("List models as projects", "AnnifProjects", [], tag="Annif")},
        "/v1/projects/{project_id}": {
            "get": _operation("Describe a model as a project", "AnnifProject", [404], parameters=[project], tag="Annif")
        },
        "/v1/projects/{project_id}/suggest": {
            "post": _operation(
                "Suggest subjects for a text",
                "AnnifResults",
                [400, 404, 408, 413, 415],
                body="AnnifForm",
                form=True,
                parameters=[project],
                tag="Annif",
            )
        },
        "/v1/projects/{project_id}/suggest-batch": {
            "post": _operation(
                "Suggest subjects for several texts",
                many,
                [400, 404, 408, 413, 415],
                body="AnnifBatch",
                parameters=[project, *annif_options],
                tag="Annif",
            )
        },
        "/v1/projects/{project_id}/learn": {
            "post": _operation("Learn (never allowed)", None, [403, 404], parameters=[project], tag="Annif", only=True)
        },
        "/healthz": {"get": _operation("Whether the server runs", "Health", [], tag="Operation")},
        "/readyz": {"get": _operation("Whether the server can answer", "Health", [], tag="Operation")},
        "/metrics": {"get": {**metrics, "tags": ["Operation"]}},
    }


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _query(name: str, schema: dict[str, Any], about: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": about}


def _operation(
    summary: str,
    gives: str | dict[str, Any] | None,
    problems: list[int],
    *,
    body: str | None = None,
    form: bool = False,
    parameters: list[dict[str, Any]] | None = None,
    tag: str = "Carya",
    only: bool = False,
) -> dict[str, Any]:
    """A way to ask; `only` if it never succeeds."""
    from http import HTTPStatus

    said: dict[str, Any] = {
        str(status): {
            "description": HTTPStatus(status).phrase,
            "content": {"application/problem+json": {"schema": _ref("ProblemDetails")}},
        }
        for status in sorted({*problems, 401, 429, 503})
    }
    if not only:
        schema = _ref(gives) if isinstance(gives, str) else gives or {}
        said["200"] = {"description": "OK", "content": {"application/json": {"schema": schema}}}
    made: dict[str, Any] = {"summary": summary, "tags": [tag], "responses": dict(sorted(said.items()))}
    if parameters:
        made["parameters"] = parameters
    if body is not None:
        kind = "application/x-www-form-urlencoded" if form else "application/json"
        made["requestBody"] = {"required": True, "content": {kind: {"schema": _ref(body)}}}
    return made
