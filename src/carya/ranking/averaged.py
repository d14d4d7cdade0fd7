"""Average several rerankers, because different models make different errors."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from carya.core.parameters import Fitted, Parameterized, parameter
from carya.core.rules import Rule
from carya.errors import InputError
from carya.ranking.boosted import BoostedRanker
from carya.ranking.neural import NeuralRanker
from carya.ranking.pairs import Pairs
from carya.ranking.ranker import Ranker, restore_ranker


class _Rankers(Rule):
    """Rule that allows a list of rankers."""

    text = "a non-empty list of rankers other than AveragedRanker, or None"

    def allows(self, value: object) -> bool:
        """Return whether the value is None or a valid list of rankers."""
        if value is None:
            return True
        if not isinstance(value, (list, tuple)) or not value:
            return False
        return all(isinstance(ranker, Ranker) and not isinstance(ranker, (type, AveragedRanker)) for ranker in value)


@dataclass(eq=False, repr=False)
class AveragedRanker(Fitted[Sequence[Ranker]], Parameterized):
    """Reranker that averages the log probabilities that several rankers assign to a query's candidates.

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

    rankers: Any = parameter(None, _Rankers(), "the rankers to average; None means BoostedRanker() and NeuralRanker()")

    def check_dependencies(self) -> None:
        """Raise MissingExtraError if a ranker requires an optional package that is not installed."""
        for ranker in self.rankers or (BoostedRanker(),):
            if isinstance(ranker, Parameterized):  # user-defined rankers need not have this method
                ranker.check_dependencies()

    @property
    def needs_texts(self) -> bool:
        """Whether any ranker reads the texts of the pairs."""
        return any(getattr(ranker, "needs_texts", False) for ranker in self.rankers or ())

    @property
    def has_files(self) -> bool:
        """Whether any fitted ranker has files that are saved with the model."""
        return any(getattr(ranker, "has_files", False) for ranker in self._check_fitted())

    def save_files(self, folder: Path) -> None:
        """Write the files of the fitted rankers to numbered subfolders."""
        for number, ranker in enumerate(self._check_fitted()):
            if getattr(ranker, "has_files", False):
                ranker.save_files(folder / str(number))  # type: ignore[attr-defined]

    def use_one_thread(self) -> None:
        """Make the fitted rankers single-threaded."""
        for ranker in self._check_fitted():
            getattr(ranker, "use_one_thread", lambda: None)()

    def fit(self, pairs: Pairs, relevance: NDArray[np.float32]) -> Self:
        """Train every ranker."""
        self.check_parameters()
        rankers: list[Any] = list(self.rankers or (BoostedRanker(), NeuralRanker()))
        self.set_fitted([copy.deepcopy(ranker).fit(pairs, relevance) for ranker in rankers])
        return self

    def score(self, pairs: Pairs) -> NDArray[np.float32]:
        """Return the mean log probability of each pair."""
        log_probabilities = [_log_softmax(ranker.score(pairs), pairs) for ranker in self._check_fitted()]
        return np.asarray(np.mean(log_probabilities, axis=0), np.float32)

    def to_saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the state of each ranker; the arrays of ranker r are prefixed with ``r.``."""
        saved = [(ranker.name, *ranker.to_saved()) for ranker in self._check_fitted()]
        arrays = {f"{number}.{key}": array for number, (_, _, own) in enumerate(saved) for key, array in own.items()}
        return {"rankers": [{"name": name, "parameters": parameters} for name, parameters, _ in saved]}, arrays

    @classmethod
    def from_saved(
        cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]], folder: Path | None = None
    ) -> Self:
        """Restore a saved ranker."""
        rankers = []
        for number, saved in enumerate(parameters["rankers"]):
            if saved["name"] == cls.name:
                raise InputError("An AveragedRanker cannot contain another AveragedRanker.")
            own = {
                key.partition(".")[2]: array for key, array in arrays.items() if key.partition(".")[0] == str(number)
            }
            subfolder = None if folder is None else folder / str(number)
            rankers.append(restore_ranker(saved["name"], dict(saved["parameters"]), own, subfolder))
        if not rankers:
            raise InputError("An AveragedRanker must contain at least one ranker.")
        ranker = cls(rankers)
        ranker.check_parameters()
        ranker.set_fitted(rankers)
        return ranker

    def set_fitted(self, rankers: Sequence[Ranker]) -> None:
        """Set the fitted state."""
        self.rankers_ = self._state = rankers


def _log_softmax(scores: NDArray[np.float32], pairs: Pairs) -> NDArray[np.float64]:
    """Return the log-softmax of the scores within each query."""
    wide = np.asarray(scores, np.float64)
    nonempty = np.flatnonzero(np.diff(pairs.offsets))
    if not nonempty.size:
        return wide
    begins, lengths = pairs.offsets[nonempty], np.diff(pairs.offsets)[nonempty]
    shifted = wide - np.repeat(np.maximum.reduceat(wide, begins), lengths)
    return np.asarray(shifted - np.repeat(np.log(np.add.reduceat(np.exp(shifted), begins)), lengths))
