"""Several rankers of pairs as one: those that learn differently err differently."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from carya.core.parameters import Parameterised, parameter
from carya.core.rules import Rule
from carya.errors import InputError, NotFittedError
from carya.ranking.boosted import BoostedRanker
from carya.ranking.neural import NeuralRanker
from carya.ranking.pairs import Pairs
from carya.ranking.ranker import Ranker, ranker_of


class _Rankers(Rule):
    """Rankers."""

    text = "a list of at least one Ranker, none of them averaged itself, or None"

    def allows(self, value: object) -> bool:
        """Whether the value is such a list."""
        if value is None:
            return True
        if not isinstance(value, (list, tuple)) or not value:
            return False
        return all(isinstance(one, Ranker) and not isinstance(one, (type, AveragedRanker)) for one in value)


@dataclass(eq=False, repr=False)
class AveragedRanker(Parameterised):
    """The mean of what several rankers say, each brought to the logarithm of a probability among a query's candidates.

    Examples
    --------
    >>> import numpy as np
    >>> from carya.ranking import AveragedRanker, NeuralRanker, Pairs
    >>> rng = np.random.default_rng(0)
    >>> pairs = Pairs.of(rng.random((600, 2)), ["distance", "noise"], np.arange(0, 601, 6))
    >>> near = (pairs.column("distance") < 0.3).astype(np.float32)
    >>> ranker = AveragedRanker([NeuralRanker(), NeuralRanker(seed=1)]).fit(pairs, near)
    >>> bool(ranker.score(pairs)[near == 1].mean() > ranker.score(pairs)[near == 0].mean() + 1)
    True
    """

    name: ClassVar[str] = "averaged"

    rankers: Any = parameter(None, _Rankers(), "the rankers; None is BoostedRanker() and NeuralRanker()")

    def ready(self) -> None:
        """Raise if what a ranker is trained with is missing."""
        for one in self.rankers or (BoostedRanker(),):
            getattr(one, "ready", lambda: None)()

    def fit(self, pairs: Pairs, relevance: NDArray[np.float32]) -> Self:
        """Train every ranker."""
        self.check_parameters()
        rankers: list[Any] = list(self.rankers or (BoostedRanker(), NeuralRanker()))
        self.rankers_: Sequence[Ranker] = [copy.deepcopy(one).fit(pairs, relevance) for one in rankers]
        return self

    def score(self, pairs: Pairs) -> NDArray[np.float32]:
        """The mean of the logarithms of probabilities."""
        if not hasattr(self, "rankers_"):
            raise NotFittedError("this AveragedRanker is not fitted yet: call fit first")
        return np.asarray(np.mean([_shares(one.score(pairs), pairs) for one in self.rankers_], axis=0), np.float32)

    def to_saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What each ranker keeps; arrays of ranker r have ``r.`` before their names."""
        if not hasattr(self, "rankers_"):
            raise NotFittedError("this AveragedRanker is not fitted yet: call fit first")
        kept = [(one.name, *one.to_saved()) for one in self.rankers_]
        arrays = {f"{at}.{key}": array for at, (_, _, mine) in enumerate(kept) for key, array in mine.items()}
        return {"rankers": [{"name": name, "parameters": parameters} for name, parameters, _ in kept]}, arrays

    @classmethod
    def from_saved(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The ranker that was kept."""
        rankers = []
        for at, one in enumerate(parameters["rankers"]):
            if one["name"] == cls.name:
                raise InputError("an averaged ranker cannot hold another")
            mine = {key.partition(".")[2]: array for key, array in arrays.items() if key.partition(".")[0] == str(at)}
            rankers.append(ranker_of(one["name"]).from_saved(dict(one["parameters"]), mine))
        if not rankers:
            raise InputError("an averaged ranker needs rankers")
        ranker = cls(rankers)
        ranker.check_parameters()
        ranker.rankers_ = rankers
        return ranker


def _shares(scores: NDArray[np.float32], pairs: Pairs) -> NDArray[np.float64]:
    """Scores less the logarithm of the sum of their exponentials in each query."""
    wide = np.asarray(scores, np.float64)
    some = np.flatnonzero(np.diff(pairs.offsets))
    if not some.size:
        return wide
    begins, lengths = pairs.offsets[some], np.diff(pairs.offsets)[some]
    level = wide - np.repeat(np.maximum.reduceat(wide, begins), lengths)
    return np.asarray(level - np.repeat(np.log(np.add.reduceat(np.exp(level), begins)), lengths))
