"""The interface of all models for feature matrices, and the methods that they share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

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
from carya.trees.beam_search import Rankings


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


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Validated features and labels of the training rows, and the other arguments of `fit`.

    Attributes
    ----------
    features : Features, n rows
    labels : Csr, n rows x labels
    label_features, label_graph, shortlist, groups, name_columns
        See :meth:`carya.XRLinear.fit` and :meth:`carya.Reranked.fit`.
    """

    features: Features
    labels: Csr
    label_features: FeaturesLike | None = None
    label_graph: LabelsLike | None = None
    shortlist: LabelsLike | None = None
    groups: ArrayLike | None = None
    name_columns: int | None = None

    @classmethod
    def of(cls, X: FeaturesLike, Y: LabelsLike, **options: Any) -> TrainingData:
        """Validate features and labels."""
        return cls(*validation.check_training_data(X, Y), **options)


class RankOptions(NamedTuple):
    """Validated options of a ranking request; a beam width of None means the model's default."""

    top_k: int
    beam_width: int | None
    min_score: float

    @classmethod
    def of(cls, top_k: int, beam_width: int | None, min_score: float | None) -> RankOptions:
        """Return validated options."""
        return cls(
            validation.check_positive_int(top_k, "top_k"),
            None if beam_width is None else validation.check_positive_int(beam_width, "beam_width"),
            validation.check_min_score(min_score),
        )


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
        self, X: FeaturesLike, *, top_k: int = 10, beam_width: int | None = None, min_score: float | None = None
    ) -> Any:
        """Return the scores of the best labels as a (rows, labels) matrix; each row is sorted by descending score."""
        ...

    def rank(
        self, x: FeaturesLike, *, top_k: int = 10, beam_width: int | None = None, min_score: float | None = None
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

    #: The options of `open_data` with which the training data was read; set by `carya train` and saved with the model.
    data_options_: Mapping[str, Any] = MappingProxyType({})

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

    def predict(
        self, X: FeaturesLike, *, top_k: int = 10, beam_width: int | None = None, min_score: float | None = None
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
        """
        state = self._check_fitted()
        queries = validation.check_features_like(X, state.widths)
        indptr, labels, scores = self._rank_batch(state, queries, RankOptions.of(top_k, beam_width, min_score))
        return sp.csr_array((scores, labels, indptr), shape=(queries.rows, state.n_labels))

    def rank(
        self, x: FeaturesLike, *, top_k: int = 10, beam_width: int | None = None, min_score: float | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the best `top_k` labels for one query and their scores, best first. Thread-safe.

        Parameters
        ----------
        x : one feature row, with one or two dimensions
        top_k, beam_width, min_score
            See :meth:`predict`.
        """
        state = self._check_fitted()
        query = validation.check_query(x, state.widths)
        return self._rank_one(state, query, RankOptions.of(top_k, beam_width, min_score))

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
        """Return the same as :meth:`predict`, but take and return CSR arrays instead of SciPy matrices."""
        state = self._check_fitted()
        queries = validation.check_sparse_rows(indptr, features, values, state.widths)
        return self._rank_batch(state, queries, RankOptions.of(top_k, beam_width, min_score))

    def rank_sparse(
        self,
        features: NDArray[np.int32],
        values: NDArray[np.float32],
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the same as :meth:`rank`, but take the ascending features of the query and their finite values."""
        state = self._check_fitted()
        validation.check_no_dense(state.widths, "x")
        query = features, values, validation.NO_VALUES
        return self._rank_one(state, query, RankOptions.of(top_k, beam_width, min_score))

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
        queries = validation.check_features_like(X, state.widths)
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
        """Return the rankings of validated queries."""
        raise NotImplementedError

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
        features, values, dense = query
        row = Csr.of(np.array([0, features.size], np.int64), features, values, state.widths[0], "x")
        _, labels, scores = self._rank_batch(state, Features.of(row, dense.reshape(1, -1), "x"), options)
        return labels, scores
