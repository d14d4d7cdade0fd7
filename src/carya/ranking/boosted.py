"""Gradient-boosted trees over pair features, trained by LightGBM to order the candidates of a query (LambdaRank)."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core.parameters import Parameterised, parameter
from carya.core.rules import Choice, Either, Integer, Real
from carya.errors import InputError, NotFittedError
from carya.ranking.forest import MOST_LEAVES, Forest
from carya.ranking.pairs import Pairs

_OBJECTIVES = {"pairwise": "lambdarank", "listwise": "rank_xendcg"}


@dataclass(eq=False, repr=False, kw_only=True)
class BoostedRanker(Parameterised):
    """Boosted regression trees that learn to rank; LightGBM trains them, and is not needed to use them.

    Examples
    --------
    >>> import numpy as np
    >>> from carya.ranking import BoostedRanker, Pairs
    >>> rng = np.random.default_rng(0)
    >>> pairs = Pairs.of(rng.random((600, 2)), ["distance", "noise"], np.arange(0, 601, 6))
    >>> near = (pairs.column("distance") < 0.3).astype(np.float32)
    >>> ranker = BoostedRanker(n_trees=20, feature_share=1).fit(pairs, near)
    >>> scores = ranker.score(pairs)
    >>> bool(scores[near == 1].mean() > scores[near == 0].mean() + 1)
    True
    """

    name: ClassVar[str] = "boosted"

    objective: str = parameter(
        "pairwise",
        Choice(*_OBJECTIVES),
        "what is learned: pairwise, LambdaRank, which of two candidates is better; listwise, XE-NDCG, the order as a "
        "whole",
    )
    n_trees: int = parameter(150, Integer(1), "how many trees")
    max_leaves: int = parameter(31, Integer(2, MOST_LEAVES), f"the most leaves of a tree, up to {MOST_LEAVES}")
    least_pairs: int = parameter(50, Integer(1), "the fewest pairs in a leaf")
    learning_rate: float = parameter(0.1, Real(0, above=True), "how much each tree adds")
    feature_share: float = parameter(0.5, Real(0, above=True, most=1), "the share of features each tree may use")
    cuts: int = parameter(63, Integer(2, 255), "the most places at which a feature is cut")
    depth: int = parameter(10, Integer(1), "the places of a ranking that pairwise training looks at")
    n_jobs: int = parameter(-1, Either(Choice(-1), Integer(1)), "threads of training; -1 is all cores")
    seed: int = parameter(0, Integer(0, 2**31 - 1), "same seed, same ranker, whatever n_jobs")

    def ready(self) -> None:
        """Raise if LightGBM is missing."""
        _lightgbm()

    def fit(self, pairs: Pairs, relevance: NDArray[np.float32]) -> Self:
        """Grow the trees; `relevance` is a whole number from 0 to 30 for each pair, usually 0 or 1."""
        self.check_parameters()
        grades = _grades(relevance, len(pairs))
        lightgbm = _lightgbm()
        settings = {
            "objective": _OBJECTIVES[self.objective],
            "learning_rate": self.learning_rate,
            "num_leaves": self.max_leaves,
            "min_data_in_leaf": self.least_pairs,
            "feature_fraction": self.feature_share,
            "max_bin": self.cuts,
            "lambdarank_truncation_level": self.depth,
            "use_missing": False,  # values are finite
            "seed": self.seed,
            "num_threads": _core.thread_count(self.n_jobs),
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }
        lengths = np.diff(pairs.offsets)
        data = lightgbm.Dataset(
            pairs.values, label=grades, group=lengths[lengths > 0], params=settings, free_raw_data=True
        )
        try:
            booster = lightgbm.train(settings, data, self.n_trees)
        except lightgbm.basic.LightGBMError as error:
            if "(Column_) appears more than one time" not in str(error):
                raise
            raise InputError(
                "LightGBM cannot write numbers in this process, as the C++ runtime of another library was loaded "
                "before it; import lightgbm first, before usearch for one"
            ) from error
        trees = booster.dump_model()["tree_info"]
        self._set_learned(Forest.of_trees(trees, len(pairs.names)), pairs.names)
        return self

    def score(self, pairs: Pairs) -> NDArray[np.float32]:
        """The sum of the trees for each pair."""
        forest = self._ready()
        if pairs.names != self.names_:
            raise InputError(f"the ranker was trained on {', '.join(self.names_)}; got {', '.join(pairs.names)}")
        return forest.score(pairs.values)

    def to_saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Parameters, and the trees as tables."""
        forest = self._ready()
        arrays: dict[str, NDArray[Any]] = {"cuts": forest.cuts, "ends": forest.ends, "leaves": forest.leaves}
        arrays["masks"] = forest.masks.view(np.int32)
        return {"parameters": self.get_params(), "names": list(self.names_)}, arrays

    @classmethod
    def from_saved(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """The ranker that was kept."""
        ranker = cls(**parameters["parameters"])
        ranker.check_parameters()
        cuts, ends, masks, leaves = (arrays[name] for name in ("cuts", "ends", "masks", "leaves"))
        types = [str(one.dtype) for one in (cuts, ends, masks, leaves)]
        if types != ["float32", "int64", "int32", "float32"] or len(arrays) != 4:
            raise InputError("the arrays of the ranker are not those of trees")
        forest = Forest(cuts, ends, masks.view(np.uint32), leaves)
        names = tuple(str(name) for name in parameters["names"])
        if len(names) != forest.n_features:
            raise InputError(f"the ranker has {forest.n_features} features but {len(names)} names")
        ranker._set_learned(forest, names)
        return ranker

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "forest_")

    def _set_learned(self, forest: Forest, names: tuple[str, ...]) -> None:
        self.names_ = names
        self.forest_ = forest

    def _ready(self) -> Forest:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this BoostedRanker is not fitted yet: call fit first")
        return self.forest_


def _grades(relevance: NDArray[np.float32], pairs: int) -> NDArray[np.float32]:
    grades = np.asarray(relevance, np.float32)
    if grades.shape != (pairs,):
        raise InputError(f"relevance has the shape {grades.shape}, there are {pairs} pairs")
    if not ((grades >= 0) & (grades <= 30) & (grades == np.round(grades))).all():
        raise InputError("relevance must be whole numbers from 0 to 30")
    if not grades.any():
        raise InputError("no pair is relevant: there is nothing to learn")
    return grades


def _lightgbm() -> Any:
    try:
        return importlib.import_module("lightgbm")
    except ImportError:
        raise InputError("training a BoostedRanker needs lightgbm; pip install 'carya[gbdt]'") from None
