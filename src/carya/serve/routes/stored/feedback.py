"""Handler for feedback on suggestions (/v1/feedback)."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from carya.serve import service
from carya.serve.feedback import FeedbackStore
from carya.serve.http.errors import BadRequestError, ForbiddenError, ServiceUnavailableError
from carya.serve.http.middleware import RequestContext
from carya.serve.registry import ServedModel
from carya.serve.routes.json_io import json_response, read_json
from carya.serve.routes.schemas import FeedbackRequest, FeedbackResponse
from carya.serve.state import ServerState

_MAX_LABELS = 1000
_MAX_LABEL_LENGTH = 1000


async def add_feedback(state: ServerState, request: Request) -> Response:
    """Store the accepted and rejected labels of a text."""
    store = feedback_store(state)
    message = await read_json(request, FeedbackRequest)
    service.check_text_lengths([message.text], state.settings)
    model = state.registry.get(message.model)
    accepted, rejected = await label_ids(state, request, model, [message.accepted, message.rejected])
    if not accepted and not rejected:
        raise BadRequestError('"accepted" or "rejected" must contain at least one label.')
    both = set(accepted) & set(rejected)
    if both:
        raise BadRequestError(f"Label {min(both)[:100]!r} is both accepted and rejected.")
    await store_feedback(store, model, [(message.text, accepted, rejected)])
    return json_response(FeedbackResponse(model.name, model.version, len(accepted), len(rejected)))


def feedback_store(state: ServerState) -> FeedbackStore:
    """Return the database; raise ForbiddenError if feedback is disabled."""
    if state.feedback is None:
        raise ForbiddenError("Feedback is disabled on this server. Enable it with: carya serve --feedback-file FILE")
    return state.feedback


async def label_ids(
    state: ServerState, request: Request, model: ServedModel, lists: Sequence[list[str]]
) -> list[list[str]]:
    """Return the ids of labels that are specified by id or name; labels that are not in the model are kept unchanged.

    Raises BadRequestError if a list contains too many labels, or if a label is empty or too long.
    """
    for label in itertools.chain.from_iterable(lists):
        if not label.strip() or len(label) > _MAX_LABEL_LENGTH:
            raise BadRequestError(
                f"Labels must have 1 to {_MAX_LABEL_LENGTH} characters and must not be blank, got {label[:100]!r}."
            )
    longest = max(map(len, lists), default=0)
    if longest > _MAX_LABELS:
        raise BadRequestError(f"A text can have at most {_MAX_LABELS} labels, got {longest}.")

    def find() -> list[list[str]]:
        with model.in_use():
            return [_label_ids(model, labels) for labels in lists]

    return await state.pool.run(RequestContext.of(request).client, find)


def _label_ids(model: ServedModel, labels: list[str]) -> list[str]:
    index, ids = model.ranker.label_set_.index, []
    for label in labels:
        number = index.find(label)
        ids.append(label if number is None else model.label(number)[0])
    return list(dict.fromkeys(ids))


async def store_feedback(
    store: FeedbackStore, model: ServedModel, rows: list[tuple[str, list[str], list[str]]]
) -> None:
    """Store feedback; raise ServiceUnavailableError if the database is full."""
    try:
        numbers = await asyncio.to_thread(store.add_all, model.name, model.version, rows)
    except sqlite3.OperationalError as error:
        raise ServiceUnavailableError(f"The feedback database cannot be written: {error}.") from None
    if numbers is None:
        raise ServiceUnavailableError(
            "The feedback database has reached its limit, --max-feedback or --max-feedback-bytes, or the disk is full."
        )
