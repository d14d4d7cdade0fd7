"""Actors on a Ray cluster that repeatedly call a function with different arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ActorPool:
    """Pool of actors; each has its own copy of a function and processes one call at a time.

    Parameters
    ----------
    ray : module
        The connected Ray module.
    make_function : callable
        A picklable callable that takes no arguments; every actor calls it once to create its function.
    n_workers : int
    threads : int
        The number of CPUs per actor.
    """

    def __init__(self, ray: Any, make_function: Callable[[], Callable[..., Any]], n_workers: int, threads: int) -> None:
        self._ray = ray
        self._actor_class = ray.remote(num_cpus=threads)(_Actor)
        self._make_function = make_function
        self._idle = [self._actor_class.remote(make_function) for _ in range(n_workers)]
        self._busy: dict[Any, tuple[int, Any]] = {}  # result reference: (call number, actor)

    @property
    def n_idle(self) -> int:
        """The number of actors that can accept a call."""
        return len(self._idle)

    @property
    def running(self) -> list[int]:
        """The numbers of the running calls."""
        return [number for number, _ in self._busy.values()]

    def start(self, number: int, *arguments: Any) -> None:
        """Call the function of an idle actor; `number` identifies the call."""
        actor = self._idle.pop()
        self._busy[actor.call.remote(*arguments)] = number, actor

    def wait(self, timeout: float) -> list[tuple[int, Any, str | None]]:
        """Wait until a call finishes, for at most `timeout` seconds.

        Returns
        -------
        list of tuple
            For each finished call, ``(number, result, None)``, or ``(number, None, message)`` if the call or its actor
            failed. A failed actor is replaced.
        """
        finished, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=max(0.0, timeout))
        return [self._receive(reference) for reference in finished]

    def _receive(self, reference: Any) -> tuple[int, Any, str | None]:
        number, actor = self._busy.pop(reference)
        try:
            result = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            self._idle.append(actor)
            return number, None, str(error.cause)
        except self._ray.exceptions.RayError as error:
            self._ray.kill(actor)
            self._idle.append(self._actor_class.remote(self._make_function))
            return number, None, f"the worker failed: {type(error).__name__}: {error}"
        self._idle.append(actor)
        return number, result, None

    def close(self) -> None:
        """Stop all actors, including those that are processing a call."""
        for actor in [*self._idle, *(actor for _, actor in self._busy.values())]:
            self._ray.kill(actor)
        self._idle, self._busy = [], {}


class _Actor:
    def __init__(self, make_function: Callable[[], Callable[..., Any]]) -> None:
        self._function = make_function()

    def call(self, *arguments: Any) -> Any:
        return self._function(*arguments)
