"""Generate the OpenAPI document from the route table and the message types."""

from __future__ import annotations

import inspect
import re
from http import HTTPStatus
from typing import Any

import msgspec

from carya.serve.routes.annif import LANGUAGE
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
    ("FeaturesRequest", "features", "maxItems", "max_texts"),
    ("FeaturesRequest", "top_k", "maximum", "max_top_k"),
    ("FeaturesRequest", "beam_width", "maximum", "max_beam_width"),
    ("ExplainRequest", "text", "maxLength", "max_text_length"),
    ("ExploreTextRequest", "text", "maxLength", "max_text_length"),
    ("ExploreTextRequest", "top_k", "maximum", "max_top_k"),
    ("ExploreTextRequest", "beam_width", "maximum", "max_beam_width"),
    ("ExploreLabelRequest", "text", "maxLength", "max_text_length"),
    ("EvaluateRequest", "texts", "maxItems", "max_texts"),
    ("EvaluateRequest", "top_k", "maximum", "max_top_k"),
    ("FeedbackRequest", "text", "maxLength", "max_text_length"),
    ("AnnifForm", "text", "maxLength", "max_text_length"),
    ("AnnifForm", "limit", "maximum", "max_top_k"),
    ("AnnifLanguageRequest", "text", "maxLength", "max_text_length"),
    ("AnnifDocument", "text", "maxLength", "max_text_length"),
    ("AnnifBatch", "documents", "maxItems", "max_texts"),
)

#: An entry in the attribute list of a numpydoc docstring: one or more names, a type, and an indented description.
_ATTRIBUTE = re.compile(r"^(\w+(?:, \w+)*) : (.*)((?:\n {4}.*)*)", re.MULTILINE)


def openapi_document(routes: RouteTable, settings: ServerSettings) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document for a server."""
    documented = [route for route in routes if route.is_documented]
    types: list[Any] = [ProblemDetails]
    types += [kind for route in documented for kind in (route.request, route.response) if kind is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(types, schemas, strict=True))
    for component in components.values():
        _simplify_tuples(component)
        _describe_properties(component)
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
        "servers": [{"url": ".", "description": "The server that sent this document, including its path prefix."}],
        "tags": [
            {"name": tag, "description": routes.tags[tag]} for tag in dict.fromkeys(route.tag for route in documented)
        ],
        "security": [],
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
    elif route.is_empty_on_success:
        responses = {"204": {"description": HTTPStatus.NO_CONTENT.phrase}} | responses
    operation: dict[str, Any] = {
        "operationId": route.operation_id,
        "summary": route.summary,
        "tags": [route.tag],
        "responses": responses,
    }
    if route.parameters:
        operation["parameters"] = [parameter.describe(settings) for parameter in route.parameters]
    if route.request is not None:
        body = {route.request_media_type: {"schema": schema_of[route.request]}}
        operation["requestBody"] = {"required": True, "content": body}
    if route.is_public and settings.tokens:
        operation["security"] = []
    return operation


def _simplify_tuples(schema: Any) -> None:
    """Replace `prefixItems`, which many tools do not support, with `items`, `minItems` and `maxItems`.

    >>> schema = {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}], "items": False}
    >>> _simplify_tuples(schema)
    >>> schema
    {'type': 'array', 'items': {'type': 'integer'}, 'minItems': 2, 'maxItems': 2}
    """
    if isinstance(schema, list):
        for element in schema:
            _simplify_tuples(element)
    if not isinstance(schema, dict):
        return
    elements = schema.pop("prefixItems", None)
    if elements is not None:
        kinds = [kind for number, kind in enumerate(elements) if kind not in elements[:number]]
        schema["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        schema["minItems"] = schema["maxItems"] = len(elements)
    for value in schema.values():
        _simplify_tuples(value)


def _describe_properties(schema: dict[str, Any]) -> None:
    """Move the attribute descriptions from a schema's description, which is a docstring, to its properties."""
    text, _, attributes = inspect.cleandoc(schema.get("description", "")).partition("\n\nAttributes\n----------\n")
    if text:
        schema["description"] = " ".join(text.split())
    for names, _, description in _ATTRIBUTE.findall(attributes):
        for name in names.split(", "):
            field = schema.get("properties", {}).get(name, {})
            if description.strip() and "description" not in field and "$ref" not in field:
                field["description"] = " ".join(description.split())


def _add_limits(components: dict[str, Any], settings: ServerSettings) -> None:
    """Add the limits in the server settings to the request schemas."""
    for message, field, keyword, setting in _LIMITED_FIELDS:
        schema = components[message]["properties"][field]
        for option in schema.get("anyOf", [schema]):
            if option.get("type") != "null":
                option[keyword] = getattr(settings, setting)
    components["AnnifForm"]["properties"]["language"] = {"type": "string", "description": LANGUAGE.description}
