"""What a server counts, for Prometheus: every worker has a row of shared memory, and any of them adds up all rows.

Each number has one writer and is written in one step, so nothing is locked. A worker that is started again goes on
with the row of the one before: counters never fall.
"""

from __future__ import annotations

import bisect
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

#: What requests are told apart by; no more than these, whatever clients ask for.
ROUTES = (
    "/v1/suggest",
    "/v1/explain",
    "/v1/model",
    "/v1/labels",
    "/v1/explore",
    "/v1/projects",
    "/v1/projects/{id}",
    "/v1/projects/{id}/suggest",
    "/v1/projects/{id}/suggest-batch",
    "/metrics",
    "/healthz",
    "page",
    "other",
)
STATUSES = (200, 204, 304, 400, 401, 403, 404, 405, 408, 413, 415, 429, 431, 499, 500, 503)
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_GAUGES = ("requests_in_progress", "waiting", "connections", "held_bytes", "resident_bytes", "started")
_COUNTERS = ("texts", "reloads", "reload_failures", "refused_connections")

_STATUS_AT = 0
_TIME_AT = _STATUS_AT + len(ROUTES) * (len(STATUSES) + 1)
_SUM_AT = _TIME_AT + len(ROUTES) * (len(SECONDS) + 1)
_GAUGE_AT = _SUM_AT + len(ROUTES)
_COUNTER_AT = _GAUGE_AT + len(_GAUGES)

#: Numbers in a row.
WIDTH = _COUNTER_AT + len(_COUNTERS)

_STATUS_PLACE = {status: place for place, status in enumerate(STATUSES)}
_ROUTE_PLACE = {route: place for place, route in enumerate(ROUTES)}
_GAUGE_PLACE = {name: _GAUGE_AT + place for place, name in enumerate(_GAUGES)}
_COUNTER_PLACE = {name: _COUNTER_AT + place for place, name in enumerate(_COUNTERS)}
_OWN_PAGES = ("/", "/docs", "/openapi.json", "/docs.js", "/docs.css")


def route_of(path: str) -> str:
    """The route that a path is counted under.

    >>> route_of("/v1/suggest"), route_of("/v1/projects/cats/suggest"), route_of("/page/app.js"), route_of("/etc")
    ('/v1/suggest', '/v1/projects/{id}/suggest', 'page', 'other')
    """
    if path in _ROUTE_PLACE and path.startswith("/"):
        return path
    if path.startswith("/v1/projects/"):
        rest = path[len("/v1/projects/") :].partition("/")[2]
        known = "/v1/projects/{id}" + (f"/{rest}" if rest else "")
        return known if known in _ROUTE_PLACE else "other"
    if path.startswith("/v1/explore/"):
        return "/v1/explore"
    if path == "/readyz":
        return "/healthz"
    return "page" if path in _OWN_PAGES or path.startswith("/page/") else "other"


class Counters:
    """The numbers of a server.

    Parameters
    ----------
    rows : sequence of memoryview of double
        One for each worker, each of :data:`WIDTH` numbers.
    worker : int
        The row that is ours to write.
    """

    def __init__(self, rows: Sequence[memoryview[float]] | None = None, worker: int = 0) -> None:
        self._rows = [memoryview(bytearray(8 * WIDTH)).cast("d")] if rows is None else list(rows)
        self._own = self._rows[worker]
        for place in range(_GAUGE_AT, _GAUGE_AT + len(_GAUGES)):
            self._own[place] = 0.0  # what a worker before us left
        self.gauge("started", time.time())

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        own, place = self._own, _ROUTE_PLACE[route]
        own[_STATUS_AT + place * (len(STATUSES) + 1) + _STATUS_PLACE.get(status, len(STATUSES))] += 1
        own[_TIME_AT + place * (len(SECONDS) + 1) + bisect.bisect_left(SECONDS, seconds)] += 1
        own[_SUM_AT + place] += seconds

    def gauge(self, name: str, value: float) -> None:
        """Say what something is now."""
        self._own[_GAUGE_PLACE[name]] = value

    def count(self, name: str, more: int = 1) -> None:
        """Add to a counter."""
        self._own[_COUNTER_PLACE[name]] += more

    def text(self, models: Sequence[tuple[str, str]] = ()) -> str:
        """All of it in Prometheus' text format; `models` are names and versions."""
        self.gauge("resident_bytes", resident_bytes())
        total = [sum(column) for column in zip(*self._rows, strict=True)]
        return "\n".join([*_requests(total), *_times(total), *self._others(total, models)]) + "\n"

    def _others(self, total: list[float], models: Sequence[tuple[str, str]]) -> Iterator[str]:
        about = {
            "requests_in_progress": "Requests that are being answered.",
            "waiting": "Long requests at work in threads or waiting for one.",
            "connections": "Open connections.",
            "held_bytes": "Bytes of bodies that are held.",
        }
        for name, text in about.items():
            yield from _head(f"carya_{name}", "gauge", text)
            yield f"carya_{name} {_number(total[_GAUGE_PLACE[name]])}"
        about = {
            "texts": "Texts that were ranked or explained.",
            "reloads": "New versions of models that were opened.",
            "reload_failures": "New versions of models that could not be opened.",
            "refused_connections": "Connections beyond the most there may be.",
        }
        for name, text in about.items():
            yield from _head(f"carya_{name}_total", "counter", text)
            yield f"carya_{name}_total {_number(total[_COUNTER_PLACE[name]])}"
        for name, shown, text in (
            ("resident_bytes", "carya_worker_resident_bytes", "Resident set of a worker, as it last looked."),
            ("started", "carya_worker_start_time_seconds", "When a worker started, in seconds since 1970."),
        ):
            yield from _head(shown, "gauge", text)
            for worker, row in enumerate(self._rows):
                yield f'{shown}{{worker="{worker}"}} {_number(row[_GAUGE_PLACE[name]])}'
        yield from _head("carya_model_info", "gauge", "The models of the worker that was asked, and their versions.")
        for name, version in models:
            yield f'carya_model_info{{model="{name}",version="{version}"}} 1'


def _requests(total: list[float]) -> Iterator[str]:
    yield from _head("carya_requests_total", "counter", "Requests by route and status.")
    for place, route in enumerate(ROUTES):
        for number, status in enumerate((*STATUSES, "other")):
            if count := total[_STATUS_AT + place * (len(STATUSES) + 1) + number]:
                yield f'carya_requests_total{{route="{route}",status="{status}"}} {_number(count)}'


def _times(total: list[float]) -> Iterator[str]:
    yield from _head("carya_request_seconds", "histogram", "Time from the head of a request to the end of its answer.")
    for place, route in enumerate(ROUTES):
        begin = _TIME_AT + place * (len(SECONDS) + 1)
        counts = list(itertools.accumulate(total[begin : begin + len(SECONDS) + 1]))
        if not counts[-1]:
            continue
        for bound, count in zip((*map(str, SECONDS), "+Inf"), counts, strict=True):
            yield f'carya_request_seconds_bucket{{route="{route}",le="{bound}"}} {_number(count)}'
        yield f'carya_request_seconds_sum{{route="{route}"}} {_number(total[_SUM_AT + place])}'
        yield f'carya_request_seconds_count{{route="{route}"}} {_number(counts[-1])}'


def _head(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def resident_bytes() -> int:
    """The resident set of this process; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except (OSError, ValueError, IndexError):
        return 0
