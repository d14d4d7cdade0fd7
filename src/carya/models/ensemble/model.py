"""Ensembles: several models combined into one."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core import validation
from carya.core.inputs.feature_names import check_feature_names
from carya.core.inputs.labels import LabelNames, match_candidates
from carya.core.matrices import Features
from carya.core.parameters import Parameterized, parameter
from carya.core.rules import Choice, Either, Integer, Real, Rule
from carya.core.storage import SavedModel, consistent_parts
from carya.core.validation import FeaturesLike, LabelsLike, QueryArrays
from carya.errors import InputError, ModelFormatError, ParameterError
from carya.models.base import BaseModel, check_tree, select_tree
from carya.models.calibration.calibration import Calibration
from carya.models.calibration.cross_fitting import TOP_K as CALIBRATION_TOP_K
from carya.models.calibration.cross_fitting import check_folds, learn_from_splits
from carya.models.calibration.training_rows import TrainingRows
from carya.models.ensemble.combine import (
    COMBINATIONS,
    combine_rankings,
    drop_below,
    matrix_to_native,
    pool_size,
    predict_combined,
    to_native,
)
from carya.models.ensemble.serialize import pack, unpack
from carya.models.ensemble.training import fit_members, map_distinct
from carya.models.ensemble.weights import MemberWeights, best_weights, check_weights
from carya.models.interface import Model, RankOptions
from carya.models.new_labels import NewLabels
from carya.models.training_data import TrainingData, coerce_labels_of_rows, features_of, split_data
from carya.models.xr_linear.model import XRLinear
from carya.ranking.tasks.engine import Engine
from carya.trees.beam_search import Rankings
from carya.trees.label_tree import LabelTree

# The fractions of a tree's beam width that an ensemble uses for searching (if scores are averaged) and for training.
# The other trees retrieve the labels that one tree misses, so narrower beams save time without reducing the precision
# on held-out rows.
BEAM_SHARE = 1 / 2
_TRAINING_BEAM_SHARE = 3 / 4
_DEFAULT_TREES = 3
_SAVED_PARAMETERS = ("combine", "pool_size", "n_jobs", "seed")


class _Members(Rule):
    """Rule that allows a model or a list of models."""

    text = "a model such as XRLinear, or a non-empty list of models"

    def allows(self, value: object) -> bool:
        """Return whether the value is a model or a list of models."""
        if isinstance(value, (list, tuple)):
            return len(value) > 0 and all(map(self.allows, value))
        return isinstance(value, Model) and not isinstance(value, type)


class _EnsembleState(NamedTuple):
    members: list[Any]
    weights: NDArray[np.float32]

    @property
    def widths(self) -> tuple[int, int]:
        widths: tuple[int, int] = self.members[0].widths_
        return widths

    @property
    def n_labels(self) -> int:
        return int(self.members[0].n_labels_)


@dataclass(eq=False, repr=False)
class Ensemble(BaseModel[_EnsembleState], Parameterized):
    """Combination of models that rank the same labels but may differ in all other respects.

    Examples
    --------
    >>> import carya
    >>> X, Y = carya.data.make_world(500, 60, seed=1)
    >>> three = carya.Ensemble(carya.XRLinear(max_leaf_size=10), n_trees=3).fit(X, Y)   # three trees, different seeds
    >>> S = three.predict(X, top_k=3)
    >>> mixed = carya.Ensemble([carya.XRLinear(branching=2), carya.XRLinear(max_depth=1)], combine="rank").fit(X, Y)
    >>> labels, scores = mixed.rank(X[[0]], top_k=3)
    >>> len(labels)
    3
    """

    _restricts_labels: ClassVar[bool] = True

    members: Any = parameter(
        None,
        _Members(),
        "the models; a single model is trained n_trees times with different seeds; if it is a tree, it is trained with "
        "three quarters of its beam width unless training_beam_width is set",
    )
    n_trees: int | None = parameter(
        None, Either(Integer(1), Choice(None)), "number of copies of a single model; None means 3"
    )
    combine: str = parameter(
        "mean",
        Choice(*COMBINATIONS),
        "how rankings are combined: mean (mean score), rank (mean rank), count (number of members that retrieve the "
        "label), softmax or sigmoid (mean softmax or sigmoid of the scores), or round_robin (the best label from each "
        "member in turn, then the second-best labels, and so on)",
    )
    weights: Any = parameter(
        None,
        MemberWeights(),
        "weights of the members; learned chooses them on held-out rows, and None means equal weights",
    )
    validation_fraction: float = parameter(
        0.1, Real(0, 0.9, open_low=True), "fraction of held-out rows, from which the weights are learned"
    )
    pool_size: int | None = parameter(
        None,
        Either(Integer(1), Choice(None)),
        "number of labels considered per member; None means twice top_k, but at least 20",
    )
    n_jobs: int = parameter(-1, Either(Choice(-1), Integer(1)), "number of threads; -1 means all cores")
    seed: int = parameter(0, Integer(0, 2**63 - 1), "random seed for choosing the held-out rows")
    verbose: bool = parameter(False, Choice(True, False), "show the progress bars of all members on standard error")

    def check_parameters(self) -> None:
        """Raise ParameterError for the first invalid parameter, including those of the members."""
        for member in self._member_list():
            if isinstance(member, Parameterized) and not isinstance(member, Model):
                raise ParameterError(
                    f"members contains {type(member).__name__}, which is not a model for feature matrices. Use "
                    "carya.TextEnsemble to combine text models."
                )
        super().check_parameters()
        if self.n_trees is not None and isinstance(self.members, (list, tuple)):
            raise ParameterError(
                "n_trees requires a single model, but members is a list. Omit n_trees, or pass a single model."
            )
        for member in self._member_list():
            member.check_parameters()

    def check_dependencies(self) -> None:
        """Raise MissingExtraError if a member requires an optional package that is not installed."""
        for member in self._member_list():
            member.check_dependencies()

    def fit(
        self,
        X: FeaturesLike | list[FeaturesLike],
        Y: LabelsLike | None = None,
        *,
        label_names: LabelNames | None = None,
        sample_weight: ArrayLike | None = None,
        label_features: FeaturesLike | None = None,
        label_graph: LabelsLike | None = None,
        shortlist: LabelsLike | None = None,
        tree: LabelTree | None = None,
        engine: Engine | None = None,
        calibrate: bool | int = False,
    ) -> Self:
        """Train every member.

        Parameters
        ----------
        X : features, as in :meth:`XRLinear.fit`, or a list with the features for each member
        Y, label_names : as in :meth:`XRLinear.fit`
        sample_weight : array_like of shape (n,), optional
            Weights of the rows, passed to all members; see :meth:`XRLinear.fit`. Raises InputError if a member does not
            support weights.
        label_features, label_graph, shortlist : optional
            See :meth:`XRLinear.fit`; passed to the members that use them.
        tree : LabelTree, optional
            The label tree for all members that are XRLinear models without their own `tree`.
        engine : RayEngine, optional
            The engine that trains the members that are XRLinear models; see :meth:`XRLinear.fit`.
        calibrate : bool or int
            Whether to learn probabilities (:meth:`predict_proba`). For each of 3 folds, a model trained on the
            other folds ranks the rows of this fold; the final model is trained on all rows. An integer is the number
            of folds.
        """
        self.check_parameters()
        members = self.unfitted_members()
        X, Y = split_data(X, Y)
        labels = coerce_labels_of_rows(Y, label_names)  # converted only once, because Y can be an iterator
        options: dict[str, Any] = {
            "sample_weight": sample_weight,
            "label_features": label_features,
            "label_graph": label_graph,
            "shortlist": shortlist,
            "tree": check_tree(tree),
            "engine": engine,
        }
        checked = map_distinct(self._inputs(X, len(members)), lambda own: TrainingData.of(own, labels, **options))
        features = [data.features for data in checked]
        folds = check_folds(calibrate)
        calibration = self._cross_fit(features, checked[0], folds) if folds else None
        self._fit(members, features, checked[0], [own.feature_names for own in checked])
        self.set_label_ids(checked[0].label_ids)
        self.set_calibration(calibration, TrainingRows.of(features[0]))
        return self

    def _cross_fit(self, features: list[Features], data: TrainingData, folds: int) -> Calibration:
        """Return the calibration learned from held-out rows; the members can have different features."""

        def predict(train: NDArray[np.int64], held_out: NDArray[np.int64]) -> Any:
            part = self.clone()
            parts = map_distinct(features, lambda own: own.take(train))
            part._fit(part.unfitted_members(), parts, data.take(train), [None] * len(parts))
            return part.predict(
                map_distinct(features, lambda own: own.take(held_out).to_input()), top_k=CALIBRATION_TOP_K
            )

        return learn_from_splits(data, folds, predict, seed=int(self.seed))

    def fit_data(self, data: TrainingData) -> Self:
        """Train every member on the same validated data."""
        self.check_parameters()
        members = self.unfitted_members()
        return self._fit(members, [data.features] * len(members), data, [data.feature_names] * len(members))

    def _fit(
        self,
        members: list[Any],
        features: list[Features],
        data: TrainingData,
        names: list[tuple[str, ...] | None],
    ) -> Self:
        weights = check_weights(self.weights, len(members))
        data.check_used(members)
        if isinstance(self.weights, str):
            weights = self._learn_weights(features, data)
        fit_members(members, features, data)
        is_shared = len(set(names)) == 1
        for member, own_names in zip(members, names, strict=True):
            member.set_feature_names(None if is_shared else own_names)
        self.set_fitted(members, weights)
        self.set_feature_names(names[0] if is_shared else None)
        return self

    def predict(
        self,
        X: FeaturesLike | list[FeaturesLike],
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: ArrayLike | None = None,
        as_frame: bool = False,
    ) -> Any:
        """Return the scores of the best labels as a (rows, labels) matrix; each row is sorted by descending score.

        By default, if the scores of several trees are averaged, each tree is searched with half of its beam width.

        Parameters
        ----------
        X : features, in any form that `fit` accepts
        top_k, beam_width, min_score, transform, labels, as_frame
            See :meth:`XRLinear.predict`.
        """
        return super().predict(
            X,
            top_k=top_k,
            beam_width=beam_width,
            min_score=min_score,
            transform=transform,
            labels=labels,
            as_frame=as_frame,
        )

    def _rank_input(
        self, state: _EnsembleState, X: FeaturesLike | list[FeaturesLike], options: RankOptions
    ) -> Rankings:
        inputs = self._check_inputs(X, state.members)
        width = self._common_beam_width(state.members, options) if all(own is inputs[0] for own in inputs) else None
        if width is not None:
            queries = validation.check_features_like(inputs[0], state.widths)
            return self._search_together(state, queries, width, options)
        limits = self._member_limits(state.members, options)
        matrices = [
            member.predict(own, **limit) for member, own, limit in zip(state.members, inputs, limits, strict=True)
        ]
        return self._combine(state, [matrix_to_native(S) for S in matrices], options)

    def predict_selected(self, X: FeaturesLike | list[FeaturesLike], candidates: LabelsLike) -> sp.csr_array:
        """Return the mean scores of the given (row, label) pairs, even for labels that a search would not retrieve.

        Requires ``combine="mean"`` and members that can score arbitrary labels; raises InputError otherwise.

        Parameters
        ----------
        X : features, in any form that `fit` accepts
        candidates : as in :meth:`XRLinear.predict_selected`
        """
        members, weights = self._check_fitted()
        if not self.scores_any_label:
            raise InputError(
                "This ensemble can score only the labels that a search returns. predict_selected requires "
                "combine='mean' and members that can score arbitrary labels, such as XRLinear."
            )
        inputs = self._check_inputs(X, members)
        rows = validation.check_features_like(inputs[0], members[0].widths_).rows
        pairs = match_candidates(candidates, self.labels_, rows, nested_is_matrix=True)
        matrix = pairs.to_scipy()
        scores = [member.predict_selected(own, matrix).data for member, own in zip(members, inputs, strict=True)]
        mean = np.average(scores, axis=0, weights=weights).astype(np.float32)
        return sp.csr_array((mean, pairs.indices, pairs.indptr), shape=(pairs.rows, pairs.cols))

    def explain(self, x: FeaturesLike | list[FeaturesLike], label: int | str, *, tree: int | None = None) -> Any:
        """Explain the score that one tree assigns to a label; see :meth:`XRLinear.explain`.

        Parameters
        ----------
        x : one feature row, or a list with one row per member
        label : int or str
            The index or the name of a label.
        tree : int
            The index of a tree in `trees_`. Its score is explained, because the combined score is not a sum over
            features.
        """
        members = self._check_fitted().members
        chosen = select_tree(type(self).__name__, self.trees_, tree, is_single=False)
        inputs = self._check_inputs(x, members)
        own = next(own for member, own in zip(members, inputs, strict=True) if chosen in getattr(member, "trees_", ()))
        return chosen.explain(own, self._label_number(label))

    def rank(
        self,
        x: FeaturesLike | list[FeaturesLike],
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: ArrayLike | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the `top_k` best labels for one query and their scores, best first."""
        if transform is not None:
            return self.with_transform(transform).rank(
                x, top_k=top_k, beam_width=beam_width, min_score=min_score, labels=labels
            )
        state = self._check_fitted()
        options = self._rank_options(state, top_k, beam_width, min_score, labels)
        inputs, limits = self._check_inputs(x, state.members), self._member_limits(state.members, options)
        rankings = [member.rank(own, **limit) for member, own, limit in zip(state.members, inputs, limits, strict=True)]
        return self._combine_one(state, rankings, options)

    def _rank_batch(self, state: _EnsembleState, queries: Features, options: RankOptions) -> Rankings:
        """Rank sparse rows for `rank_rows`, where, unlike in `predict`, all members use the same features."""
        width = self._common_beam_width(state.members, options)
        if width is not None:
            return self._search_together(state, queries, width, options)
        arrays = queries.sparse.indptr, queries.sparse.indices, queries.sparse.values
        limits = self._member_limits(state.members, options)
        rankings = [member.rank_rows(*arrays, **limit) for member, limit in zip(state.members, limits, strict=True)]
        return self._combine(state, [to_native(ranking, state.n_labels) for ranking in rankings], options)

    def _rank_one(
        self, state: _EnsembleState, query: QueryArrays, options: RankOptions
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Rank a sparse query for `rank_sparse`, where, unlike in `rank`, all members use the same features."""
        features, values, _ = query
        limits = self._member_limits(state.members, options)
        rankings = [
            member.rank_sparse(features, values, **limit) for member, limit in zip(state.members, limits, strict=True)
        ]
        return self._combine_one(state, rankings, options)

    def _member_limits(self, members: Sequence[Any], options: RankOptions) -> list[dict[str, Any]]:
        """Return the options for each member: the number of labels, the beam width and the labels to rank."""
        limits: dict[str, Any] = {"top_k": self._pool(options)}
        if options.labels is not None:
            limits["labels"] = options.labels
        return [limits | {"beam_width": width} for width in self._beam_widths(members, options)]

    def _common_beam_width(self, members: Sequence[Any], options: RankOptions) -> int | None:
        """Return the beam width for a single native search in all trees; None if such a search is not possible."""
        if options.labels is not None or not all(isinstance(member, XRLinear) for member in members):
            return None
        widths = self._beam_widths(members, options)
        if len({(width, member.widths_) for width, member in zip(widths, members, strict=True)}) > 1:
            return None
        return validation.check_positive_int(widths[0], "beam_width")

    def _beam_widths(self, members: Sequence[Any], options: RankOptions) -> list[int | None]:
        """Return the beam width of each member: the requested beam width or, by default, the member's own.

        By default, if the scores of several trees are averaged, half of each tree's own beam width is used. The other
        combination methods require the full beam width, because they treat a label that a tree misses as irrelevant.
        """
        if options.beam_width is not None:
            return [options.beam_width] * len(members)
        own = [member.beam_width if isinstance(member, XRLinear) else None for member in members]
        if self.combine != "mean" or sum(width is not None for width in own) < 2:
            return own
        return [None if width is None else math.ceil(width * BEAM_SHARE) for width in own]

    def _search_together(
        self, state: _EnsembleState, queries: Features, beam_width: int, options: RankOptions
    ) -> Rankings:
        rankings = predict_combined(
            [member.searcher for member in state.members],
            queries,
            top_k=options.top_k,
            beam_width=beam_width,
            pool_size=self._pool(options),
            combine=self.combine,
            weights=state.weights,
            threads=_core.thread_count(self.n_jobs),
        )
        return drop_below(rankings, options.min_score)

    def _combine(
        self, state: _EnsembleState, rankings: list[_core.Csr], options: RankOptions, *, threads: int | None = None
    ) -> Rankings:
        combined = combine_rankings(
            rankings,
            combine=self.combine,
            weights=state.weights,
            top_k=options.top_k,
            threads=_core.thread_count(self.n_jobs) if threads is None else threads,
        )
        return drop_below(combined, options.min_score)

    def _combine_one(
        self,
        state: _EnsembleState,
        rankings: list[tuple[NDArray[np.int32], NDArray[np.float32]]],
        options: RankOptions,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        native = [
            to_native((np.array([0, labels.size]), labels, scores), state.n_labels) for labels, scores in rankings
        ]
        _, labels, scores = self._combine(state, native, options, threads=1)
        return labels, scores

    def _copy_with_transform(self, state: _EnsembleState, transform: str | Sequence[str]) -> Self:
        return self._copy_with_members([member.with_transform(transform) for member in state.members], state)

    def _copy_with_labels(self, state: _EnsembleState, labels: NDArray[np.int32]) -> Self:
        return self._copy_with_members([member.subset(labels) for member in state.members], state)

    def _check_adds_labels(self) -> None:
        members = self._check_fitted().members
        kinds = sorted({type(member).__name__ for member in members if not isinstance(member, XRLinear)})
        if kinds:
            raise InputError(
                f"add_labels requires an Ensemble of XRLinear models, but this one contains {', '.join(kinds)}. Train "
                "the ensemble again with the new labels."
            )
        if len({member.widths_ for member in members}) > 1:
            raise InputError(
                "add_labels requires members with the same features. Train the ensemble again with the new labels."
            )

    def _insert_labels(self, state: _EnsembleState, new: NewLabels) -> None:
        members = [copy.copy(member) for member in state.members]  # other threads may be ranking with the originals
        for member in members:
            member._insert_labels(member._check_fitted(), new)
        self.set_fitted(members, state.weights)

    def _copy_with_members(self, members: list[Any], state: _EnsembleState) -> Self:
        """Return a fitted ensemble with different members and the same weights."""
        ensemble = self.clone(members=members, n_trees=None, weights=state.weights.tolist())
        ensemble.set_fitted(members, state.weights)
        ensemble.set_feature_names(self._feature_names())
        return ensemble

    def to_saved(self, *, weight_dtype: str | None = None) -> SavedModel:
        """Return the contents of a model folder."""
        members, weights = self._check_fitted()
        own = {name: getattr(self, name) for name in _SAVED_PARAMETERS}
        parameters = own | ({"verbose": True} if self.verbose else {})
        return self._with_feature_names(pack(members, weights, parameters, weight_dtype))

    @classmethod
    def from_saved(cls, saved: SavedModel) -> Self:
        """Restore an ensemble from an opened folder; called by :func:`carya.load`."""
        members, own = unpack(saved)
        with consistent_parts():
            required = {*_SAVED_PARAMETERS, "weights"}
            if set(own) - {"verbose"} != required:
                raise InputError(
                    f"The ensemble has the parameters {', '.join(sorted(own))}, but must have "
                    f"{', '.join(sorted(required))}."
                )
            ensemble = cls.from_saved_parameters(own | {"members": members})
            ensemble.set_fitted(members, check_weights(ensemble.weights, len(members)))
            ensemble._restore_feature_names(saved)
            return ensemble

    @property
    def scores_any_label(self) -> bool:
        """Whether `predict_selected` can score labels that a search would not retrieve."""
        members = self.members_ if self.__sklearn_is_fitted__() else self._member_list()
        return self.combine == "mean" and all(member.scores_any_label for member in members)

    @property
    def needs_label_features(self) -> bool:
        """Whether any member requires `label_features` in `fit`."""
        return any(member.needs_label_features for member in self._member_list())

    @property
    def ranks_unseen_labels(self) -> bool:
        """Whether all members rank labels without training rows by their features."""
        return all(getattr(member, "ranks_unseen_labels", False) for member in self._member_list())

    @property
    def uses_label_features(self) -> bool:
        """Whether any member accepts `label_features` in `fit`."""
        return any(member.uses_label_features for member in self._member_list())

    @property
    def uses_label_graph(self) -> bool:
        """Whether any member accepts `label_graph` in `fit`."""
        return any(member.uses_label_graph for member in self._member_list())

    @property
    def uses_shortlist(self) -> bool:
        """Whether any member accepts `shortlist` in `fit`."""
        return any(member.uses_shortlist for member in self._member_list())

    @property
    def uses_tree(self) -> bool:
        """Whether any member accepts a tree in `fit`."""
        return any(member.uses_tree for member in self._member_list())

    @property
    def uses_engine(self) -> bool:
        """Whether an engine can train a member on other machines."""
        return any(member.uses_engine for member in self._member_list())

    def set_fitted(self, members: list[Any], weights: NDArray[np.float32]) -> None:
        """Set the fitted state."""
        sizes = {member.n_labels_ for member in members}
        if len(sizes) != 1:
            raise ModelFormatError(f"The members have different numbers of labels: {sorted(sizes)}.")
        self.members_ = members
        self.weights_ = weights
        # assigned last and atomically, because other threads may be ranking
        self._state = _EnsembleState(members, weights)

    def _member_list(self) -> list[Any]:
        return list(self.members) if isinstance(self.members, (list, tuple)) else [self.members]

    @property
    def effective_n_trees(self) -> int:
        """The number of trees to train if `members` is a single model."""
        return _DEFAULT_TREES if self.n_trees is None else int(self.n_trees)

    def unfitted_members(self) -> list[Any]:
        """Return the unfitted members to train."""
        verbose = {"verbose": True} if self.verbose else {}
        if isinstance(self.members, (list, tuple)):
            return [member.clone(**verbose) for member in self.members]
        trees = self.effective_n_trees
        changes: dict[str, Any] = {**verbose}
        if trees > 1 and isinstance(self.members, XRLinear) and self.members.training_beam_width is None:
            changes["training_beam_width"] = math.ceil(self.members.beam_width * _TRAINING_BEAM_SHARE)
        return [self.members.clone(**changes, seed=self.members.seed + tree) for tree in range(trees)]

    @staticmethod
    def _inputs(X: Any, n_members: int) -> list[Any]:
        """Return the features for each member."""
        per_member = (
            isinstance(X, list) and bool(X) and (isinstance(X[0], tuple) or sp.issparse(X[0]) or np.ndim(X[0]) == 2)
        )
        if not per_member:
            return [X] * n_members
        if len(X) != n_members:
            raise InputError(
                f"X is a list of {len(X)} inputs, but the ensemble has {n_members} members. Pass one input per member."
            )
        return list(X)

    def _calibration_rows(self, state: Any, X: Any) -> Features:
        return validation.check_features_like(self._check_inputs(X, state.members)[0], state.widths)

    def _check_inputs(self, X: Any, members: Sequence[Any]) -> list[Any]:
        """Return the features for each member, after checking the columns of data frames."""
        inputs = self._inputs(features_of(X), len(members))
        for member, own in zip(members, inputs, strict=True):
            for model in (self, member):
                check_feature_names(own, getattr(model, "feature_names_in_", None))
        return inputs

    def _pool(self, options: RankOptions) -> int:
        return pool_size(self.pool_size, options.top_k)

    def _learn_weights(self, features: list[Features], data: TrainingData) -> NDArray[np.float32]:
        """Return the weights with the highest precision on held-out rows."""
        rows = data.labels.rows
        order = np.random.default_rng(self.seed).permutation(rows)
        n_held_out = max(1, int(rows * self.validation_fraction))
        if rows - n_held_out < 1:
            raise InputError(f"weights='learned' requires at least 2 rows, got {rows}.")
        train, held_out = np.sort(order[n_held_out:]), np.sort(order[:n_held_out])
        members = self.unfitted_members()
        train_data = data.take(train)
        fit_members(members, map_distinct(features, lambda own: own.take(train)), train_data)
        queries = map_distinct(features, lambda own: own.take(held_out))
        options = RankOptions.of(5, None, None)
        limits = self._member_limits(members, options)
        rankings = [
            matrix_to_native(member.predict(own.to_input(), **limit))
            for member, own, limit in zip(members, queries, limits, strict=True)
        ]
        threads = _core.thread_count(self.n_jobs)
        truth = data.labels.take(held_out).to_scipy()
        return best_weights(rankings, truth, combine=self.combine, threads=threads)
