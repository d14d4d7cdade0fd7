"""Run blocking work outside the event loop, with a bounded queue and a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from carya.serve.http.errors import ServiceUnavailableError, TooManyRequestsError
from carya.serve.http.shared_limits import SharedLimit
from carya.serve.settings import ServerSettings

T = TypeVar("T")


class ThreadPool:
    """Thread pool of a worker process.

    A running job cannot be interrupted: after a timeout, the client receives an error, but the thread remains busy
    until the job finishes. Jobs that have not started before the timeout are canceled, so every queued job has a client
    waiting for it.

    Parameters
    ----------
    settings : ServerSettings
    jobs : SharedLimit
        The limit on jobs that are running or queued.
    """

    def __init__(self, settings: ServerSettings, jobs: SharedLimit) -> None:
        self._executor = ThreadPoolExecutor(settings.threads, thread_name_prefix="carya")
        self._timeout = settings.request_timeout
        self._jobs = jobs

    async def run(self, client: str, function: Callable[..., T], *args: object) -> T:
        """Call a function in a thread on behalf of a client and return its result.

        Raises TooManyRequestsError if the queue is full, and ServiceUnavailableError after a timeout.
        """
        problem = self._jobs.problem(client)
        if problem is not None:
            raise TooManyRequestsError(problem)
        self._jobs.add(client)
        arguments = [args]
        job = self._executor.submit(lambda: function(*arguments.pop()))
        future = asyncio.wrap_future(job)
        future.add_done_callback(partial(self._on_done, client))
        try:
            return await asyncio.wait_for(asyncio.shield(future), self._timeout)
        except TimeoutError:
            raise ServiceUnavailableError(f"The request took longer than {self._timeout:g} seconds.") from None
        finally:
            if job.cancel():  # the job remains in the executor's queue, so release its texts
                arguments.clear()

    def _on_done(self, client: str, future: asyncio.Future[Any]) -> None:
        self._jobs.add(client, -1)
        if not future.cancelled():
            future.exception()  # mark the exception as retrieved, because the client may have disconnected

    def close(self) -> None:
        """Wait for running jobs and cancel queued ones."""
        self._executor.shutdown(wait=True, cancel_futures=True)
