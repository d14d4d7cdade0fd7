"""Generate the OpenAPI document from the route table and the message types."""

from __future__ import annotations

import inspect
from http import HTTPStatus
from typing import Any

import msgspec

from carya.serve.routes.route import ApiRoute, RouteTable
from carya.serve.routes.schemas import ProblemDetails
from carya.serve.settings import ServerSettings
from carya.version import __version__

#: Message fields that are limited by settings: message, field, JSON Schema keyword, setting.
_LIMITED_FIELDS = (
    ("SuggestRequest", "text", "maxLength", "max_text_length"),
    ("SuggestRequest", "texts", "maxItems", "max_texts"),
    ("SuggestRequest", "top_k", "maximum", "max_top_k"),
    ("SuggestRequest", "beam_width", "maximum", "max_beam_width"),
    ("ExplainRequest", "text", "maxLength", "max_text_length"),
    ("ExploreTextRequest", "text", "maxLength", "max_text_length"),
    ("ExploreTextRequest", "top_k", "maximum", "max_top_k"),
    ("ExploreTextRequest", "beam_width", "maximum", "max_beam_width"),
    ("ExploreLabelRequest", "text", "maxLength", "max_text_length"),
    ("AnnifForm", "text", "maxLength", "max_text_length"),
    ("AnnifForm", "limit", "maximum", "max_top_k"),
    ("AnnifDocument", "text", "maxLength", "max_text_length"),
    ("AnnifBatch", "documents", "maxItems", "max_texts"),
)


def openapi_document(routes: RouteTable, settings: ServerSettings) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document for a server."""
    documented = [route for route in routes if route.is_documented]
    types: list[Any] = [ProblemDetails]
    types += [kind for route in documented for kind in (route.request, route.response) if kind is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(types, schemas, strict=True))
    _shorten_descriptions(components)
    _add_limits(components, settings)
    paths: dict[str, dict[str, Any]] = {}
    for route in documented:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, settings, schema_of)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "Carya",
            "version": __version__,
            "summary": "Rank labels for texts and explain the rankings.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": components},
    }
    if settings.tokens:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _operation(route: ApiRoute, settings: ServerSettings, schema_of: dict[Any, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {
        str(status): {
            "description": HTTPStatus(status).phrase,
            "content": {"application/problem+json": {"schema": schema_of[ProblemDetails]}},
        }
        for status in route.error_statuses
    }
    if route.response is not None:
        content = {route.response_media_type: {"schema": schema_of[route.response]}}
        responses = {"200": {"description": "OK", "content": content}} | responses
    operation: dict[str, Any] = {"summary": route.summary, "tags": [route.tag], "responses": responses}
    if route.parameters:
        operation["parameters"] = [parameter.describe(settings) for parameter in route.parameters]
    if route.request is not None:
        body = {route.request_media_type: {"schema": schema_of[route.request]}}
        operation["requestBody"] = {"required": True, "content": body}
    if route.is_public and settings.tokens:
        operation["security"] = []
    return operation


def _shorten_descriptions(components: dict[str, Any]) -> None:
    """Shorten each description to the part of the docstring before the list of attributes."""
    for schema in components.values():
        description = inspect.cleandoc(schema.get("description", "")).partition("\n\nAttributes\n")[0]
        if description:
            schema["description"] = " ".join(description.split())


def _add_limits(components: dict[str, Any], settings: ServerSettings) -> None:
    """Add the limits in the server settings to the request schemas."""
    for message, field, keyword, setting in _LIMITED_FIELDS:
        schema = components[message]["properties"][field]
        for option in schema.get("anyOf", [schema]):
            if option.get("type") != "null":
                option[keyword] = getattr(settings, setting)
    components["SuggestRequest"]["oneOf"] = [{"required": ["text"]}, {"required": ["texts"]}]
    components["AnnifForm"]["properties"]["language"]["enum"] = [settings.language]
