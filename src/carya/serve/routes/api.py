"""Handlers for the JSON API (/v1/suggest, /v1/explain, /v1/model, /v1/labels), the health checks and the metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from carya.errors import InputError
from carya.serve import service
from carya.serve.http.errors import BadRequestError
from carya.serve.http.middleware import RequestContext
from carya.serve.registry import ServedModel
from carya.serve.routes.json_io import json_response, json_response_from_thread, read_json
from carya.serve.routes.parameters import MODEL, ChoiceParameter, IntegerParameter, Parameter
from carya.serve.routes.schemas import (
    ExplainRequest,
    FeaturesRequest,
    HealthStatus,
    SuggestRequest,
    SuggestResponse,
)
from carya.serve.state import ServerState

_MAX_LABEL_QUERY = 1000

LABEL_PREFIX = Parameter(
    name="q", description="Prefix of the label name or id, or words that it contains; case is ignored."
)
LABEL_MATCH = ChoiceParameter(
    name="match",
    description="prefix: labels that start with q; words: also labels that contain all words of q, of which at most "
    "1,000 are counted.",
    choices=("prefix", "words"),
)
LABEL_LIMIT = IntegerParameter(
    name="limit", description="Maximum number of labels.", default=20, minimum=1, maximum=1000
)


async def suggest(state: ServerState, request: Request) -> Response:
    """Rank labels for texts."""
    message = await read_json(request, SuggestRequest)
    return await suggest_response(state, request, state.registry.get(message.model), message)


async def suggest_for_features(state: ServerState, request: Request) -> Response:
    """Rank labels for feature vectors."""
    message = await read_json(request, FeaturesRequest)
    model = state.registry.get_feature_model(message.model)
    service.check_features_request(message, state.settings)
    context = RequestContext.of(request)
    context.record_rows(len(message.features), model.name)

    def run() -> Any:
        try:
            with model.in_use():
                return service.suggest_for_features(model, message)
        except InputError as error:
            raise BadRequestError(str(error)) from None

    return await json_response_from_thread(state.pool, request, run)


async def explain(state: ServerState, request: Request) -> Response:
    """Explain a label's score."""
    message = await read_json(request, ExplainRequest)
    service.check_text_lengths([message.text], state.settings)
    model = state.registry.get(message.model)
    RequestContext.of(request).record_texts([message.text], model.name)

    def run() -> Any:
        with model.in_use():
            return service.explain(model, message)

    return await json_response_from_thread(state.pool, request, run)


async def describe_model(state: ServerState, request: Request) -> Response:
    """Describe a model."""
    name = request.query_params.get(MODEL.name)
    if state.registry.is_feature_model(name):
        model = state.registry.get_feature_model(name)
        return json_response(service.describe_feature_model(state.registry, model, state.settings))
    return json_response(service.describe_model(state.registry, state.registry.get(name), state.settings))


async def search_labels(state: ServerState, request: Request) -> Response:
    """Search labels by prefix or by words."""
    query = request.query_params
    model = state.registry.get(query.get(MODEL.name))
    limit = LABEL_LIMIT.parse(query, state.settings)
    by_words = LABEL_MATCH.parse(query) == "words"
    text = query.get(LABEL_PREFIX.name, "")
    if len(text) > _MAX_LABEL_QUERY:
        raise BadRequestError(f"{LABEL_PREFIX.name} can have at most {_MAX_LABEL_QUERY} characters, got {len(text)}.")

    def run() -> Any:
        with model.in_use():
            return service.search_labels(model, text, limit, by_words=by_words)

    return await json_response_from_thread(state.pool, request, run)


async def health(state: ServerState, request: Request) -> Response:
    """Report that the server is running."""
    return json_response(HealthStatus("ok"))


async def readiness(state: ServerState, request: Request) -> Response:
    """Report that the server is ready.

    The server starts only after loading its models. It is ready unless a model file has been overwritten or a part of a
    split model is unavailable.
    """
    await asyncio.to_thread(state.registry.check_available)
    return json_response(HealthStatus("ready"))


async def metrics(state: ServerState, request: Request) -> Response:
    """Report the metrics in the Prometheus text format."""
    models = list(state.registry.versions().items())
    return PlainTextResponse(state.metrics.to_text(models), media_type="text/plain; version=0.0.4")


def _unchanged(response: SuggestResponse) -> Any:
    return response


async def suggest_response(
    state: ServerState,
    request: Request,
    model: ServedModel,
    message: SuggestRequest,
    convert: Callable[[SuggestResponse], Any] = _unchanged,
) -> Response:
    """Return the response to a suggestion request, optionally converted to another format.

    Short requests are processed in the event loop, because handing a text to a thread and receiving the result takes
    longer than ranking the text. Texts from several requests are not batched, because batching is not faster than
    ranking them one by one (see the measurements in docs/serve.md).
    """
    texts = service.check_suggest_request(message, state.settings)
    context = RequestContext.of(request)
    context.record_texts(texts, model.name)
    context.reserve_response(service.estimate_response(model, message, texts))
    if service.is_short(model, message, texts):
        with model.in_use():
            return json_response(convert(service.suggest_short(model, message, texts, state.settings)))

    def suggest_and_convert() -> Any:
        with model.in_use():
            return convert(service.suggest(model, message, texts, state.settings))

    return await json_response_from_thread(state.pool, request, suggest_and_convert)
