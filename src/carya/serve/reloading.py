"""Load new model versions in the background."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from carya.serve.http.logging import JsonLogger
from carya.serve.http.metrics import ServerMetrics
from carya.serve.registry import ModelRegistry, ReloadFailure, ServedVersion
from carya.serve.settings import ServerSettings

_CLOSE_SECONDS = 5.0  # maximum time to wait for models that are being loaded when the server stops


class ModelReloader:
    """Loader of new model versions; failures are logged, never raised.

    A model is loaded in its own daemon thread, because opening a file can block forever (for example, on a network
    file system that does not respond). Such a thread must delay neither other models nor the exit of the process.

    Parameters
    ----------
    registry : ModelRegistry
    settings : ServerSettings
    metrics : ServerMetrics
    logger : JsonLogger
    """

    def __init__(
        self, registry: ModelRegistry, settings: ServerSettings, metrics: ServerMetrics, logger: JsonLogger
    ) -> None:
        self._registry = registry
        self._timeout = settings.reload_timeout
        self._metrics = metrics
        self._logger = logger
        self._running: dict[str, asyncio.Future[None]] = {}

    async def reload(self, *, force: bool = False) -> None:
        """Load the models whose folders have changed, one after the other.

        Parameters
        ----------
        force : bool
            Whether to load all models, including models whose folders have not changed.
        """
        for name in self._registry.all_names():
            if name in self._running:
                continue  # still being loaded; the timeout has already been logged
            done = self._running[name] = self._start(name, force=force)
            # asyncio.wait_for would ignore a cancellation that arrives just as the model is loaded (Python 3.11).
            await asyncio.wait({done}, timeout=self._timeout)
            if not done.done():
                reason = f"The model was not loaded within {self._timeout:g} seconds. Loading continues."
                self._record(ReloadFailure(name, reason))

    async def close(self) -> None:
        """Wait a few seconds for models that are being loaded."""
        if self._running:
            await asyncio.wait(self._running.values(), timeout=_CLOSE_SECONDS)

    def _start(self, name: str, *, force: bool) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def finish(result: ServedVersion | ReloadFailure | None) -> None:
            del self._running[name]
            self._record(result)
            if not done.done():
                done.set_result(None)

        def run() -> None:
            result: ServedVersion | ReloadFailure | None
            try:
                result = self._registry.refresh_model(name, force=force)
            except Exception as error:  # an error must not stop the checks for new versions
                result = ReloadFailure(name, f"{type(error).__name__}: {error}")
            with contextlib.suppress(RuntimeError):  # the server has stopped in the meantime
                loop.call_soon_threadsafe(finish, result)

        threading.Thread(target=run, name=f"carya-reload-{name}", daemon=True).start()
        return done

    def _record(self, result: ServedVersion | ReloadFailure | None) -> None:
        if isinstance(result, ServedVersion):
            self._metrics.increment("reloads")
            self._logger.log("info", "model reloaded", model=result.name, version=result.version)
        elif result is not None:
            self._metrics.increment("reload_failures")
            self._logger.log("error", "reload failed", model=result.name, reason=result.reason)
