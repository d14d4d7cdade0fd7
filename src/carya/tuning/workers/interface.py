"""The interface of workers, and the outcome of a trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

from carya.tuning.measure import Measured
from carya.tuning.space import Point


@dataclass(frozen=True)
class Outcome:
    """The result of a trial: either measurements or an error message.

    Attributes
    ----------
    number : int
        The trial number passed to :meth:`Workers.start`.
    measured : Measured or None
    error : str or None
    cache_hits, cache_misses : int
        How many times features and label trees were reused, and how many times they were computed.
    """

    number: int
    measured: Measured | None
    error: str | None = None
    cache_hits: int = 0
    cache_misses: int = 0

    @classmethod
    def of_result(cls, number: int, result: dict[str, Any]) -> Outcome:
        """Return the outcome of a trial from the result of :class:`TrialRunner`."""
        measured = None if result["measured"] is None else Measured(**result["measured"])
        return cls(number, measured, result["error"], result["hits"], result["misses"])


class Workers(Protocol):
    """Workers, each of which runs one trial at a time."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None:
        """Stop all workers, including those that are running trials."""
        ...

    @property
    def n_idle(self) -> int:
        """The number of idle workers."""
        ...

    @property
    def running(self) -> list[int]:
        """The numbers of the running trials."""
        ...

    def start(self, number: int, point: Point, n_rows: int) -> None:
        """Run a trial in an idle worker."""
        ...

    def wait(self, timeout: float) -> list[Outcome]:
        """Wait until a trial finishes, for at most `timeout` seconds, and return the outcomes of finished trials."""
        ...
