"""Send a span per request to an OpenTelemetry collector."""

from __future__ import annotations

import os
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from carya.core.extras import require
from carya.serve.http.middleware import RequestContext, relative_path
from carya.serve.routes.route import RouteTable

_PURPOSE = "--trace-endpoint"
_QUERY_STRING = "carya.query_string"


def trace_requests(app: ASGIApp, routes: RouteTable, endpoint: str) -> ASGIApp:
    """Return an ASGI application that records a span for each request and continues the traces of clients.

    The spans are named after routes and contain the model and the number of texts, but neither texts nor query strings.
    The environment variables of OpenTelemetry, such as OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER and
    OTEL_EXPORTER_OTLP_HEADERS, are respected.

    Parameters
    ----------
    app : ASGI application
    routes : RouteTable
    endpoint : str
        The URL of a collector that accepts OTLP over HTTP.
    """
    instrumentation = require("opentelemetry.instrumentation.asgi", extra="telemetry", purpose=_PURPOSE)
    sdk = require("opentelemetry.sdk.trace", extra="telemetry", purpose=_PURPOSE)
    export = require("opentelemetry.sdk.trace.export", extra="telemetry", purpose=_PURPOSE)
    resources = require("opentelemetry.sdk.resources", extra="telemetry", purpose=_PURPOSE)
    otlp = require("opentelemetry.exporter.otlp.proto.http.trace_exporter", extra="telemetry", purpose=_PURPOSE)
    trace = require("opentelemetry.trace", extra="telemetry", purpose=_PURPOSE)

    attributes = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "carya"}
    provider = sdk.TracerProvider(resource=resources.Resource.create(attributes))
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter(endpoint=endpoint)))

    def describe(scope: Scope) -> tuple[str, dict[str, Any]]:
        route = routes.find(relative_path(scope)) if scope["type"] == "http" else None
        if route is None:
            return scope.get("method", scope["type"]), {}
        return f"{scope['method']} {route.path}", {"http.route": route.path}

    async def app_with_attributes(scope: Scope, receive: Receive, send: Send) -> None:
        scope = {**scope, "query_string": scope.get(_QUERY_STRING, b"")}

        async def send_with_attributes(message: Message) -> None:
            context = RequestContext.of_scope(scope)
            if message["type"] == "http.response.start" and context is not None:  # the span ends with the response
                span = trace.get_current_span()
                for name in ("id", "model", "n_texts"):
                    if name in context.log_fields:
                        span.set_attribute(f"carya.{name}", context.log_fields[name])
            await send(message)

        await app(scope, receive, send_with_attributes)

    traced: ASGIApp = instrumentation.OpenTelemetryMiddleware(
        app_with_attributes,
        default_span_details=describe,
        tracer_provider=provider,
        exclude_spans=["receive", "send"],
    )

    async def without_query_string(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":  # otherwise, the span would contain the query string
            scope = {**scope, _QUERY_STRING: scope["query_string"], "query_string": b""}
        await traced(scope, receive, send)

    return without_query_string
