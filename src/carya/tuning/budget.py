"""Parse durations, and track a time budget."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from carya.errors import ParameterError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
#: The description of durations in error messages and `--help`.
DURATION_TEXT = "a duration such as 90s, 10m or 1h30m"


def parse_duration(value: object) -> float:
    """Convert a duration to seconds; numbers without a unit are seconds.

    >>> parse_duration("10m"), parse_duration("1h30m"), parse_duration(45)
    (600.0, 5400.0, 45.0)
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str) and re.fullmatch(r"(?:\d+(?:\.\d+)?[smhd])+|\d+(?:\.\d+)?", value.strip()):
        parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", value)
        seconds = sum(float(number) * _UNITS.get(unit, 1.0) for number, unit in parts)
    else:
        raise ParameterError(f"{value!r} is not {DURATION_TEXT}.")
    if not 0 < seconds < float("inf"):
        raise ParameterError(f"{value!r} is not {DURATION_TEXT}.")
    return seconds


class Budget:
    """Time budget that starts when the object is created.

    Parameters
    ----------
    seconds : float
    clock : callable
        A function that returns the time in seconds.

    Examples
    --------
    >>> now = iter([0.0, 4.0, 11.0])
    >>> budget = Budget(10, clock=lambda: next(now))
    >>> budget.remaining, budget.remaining
    (6.0, -1.0)
    """

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._started = clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the budget was created."""
        return self._clock() - self._started

    @property
    def remaining(self) -> float:
        """Seconds until the budget is used up; negative afterwards."""
        return self.seconds - self.elapsed
