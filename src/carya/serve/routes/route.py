"""Route declarations for the router, the middleware, the metrics and the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from carya.serve.routes.parameters import Parameter

if TYPE_CHECKING:
    from carya.serve.state import ServerState

#: A function that handles a request.
Handler = Callable[["ServerState", Request], Awaitable[Response]]

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
NDJSON = "application/x-ndjson"


@dataclass(frozen=True)
class ApiRoute:
    """Declaration of a route.

    Attributes
    ----------
    method : {"GET", "POST"}
    path : str
        The path, with parameters written as ``{name}``; each parameter matches one path segment.
    handler : function of (ServerState, Request)
    summary : str
        The description in the OpenAPI document.
    tag : str
        The section in the OpenAPI document.
    operation_id : str
        The unique name of the operation in the OpenAPI document; client generators derive function names from it.
    parameters : tuple of Parameter
        Path and query parameters.
    request : type, optional
        The type of the request body.
    request_media_type : str
    response : type, optional
        The type of the response body on success; None if the route never succeeds.
    response_media_type : str
    errors : tuple of int
        The error statuses raised by the handler itself; `error_statuses` adds the statuses implied by the other
        attributes.
    metrics_label : str, optional
        The value of the `route` label in the metrics; the path by default.
    is_public : bool
        Whether the route is accessible without a token.
    is_always_answered : bool
        Whether requests are answered even if the server has reached `max_requests`.
    is_upload : bool
        Whether the body is written to a file while it is received, so that `max_job_bytes` limits its size.
    is_empty_on_success : bool
        Whether the response has status 204 and no body on success.
    is_documented : bool
        Whether the OpenAPI document includes the route; web page files are not included.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    tag: str
    operation_id: str
    parameters: tuple[Parameter, ...] = ()
    request: type | None = None
    request_media_type: str = JSON
    response: Any = None
    response_media_type: str = JSON
    errors: tuple[int, ...] = ()
    metrics_label: str | None = None
    is_public: bool = False
    is_always_answered: bool = False
    is_upload: bool = False
    is_empty_on_success: bool = False
    is_documented: bool = True

    @property
    def error_statuses(self) -> list[int]:
        """All possible statuses of error responses, in ascending order."""
        statuses = {*self.errors, 400, 421, 503}
        if self.request is not None:
            statuses |= {408, 413, 415}
        if not self.is_public:
            statuses.add(401)
        if not self.is_always_answered:
            statuses.add(429)
        return sorted(statuses)


class RouteTable:
    """A set of routes with distinct paths.

    Parameters
    ----------
    routes : sequence of ApiRoute
    tags : mapping of str to str
        The descriptions of the sections in the OpenAPI document.
    """

    def __init__(self, routes: Sequence[ApiRoute], tags: Mapping[str, str]) -> None:
        self.tags = tags
        self._routes = tuple(routes)
        self._by_path = {route.path: route for route in routes if "{" not in route.path}
        self._patterns = [(_pattern(route.path), route) for route in routes if "{" in route.path]
        if len(self._by_path) + len({pattern for pattern, _ in self._patterns}) != len(self._routes):
            raise ValueError("routes must have distinct paths.")

    def __iter__(self) -> Iterator[ApiRoute]:
        return iter(self._routes)

    def __len__(self) -> int:
        return len(self._routes)

    def find(self, path: str) -> ApiRoute | None:
        """Return the route for a request path, or None if no route matches."""
        route = self._by_path.get(path)
        if route is None:
            for pattern, candidate in self._patterns:
                if pattern.fullmatch(path):
                    return candidate
        return route

    @property
    def metrics_labels(self) -> list[str]:
        """The distinct values of the `route` label in the metrics."""
        return list(dict.fromkeys(route.metrics_label or route.path for route in self._routes))


def _pattern(path: str) -> re.Pattern[str]:
    """Return a regular expression that matches a path with parameters.

    >>> _pattern("/v1/projects/{project_id}/suggest").pattern
    '/v1/projects/[^/]+/suggest'
    """
    parts = re.split(r"\{[a-z_]+\}", path)
    return re.compile("[^/]+".join(re.escape(part) for part in parts))
