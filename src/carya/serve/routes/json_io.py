"""Read JSON requests and write JSON responses."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from carya.serve.http.errors import BadRequestError, UnsupportedMediaTypeError
from carya.serve.http.middleware import RequestContext
from carya.serve.http.thread_pool import ThreadPool

T = TypeVar("T")


async def read_json(request: Request, kind: type[T]) -> T:
    """Return the message in the request body; raise BadRequestError or UnsupportedMediaTypeError if it is invalid."""
    check_content_type(request, "application/json")
    body = await request.body()
    try:
        message: T = _decoder(kind).decode(body)  # type: ignore[arg-type]
        return message
    except msgspec.ValidationError as error:
        raise BadRequestError(f"The request body is invalid: {error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequestError(f"The request body is not valid JSON: {error}.") from None
    except RecursionError:
        raise BadRequestError("The request body is invalid: it is nested too deeply.") from None


def check_content_type(request: Request, expected: str) -> None:
    """Raise UnsupportedMediaTypeError unless the request has the expected content type.

    A web page from another origin cannot send application/json without the server's permission.
    """
    header = request.headers.get("content-type")
    if header is None:
        raise UnsupportedMediaTypeError(f"Content-Type must be {expected}, but the header is missing.")
    content_type = header.partition(";")[0].strip().lower()
    if content_type != expected:
        raise UnsupportedMediaTypeError(f"Content-Type must be {expected}, got {content_type[:100]!r}.")


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def json_response(message: Any) -> Response:
    """Return a message as a JSON response."""
    return Response(msgspec.json.encode(message), media_type="application/json")


async def json_response_from_thread(
    pool: ThreadPool, request: Request, function: Callable[..., Any], *args: Any
) -> Response:
    """Call a function in a thread and return its result as a JSON response."""
    client = RequestContext.of(request).client
    return Response(await pool.run(client, call_and_encode, function, *args), media_type="application/json")


def call_and_encode(function: Callable[..., Any], *args: Any) -> bytes:
    """Call a function and return its result as JSON.

    The encoder holds the GIL, and a response can be as large as 20 MB. Results are therefore encoded one by one so that
    other threads can run in between.
    """
    message = function(*args)
    results = message if isinstance(message, list) else getattr(message, "results", None)
    if not isinstance(results, list):
        return msgspec.json.encode(message)
    empty: Any = [] if results is message else msgspec.structs.replace(message, results=[])
    head, _, tail = msgspec.json.encode(empty).rpartition(b"[]")
    return b"%b[%b]%b" % (head, b",".join([msgspec.json.encode(result) for result in results]), tail)
