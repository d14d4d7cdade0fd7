"""Server metrics in the Prometheus text format.

Each worker process has a row in shared memory, and any worker can report the sum of all rows. Each value has a single
writer and is written atomically, so no locks are needed. A restarted worker reuses its predecessor's row, so counters
never decrease.
"""

from __future__ import annotations

import bisect
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

#: The value of the `route` label for requests to unknown paths.
UNKNOWN_ROUTE = "other"

_STATUSES = (200, 204, 206, 304, 400, 401, 403, 404, 405, 408, 409, 413, 415, 416, 421, 429, 431, 499, 500, 503)
_DURATIONS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_GAUGES = {
    "requests_in_progress": "Number of requests being processed.",
    "thread_pool_requests": "Number of long requests that are running in a thread or queued.",
    "connections": "Number of open connections.",
    "buffered_bytes": "Total size of buffered request and response bodies in bytes.",
}
_WORKER_GAUGES = {
    "resident_bytes": "Resident memory of the worker in bytes.",
    "start_time_seconds": "Start time of the worker in seconds since the Unix epoch.",
}
_COUNTERS = {
    "texts": "Number of texts ranked or explained.",
    "reloads": "Number of new model versions loaded.",
    "reload_failures": "Number of new model versions that could not be loaded.",
    "rejected_connections": "Number of connections rejected because of the connection limit.",
}
# The values of a model: texts, the sum of the durations, requests by status, and requests by duration.
_MODEL_SIZE = 2 + (len(_STATUSES) + 1) + (len(_DURATIONS) + 1)


class MetricsLayout:
    """Positions of all values within a row.

    Parameters
    ----------
    routes : sequence of str
        The values of the `route` label. The set is fixed so that clients cannot create new time series.
    models : sequence of str
        The values of the `model` label.

    Attributes
    ----------
    size : int
        The number of values per row.
    """

    def __init__(self, routes: Sequence[str], models: Sequence[str] = ()) -> None:
        self.routes = {route: position for position, route in enumerate((*routes, UNKNOWN_ROUTE))}
        self.statuses = {status: position for position, status in enumerate(_STATUSES)}
        self.duration_begin = len(self.routes) * (len(_STATUSES) + 1)
        self.sum_begin = self.duration_begin + len(self.routes) * (len(_DURATIONS) + 1)
        gauge_begin = self.sum_begin + len(self.routes)
        gauges = (*_GAUGES, *_WORKER_GAUGES)
        self.gauges = {name: gauge_begin + position for position, name in enumerate(gauges)}
        counter_begin = gauge_begin + len(gauges)
        self.counters = {name: counter_begin + position for position, name in enumerate(_COUNTERS)}
        model_begin = counter_begin + len(_COUNTERS)
        self.models = {model: model_begin + position * _MODEL_SIZE for position, model in enumerate(models)}
        self.size = model_begin + len(models) * _MODEL_SIZE


