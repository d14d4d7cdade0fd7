"""Several models as one: trees that were grown differently err differently, and together less."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core import storage, validation
from carya.core.matrices import Csr, Features
from carya.core.parameters import Parameterised, parameter
from carya.core.rules import Choice, Either, Integer, Real, Rule
from carya.core.validation import FeaturesLike, LabelsLike
from carya.errors import InputError, ModelFormatError, ParameterError
from carya.models.base import Model, Rankings, Verbs
from carya.models.ensemble.combine import COMBINATIONS, combine_rankings, predict_combined, ranking, ranking_of
from carya.models.ensemble.weights import best_weights
from carya.models.registry import fresh, open_saved
from carya.models.xr_linear.model import XRLinear
from carya.models.xr_linear.serialize import KIND as TREE_KIND
from carya.models.xr_linear.training import fit_together

KIND = "ensemble"

T = TypeVar("T")
U = TypeVar("U")

_LEAST_POOL = 20
_AT_ONCE = 4  # trees that train side by side: more would only take more memory
BEAM_SHARE = 1 / 2  # of a tree's own beam in search, for means: what one tree misses, another finds
_TRAINING_SHARE = 3 / 4  # the same in training: a fifth less time, and no less precise on rows held out


class _Members(Rule):
    """Models."""

    text = "a model such as XRLinear, or a list of at least one"

    def allows(self, value: object) -> bool:
        """Whether the value is a model or a list of them."""
        if isinstance(value, (list, tuple)):
            return len(value) > 0 and all(map(self.allows, value))
        return isinstance(value, Model) and not isinstance(value, type)


class _Weights(Rule):
    """Numbers, or how to find them."""

    text = "a list of numbers of at least 0, one for each member, 'learned' or None"

    def allows(self, value: object) -> bool:
        """Whether the value is such a list, or names a way."""
        if value is None or isinstance(value, str):
            return value in (None, "learned")
        weight = Real(0)
        return isinstance(value, (list, tuple, np.ndarray)) and all(weight.allows(one) for one in value)


@dataclass(eq=False, repr=False)
class Ensemble(Verbs[tuple[list[Any], NDArray[np.float32]]], Parameterised):
    """Models that rank together; they may differ in everything but the labels.

    Examples
    --------
    >>> import carya
    >>> X, Y = carya.data.make_world(500, 60, seed=1)
    >>> three = carya.Ensemble(carya.XRLinear(max_leaf=10), n_trees=3).fit(X, Y)   # three trees of other seeds
    >>> S = three.predict(X, top_k=3)
    >>> mixed = carya.Ensemble([carya.XRLinear(branching=2), carya.XRLinear(max_depth=1)], combine="rank").fit(X, Y)
    >>> labels, scores = mixed.rank(X[[0]], top_k=3)
    >>> len(labels)
    3
    """

    members: Any = parameter(
        None,
        _Members(),
        "the models; of one tree n_trees copies with other seeds, and three quarters of its beam in training unless "
        "training_beam is told",
    )
    n_trees: int | None = parameter(
        None, Either(Integer(1), Choice(None)), "how many trees of one model; None is 3 for one, or as many as given"
    )
    combine: str = parameter(
        "mean",
        Choice(*COMBINATIONS),
        "how rankings become one: mean of scores; rank, mean of places; count of members that found it; softmax or "
        "sigmoid of scores",
    )
    weights: Any = parameter(
        None, _Weights(), "how much each member counts; learned finds it on rows that members did not see"
    )
    held_out: float = parameter(0.1, Real(0, above=True, most=0.9), "the share of rows that weights are learned on")
    pool: int | None = parameter(
        None, Either(Integer(1), Choice(None)), "labels that each member suggests; None is twice top_k, at least 20"
    )
    n_jobs: int = parameter(-1, Either(Choice(-1), Integer(1)), "threads; -1 is all cores")
    seed: int = parameter(0, Integer(0, 2**63 - 1), "which rows are held out")

    def fit(
        self,
        X: FeaturesLike | list[FeaturesLike],
        Y: LabelsLike,
        *,
        label_features: FeaturesLike | None = None,
    ) -> Self:
        """Train every member. `X` is what one model takes, or a list with the features of each member."""
        self.check_parameters()
        models = self._fresh()
        pairs = _each_once(self._inputs(X, len(models)), lambda one: validation.training_pair(one, Y))
        return self._fit(models, [pair[0] for pair in pairs], pairs[0][1], label_features)

    def fit_checked(self, features: Features, labels: Csr, *, label_features: FeaturesLike | None = None) -> Self:
        """The same with matrices that came through the door, the features of all members."""
        self.check_parameters()
        models = self._fresh()
        return self._fit(models, [features] * len(models), labels, label_features)

    def _fit(
        self, models: list[Any], features: list[Features], labels: Csr, label_features: FeaturesLike | None
    ) -> Self:
        weights = self._given_weights(len(models))
        if isinstance(self.weights, str):
            weights = self._learn_weights(features, labels, label_features)
        _fit_all(models, features, labels, label_features)
        self._set_learned(models, weights)
        return self

    def predict(
        self,
        X: FeaturesLike | list[FeaturesLike],
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
    ) -> sp.csr_array:
        """Scores of the `top_k` best labels of every row, rows x labels, each row sorted best first.

        Without `beam_width`, several trees whose scores are averaged search with half of their own beams each: what one
        misses, another finds.
        With `min_score`, labels below it are left out.
        """
        models, _ = self._ready()
        inputs = self._inputs(X, len(models))
        if self._searched_as_one(beam_width) and all(one is inputs[0] for one in inputs):
            queries = validation.features_like(inputs[0], models[0].widths_)
            answer = self._search(queries, top_k, beam_width, min_score)
        else:
            pool = self._pool(validation.positive_int(top_k, "top_k"))
            found = [
                model.predict(one, top_k=pool, beam_width=beam)
                for model, one, beam in zip(models, inputs, self._beams(models, beam_width), strict=True)
            ]
            answer = self._combine([ranking_of(S) for S in found], top_k, min_score)
        indptr, labels, scores = answer
        return sp.csr_array((scores, labels, indptr), shape=(indptr.size - 1, self.n_labels_))

    def rank(
        self,
        x: FeaturesLike | list[FeaturesLike],
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The `top_k` best labels of one query and their scores, best first."""
        models, _ = self._ready()
        pool = self._pool(validation.positive_int(top_k, "top_k"))
        inputs = self._inputs(x, len(models))
        found = [
            model.rank(one, top_k=pool, beam_width=beam)
            for model, one, beam in zip(models, inputs, self._beams(models, beam_width), strict=True)
        ]
        return self._combine_one(found, top_k, min_score)

    def rank_rows(
        self,
        indptr: NDArray[np.int64],
        features: NDArray[np.int32],
        values: NDArray[np.float32],
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
    ) -> Rankings:
        """What :meth:`predict` says, from the arrays of a CSR matrix, the same for all members, to those of another."""
        models, _ = self._ready()
        if self._searched_as_one(beam_width):
            queries = validation.sparse_rows(indptr, features, values, self.widths_)
            return self._search(queries, top_k, beam_width, min_score)
        pool = self._pool(validation.positive_int(top_k, "top_k"))
        found = [
            model.rank_rows(indptr, features, values, top_k=pool, beam_width=beam)
            for model, beam in zip(models, self._beams(models, beam_width), strict=True)
        ]
        rankings = [ranking(ends, labels, scores, self.n_labels_) for ends, labels, scores in found]
        return self._combine(rankings, top_k, min_score)

    def rank_sparse(
        self,
        features: NDArray[np.int32],
        values: NDArray[np.float32],
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """What :meth:`rank` says, for the sparse features of a query as they are in a row of a CSR matrix."""
        models, _ = self._ready()
        pool = self._pool(validation.positive_int(top_k, "top_k"))
        found = [
            model.rank_sparse(features, values, top_k=pool, beam_width=beam)
            for model, beam in zip(models, self._beams(models, beam_width), strict=True)
        ]
        return self._combine_one(found, top_k, min_score)

    def _searched_as_one(self, beam_width: int | None) -> bool:
        """Whether one native pass over the rows can ask all members: trees of the same features and beam."""
        models, _ = self._ready()
        if not all(isinstance(model, XRLinear) for model in models):
            return False
        beams = self._beams(models, beam_width)
        return len({(beam, model.widths_) for beam, model in zip(beams, models, strict=True)}) == 1

    def _beams(self, models: Sequence[Any], beam_width: int | None) -> list[int | None]:
        """The beam of each member: as asked, or its own; of several trees whose scores are averaged a share of it.

        Votes and ranks need all that a tree would find: a label it misses counts as one it does not believe in.
        """
        if beam_width is not None:
            return [beam_width] * len(models)
        own = [model.beam_width if isinstance(model, XRLinear) else None for model in models]
        if self.combine != "mean" or sum(beam is not None for beam in own) < 2:
            return own
        return [None if beam is None else math.ceil(beam * BEAM_SHARE) for beam in own]

    def _search(self, queries: Features, top_k: int, beam_width: int | None, min_score: float | None) -> Rankings:
        models, weights = self._ready()
        count = validation.positive_int(top_k, "top_k")
        answer = predict_combined(
            [model.search() for model in models],
            queries,
            top_k=count,
            beam_width=validation.positive_int(self._beams(models, beam_width)[0], "beam_width"),
            pool=self._pool(count),
            combine=self.combine,
            weights=weights,
            threads=_core.thread_count(self.n_jobs),
        )
        return _at_least(answer, min_score)

    def _combine(
        self, rankings: list[_core.Csr], top_k: int, min_score: float | None, *, one: bool = False
    ) -> Rankings:
        _, weights = self._ready()
        answer = combine_rankings(
            rankings,
            combine=self.combine,
            weights=weights,
            top_k=validation.positive_int(top_k, "top_k"),
            threads=1 if one else _core.thread_count(self.n_jobs),
        )
        return _at_least(answer, min_score)

    def _combine_one(
        self, found: list[tuple[NDArray[np.int32], NDArray[np.float32]]], top_k: int, min_score: float | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        rankings = [ranking(np.array([0, labels.size]), labels, scores, self.n_labels_) for labels, scores in found]
        _, labels, scores = self._combine(rankings, top_k, min_score, one=True)
        return labels, scores

    def to_saved(self, *, precision: str | None = None) -> storage.Saved:
        """What :meth:`save` writes."""
        models, weights = self._ready()
        parts = [model.to_saved(precision=precision) for model in models]
        own: dict[str, Any] = {name: getattr(self, name) for name in ("combine", "pool", "n_jobs", "seed")}
        kinds = [part.kind for part in parts]
        if kinds != [TREE_KIND] * len(parts):
            own["kinds"] = kinds
        return storage.Saved(
            KIND,
            own | {"members": [part.parameters for part in parts], "weights": weights.tolist()},
            {"members": [part.shape for part in parts]},
            {f"{at}/{name}": array for at, part in enumerate(parts) for name, array in part.arrays.items()},
        )

    @classmethod
    def from_saved(cls, saved: storage.Saved) -> Self:
        """The ensemble in an opened folder; what :func:`carya.load` calls."""
        try:
            parameters, shapes = saved.parameters["members"], saved.shape["members"]
            kinds = saved.parameters.get("kinds", [TREE_KIND] * len(parameters))
            models = [
                open_saved(saved.part(str(at), str(kind), own, shape))
                for at, (kind, own, shape) in enumerate(zip(kinds, parameters, shapes, strict=True))
            ]
            own = {name: saved.parameters[name] for name in ("combine", "pool", "n_jobs", "seed")}
            made = cls(models, weights=saved.parameters["weights"], **own)
            made.check_parameters()
            weights = made._given_weights(len(models))
        except KeyError as error:
            raise ModelFormatError(f"the parts of the ensemble do not fit together: there is no {error}") from None
        except ModelFormatError:
            raise
        except (TypeError, ValueError, AttributeError) as error:
            raise ModelFormatError(f"the parts of the ensemble do not fit together: {error}") from None
        made._set_learned(models, weights)
        return made

    @property
    def needs_label_features(self) -> bool:
        """Whether `fit` fails without label_features: whether a member needs them."""
        return any(one.needs_label_features for one in self._given())

    @property
    def uses_label_features(self) -> bool:
        """Whether `fit` takes label_features: whether a member does."""
        return any(one.uses_label_features for one in self._given())

    def _set_learned(self, models: list[Any], weights: NDArray[np.float32]) -> None:
        sizes = {model.n_labels_ for model in models}
        if len(sizes) != 1:
            raise ModelFormatError(f"the members have different numbers of labels: {sorted(sizes)}")
        self.members_ = models
        self.weights_ = weights
        self.n_labels_ = sizes.pop()
        self.widths_ = models[0].widths_
        self._fitted = (models, weights)  # last, in one step: other threads may be asking

    def _given(self) -> list[Any]:
        return list(self.members) if isinstance(self.members, (list, tuple)) else [self.members]

    def _fresh(self) -> list[Any]:
        """The members to be trained."""
        if isinstance(self.members, (list, tuple)):
            if self.n_trees is not None:
                raise ParameterError("n_trees is for one model; a list of members has as many as it has")
            return [fresh(one) for one in self.members]
        self.members.check_parameters()
        trees = 3 if self.n_trees is None else int(self.n_trees)
        base = self.members.get_params(deep=False)
        if trees > 1 and isinstance(self.members, XRLinear) and self.members.training_beam is None:
            base["training_beam"] = math.ceil(self.members.beam_width * _TRAINING_SHARE)
        return [type(self.members)(**(base | {"seed": base["seed"] + tree})) for tree in range(trees)]

    def _given_weights(self, members: int) -> NDArray[np.float32]:
        if self.weights is None or isinstance(self.weights, str):
            return np.ones(members, np.float32)
        weights = np.asarray(self.weights, np.float32)
        if weights.shape != (members,) or not weights.sum() > 0:
            raise ParameterError(f"weights must be {members} numbers of at least 0, not all 0; got {self.weights!r}")
        return weights

    @staticmethod
    def _inputs(X: Any, members: int) -> list[Any]:
        several = (
            isinstance(X, list) and bool(X) and (isinstance(X[0], tuple) or sp.issparse(X[0]) or np.ndim(X[0]) == 2)
        )
        if not several:
            return [X] * members
        if len(X) != members:
            raise InputError(f"X is a list of {len(X)}, there are {members} members")
        return list(X)

    def _pool(self, top_k: int) -> int:
        return max(top_k, self.pool or max(2 * top_k, _LEAST_POOL))

    def _learn_weights(
        self, features: list[Features], labels: Csr, label_features: FeaturesLike | None
    ) -> NDArray[np.float32]:
        """The weights that rank rows best which the members have not seen."""
        rows = labels.rows
        order = np.random.default_rng(self.seed).permutation(rows)
        held = max(1, int(rows * self.held_out))
        if rows - held < 1:
            raise InputError(f"{rows} rows are too few to learn weights on some of them")
        seen, unseen = np.sort(order[held:]), np.sort(order[:held])
        models = self._fresh()
        Y = labels.to_scipy()
        _fit_all(models, _each_once(features, lambda one: one.take(seen)), Csr.of_scipy(Y[seen]), label_features)
        queries = _each_once(features, lambda one: one.take(unseen))
        rankings = []
        for model, one, beam in zip(models, queries, self._beams(models, None), strict=True):
            S = model.predict(one.as_given(), top_k=self._pool(5), beam_width=beam)
            rankings.append(ranking_of(S))
        threads = _core.thread_count(self.n_jobs)
        return best_weights(rankings, Y[unseen], combine=self.combine, threads=threads)


def _fit_all(
    models: Sequence[Any], features: Sequence[Features], labels: Csr, label_features: FeaturesLike | None
) -> None:
    """Train models. Trees with the same features share what they cluster labels by, and train side by side."""
    alike: dict[tuple[object, ...], tuple[Features, list[XRLinear]]] = {}
    for model, one in zip(models, features, strict=True):
        if isinstance(model, XRLinear):
            model.check_parameters()  # before its rankers are compared
            what = (id(one), model.rankers(), model.n_jobs, model.verbose, model.uses_label_features)
            alike.setdefault(what, (one, []))[1].append(model)
        else:
            model.fit_checked(one, labels, label_features=label_features if model.uses_label_features else None)
    for one, trees in alike.values():
        own = label_features if trees[0].uses_label_features else None
        shared: dict[object, Features] = {}
        for first in range(0, len(trees), _AT_ONCE):
            fit_together(trees[first : first + _AT_ONCE], one, labels, label_features=own, shared=shared)


def _each_once(items: Sequence[T], make: Callable[[T], U]) -> list[U]:
    """What is made of each item; of one that stands there several times it is made once."""
    made: dict[int, U] = {}
    for item in items:
        if id(item) not in made:
            made[id(item)] = make(item)
    return [made[id(item)] for item in items]


def _at_least(rankings: Rankings, min_score: float | None) -> Rankings:
    """Without labels below a score."""
    if min_score is None:
        return rankings
    indptr, labels, scores = rankings
    kept = scores >= validation.least_score(min_score)
    return np.concatenate([[0], np.cumsum(kept)])[indptr], labels[kept], scores[kept]
