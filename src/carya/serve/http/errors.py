"""What a client is told when something is wrong: problem details (RFC 9457), which Annif's clients know too.

::

    Problem
    ├── BadRequest 400         the request cannot be read or asks for what cannot be
    ├── Unauthorized 401       no token, or a wrong one
    ├── NotFound 404           no such page, model or label
    ├── NotAllowed 405         another method than the page has
    ├── TooSlow 408            the body did not arrive in time
    ├── TooLarge 413           too many bytes, texts or characters
    ├── WrongType 415          a body in another form than JSON
    ├── TooMany 429            the server has enough to do; Retry-After says when to come back
    └── Unavailable 503        not ready, or the time of the request is over

Messages name what was wrong, what it was and what it must be. They never hold a path or a trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import ClassVar

import msgspec
from starlette.responses import Response


class Problem(Exception):  # noqa: N818 - as RFC 9457 calls it
    """An answer that is an error.

    Parameters
    ----------
    detail : str
        What was wrong; ends as the ``detail`` of the answer.
    headers : mapping of str to str, optional

    Examples
    --------
    >>> problem = BadRequest("top_k is 0; it must be at least 1")
    >>> problem.response().body
    b'{"type":"about:blank","title":"Bad Request","status":400,"detail":"top_k is 0; it must be at least 1"}'
    """

    status: ClassVar[int] = 500

    def __init__(self, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.headers = dict(headers or {})

    @property
    def title(self) -> str:
        """What HTTP calls it."""
        return HTTPStatus(self.status).phrase

    def response(self) -> Response:
        """What is sent."""
        about = {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        return Response(
            msgspec.json.encode(about), self.status, headers=self.headers, media_type="application/problem+json"
        )


class BadRequest(Problem):
    """400: the request cannot be read or asks for what cannot be."""

    status = 400


class Unauthorized(Problem):
    """401: no token, or a wrong one."""

    status = 401

    def __init__(self, detail: str = "this server wants a token: Authorization: Bearer …") -> None:
        super().__init__(detail, {"WWW-Authenticate": "Bearer"})


class NotFound(Problem):
    """404: no such page, model or label."""

    status = 404


class NotAllowed(Problem):
    """405: another method than the page has."""

    status = 405


class TooSlow(Problem):
    """408: the body did not arrive in time."""

    status = 408


class TooLarge(Problem):
    """413: too many bytes, texts or characters."""

    status = 413


class WrongType(Problem):
    """415: a body in another form than JSON."""

    status = 415


class TooMany(Problem):
    """429: the server has enough to do."""

    status = 429

    def __init__(self, detail: str, retry_after: int = 1) -> None:
        super().__init__(detail, {"Retry-After": str(retry_after)})


class Unavailable(Problem):
    """503: not ready, or the time of the request is over."""

    status = 503

    def __init__(self, detail: str, retry_after: int = 1) -> None:
        super().__init__(detail, {"Retry-After": str(retry_after)})
