"""Blocking work beside the event loop: a few threads, a bounded queue, and an end to waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar

from carya.serve.http.errors import TooMany, Unavailable
from carya.serve.settings import Settings

T = TypeVar("T")


class Pool:
    """Threads of a worker process.

    Work that has begun cannot be stopped: whoever waited too long is told so, and its thread stays taken until it is
    done; what has not begun by then never does. So the queue in front of the threads is what is really waiting, and
    never longer than it may be.
    """

    def __init__(self, settings: Settings) -> None:
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="carya")
        self._most = settings.threads + settings.max_waiting
        self._seconds = settings.request_seconds
        self.begun = 0

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """What the function gives; raises TooMany if too much is waiting, Unavailable if it takes too long."""
        if self.begun >= self._most:
            raise TooMany(f"{self.begun} requests are at work or waiting, which is the most there may be")
        self.begun += 1
        waiting = [args]
        job = self._threads.submit(lambda: function(*waiting.pop()))
        future = asyncio.wrap_future(job)
        future.add_done_callback(self._done)
        try:
            return await asyncio.wait_for(asyncio.shield(future), self._seconds)
        except TimeoutError:
            raise Unavailable(f"the request took longer than {self._seconds:g} seconds") from None
        finally:
            if job.cancel():  # nobody waits for it, and it has not begun; nor will the queue hold what it was about
                waiting.clear()

    def _done(self, future: asyncio.Future[Any]) -> None:
        self.begun -= 1
        if not future.cancelled():
            future.exception()  # whoever waited may be gone

    def close(self) -> None:
        """Wait for what has begun, drop what has not."""
        self._threads.shutdown(wait=True, cancel_futures=True)


#: The threads of the server that answers the current request.
CURRENT: ContextVar[Pool] = ContextVar("pool")


async def run(function: Callable[..., T], *args: object) -> T:
    """Run a blocking function for the current request, within the limits of its server."""
    return await CURRENT.get().run(function, *args)
