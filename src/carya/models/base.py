"""The interface of all models for feature matrices, and the methods that they share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya import metrics
from carya.core import lazy_sparse as sp
from carya.core import storage, validation
from carya.core.matrices import Csr, Features
from carya.core.parameters import Fitted
from carya.core.storage import SavedModel
from carya.core.validation import FeaturesLike, LabelsLike, QueryArrays
from carya.errors import InputError
from carya.models.restriction import check_label_subset, filter_rankings, score_labels
from carya.trees.beam_search import Rankings
from carya.trees.label_tree import LabelTree


class ModelState(Protocol):
    """The fitted state of a model."""

    @property
    def widths(self) -> tuple[int, int]:
        """The numbers of sparse and dense features."""
        ...

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        ...


StateT = TypeVar("StateT", bound=ModelState)

_MAX_VARIANTS = 8
#: The fitted state of models and their copies with other transforms, by transform.
_VARIANTS: WeakKeyDictionary[Any, tuple[Any, dict[Any, Any]]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Validated features and labels of the training rows, and the other arguments of `fit`.

    Attributes
    ----------
    features : Features, n rows
    labels : Csr, n rows x labels
    label_features, label_graph, shortlist, tree, groups, name_columns
        See :meth:`carya.XRLinear.fit`, :meth:`carya.Ensemble.fit` and :meth:`carya.Reranked.fit`.
    feature_names : tuple of str or None
        The column names, if the features were a data frame.
    """

    features: Features
    labels: Csr
    label_features: FeaturesLike | None = None
    label_graph: LabelsLike | None = None
    shortlist: LabelsLike | None = None
    groups: ArrayLike | None = None
    name_columns: int | None = None
    feature_names: tuple[str, ...] | None = None
    tree: LabelTree | None = None

    @classmethod
    def of(cls, X: FeaturesLike, Y: LabelsLike, **options: Any) -> TrainingData:
        """Validate features and labels."""
        return cls(*validation.check_training_data(X, Y), **options, feature_names=validation.feature_names(X))

    def take(self, rows: NDArray[np.int64]) -> TrainingData:
        """Return the data of some rows."""
        shortlist = None if self.shortlist is None else validation.check_labels(self.shortlist, "shortlist").take(rows)
        groups = None if self.groups is None else np.asarray(self.groups)[rows]
        return replace(
            self, features=self.features.take(rows), labels=self.labels.take(rows), shortlist=shortlist, groups=groups
        )

    def for_member(self, member: Model, features: Features | None = None) -> TrainingData:
        """Return the data that a member of a model uses, with its own features if they are given."""
        unused = {name: None for name in _OPTIONAL_INPUTS if not getattr(member, f"uses_{name}", False)}
        return replace(self, features=self.features if features is None else features, **unused)  # type: ignore[arg-type]

    def check_used(self, members: Iterable[Any]) -> None:
        """Raise InputError if an input other than label_features is given that none of the members uses."""
        models = list(members)
        for name, requirement in _REQUIREMENTS.items():
            if getattr(self, name) is not None and not any(getattr(model, f"uses_{name}", False) for model in models):
                raise InputError(f"{name} is not used by any of the models. Omit it, or use {requirement}.")


#: The inputs of `fit` that only some models use.
_OPTIONAL_INPUTS = ("label_features", "label_graph", "shortlist", "tree")
#: The models that use them.
_REQUIREMENTS = {
    "label_graph": "a representation with 'graph' in its name",
    "shortlist": "negatives with 'given' in their name",
    "tree": "XRLinear models without a tree of their own",
}


class RankOptions(NamedTuple):
    """Validated options of a ranking request; a beam width of None means the model's default.

    `labels` are the numbers of the only labels to rank, in ascending order; None means all.
    """

    top_k: int
    beam_width: int | None
    min_score: float
    labels: NDArray[np.int32] | None = None

    @classmethod
    def of(
        cls,
        top_k: int,
        beam_width: int | None,
        min_score: float | None,
        labels: ArrayLike | None = None,
        n_labels: int = 0,
    ) -> RankOptions:
        """Validate the options that a user passed; `n_labels` is the model's number of labels."""
        return cls(
            validation.check_positive_int(top_k, "top_k"),
            None if beam_width is None else validation.check_positive_int(beam_width, "beam_width"),
            validation.check_min_score(min_score),
            None if labels is None else check_label_subset(labels, n_labels),
        )


def check_tree(tree: object) -> LabelTree | None:
    """Return a label tree that a user passed; raise InputError if it is not one."""
    if tree is None or isinstance(tree, LabelTree):
        return tree
    raise InputError(f"tree must be a LabelTree or None, got {type(tree).__name__}. See LabelTree.from_paths.")


