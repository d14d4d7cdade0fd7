"""List scheduling: compute the time that independent tasks take on several workers."""

from __future__ import annotations

import heapq
from collections.abc import Iterable


def makespan(durations: Iterable[float], workers: int) -> float:
    """Return the time at which the last task ends if tasks start in order, each on the first free worker.

    Ray schedules the tasks of an engine in this way; the engine submits the largest tasks first.

    >>> makespan([3, 2, 2], 2)
    4
    """
    ends: list[float] = []
    for duration in durations:
        start = heapq.heappop(ends) if len(ends) == workers else 0
        heapq.heappush(ends, start + duration)
    return max(ends, default=0)
