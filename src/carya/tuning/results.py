"""Trials and results of a tuning run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from carya.errors import InputError
from carya.tuning.measure import Measured
from carya.tuning.recipe import Recipe


@dataclass(frozen=True)
class TunedTrial:
    """One configuration, trained on a given number of rows, and its results.

    Attributes
    ----------
    number : int
    settings : dict
        All settings, as a flat dictionary.
    description : str
        The model and the settings that differ from the default.
    n_rows : int
        The number of rows on which the model was trained.
    is_complete : bool
        Whether the model was trained on all training rows.
    measured : Measured or None
        The results; None if the trial failed or was stopped.
    error : str or None
    """

    number: int
    settings: dict[str, Any]
    description: str
    n_rows: int
    is_complete: bool
    measured: Measured | None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the trial as a JSON-serializable dictionary."""
        measured = {} if self.measured is None else self.measured.to_dict()
        return {
            "number": self.number,
            "description": self.description,
            "settings": self.settings,
            "rows": self.n_rows,
            "complete": self.is_complete,
            "error": self.error,
            **measured.pop("metrics", {}),
            **measured,
        }


def pareto_front(trials: Sequence[TunedTrial], metric: str) -> list[TunedTrial]:
    """Return the complete trials on the Pareto front of metric, latency and size; best metric first."""

    def costs(trial: TunedTrial) -> tuple[float, float, float]:
        assert trial.measured is not None
        return -trial.measured.metrics[metric], trial.measured.microseconds, float(trial.measured.n_bytes)

    complete = sorted((trial for trial in trials if trial.is_complete and trial.measured is not None), key=costs)
    front: list[TunedTrial] = []
    for trial in complete:  # a trial can be dominated only by earlier trials
        own = costs(trial)
        if not any(all(a <= b for a, b in zip(costs(other), own, strict=True)) for other in front):
            front.append(trial)
    return front


@dataclass(frozen=True)
class Tuning:
    """The result of :func:`carya.tune`.

    Attributes
    ----------
    recipe : Recipe
        The settings with the best metric among those that satisfy the limits.
    best, default : TunedTrial
        The trial with the settings of the recipe, and the trial with the default settings.
    trials : list of TunedTrial
        All trials, in the order in which they finished.
    metric : str
    seconds : float
        The elapsed time.
    n_train_rows, n_validation_rows : int
    cache_hits, cache_misses : int
        How many times features and label trees were reused, and how many times they were computed.
    """

    recipe: Recipe
    best: TunedTrial
    default: TunedTrial | None
    trials: list[TunedTrial]
    metric: str
    seconds: float
    n_train_rows: int
    n_validation_rows: int
    cache_hits: int = 0
    cache_misses: int = 0
    recipes: dict[int, Recipe] = field(default_factory=dict, repr=False)

    @property
    def front(self) -> list[TunedTrial]:
        """The trials on the Pareto front of metric, latency and size; best metric first."""
        return pareto_front(self.trials, self.metric)

    def recipe_of(self, number: int) -> Recipe:
        """Return the recipe of a trial."""
        if number not in self.recipes:
            raise InputError(
                f"There is no trial with number {number}. Use a number from 0 to {max(self.recipes, default=0)}."
            )
        return self.recipes[number]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a JSON-serializable dictionary."""
        return {
            "metric": self.metric,
            "seconds": round(self.seconds, 3),
            "rows": self.n_train_rows,
            "validation_rows": self.n_validation_rows,
            "best": self.best.to_dict(),
            "default": None if self.default is None else self.default.to_dict(),
            "front": [trial.number for trial in self.front],
            "reused": self.cache_hits,
            "computed": self.cache_misses,
            "trials": [trial.to_dict() for trial in self.trials],
        }
