"""List scheduling: how long independent tasks take on a number of workers."""

from __future__ import annotations

import heapq
from collections.abc import Iterable


def makespan(durations: Iterable[float], workers: int) -> float:
    """Return when the last task ends if each task starts, in order, on the first worker that is free.

    This is how Ray runs the tasks of an engine, which submits the largest first.

    >>> makespan([3, 2, 2], 2)
    4
    """
    ends: list[float] = []
    for duration in durations:
        start = heapq.heappop(ends) if len(ends) == workers else 0
        heapq.heappush(ends, start + duration)
    return max(ends, default=0)
