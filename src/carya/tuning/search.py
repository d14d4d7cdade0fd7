"""Multi-fidelity search: many configurations are trained on few rows, and the best ones on more rows.

The search combines Optuna's tree-structured Parzen estimator (TPE), which proposes configurations, with asynchronous
successive halving, which selects the configurations that are trained on more rows. TPE models the difference in the
metric between a configuration and the default configuration, both trained on the same number of rows, so that results
for different numbers of rows are comparable.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from carya.core.extras import require
from carya.tuning.budget import Budget
from carya.tuning.measure import Measured
from carya.tuning.results import TunedTrial
from carya.tuning.space import Point, Space, describe_point
from carya.tuning.workers.interface import Outcome, Workers

_REDUCTION = 3  # one in three configurations is promoted to the next rung, which has three times as many rows
_MIN_ROWS = 4_000
_MAX_RUNGS = 4
# The first two configurations (the default, and the one that is best on most data sets) are always trained on all rows.
_FORCED = 2
_GROWTH = 1.1  # exponent: the training time of trees grows slightly faster than the number of rows
_RERANKER_GROWTH = 0.8  # exponent: below 1, because the number of rows on which rerankers are trained is limited
_OPTIMISM = 0.6  # forced configurations are trained if at least this fraction of their estimated time remains
_MAX_REPEATS = 20  # no new configurations are tried after this number of consecutive duplicate proposals
_WAIT_SECONDS = 0.25


def rungs_of(n_rows: int) -> list[int]:
    """Return the number of training rows of each rung, in ascending order.

    >>> rungs_of(3_000), rungs_of(40_000)
    ([3000], [4444, 13333, 40000])
    """
    rungs = [n_rows]
    while len(rungs) < _MAX_RUNGS and rungs[-1] // _REDUCTION >= _MIN_ROWS:
        rungs.append(rungs[-1] // _REDUCTION)
    return rungs[::-1]


@dataclass
class Attempt:
    """A configuration and its results so far.

    Attributes
    ----------
    path : list of int
        The indices of the rungs on which the configuration is trained if it is promoted every time.
    results : dict of int to Measured
        The results of the finished rungs.
    started : float or None
        The time at which training on the current rung started, in seconds since the start of the search; None if the
        configuration is not being trained.
    """

    number: int
    point: Point
    path: list[int]
    results: dict[int, Measured] = field(default_factory=dict)
    error: str | None = None
    started: float | None = None
    optuna_trial: Any = None

    @property
    def rung(self) -> int:
        """The next rung, or the last rung if all have finished."""
        return self.path[min(len(self.results), len(self.path) - 1)]

    @property
    def can_continue(self) -> bool:
        """Whether the configuration has finished a rung, is not running, and can be trained on more rows."""
        is_idle = self.started is None and self.error is None
        return is_idle and 0 < len(self.results) < len(self.path)


class Search:
    """Search for the best configuration within a time budget.

    Parameters
    ----------
    space : Space
    rungs : list of int
        The number of training rows of each rung, in ascending order.
    metric : str
    budget : Budget
    max_trials : int, optional
        The maximum number of configurations.
    seed : int
    observe : callable, optional
        Called with the search as its argument whenever a trial finishes, and several times per second.
    """

    def __init__(
        self,
        space: Space,
        rungs: Sequence[int],
        *,
        metric: str,
        budget: Budget,
        max_trials: int | None = None,
        seed: int = 0,
        observe: Callable[[Search], None] | None = None,
    ) -> None:
        self.space, self.rungs, self.metric, self.budget = space, list(rungs), metric, budget
        self.attempts: list[Attempt] = []
        self.trials: list[TunedTrial] = []
        self.cache_hits = self.cache_misses = 0
        self._default = space.default_point()
        self._max_trials = math.inf if max_trials is None else max_trials
        self._observe = observe
        self._first = _distinct(space.first_points())
        self._untold: list[tuple[Attempt, int]] = []
        self._is_exhausted = False
        self._optuna = require("optuna", extra="tune", purpose="Tuning")
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna warns about experimental options
            sampler = self._optuna.samplers.TPESampler(
                seed=seed, n_startup_trials=len(self._first), multivariate=True, group=True, constant_liar=True
            )
            self._study = self._optuna.create_study(direction="maximize", sampler=sampler)

    def run(self, workers: Workers) -> None:
        """Run trials until the budget is used up or no configurations are left to train."""
        while self.budget.remaining > 0:
            while workers.n_idle and (attempt := self._next()) is not None:
                attempt.started = self.budget.elapsed
                workers.start(attempt.number, attempt.point, self.rungs[attempt.rung])
            if not workers.running:
                break
            for outcome in workers.wait(min(_WAIT_SECONDS, self.budget.remaining)):
                self._finish(outcome)
            if self._observe is not None:
                self._observe(self)
        for number in workers.running:
            attempt = self.attempts[number]
            attempt.started, attempt.error = None, "stopped at the end of the budget"
            self.trials.append(self._trial(attempt, None))

    def value(self, measured: Measured) -> float:
        """Return the value of the metric that is maximized."""
        return measured.metrics[self.metric]

    def running(self) -> list[Attempt]:
        """Return the configurations that are being trained."""
        return [attempt for attempt in self.attempts if attempt.started is not None]

    def describe(self, point: Point) -> str:
        """Return a short description of a configuration."""
        return describe_point(point, self._default)

    def _next(self) -> Attempt | None:
        """Return the configuration to train next: one that is promoted to the next rung, or a new one."""
        return self._promotion() or self._new() or self._promotion(is_last=True)

    def _promotion(self, *, is_last: bool = False) -> Attempt | None:
        """Return an idle configuration to train on more rows: one of the best third or, with `is_last`, any."""
        for attempt in self.attempts[:_FORCED]:
            if attempt.can_continue and _OPTIMISM * self._estimate(attempt) <= self.budget.remaining:
                return attempt
        for rung in range(len(self.rungs) - 1, 0, -1):
            below = [attempt for attempt in self.attempts if rung - 1 in attempt.results]
            below.sort(key=lambda attempt: -self.value(attempt.results[rung - 1]))
            n_promoted = len(below) if is_last else math.ceil(len(below) / _REDUCTION)
            for attempt in below[:n_promoted]:
                is_next = attempt.can_continue and attempt.rung == rung
                if is_next and self._estimate(attempt) <= self.budget.remaining:
                    return attempt
        return None

    def _estimate(self, attempt: Attempt) -> float:
        """Estimate the time for the next rung of a configuration, in seconds."""
        last = max(attempt.results)
        ratio = self.rungs[attempt.rung] / self.rungs[last]
        growth = _GROWTH if attempt.point["model"] == "trees" else _RERANKER_GROWTH
        return float(attempt.results[last].seconds * ratio**growth)

    def _new(self) -> Attempt | None:
        """Return a new configuration, or None if too little time is left or no untried configuration is found."""
        finished = [attempt.results[0].seconds for attempt in self.attempts if 0 in attempt.results]
        is_late = min(finished, default=0.0) > self.budget.remaining
        if is_late or self._is_exhausted or len(self.attempts) >= self._max_trials:
            return None
        last = len(self.rungs) - 1
        is_direct = 0 < len(self.attempts) < _FORCED  # only two rungs: the first, to estimate the time, and the last
        attempt = Attempt(len(self.attempts), {}, [0, last] if is_direct and last else list(range(last + 1)))
        if self._first:
            attempt.point = self._first.pop(0)
        else:
            known = [known.point for known in self.attempts]
            for _ in range(_MAX_REPEATS):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    trial = self._study.ask()
                    attempt.point = self.space.suggest(trial)
                if attempt.point not in known:
                    attempt.optuna_trial = trial
                    break
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            else:
                self._is_exhausted = True
                return None
        self.attempts.append(attempt)
        return attempt

    def _finish(self, outcome: Outcome) -> None:
        attempt = self.attempts[outcome.number]
        attempt.started = None
        self.cache_hits += outcome.cache_hits
        self.cache_misses += outcome.cache_misses
        self.trials.append(self._trial(attempt, outcome.measured, outcome.error))
        if outcome.measured is None:
            attempt.error = outcome.error
            if attempt.optuna_trial is not None and not attempt.results:
                self._study.tell(attempt.optuna_trial, state=self._optuna.trial.TrialState.FAIL)
        else:
            rung = attempt.rung
            attempt.results[rung] = outcome.measured
            self._untold.append((attempt, rung))
        self._tell()

    def _tell(self) -> None:
        """Report results to Optuna as differences from the default, once the default's result is known."""
        default = self.attempts[0]
        waiting, self._untold = self._untold, []
        for attempt, rung in waiting:
            if rung in default.results:
                baseline = self.value(default.results[rung])
            elif default.error is None:
                self._untold.append((attempt, rung))
                continue
            else:
                baseline = 0.0
            gain = self.value(attempt.results[rung]) - baseline
            if rung == 0 and attempt.optuna_trial is not None:
                self._study.tell(attempt.optuna_trial, gain)
                continue
            recorder = _Recorder(self._optuna, attempt.point)
            self.space.suggest(recorder)
            self._study.add_trial(
                self._optuna.trial.create_trial(
                    params=recorder.parameters, distributions=recorder.distributions, value=gain
                )
            )

    def _trial(self, attempt: Attempt, measured: Measured | None, error: str | None = None) -> TunedTrial:
        rung = attempt.rung
        return TunedTrial(
            attempt.number,
            dict(attempt.point),
            self.describe(attempt.point),
            self.rungs[rung],
            rung == len(self.rungs) - 1,
            measured,
            error or attempt.error,
        )


class _Recorder:
    """Stand-in for an Optuna trial that returns the values of a given point and records their distributions."""

    def __init__(self, optuna: Any, point: Point) -> None:
        self._distributions = optuna.distributions
        self._point = point
        self.parameters: Point = {}
        self.distributions: dict[str, Any] = {}

    def suggest_categorical(self, name: str, choices: list[Any]) -> Any:
        """Return the value of a categorical parameter at the given point."""
        return self._record(name, self._distributions.CategoricalDistribution(choices))

    def suggest_float(self, name: str, low: float, high: float, *, log: bool) -> Any:
        """Return the value of a floating-point parameter at the given point."""
        return self._record(name, self._distributions.FloatDistribution(low, high, log=log))

    def suggest_int(self, name: str, low: int, high: int, *, log: bool) -> Any:
        """Return the value of an integer parameter at the given point."""
        return self._record(name, self._distributions.IntDistribution(low, high, log=log))

    def _record(self, name: str, distribution: Any) -> Any:
        self.parameters[name] = self._point[name]
        self.distributions[name] = distribution
        return self._point[name]


def _distinct(points: Sequence[Point]) -> list[Point]:
    return [point for number, point in enumerate(points) if point not in points[:number]]
