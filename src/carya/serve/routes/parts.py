"""Handlers for servers that serve parts of a split model (/v1/part, /v1/part/rank).

Servers that serve the top of the model send requests to these routes. Requests and responses are encoded by
:mod:`carya.models.routed.messages`.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from carya.errors import InputError
from carya.models.routed.part import ModelPart
from carya.models.routed.remote import MEDIA_TYPE
from carya.serve.http.errors import BadRequestError, ConflictError
from carya.serve.registry import ServedPart
from carya.serve.routes.json_io import check_content_type, json_response
from carya.serve.routes.parameters import Parameter
from carya.serve.routes.schemas import PartInfo
from carya.serve.state import ServerState

PART = Parameter(name="part", description="Name of the part on the server; required if the server has several parts.")

_SHORT_BYTES = 20_000  # requests up to this size take less time to process than to pass to a thread


async def describe_part(state: ServerState, request: Request) -> Response:
    """Describe a part of a split model."""
    served = state.registry.get_part(request.query_params.get(PART.name))
    tree = served.part.tree
    return json_response(
        PartInfo(
            name=served.name,
            version=served.version,
            split=tree.split,
            part=tree.number,
            n_clusters=tree.n_clusters,
            n_labels=int(tree.labels.size),
        )
    )


async def rank(state: ServerState, request: Request) -> Response:
    """Rank the labels in some clusters of a part."""
    check_content_type(request, MEDIA_TYPE)
    served = state.registry.get_part(request.query_params.get(PART.name))
    body = await request.body()
    content = _rank(served, body) if len(body) <= _SHORT_BYTES else await asyncio.to_thread(_rank, served, body)
    return Response(content, media_type=MEDIA_TYPE)


def _rank(served: ServedPart, body: bytes) -> bytes:
    with served.in_use():
        return _answer(served.part, body)


def _answer(part: ModelPart, body: bytes) -> bytes:
    try:
        request = part.decode(body)
    except InputError as error:
        raise BadRequestError(f"The request body is invalid: {error}") from None
    try:
        part.check(request.split, request.part)
    except InputError as error:
        raise ConflictError(str(error)) from None
    try:
        return part.answer(request).encode()
    except InputError as error:
        raise BadRequestError(str(error)) from None