class ServerMetrics:
    """Metrics for a server.

    Parameters
    ----------
    layout : MetricsLayout
    rows : sequence of memoryview of double, optional
        One row of `layout.size` values per worker; by default, a single row in memory that is not shared.
    worker : int
        The index of the row to write to.
    """

    def __init__(self, layout: MetricsLayout, rows: Sequence[memoryview[float]] | None = None, worker: int = 0) -> None:
        self._layout = layout
        self._gauges, self._counters = layout.gauges, layout.counters
        self._rows = [memoryview(bytearray(8 * layout.size)).cast("d")] if rows is None else list(rows)
        self._row = self._rows[worker]
        for position in layout.gauges.values():
            self._row[position] = 0.0  # reset the gauges, which a previous worker may have set
        self.set_gauge("start_time_seconds", time.time())

    def observe_request(self, route: str, status: int, seconds: float) -> None:
        """Record a completed request."""
        row, layout = self._row, self._layout
        position = layout.routes[route]
        row[position * (len(_STATUSES) + 1) + layout.statuses.get(status, len(_STATUSES))] += 1
        row[layout.duration_begin + position * (len(_DURATIONS) + 1) + bisect.bisect_left(_DURATIONS, seconds)] += 1
        row[layout.sum_begin + position] += seconds

    def observe_model(self, model: str, status: int, seconds: float) -> None:
        """Record a completed request for a model."""
        row, begin = self._row, self._layout.models.get(model)
        if begin is None:
            return
        row[begin + 1] += seconds
        row[begin + 2 + self._layout.statuses.get(status, len(_STATUSES))] += 1
        row[begin + 3 + len(_STATUSES) + bisect.bisect_left(_DURATIONS, seconds)] += 1

    def count_model_texts(self, model: str, count: int) -> None:
        """Record the number of texts in a request for a model."""
        begin = self._layout.models.get(model)
        if begin is not None:
            self._row[begin] += count

    def set_gauge(self, name: str, value: float) -> None:
        """Set the current value of a gauge."""
        self._row[self._gauges[name]] = value

    def increment(self, name: str, amount: int = 1) -> None:
        """Increment a counter."""
        self._row[self._counters[name]] += amount

    def to_text(self, models: Sequence[tuple[str, str]] = ()) -> str:
        """Return all metrics in the Prometheus text format.

        Parameters
        ----------
        models : sequence of (str, str)
            The names and versions of the models.
        """
        self.set_gauge("resident_bytes", resident_bytes())
        total = [sum(column) for column in zip(*self._rows, strict=True)]
        lines = [*self._requests(total), *self._durations(total), *self._models(total), *self._scalars(total, models)]
        return "\n".join(lines) + "\n"

    def _requests(self, total: list[float]) -> Iterator[str]:
        yield from _header("carya_requests_total", "counter", "Number of requests by route and status.")
        for route, position in self._layout.routes.items():
            for offset, status in enumerate((*_STATUSES, "other")):
                if count := total[position * (len(_STATUSES) + 1) + offset]:
                    yield f'carya_requests_total{{route="{route}",status="{status}"}} {_format(count)}'

    def _durations(self, total: list[float]) -> Iterator[str]:
        name = "carya_request_duration_seconds"
        yield from _header(name, "histogram", "Time from the request head to the end of the response, in seconds.")
        for route, position in self._layout.routes.items():
            begin = self._layout.duration_begin + position * (len(_DURATIONS) + 1)
            counts = total[begin : begin + len(_DURATIONS) + 1]
            yield from _histogram(name, f'route="{route}"', counts, total[self._layout.sum_begin + position])

    def _models(self, total: list[float]) -> Iterator[str]:
        models = self._layout.models
        yield from _header("carya_model_texts_total", "counter", "Number of texts ranked or explained by model.")
        for model, begin in models.items():
            yield f'carya_model_texts_total{{model="{model}"}} {_format(total[begin])}'
        yield from _header("carya_model_requests_total", "counter", "Number of requests by model and status.")
        for model, begin in models.items():
            for offset, status in enumerate((*_STATUSES, "other"), begin + 2):
                if count := total[offset]:
                    yield f'carya_model_requests_total{{model="{model}",status="{status}"}} {_format(count)}'
        name = "carya_model_request_duration_seconds"
        yield from _header(name, "histogram", "Time from the request head to the end of the response by model.")
        for model, begin in models.items():
            counts = total[begin + 3 + len(_STATUSES) : begin + _MODEL_SIZE]
            yield from _histogram(name, f'model="{model}"', counts, total[begin + 1])

    def _scalars(self, total: list[float], models: Sequence[tuple[str, str]]) -> Iterator[str]:
        for name, description in _GAUGES.items():
            yield from _header(f"carya_{name}", "gauge", description)
            yield f"carya_{name} {_format(total[self._gauges[name]])}"
        for name, description in _COUNTERS.items():
            yield from _header(f"carya_{name}_total", "counter", description)
            yield f"carya_{name}_total {_format(total[self._counters[name]])}"
        for name, description in _WORKER_GAUGES.items():
            yield from _header(f"carya_worker_{name}", "gauge", description)
            for worker, row in enumerate(self._rows):
                yield f'carya_worker_{name}{{worker="{worker}"}} {_format(row[self._gauges[name]])}'
        yield from _header(
            "carya_model_info", "gauge", "Models and versions loaded by the worker that sent this response."
        )
        for name, version in models:
            yield f'carya_model_info{{model="{name}",version="{version}"}} 1'


def _header(name: str, kind: str, description: str) -> list[str]:
    return [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]


def _histogram(name: str, label: str, counts: Sequence[float], seconds: float) -> Iterator[str]:
    """Return the lines of a histogram, or none if all counts are 0."""
    if not any(counts):
        return
    cumulative = list(itertools.accumulate(counts))
    for bound, count in zip((*map(str, _DURATIONS), "+Inf"), cumulative, strict=True):
        yield f'{name}_bucket{{{label},le="{bound}"}} {_format(count)}'
    yield f"{name}_sum{{{label}}} {_format(seconds)}"
    yield f"{name}_count{{{label}}} {_format(cumulative[-1])}"


def _format(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes, or 0 if it is unknown."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except (OSError, ValueError, IndexError):
        return 0
