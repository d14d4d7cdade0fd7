"""Handlers for the routes that the explorer page uses (/v1/explore/...)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from carya.errors import InputError
from carya.models.xr_linear.explanation import is_additive
from carya.serve import service
from carya.serve.http.errors import BadRequestError
from carya.serve.http.middleware import RequestContext
from carya.serve.registry import ServedModel
from carya.serve.routes.json_io import json_response, json_response_from_thread, read_json
from carya.serve.routes.parameters import MODEL, IntegerParameter, Parameter
from carya.serve.routes.schemas import (
    EvaluateRequest,
    ExploreLabelRequest,
    ExploreTextRequest,
    ModelsResponse,
    ModelSummary,
    TreeSummary,
)
from carya.serve.state import ServerState
from carya.text.explore.evaluation import rank_labeled_texts
from carya.text.explore.explorer import compare

_MAX_NUMBER = 1 << 30
_MAX_RELEVANT = 10_000


def _number(name: str, description: str) -> IntegerParameter:
    return IntegerParameter(name=name, description=description, default=0, minimum=0, maximum=_MAX_NUMBER)


OTHER_MODEL = Parameter(name="other", description="Name of the model to compare with; the default model if omitted.")
TREE = _number("tree", "Index of the tree within the model, starting at 0.")
LEVEL = _number("level", "Level of the cluster; the root has level 0.")
NODE = _number("node", "Index of the cluster within its level, starting at 0.")
BEGIN = _number("begin", "Number of children to skip.")
LABEL = Parameter(name="label", description="Label id or name.", required=True)


async def list_models(state: ServerState, request: Request) -> Response:
    """List the models and their trees."""
    models = [_summarize(state.registry.get(name)) for name in state.registry.names()]
    return json_response(ModelsResponse(state.registry.default, models, state.feedback is not None))


async def search(state: ServerState, request: Request) -> Response:
    """Rank labels for a text and trace the beam search."""
    model, tree = _model(state, request), TREE.parse(request.query_params, state.settings)
    message = await _read_text(state, request, model)
    return await _respond(
        state,
        request,
        model,
        lambda: model.explorer.search(message.text, top_k=message.top_k, beam_width=message.beam_width, tree=tree),
    )


async def compare_models(state: ServerState, request: Request) -> Response:
    """Rank labels for a text with two models."""
    model, other = _model(state, request), _model(state, request, OTHER_MODEL)
    message = await _read_text(state, request, model)

    def run() -> Any:
        with other.in_use():
            return compare(model.explorer, other.explorer, message.text, top_k=message.top_k)

    return await _respond(state, request, model, run)


async def evaluate(state: ServerState, request: Request) -> Response:
    """Rank labels for labeled texts."""
    model, tree = _model(state, request), TREE.parse(request.query_params, state.settings)
    message = await read_json(request, EvaluateRequest)
    texts = [row.text for row in message.texts]
    labels = [row.labels for row in message.texts]
    service.check_texts(texts, message.top_k, None, state.settings)
    longest = max(map(len, labels))
    if longest > _MAX_RELEVANT:
        raise BadRequestError(f"A text can have at most {_MAX_RELEVANT} labels, got {longest}.")
    RequestContext.of(request).record_texts(texts, model.name)
    return await _respond(
        state,
        request,
        model,
        lambda: rank_labeled_texts(model.explorer, texts, labels, top_k=message.top_k, tree=tree),
    )


async def explain(state: ServerState, request: Request) -> Response:
    """Explain a label's score in one tree."""
    model, tree = _model(state, request), TREE.parse(request.query_params, state.settings)
    message = await read_json(request, ExploreLabelRequest)
    service.check_text_lengths([message.text], state.settings)
    RequestContext.of(request).record_texts([message.text], model.name)

    def run() -> Any:
        label, _ = model.label(model.find_label(message.label))
        return model.explorer.explain(message.text, label, tree=tree)

    return await _respond(state, request, model, run)


async def browse_tree(state: ServerState, request: Request) -> Response:
    """Show a cluster and its children."""
    model = _model(state, request)
    level, node, begin, tree = (
        parameter.parse(request.query_params, state.settings) for parameter in (LEVEL, NODE, BEGIN, TREE)
    )
    return await _respond(
        state, request, model, lambda: model.explorer.cluster_page(level, node, begin=begin, tree=tree)
    )


async def frequent_labels(state: ServerState, request: Request) -> Response:
    """List the most frequent labels."""
    model = _model(state, request)
    return await _respond(state, request, model, model.explorer.frequent_labels)


async def show_label(state: ServerState, request: Request) -> Response:
    """Show a label's position, terms and similar labels."""
    model, tree = _model(state, request), TREE.parse(request.query_params, state.settings)
    name = request.query_params.get(LABEL.name, "")

    def run() -> Any:
        label, _ = model.label(model.find_label(name))
        return model.explorer.label_card(label, tree=tree)

    return await _respond(state, request, model, run)


def _model(state: ServerState, request: Request, parameter: Parameter = MODEL) -> ServedModel:
    return state.registry.get(request.query_params.get(parameter.name))


async def _read_text(state: ServerState, request: Request, model: ServedModel) -> ExploreTextRequest:
    message = await read_json(request, ExploreTextRequest)
    service.check_text_lengths([message.text], state.settings)
    service.check_search_options(message.top_k, message.beam_width, state.settings)
    RequestContext.of(request).record_texts([message.text], model.name)
    return message


async def _respond(state: ServerState, request: Request, model: ServedModel, function: Callable[[], Any]) -> Response:
    """Call a function in a thread and return its result as JSON; convert InputError to BadRequestError."""

    def run() -> Any:
        try:
            with model.in_use():
                return function()
        except InputError as error:
            raise BadRequestError(str(error)) from None

    return await json_response_from_thread(state.pool, request, run)


def _summarize(model: ServedModel) -> ModelSummary:
    ranker = model.ranker
    return ModelSummary(
        name=model.name,
        kind=ranker.model_kind_,
        n_labels=len(ranker.labels_),
        n_terms=sum(int(vectorizer.n_features_) for vectorizer in ranker.vectorizers_),
        n_texts=ranker.label_set_.n_texts,
        trees=[
            TreeSummary(
                level_sizes=list(tree.tree_.level_sizes[1:-1]),
                beam_width=tree.beam_width,
                is_overlapping=tree.tree_.leaf_labels is not None,
                is_explainable=is_additive(tree.layers_),
            )
            for tree in ranker.trees_
        ],
        is_calibrated=ranker.calibration_ is not None,
    )
