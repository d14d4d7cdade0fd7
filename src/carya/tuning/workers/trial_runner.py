"""Train and evaluate configurations, one at a time; each worker has one runner."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from carya.errors import CaryaError
from carya.tuning.cache import TrialCache
from carya.tuning.held_out import HeldOutData
from carya.tuning.measure import measure
from carya.tuning.space import Point, Space


def space_to_json(space: Space) -> str:
    """Return the search space as JSON, the form in which it is sent to workers."""
    return json.dumps(asdict(space))


class TrialRunner:
    """Callable that runs a trial, reusing the features and label trees of earlier trials where possible.

    Parameters
    ----------
    folder : str
        The data folder; see :class:`HeldOutData`.
    space_json : str
        The result of :func:`space_to_json`.
    threads : int
    """

    def __init__(self, folder: str, space_json: str, threads: int) -> None:
        warnings.simplefilter("ignore")
        settings = json.loads(space_json)
        self._space = Space(**settings | {name: tuple(settings[name]) for name in ("stemmers", "models")})
        self._threads = threads
        self._data = HeldOutData.open(Path(folder))
        self._cache = TrialCache(self._data, threads=threads)

    def __call__(self, point: Point, n_rows: int) -> dict[str, Any]:
        """Run a trial and return its result, which can be converted to JSON."""
        cache = self._cache
        cache.hits = cache.misses = 0
        measured, error = None, None
        try:
            model = self._space.build(point)
            measured = measure(model, n_rows, self._data, cache, threads=self._threads).to_dict()
        except CaryaError as failure:  # for example, if no term is frequent enough for the settings
            error = str(failure)
        except MemoryError:
            error = "not enough memory"
        except Exception as failure:  # a configuration that fails must not end the search
            error = f"{type(failure).__name__}: {failure}"
        return {"measured": measured, "error": error, "hits": cache.hits, "misses": cache.misses}
