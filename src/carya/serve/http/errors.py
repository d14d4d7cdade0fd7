"""HTTP errors, sent as problem details (RFC 9457), a format that Annif also uses.

::

    HttpError
    ├── BadRequestError 400            the request is malformed or contains an invalid value
    ├── UnauthorizedError 401          the bearer token is missing or invalid
    ├── ForbiddenError 403             the operation is not allowed
    ├── NotFoundError 404              the model or label does not exist
    │   └── UnknownPathError           the path does not exist
    ├── MethodNotAllowedError 405      the path does not support the method
    ├── RequestTimeoutError 408        the request was not received in time
    ├── ConflictError 409              the request is intended for a part of a different split
    ├── ContentTooLargeError 413       too many bytes, texts or characters
    ├── UnsupportedMediaTypeError 415  the content type of the body is not supported
    ├── MisdirectedRequestError 421    the server does not serve the requested host name
    ├── TooManyRequestsError 429       the server is overloaded; Retry-After specifies when to try again
    ├── HeadersTooLargeError 431       the request line and headers are too long
    ├── InternalServerError 500        an unexpected exception occurred; only the log contains the details
    └── ServiceUnavailableError 503    too many connections, a timeout, or an unavailable part of a split model

Messages state what is wrong and what is allowed. They never contain file paths or tracebacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import ClassVar

import msgspec
from starlette.responses import Response


class HttpError(Exception):
    """Base class for errors that are sent to the client.

    Parameters
    ----------
    detail : str
        The `detail` field of the response.
    headers : mapping of str to str, optional
        Additional response headers.

    Examples
    --------
    >>> BadRequestError("top_k must be at most 1000, got 2000.").response().body
    b'{"type":"about:blank","title":"Bad Request","status":400,"detail":"top_k must be at most 1000, got 2000."}'
    """

    status: ClassVar[int] = 500

    def __init__(self, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.headers = dict(headers or {})

    @property
    def title(self) -> str:
        """The reason phrase for the status code."""
        return HTTPStatus(self.status).phrase

    def response(self) -> Response:
        """Return the response to send."""
        content = {"type": "about:blank", "title": self.title, "status": self.status, "detail": self.detail}
        return Response(
            msgspec.json.encode(content), self.status, headers=self.headers, media_type="application/problem+json"
        )


class BadRequestError(HttpError):
    """400: the request is malformed or contains an invalid value."""

    status = 400


class UnauthorizedError(HttpError):
    """401: the bearer token is missing or invalid."""

    status = 401

    def __init__(
        self, detail: str = "A valid token is required. Send the header 'Authorization: Bearer TOKEN'."
    ) -> None:
        super().__init__(detail, {"WWW-Authenticate": "Bearer"})


class ForbiddenError(HttpError):
    """403: the operation is not allowed."""

    status = 403


class NotFoundError(HttpError):
    """404: the model or label does not exist."""

    status = 404


class UnknownPathError(NotFoundError):
    """404: the path does not exist."""

    def __init__(self) -> None:
        super().__init__("Unknown path. See /docs for all routes.")


class MethodNotAllowedError(HttpError):
    """405: the path does not support the method."""

    status = 405


class RequestTimeoutError(HttpError):
    """408: the request was not received in time."""

    status = 408


class ConflictError(HttpError):
    """409: the request is intended for a part of a different split."""

    status = 409


class ContentTooLargeError(HttpError):
    """413: too many bytes, texts or characters."""

    status = 413


class UnsupportedMediaTypeError(HttpError):
    """415: the content type of the body is not supported."""

    status = 415


class MisdirectedRequestError(HttpError):
    """421: the server does not serve the requested host name."""

    status = 421


class TooManyRequestsError(HttpError):
    """429: the server is overloaded."""

    status = 429

    def __init__(self, detail: str, retry_after: int = 1) -> None:
        super().__init__(detail, {"Retry-After": str(retry_after)})


class HeadersTooLargeError(HttpError):
    """431: the request line and headers are too long."""

    status = 431


class InternalServerError(HttpError):
    """500: an unexpected exception occurred; only the log contains the details."""

    status = 500


class ServiceUnavailableError(HttpError):
    """503: there are too many connections, the request took too long, or a part of a split model is unavailable."""

    status = 503

    def __init__(self, detail: str, retry_after: int = 1) -> None:
        super().__init__(detail, {"Retry-After": str(retry_after)})