@runtime_checkable
class Model(Protocol):
    """A model that ranks labels for feature rows; it can be a member of an ensemble or the core of a text ranker.

    A fitted model has the attributes `n_labels_` and `widths_`, the numbers of sparse and dense features.
    """

    @property
    def needs_label_features(self) -> bool:
        """Whether `fit` fails without label_features."""
        ...

    @property
    def uses_label_features(self) -> bool:
        """Whether `fit` accepts label_features."""
        ...

    @property
    def scores_any_label(self) -> bool:
        """Whether `predict_selected` can score labels that a search would not find."""
        ...

    def check_parameters(self) -> None:
        """Raise ParameterError if a parameter is invalid."""
        ...

    def check_dependencies(self) -> None:
        """Raise MissingExtraError if training requires an optional package that is not installed."""
        ...

    def clone(self) -> Any:
        """Return an unfitted copy with the same parameters."""
        ...

    def fit_data(self, data: TrainingData) -> Self:
        """Train on validated data."""
        ...

    def predict(
        self,
        X: FeaturesLike,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: ArrayLike | None = None,
    ) -> Any:
        """Return the scores of the best labels as a (rows, labels) matrix; each row is sorted by descending score."""
        ...

    def rank(
        self,
        x: FeaturesLike,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: ArrayLike | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the best labels for one query and their scores."""
        ...

    def rank_rows(
        self,
        indptr: NDArray[np.int64],
        features: NDArray[np.int32],
        values: NDArray[np.float32],
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: ArrayLike | None = None,
    ) -> Rankings:
        """Return the same as `predict`, but take and return CSR arrays instead of SciPy matrices."""
        ...

    def rank_sparse(
        self,
        features: NDArray[np.int32],
        values: NDArray[np.float32],
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: ArrayLike | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the same as `rank`, but take the arrays of the sparse features."""
        ...

    def score(self, X: FeaturesLike, Y: LabelsLike) -> float:
        """Return P@1."""
        ...

    def to_saved(self, *, weight_dtype: str | None = None) -> SavedModel:
        """Return the contents of a model folder."""
        ...


class BaseModel(Fitted[StateT]):
    """Methods shared by all models.

    A model implements `_rank_batch`, optionally `_rank_one`, and `to_saved`. All of a method's steps use one fitted
    state, because another thread may replace it.
    """

    #: The columns of the data frame on which the model was trained; as in scikit-learn, missing for other input.
    feature_names_in_: NDArray[np.object_]

    #: The options of `open_data` with which the training data was read; set by `carya train` and saved with the model.
    data_options_: Mapping[str, Any] = MappingProxyType({})

    #: Whether `_rank_batch` and `_rank_one` respect the option `labels`.
    _restricts_labels: ClassVar[bool] = False

    @property
    def widths_(self) -> tuple[int, int]:
        """The numbers of sparse and dense features."""
        return self._check_fitted().widths

    @property
    def n_features_in_(self) -> int:
        """The number of features, sparse and dense together."""
        return sum(self._check_fitted().widths)

    @property
    def n_labels_(self) -> int:
        """The number of labels."""
        return self._check_fitted().n_labels

    @property
    def scores_any_label(self) -> bool:
        """Whether `predict_selected` can score labels that a search would not find."""
        return False

    @property
    def uses_label_graph(self) -> bool:
        """Whether `fit` accepts label_graph."""
        return False

    @property
    def uses_shortlist(self) -> bool:
        """Whether `fit` accepts shortlist."""
        return False

    @property
    def uses_tree(self) -> bool:
        """Whether the model can be trained with a given tree."""
        return False

    def predict(
        self,
        X: FeaturesLike,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: ArrayLike | None = None,
    ) -> sp.csr_array:
        """Return the scores of the best labels as a (rows, labels) matrix; each row is sorted by descending score.

        Ties are broken in favor of the lower label. Trees compare log scores, which can differ even if scores near 0
        or 1 are equal. Rows without features are assigned no labels.

        Parameters
        ----------
        X : features, in any form that `fit` accepts
        top_k : int
            Number of labels per row.
        beam_width : int, optional
            Number of nodes kept per level; the model's own by default. For nearest neighbor models, the number of
            neighbors.
        min_score : float, optional
            Leave out labels with lower scores.
        transform : str or sequence of str, optional
            How level scores are combined, instead of the model's own transform. Weights do not depend on it, except
            for those that were trained on the negatives of a matcher.
        labels : array_like of int, optional
            The numbers of the only labels to rank. Trees score all of them, whatever the beam width; to rank within
            the same labels many times, :meth:`subset` is faster.
        """
        if transform is not None:
            return self.with_transform(transform).predict(
                X, top_k=top_k, beam_width=beam_width, min_score=min_score, labels=labels
            )
        state = self._check_fitted()
        queries = self._check_queries(state, X)
        options = RankOptions.of(top_k, beam_width, min_score, labels, state.n_labels)
        indptr, ranked, scores = self._rank_queries(state, queries, options)
        return sp.csr_array((scores, ranked, indptr), shape=(queries.rows, state.n_labels))

    def rank(
        self,
        x: FeaturesLike,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: ArrayLike | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the best `top_k` labels for one query and their scores, best first. Thread-safe.

        Parameters
        ----------
        x : one feature row, with one or two dimensions
        top_k, beam_width, min_score, transform, labels
            See :meth:`predict`.
        """
        if transform is not None:
            return self.with_transform(transform).rank(
                x, top_k=top_k, beam_width=beam_width, min_score=min_score, labels=labels
            )
        state = self._check_fitted()
        query = self._check_query(state, x)
        return self._rank_query(state, query, RankOptions.of(top_k, beam_width, min_score, labels, state.n_labels))

    def rank_rows(
        self,
        indptr: NDArray[np.int64],
        features: NDArray[np.int32],
        values: NDArray[np.float32],
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: ArrayLike | None = None,
    ) -> Rankings:
        """Return the same as :meth:`predict`, but take and return CSR arrays instead of SciPy matrices."""
        if transform is not None:
            return self.with_transform(transform).rank_rows(
                indptr, features, values, top_k=top_k, beam_width=beam_width, min_score=min_score, labels=labels
            )
        state = self._check_fitted()
        queries = validation.check_sparse_rows(indptr, features, values, state.widths)
        return self._rank_queries(state, queries, RankOptions.of(top_k, beam_width, min_score, labels, state.n_labels))

    def rank_sparse(
        self,
        features: NDArray[np.int32],
        values: NDArray[np.float32],
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: ArrayLike | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the same as :meth:`rank`, but take the ascending features of the query and their finite values."""
        if transform is not None:
            return self.with_transform(transform).rank_sparse(
                features, values, top_k=top_k, beam_width=beam_width, min_score=min_score, labels=labels
            )
        state = self._check_fitted()
        validation.check_no_dense(state.widths, "x")
        query = features, values, validation.NO_VALUES
        return self._rank_query(state, query, RankOptions.of(top_k, beam_width, min_score, labels, state.n_labels))

    def with_transform(self, transform: str | Sequence[str]) -> Self:
        """Return the same model with another transform; weights are shared.

        Parameters
        ----------
        transform : str or sequence of str
            How level scores are combined: one value for all layers, a pair of values for the inner layers and the last
            layer, or one value per layer.
        """
        state = self._check_fitted()
        key = tuple(transform) if isinstance(transform, (list, tuple)) else transform
        cached, variants = _VARIANTS.get(self, (None, {}))
        if cached is not state:
            variants = {}
        if key not in variants:
            if len(variants) == _MAX_VARIANTS:
                variants = {}
            variants = variants | {key: self._copy_with_transform(state, transform)}
            _VARIANTS[self] = state, variants
        variant: Self = variants[key]
        return variant

    def subset(self, labels: ArrayLike) -> Self:
        """Return a smaller model of some of the labels; label i of the result is the i-th smallest of `labels`.

        With a beam that holds all clusters, it ranks as this model does with ``labels=labels``.

        Parameters
        ----------
        labels : array_like of int
            Label numbers, without regard to their order.
        """
        state = self._check_fitted()
        return self._copy_with_labels(state, check_label_subset(labels, state.n_labels))

    def predict_selected(self, X: FeaturesLike, candidates: LabelsLike) -> sp.csr_array:
        """Return the scores of given (row, label) pairs, including labels that a search would not find.

        Raises InputError if the model cannot score them (see `scores_any_label`).

        Parameters
        ----------
        X : features, in any form that `fit` accepts
        candidates : sparse matrix or array_like of shape (n, labels)
            The pairs: the stored entries of a sparse matrix, or the nonzeros of an array. The result has the same
            entries.
        """
        state = self._check_fitted()
        queries = self._check_queries(state, X)
        pairs = validation.check_candidates(candidates, queries.rows, state.n_labels)
        scores = self._score_pairs(state, queries, pairs)
        return sp.csr_array((scores, pairs.indices, pairs.indptr), shape=(pairs.rows, pairs.cols))

    def score(self, X: FeaturesLike, Y: LabelsLike) -> float:
        """Return P@1, the default score of scikit-learn's model selection."""
        return metrics.precision(Y, self.predict(X, top_k=1), k=1)

    def save(self, path: str | os.PathLike[str], *, weight_dtype: str | None = None) -> None:
        """Save the model to a folder atomically: readers see the old model or the new one.

        Parameters
        ----------
        weight_dtype : {"float32", "float16", "int8"}, optional
            The data type of the saved weights, if different from the model's own.
        """
        storage.save(path, replace(self.to_saved(weight_dtype=weight_dtype), data_options=self.data_options_))

    def to_saved(self, *, weight_dtype: str | None = None) -> SavedModel:
        """Return the contents of a model folder."""
        raise NotImplementedError

    def _rank_batch(self, state: StateT, queries: Features, options: RankOptions) -> Rankings:
        """Return the rankings of validated queries, of all labels unless `_restricts_labels`."""
        raise NotImplementedError

    def _copy_with_transform(self, state: StateT, transform: str | Sequence[str]) -> Self:
        """Return the same model with another transform, which may be invalid."""
        raise InputError(
            f"The transform of {type(self).__name__} models cannot be changed, because their rankers were trained on "
            "its scores."
        )

    def _copy_with_labels(self, state: StateT, labels: NDArray[np.int32]) -> Self:
        """Return a model of the given labels only."""
        raise InputError(f"{type(self).__name__} models have no subset. Pass labels to predict instead.")

    def _rank_queries(self, state: StateT, queries: Features, options: RankOptions) -> Rankings:
        """Return the rankings of validated queries, of all labels or of some."""
        if options.labels is None or self._restricts_labels:
            return self._rank_batch(state, queries, options)
        limits = {"top_k": options.top_k, "min_score": options.min_score}
        if self.scores_any_label:
            scorer = partial(self._score_pairs, state)
            return score_labels(scorer, queries, options.labels, state.n_labels, **limits)  # type: ignore[arg-type]
        complete = self._rank_batch(state, queries, options._replace(top_k=state.n_labels, labels=None))
        return filter_rankings(complete, options.labels, top_k=options.top_k)

    def _rank_query(
        self, state: StateT, query: QueryArrays, options: RankOptions
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the ranking of one validated query, of all labels or of some."""
        if options.labels is None or self._restricts_labels:
            return self._rank_one(state, query, options)
        _, labels, scores = self._rank_queries(state, _as_row(query, state.widths), options)
        return labels, scores

    def _score_pairs(self, state: StateT, queries: Features, pairs: Csr) -> NDArray[np.float32]:
        """Return the scores of validated pairs; implemented by models with `scores_any_label`."""
        raise InputError(
            f"{type(self).__name__} models can score only the labels that they find. predict_selected requires an "
            "XRLinear model, or a NearestNeighbors model over labels."
        )

    def _rank_one(
        self, state: StateT, query: QueryArrays, options: RankOptions
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the ranking of one query; models with a faster path override it."""
        _, labels, scores = self._rank_batch(state, _as_row(query, state.widths), options)
        return labels, scores

    def _check_queries(self, state: StateT, X: FeaturesLike) -> Features:
        """Validate the features of some queries, including the columns of a data frame."""
        validation.check_feature_names(X, self._feature_names())
        return validation.check_features_like(X, state.widths)

    def _check_query(self, state: StateT, x: FeaturesLike) -> QueryArrays:
        """Validate the features of one query."""
        validation.check_feature_names(x, self._feature_names(), "x")
        return validation.check_query(x, state.widths)

    def _feature_names(self) -> Sequence[str] | None:
        """Return the names of the features, or None if they have none."""
        return getattr(self, "feature_names_in_", None)

    def set_feature_names(self, names: Sequence[str] | None) -> None:
        """Replace the names of the features; None means that they have no names."""
        if names is not None:
            self.feature_names_in_ = np.array(names, object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _with_feature_names(self, saved: SavedModel) -> SavedModel:
        """Return the content of a model folder with the names of the features, if they have names."""
        names = self._feature_names()
        return saved if names is None else replace(saved, shape=saved.shape | {"feature_names": list(names)})

    def _restore_feature_names(self, saved: SavedModel) -> None:
        """Set the names of the features to those of a model folder; raise InputError if they are invalid."""
        names = saved.shape.get("feature_names")
        if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise InputError("feature_names must be a list of strings.")
        if names is not None and len(names) != sum(self.widths_):
            raise InputError(f"There are {len(names)} feature names for {sum(self.widths_)} features.")
        self.set_feature_names(names)


def _as_row(query: QueryArrays, widths: tuple[int, int]) -> Features:
    """Return a query as a matrix with one row."""
    features, values, dense = query
    row = Csr.of(np.array([0, features.size], np.int64), features, values, widths[0], "x")
    return Features.of(row, dense.reshape(1, -1), "x")
