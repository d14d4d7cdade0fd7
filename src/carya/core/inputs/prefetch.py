"""Prefetch items from an iterable in a background thread, so that reading overlaps with computation."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_QUEUE_SIZE = 2
_POLL_SECONDS = 0.1  # interval at which the thread checks whether the consumer has stopped


class _End:
    """Sentinel for the end of the iteration, with the exception that ended it, if any."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def prefetch(items: Iterable[T]) -> Iterator[T]:
    """Yield items that a background thread fetches ahead of time; exceptions are re-raised in the consumer.

    >>> list(prefetch(range(5)))
    [0, 1, 2, 3, 4]
    """
    ready: queue.Queue[T | _End] = queue.Queue(_QUEUE_SIZE)
    stopped = threading.Event()

    def put(item: T | _End) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def fetch() -> None:
        end = _End()
        try:
            for item in items:
                if not put(item):
                    return
        except BaseException as error:  # re-raised in the consuming thread
            end = _End(error)
        put(end)

    thread = threading.Thread(target=fetch, name="prefetch", daemon=True)
    thread.start()
    try:
        while not isinstance(item := ready.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()
        thread.join()
