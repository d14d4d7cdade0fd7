"""Read while others compute: what an iterator gives is fetched by a thread of its own, a little ahead."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_HELD = 2  # items that wait to be taken
_PATIENCE = 0.1  # seconds after which the thread looks whether anyone still wants more


class _End:
    """The last item: nothing more, or an error."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def read_ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items in the same order; errors come where they would have come.

    >>> list(read_ahead(range(5)))
    [0, 1, 2, 3, 4]
    """
    waiting: queue.Queue[T | _End] = queue.Queue(_HELD)
    enough = threading.Event()

    def put(item: T | _End) -> bool:
        while not enough.is_set():
            try:
                waiting.put(item, timeout=_PATIENCE)
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
        except BaseException as error:  # it is raised where the items are taken
            end = _End(error)
        put(end)

    thread = threading.Thread(target=fetch, name="read ahead", daemon=True)
    thread.start()
    try:
        while not isinstance(item := waiting.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        enough.set()
        thread.join()
