"""Locks and cached properties that never block in a forked process.

Only the thread that calls ``os.fork`` continues in the new process. Locks that other threads held at that time would
never be released there.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")


class ForkSafeLock:
    """Lock that is released in a forked process.

    The lock must not protect data that is inconsistent while the lock is held.

    Examples
    --------
    >>> lock = ForkSafeLock()
    >>> with lock:
    ...     lock.locked()
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _all_locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()

    def locked(self) -> bool:
        """Return whether a thread holds the lock."""
        return self._lock.locked()

    def renew(self) -> None:
        """Release the lock, even if another thread has acquired it."""
        self._lock = threading.Lock()


_all_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in list(_all_locks):
        lock.renew()


if hasattr(os, "register_at_fork"):  # not available on Windows
    os.register_at_fork(after_in_child=_renew_all)


class cached_property(functools.cached_property[T]):  # noqa: N801 - a drop-in replacement
    """Property that is computed once, without the lock that ``functools.cached_property`` holds in Python 3.11.

    If several threads access the property at the same time, it can be computed several times.
    """

    if not TYPE_CHECKING:

        def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value
