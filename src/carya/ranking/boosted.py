"""Gradient-boosted tree reranker, trained with LightGBM (LambdaRank)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core.extras import require
from carya.core.parameters import Fitted, Parameterized, parameter
from carya.core.rules import Choice, Either, Integer, Real
from carya.errors import InputError
from carya.ranking.forest import MAX_LEAVES, Forest
from carya.ranking.pairs import Pairs

_OBJECTIVES = {"pairwise": "lambdarank", "listwise": "rank_xendcg"}
_MAX_GRADE = 30


class _BoostedState(NamedTuple):
    forest: Forest
    names: tuple[str, ...]


@dataclass(eq=False, repr=False, kw_only=True)
class BoostedRanker(Fitted[_BoostedState], Parameterized):
    """Gradient-boosted regression trees for ranking; LightGBM is required only for training.

    Examples
    --------
    >>> import numpy as np
    >>> from carya.ranking import BoostedRanker, Pairs
    >>> rng = np.random.default_rng(0)
    >>> pairs = Pairs.of(rng.random((600, 2)), ["distance", "noise"], np.arange(0, 601, 6))
    >>> near = (pairs.column("distance") < 0.3).astype(np.float32)
    >>> ranker = BoostedRanker(n_estimators=20, max_features=1).fit(pairs, near)
    >>> scores = ranker.score(pairs)
    >>> bool(scores[near == 1].mean() > scores[near == 0].mean() + 1)
    True
    """

    name: ClassVar[str] = "boosted"

    objective: str = parameter(
        "pairwise", Choice(*_OBJECTIVES), "training objective: pairwise (LambdaRank) or listwise (XE-NDCG)"
    )
    n_estimators: int = parameter(150, Integer(1), "number of trees")
    max_leaf_nodes: int = parameter(31, Integer(2, MAX_LEAVES), "maximum number of leaves per tree")
    min_samples_leaf: int = parameter(50, Integer(1), "minimum number of pairs per leaf")
    learning_rate: float = parameter(0.1, Real(0, open_low=True), "shrinkage of each tree's contribution")
    max_features: float = parameter(0.5, Real(0, 1, open_low=True), "fraction of the features available to each tree")
    negative_fraction: float = parameter(
        1.0,
        Real(0, 1, open_low=True),
        "fraction of the pairs with relevance 0 on which the trees are trained, chosen at random; a smaller fraction "
        "makes training faster",
    )
    max_bins: int = parameter(63, Integer(2, 255), "maximum number of bins per feature")
    truncation_level: int = parameter(10, Integer(1), "number of top ranks considered by the pairwise objective")
    n_jobs: int = parameter(-1, Either(Choice(-1), Integer(1)), "number of training threads; -1 means all cores")
    seed: int = parameter(0, Integer(0, 2**31 - 1), "random seed; results do not depend on n_jobs")

    def check_dependencies(self) -> None:
        """Raise MissingExtraError if LightGBM is not installed."""
        _lightgbm()

    def fit(self, pairs: Pairs, relevance: NDArray[np.float32]) -> Self:
        """Train the trees; `relevance` contains one integer from 0 to 30 per pair, usually 0 or 1."""
        self.check_parameters()
        grades = pairs.check_relevance(relevance)
        invalid = grades[(grades > _MAX_GRADE) | (grades != np.round(grades))]
        if invalid.size:
            raise InputError(f"relevance must contain only integers from 0 to {_MAX_GRADE}, got {invalid[0]:g}.")
        lightgbm = _lightgbm()
        settings = {
            "objective": _OBJECTIVES[self.objective],
            "learning_rate": self.learning_rate,
            "num_leaves": self.max_leaf_nodes,
            "min_data_in_leaf": self.min_samples_leaf,
            "feature_fraction": self.max_features,
            "max_bin": self.max_bins,
            "lambdarank_truncation_level": self.truncation_level,
            "use_missing": False,  # all values are finite
            "seed": self.seed,
            "num_threads": _core.thread_count(self.n_jobs),
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
        }
        pairs, grades = self._sample_negatives(pairs, grades)
        lengths = np.diff(pairs.offsets)
        data = lightgbm.Dataset(
            pairs.values, label=grades, group=lengths[lengths > 0], params=settings, free_raw_data=True
        )
        try:
            booster = lightgbm.train(settings, data, self.n_estimators)
        except lightgbm.basic.LightGBMError as error:
            if "(Column_) appears more than one time" not in str(error):
                raise
            raise InputError(
                "LightGBM cannot format numbers in this process because another library, such as usearch, loaded its "
                "own C++ runtime first. Import lightgbm before that library."
            ) from error
        trees = booster.dump_model()["tree_info"]
        self.set_fitted(Forest.of_trees(trees, len(pairs.names)), pairs.names)
        return self

    def score(self, pairs: Pairs) -> NDArray[np.float32]:
        """Return the sum of the tree outputs for each pair."""
        forest, names = self._check_fitted()
        pairs.check_names(names)
        return forest.score(pairs.values)

    def to_saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the parameters and the lookup tables of the trees."""
        forest, names = self._check_fitted()
        arrays: dict[str, NDArray[Any]] = {"cuts": forest.cuts, "ends": forest.ends, "leaves": forest.leaves}
        arrays["masks"] = forest.masks.view(np.int32)
        return {"parameters": self.get_params(), "names": list(names)}, arrays

    @classmethod
    def from_saved(cls, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Restore a saved ranker."""
        ranker = cls.from_saved_parameters(parameters["parameters"])
        cuts, ends, masks, leaves = (arrays[name] for name in ("cuts", "ends", "masks", "leaves"))
        dtypes = [str(array.dtype) for array in (cuts, ends, masks, leaves)]
        if dtypes != ["float32", "int64", "int32", "float32"] or len(arrays) != 4:
            raise InputError("The arrays of the ranker do not form a forest.")
        forest = Forest(cuts, ends, masks.view(np.uint32), leaves)
        names = tuple(str(name) for name in parameters["names"])
        if len(names) != forest.n_features:
            raise InputError(f"The ranker has {forest.n_features} features but {len(names)} feature names.")
        ranker.set_fitted(forest, names)
        return ranker

    def _sample_negatives(self, pairs: Pairs, grades: NDArray[np.float32]) -> tuple[Pairs, NDArray[np.float32]]:
        """Return the pairs on which the trees are trained: all relevant pairs, and a fraction of the other pairs."""
        if self.negative_fraction == 1:
            return pairs, grades
        kept = (grades > 0) | (np.random.default_rng(self.seed).random(grades.size) < self.negative_fraction)
        offsets = np.concatenate([[0], np.cumsum(kept)])[pairs.offsets].astype(np.int64)
        return Pairs(np.ascontiguousarray(pairs.values[kept]), pairs.names, offsets), grades[kept]

    def set_fitted(self, forest: Forest, names: tuple[str, ...]) -> None:
        """Set the fitted state."""
        self._state = _BoostedState(forest, names)


def _lightgbm() -> Any:
    return require("lightgbm", extra="gbdt", purpose="Training a BoostedRanker")
