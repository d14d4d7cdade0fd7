"""Methods shared by all models for feature matrices."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya import metrics
from carya.core import lazy_sparse as sp
from carya.core import storage, validation
from carya.core.inputs.feature_names import check_feature_names
from carya.core.inputs.labels import CoercedLabels, match_candidates, match_labels
from carya.core.label_index import LabelIndex
from carya.core.matrices import Csr, Features
from carya.core.parameters import Fitted, did_you_mean
from carya.core.storage import SavedModel
from carya.core.strings import NumberStrings, StringArray
from carya.core.validation import FeaturesLike, LabelsLike, QueryArrays
from carya.errors import InputError
from carya.models.calibration.assignment import pool_size, select
from carya.models.calibration.calibration import Calibration, Suggested, require_calibration
from carya.models.calibration.cross_fitting import TOP_K, check_folds, cross_fitted_calibration, learn_calibration
from carya.models.calibration.training_rows import TrainingRows
from carya.models.interface import ModelState, RankOptions
from carya.models.new_labels import NewLabels
from carya.models.registry import CALIBRATION, LABEL_IDS, TRAINING_ROWS, load_model
from carya.models.restriction import check_label_subset, filter_rankings, score_labels
from carya.models.suggestions import Suggestion, to_frame, to_suggestions
from carya.models.training_data import TrainingData, features_of, split_data
from carya.trees.beam_search import Rankings
from carya.trees.label_tree import LabelTree

StateT = TypeVar("StateT", bound=ModelState)

_MAX_VARIANTS = 8
#: For each model, its fitted state and the cached copies of the model with other transforms, keyed by transform.
_VARIANTS: WeakKeyDictionary[Any, tuple[Any, dict[Any, Any]]] = WeakKeyDictionary()


def check_tree(tree: object) -> LabelTree | None:
    """Return a user-supplied label tree or None; raise InputError for all other values."""
    if tree is None or isinstance(tree, LabelTree):
        return tree
    raise InputError(f"tree must be a LabelTree or None, got {type(tree).__name__}. See LabelTree.from_paths.")


class BaseModel(Fitted[StateT]):
    """Methods shared by all models.

    A model implements `_rank_batch`, `to_saved` and, optionally, `_rank_one`. Each call uses a single fitted state
    throughout, because another thread may replace the state at any time.
    """

    #: The column names of the data frame on which the model was trained; as in scikit-learn, not set for other inputs.
    feature_names_in_: NDArray[np.object_]

    #: Whether `_rank_batch` and `_rank_one` support the option `labels`.
    _restricts_labels: ClassVar[bool] = False

    _label_ids: StringArray | None = None
    _label_index: LabelIndex | None = None
    _calibration: Calibration | None = None
    _training_rows: TrainingRows | None = None

    @property
    def widths_(self) -> tuple[int, int]:
        """The numbers of sparse and dense features."""
        return self._check_fitted().widths

    @property
    def n_features_in_(self) -> int:
        """The total number of sparse and dense features."""
        return sum(self._check_fitted().widths)

    @property
    def n_labels_(self) -> int:
        """The number of labels."""
        return self._check_fitted().n_labels

    @property
    def scores_any_label(self) -> bool:
        """Whether `predict_selected` can score labels that a search would not retrieve."""
        return False

    @property
    def uses_label_graph(self) -> bool:
        """Whether `fit` accepts `label_graph`."""
        return False

    @property
    def uses_shortlist(self) -> bool:
        """Whether `fit` accepts `shortlist`."""
        return False

    @property
    def uses_tree(self) -> bool:
        """Whether the model can be trained with a given tree."""
        return False

    @property
    def uses_engine(self) -> bool:
        """Whether an engine can train the model on other machines."""
        return False

    @property
    def labels_(self) -> Sequence[str]:
        """The label names, in column order; if the labels have no names, the column indices as strings."""
        self._check_fitted()
        return NumberStrings(self.n_labels_) if self._label_ids is None else self._label_ids

    @property
    def trees_(self) -> tuple[Any, ...]:
        """The label trees in the model; empty for models without trees."""
        self._check_fitted()
        return tuple(tree for member in getattr(self, "members_", ()) for tree in getattr(member, "trees_", ()))

    def set_label_ids(self, ids: Sequence[str] | None) -> None:
        """Set the label names, in column order; None removes them."""
        if ids is not None and len(ids) != self.n_labels_:
            raise InputError(f"The model has {self.n_labels_} labels, but {len(ids)} label names are given.")
        self._label_ids = ids if ids is None or isinstance(ids, StringArray) else StringArray.of(ids)
        self._label_index = None if self._label_ids is None else LabelIndex(self._label_ids)

    @property
    def calibration_(self) -> Calibration | None:
        """The mapping from scores to probabilities; None if the model is not calibrated."""
        self._check_fitted()
        return self._calibration

    @property
    def training_rows_(self) -> TrainingRows | None:
        """The fingerprints of the training rows, if they are stored."""
        return self._training_rows

    def set_calibration(self, calibration: Calibration | None, training_rows: TrainingRows | None) -> None:
        """Set the calibration and the fingerprints of the training rows; None removes them."""
        groups = None if calibration is None else calibration.label_groups
        if groups is not None and groups.size != self.n_labels_:
            raise InputError(f"The calibration has {groups.size} labels, but the model has {self.n_labels_}.")
        self._calibration, self._training_rows = calibration, training_rows

    def calibrate(self, X: FeaturesLike, Y: LabelsLike | None = None, *, top_k: int = TOP_K) -> Self:
        """Learn a mapping from scores to probabilities, using rows that were not used for training.

        ``fit(..., calibrate=True)`` requires no additional rows. Raises InputError for rows of the training data.

        Parameters
        ----------
        X, Y : as in `fit`
        top_k : int
            Number of suggestions per row to learn from.
        """
        state = self._check_fitted()
        X, Y = split_data(X, Y)
        truth = Y if isinstance(Y, CoercedLabels) else match_labels(Y, self.labels_, "Y", nested_is_matrix=True)
        if self._training_rows is not None:
            self._training_rows.check_held_out(self._calibration_rows(state, X))
        S = self.predict(X, top_k=top_k)
        if S.shape[0] != truth.matrix.rows:
            raise InputError(f"X and Y must have the same number of rows, got {S.shape[0]} and {truth.matrix.rows}.")
        suggested = Suggested.of(S, truth.matrix.to_scipy(), None)
        self._calibration = learn_calibration(suggested, np.zeros(self.n_labels_, np.int64))
        return self

    def predict_proba(
        self,
        X: FeaturesLike,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        labels: ArrayLike | None = None,
    ) -> sp.csr_array:
        """Return the probabilities of the best labels as a (rows, labels) matrix, in the order of :meth:`predict`.

        The probability that a label is correct depends on its score, its rank and its frequency. Raises InputError if
        the model is not calibrated.

        Parameters
        ----------
        X, top_k, beam_width, min_score, labels
            See :meth:`predict`.
        """
        calibration = require_calibration(self.calibration_, "rows")
        rankings = self._rank_inputs(X, top_k, beam_width, min_score, None, labels)
        values = calibration.of_ranking_arrays(rankings, is_restricted=labels is not None)
        indptr, ranked, _ = rankings
        return sp.csr_array((values.astype(np.float32), ranked, indptr), shape=(indptr.size - 1, self.n_labels_))

    def assign(
        self, X: FeaturesLike, *, decide: str | int = "f1", beam_width: int | None = None
    ) -> list[list[Suggestion]]:
        """Return the labels to assign to each row, chosen by a decision rule with cut-offs learned on held-out rows.

        The model must have been trained with ``calibrate=True``, unless `decide` is a number of labels.

        Parameters
        ----------
        X : as in :meth:`predict`
        decide : str or int
            ``"f1"`` (the best mean F1 per row), ``"precision>=0.8"`` (as many labels as possible with at least this
            precision), ``"macro-f1@5"`` (the five labels per row with the best macro-averaged F1, which favors rare
            labels), or a number of labels.
        beam_width : int, optional
            See :meth:`predict`.
        """
        rankings = self._rank_inputs(X, pool_size(decide), beam_width, None, None, None)
        *assigned, values = select(self._calibration, decide, rankings)
        return to_suggestions(tuple(assigned), self.labels_, probabilities=values)  # type: ignore[arg-type]

    def _probabilities_of(self, rankings: Rankings, *, is_restricted: bool = False) -> NDArray[np.float64] | None:
        """Return the probability of each suggestion, or None if the model is not calibrated."""
        calibration = self._calibration
        return None if calibration is None else calibration.of_ranking_arrays(rankings, is_restricted=is_restricted)

    def predict(
        self,
        X: FeaturesLike,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: ArrayLike | None = None,
        as_frame: bool = False,
    ) -> Any:
        """Return the scores of the best labels as a (rows, labels) matrix; each row is sorted by descending score.

        Ties are broken in favor of the lower label index. Trees rank labels by log scores, which can differ even if
        scores close to 0 or 1 are rounded to the same value. Rows without features are assigned no labels.

        Parameters
        ----------
        X : features, in any form that `fit` accepts
        top_k : int
            Number of labels per row.
        beam_width : int, optional
            Number of nodes kept per level; by default, the model's own beam width. For nearest-neighbor models, the
            number of neighbors.
        min_score : float, optional
            Labels with lower scores are omitted.
        transform : str or sequence of str, optional
            How level scores are combined; overrides the model's own transform. The weights do not depend on the
            transform unless they were trained with matcher negatives.
        labels : array_like of int or str, optional
            Restrict the ranking to these labels, given by index or name. Trees score all of them, regardless of the
            beam width; :meth:`subset` is faster if the same labels are ranked many times.
        as_frame : bool
            Return a pandas DataFrame with the columns row, rank, label, score and, for calibrated models, probability,
            instead of a matrix.
        """
        rankings = self._rank_inputs(X, top_k, beam_width, min_score, transform, labels)
        if as_frame:
            values = (
                None if transform is not None else self._probabilities_of(rankings, is_restricted=labels is not None)
            )
            return to_frame(rankings, self.labels_, values)
        indptr, ranked, scores = rankings
        return sp.csr_array((scores, ranked, indptr), shape=(indptr.size - 1, self.n_labels_))

    def suggest(
        self,
        x: FeaturesLike,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: ArrayLike | None = None,
    ) -> list[Suggestion]:
        """Return the best labels for one query with their names, best first; see :meth:`rank`."""
        ranked, scores = self.rank(
            x, top_k=top_k, beam_width=beam_width, min_score=min_score, transform=transform, labels=labels
        )
        rankings = (np.array([0, ranked.size]), ranked, scores)
        values = None if transform is not None else self._probabilities_of(rankings, is_restricted=labels is not None)
        return to_suggestions(rankings, self.labels_, probabilities=values)[0]

    def suggest_all(
        self,
        X: FeaturesLike,
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
        transform: str | Sequence[str] | None = None,
        labels: ArrayLike | None = None,
        as_frame: bool = False,
    ) -> Any:
        """Return the best labels for every row as lists of suggestions, or as a DataFrame; see :meth:`predict`."""
        rankings = self._rank_inputs(X, top_k, beam_width, min_score, transform, labels)
        values = None if transform is not None else self._probabilities_of(rankings, is_restricted=labels is not None)
        if as_frame:
            return to_frame(rankings, self.labels_, values)
        return to_suggestions(rankings, self.labels_, probabilities=values)

    def explain(self, x: FeaturesLike, label: int | str, *, tree: int | None = None) -> Any:
        """Explain the score that one tree assigns to a label: the contribution of every feature at every level.

        Raises InputError for models without label trees.

        Parameters
        ----------
        x : one feature row
        label : int or str
            The index or the name of a label.
        tree : int, optional
            The index of a tree in `trees_`; required unless the model consists of a single tree. The score of this tree
            is explained, because a combined score is not a sum over features.
        """
        self._check_fitted()
        chosen = select_tree(type(self).__name__, self.trees_, tree, is_single=False)
        row = self._tree_row(validation.check_row(x, self.widths_), chosen)
        return chosen.explain(row.to_input(), self._label_number(label))

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
        """Return the `top_k` best labels for one query and their scores, best first. Thread-safe.

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
        return self._rank_query(state, query, self._rank_options(state, top_k, beam_width, min_score, labels))

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
        """Rank rows like :meth:`predict`, but take and return CSR arrays instead of SciPy matrices."""
        if transform is not None:
            return self.with_transform(transform).rank_rows(
                indptr, features, values, top_k=top_k, beam_width=beam_width, min_score=min_score, labels=labels
            )
        state = self._check_fitted()
        queries = validation.check_sparse_rows(indptr, features, values, state.widths)
        return self._rank_queries(state, queries, self._rank_options(state, top_k, beam_width, min_score, labels))

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
        """Rank a row like :meth:`rank`, given as arrays of feature indices (in ascending order) and finite values."""
        if transform is not None:
            return self.with_transform(transform).rank_sparse(
                features, values, top_k=top_k, beam_width=beam_width, min_score=min_score, labels=labels
            )
        state = self._check_fitted()
        validation.check_no_dense(state.widths, "x")
        query = features, values, validation.NO_VALUES
        return self._rank_query(state, query, self._rank_options(state, top_k, beam_width, min_score, labels))

    def with_transform(self, transform: str | Sequence[str]) -> Self:
        """Return a copy of the model with a different transform; the copy shares the weights.

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
            copy = self._copy_with_transform(state, transform)
            copy._label_ids, copy._label_index = self._label_ids, self._label_index
            copy.set_calibration(None, self._training_rows)
            variants = variants | {key: copy}
            _VARIANTS[self] = state, variants
        variant: Self = variants[key]
        return variant

    def subset(self, labels: ArrayLike) -> Self:
        """Return a smaller model for the given labels, which are renumbered in ascending order of their indices.

        If the beam includes all clusters, the result ranks labels as this model does with ``labels=labels``.

        Parameters
        ----------
        labels : array_like of int or str
            The indices or names of the labels; their order does not matter.
        """
        state = self._check_fitted()
        numbers = check_label_subset(self._label_numbers(labels), state.n_labels)
        model = self._copy_with_labels(state, numbers)
        if self._label_ids is not None:
            model.set_label_ids([self._label_ids[number] for number in numbers.tolist()])
        # The remaining labels move up in the rankings, so their probabilities depend only on scores.
        calibration = None if self._calibration is None else self._calibration.without_groups()
        model.set_calibration(calibration, self._training_rows)
        model.data_options_ = dict(self.data_options_)
        return model

    def add_labels(
        self,
        labels: int | Sequence[str],
        X: FeaturesLike | None = None,
        Y: LabelsLike | None = None,
        *,
        label_features: FeaturesLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add labels to a tree, or to an ensemble of trees, without retraining; all other weights stay the same.

        Each new label is added to the clusters to which the tree assigns most of its rows, and only its own ranker is
        trained: on its rows, and on the other given rows that reach the same clusters. A label without rows has the
        mean ranker of the labels that are most similar to its features. The new labels follow the existing labels in
        `labels_`. If the model is calibrated, its probabilities then depend only on scores. Raises InputError for other
        models.

        Parameters
        ----------
        labels : list of str, or int
            The names of the new labels, or their number if the labels of the model have no names.
        X : features, in any form that `fit` accepts, optional
            Rows with new labels. Rows without new labels are negative examples; including earlier training rows makes
            the new labels more precise.
        Y : as in `fit`, optional
            All labels of each row, known and new. In a matrix, the columns of the known labels are followed by those of
            the new labels. Labels that are neither known nor new are ignored.
        label_features : features of shape (new labels, columns of X), optional
            Features of the new labels, such as those of their names. They are used for labels without rows and for
            `label_row_weight`.
        sample_weight : array_like of shape (n,), optional
            Non-negative weights of the rows, as in `fit`.

        Examples
        --------
        >>> import carya
        >>> X, Y = carya.data.make_world(n_rows=500, n_labels=60, seed=1)
        >>> model = carya.XRLinear(max_leaf_size=10).fit(X, Y[:, :55])
        >>> model.add_labels(5, X, Y).n_labels_
        60
        """
        state = self._check_fitted()
        self._check_adds_labels()
        new = NewLabels.of(labels, self.labels_, has_names=self._label_ids is not None)
        if X is not None or Y is not None:
            X, Y = split_data(X, Y)
            new = new.with_rows(self._check_queries(state, X), Y, state.n_labels, sample_weight)
        if label_features is not None:
            new = replace(new, features=validation.check_label_features(label_features, new.count, state.widths))
        self._insert_labels(state, new)
        self.set_label_ids(new.names)
        rows = self._training_rows
        self.set_calibration(
            None if self._calibration is None else self._calibration.without_groups(),
            rows if rows is None or new.data is None else rows.with_rows(new.data.features),
        )
        return self

    def predict_selected(self, X: FeaturesLike, candidates: LabelsLike) -> sp.csr_array:
        """Return the scores of the given (row, label) pairs, even for labels that a search would not retrieve.

        Raises InputError if the model cannot score them (see `scores_any_label`).

        Parameters
        ----------
        X : features, in any form that `fit` accepts
        candidates : sparse matrix or array_like of shape (n, labels), or one set or list of labels per row
            The pairs: the stored entries of a sparse matrix, the nonzeros of an array, or the listed labels. The result
            has the same entries.
        """
        state = self._check_fitted()
        queries = self._check_queries(state, X)
        pairs = match_candidates(candidates, self.labels_, queries.rows, nested_is_matrix=True)
        scores = self._score_pairs(state, queries, pairs)
        return sp.csr_array((scores, pairs.indices, pairs.indptr), shape=(pairs.rows, pairs.cols))

    def score(self, X: FeaturesLike, Y: LabelsLike | None = None) -> float:
        """Return P@1, the default criterion in scikit-learn's model selection.

        `X` and `Y` can have any form that `fit` accepts; unknown labels count as false negatives.
        """
        self._check_fitted()
        X, Y = split_data(X, Y)
        truth = Y if isinstance(Y, CoercedLabels) else match_labels(Y, self.labels_, "Y", nested_is_matrix=True)
        return metrics.precision(truth.matrix.to_scipy(), self.predict(X, top_k=1), k=1)

    def save(self, path: str | os.PathLike[str], *, weight_dtype: str | None = None) -> None:
        """Save the model to a folder atomically: readers see either the old model or the new one.

        Parameters
        ----------
        weight_dtype : {"float32", "float16", "int8"}, optional
            The data type of the saved weights, if different from the model's own.
        """
        saved = replace(self.to_saved(weight_dtype=weight_dtype), data_options=self.data_options_)
        if self._label_ids is not None:
            saved = saved.with_strings(LABEL_IDS, self._label_ids)
        arrays: dict[str, NDArray[Any]] = {}
        if self._calibration is not None:
            arrays |= {f"{CALIBRATION}{name}": array for name, array in self._calibration.to_arrays().items()}
        if self._training_rows is not None:
            arrays[TRAINING_ROWS] = self._training_rows.hashes
        storage.save(path, replace(saved, arrays=saved.arrays | arrays))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Load a saved model of this class; :func:`carya.load` loads models of any class."""
        model: Self = load_model(path, cls)
        return model

    def to_saved(self, *, weight_dtype: str | None = None) -> SavedModel:
        """Return the contents of a model folder."""
        raise NotImplementedError

    def _rank_inputs(
        self,
        X: FeaturesLike,
        top_k: int,
        beam_width: int | None,
        min_score: float | None,
        transform: str | Sequence[str] | None,
        labels: ArrayLike | None,
    ) -> Rankings:
        """Validate queries and options and return the rankings."""
        if transform is not None:
            return self.with_transform(transform)._rank_inputs(X, top_k, beam_width, min_score, None, labels)
        state = self._check_fitted()
        return self._rank_input(state, X, self._rank_options(state, top_k, beam_width, min_score, labels))

    def _rank_input(self, state: StateT, X: FeaturesLike, options: RankOptions) -> Rankings:
        """Validate queries and return their rankings."""
        return self._rank_queries(state, self._check_queries(state, X), options)

    def _rank_options(
        self,
        state: StateT,
        top_k: int,
        beam_width: int | None,
        min_score: float | None,
        labels: ArrayLike | None,
    ) -> RankOptions:
        """Validate the options of a ranking request."""
        return RankOptions.of(top_k, beam_width, min_score, self._label_numbers(labels), state.n_labels)

    def _label_numbers(self, labels: Any) -> Any:
        """Replace the names in a list of labels with label indices; return anything else unchanged."""
        if self._label_ids is None or isinstance(labels, (str, bytes)) or not isinstance(labels, Iterable):
            return labels
        return [self._label_number(label) if isinstance(label, str) else label for label in labels]

    def _rank_batch(self, state: StateT, queries: Features, options: RankOptions) -> Rankings:
        """Return the rankings for validated queries; `options.labels` is None unless `_restricts_labels` is set."""
        raise NotImplementedError

    def _copy_with_transform(self, state: StateT, transform: str | Sequence[str]) -> Self:
        """Return a copy of the model with a different transform; the transform has not been validated yet."""
        raise InputError(
            f"The transform of {type(self).__name__} models cannot be changed, because their rankers were trained on "
            "scores computed with it."
        )

    def _copy_with_labels(self, state: StateT, labels: NDArray[np.int32]) -> Self:
        """Return a copy of the model restricted to the given labels."""
        raise InputError(f"{type(self).__name__} models do not support subset. Pass labels to predict instead.")

    def _check_adds_labels(self) -> None:
        """Raise InputError unless the model supports `add_labels`."""
        raise InputError(
            f"{type(self).__name__} models do not support add_labels; only XRLinear models and Ensembles of these do. "
            "Train the model again with the new labels."
        )

    def _insert_labels(self, state: StateT, new: NewLabels) -> None:
        """Replace the fitted state with one that contains new labels; implemented by models with `add_labels`."""
        raise NotImplementedError

    def _rank_queries(self, state: StateT, queries: Features, options: RankOptions) -> Rankings:
        """Return the rankings of all labels, or of the requested labels, for validated queries."""
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
        """Return the ranking of all labels, or of the requested labels, for one validated query."""
        if options.labels is None or self._restricts_labels:
            return self._rank_one(state, query, options)
        _, labels, scores = self._rank_queries(state, _as_row(query, state.widths), options)
        return labels, scores

    def _fit_labeled(self, data: TrainingData, *, calibrate: bool | int = False) -> Self:
        """Train on validated data, calibrate the model if requested, and store the label names."""
        folds = check_folds(calibrate)
        calibration = cross_fitted_calibration(self, data, folds) if folds else None
        self.fit_data(data)
        self.set_label_ids(data.label_ids)
        self.set_calibration(calibration, TrainingRows.of(data.features))
        return self

    def fit_data(self, data: TrainingData) -> Self:
        """Train on validated data."""
        raise NotImplementedError

    def _tree_row(self, row: Features, tree: Any) -> Features:
        """Return a row restricted to the columns that the given tree uses."""
        return row

    def _label_number(self, label: Any) -> int:
        """Return the index of a label that is given by index or name."""
        if isinstance(label, str):
            if self._label_ids is None or self._label_index is None:
                raise InputError(f"The labels have no names. Pass an integer, got {label!r}.")
            number = self._label_index.find_id(label)
            if number is None:
                raise InputError(f"Unknown label {label!r}.{did_you_mean(label, self._label_ids)}")
            return number
        if isinstance(label, bool) or not isinstance(label, (int, np.integer)) or not 0 <= label < self.n_labels_:
            raise InputError(f"label must be an integer between 0 and {self.n_labels_ - 1}, got {label!r}.")
        return int(label)

    def _score_pairs(self, state: StateT, queries: Features, pairs: Csr) -> NDArray[np.float32]:
        """Return the scores of validated pairs; implemented by models with `scores_any_label`."""
        raise InputError(
            f"{type(self).__name__} models can score only the labels that a search returns. predict_selected requires "
            "an XRLinear model, a NearestNeighbors model with over='labels', or an Ensemble of these with "
            "combine='mean'."
        )

    def _rank_one(
        self, state: StateT, query: QueryArrays, options: RankOptions
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the ranking for one query; models with a faster implementation override this method."""
        _, labels, scores = self._rank_batch(state, _as_row(query, state.widths), options)
        return labels, scores

    def _check_queries(self, state: StateT, X: FeaturesLike) -> Features:
        """Validate the features of queries, including the columns of a data frame."""
        X = features_of(X)
        check_feature_names(X, self._feature_names())
        return validation.check_features_like(X, state.widths)

    def _calibration_rows(self, state: StateT, X: FeaturesLike) -> Features:
        """Return the features that are compared with the training rows when the model is calibrated."""
        return self._check_queries(state, X)

    def _check_query(self, state: StateT, x: FeaturesLike) -> QueryArrays:
        """Validate the features of one query."""
        check_feature_names(x, self._feature_names(), "x")
        return validation.check_query(x, state.widths)

    def _feature_names(self) -> Sequence[str] | None:
        """Return the feature names, or None if the features have no names."""
        return getattr(self, "feature_names_in_", None)

    def set_feature_names(self, names: Sequence[str] | None) -> None:
        """Replace the feature names; None removes them."""
        if names is not None:
            self.feature_names_in_ = np.array(names, object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _with_feature_names(self, saved: SavedModel) -> SavedModel:
        """Add the feature names, if there are any, to the contents of a model folder."""
        names = self._feature_names()
        return saved if names is None else replace(saved, shape=saved.shape | {"feature_names": list(names)})

    def _restore_feature_names(self, saved: SavedModel) -> None:
        """Restore the feature names from a model folder; raise InputError if they are invalid."""
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


def select_tree(kind: str, trees: Sequence[Any], number: int | None, *, is_single: bool) -> Any:
    """Return the tree whose score is to be explained; raise InputError if there is none or `number` is invalid.

    Parameters
    ----------
    kind : str
        The class name of the model.
    trees : sequence
    number : int or None
        The index of a tree; None means the only tree.
    is_single : bool
        Whether the model is a single tree, so that its scores are not combined.
    """
    if not trees:
        raise InputError(f"Scores of {kind} models cannot be explained, because these models have no label tree.")
    if number is None and not is_single:
        choice = "tree=0" if len(trees) == 1 else f"a value of tree from 0 to {len(trees) - 1}"
        raise InputError(
            f"Combined scores of {kind} models cannot be explained. Pass {choice} to explain the score of one tree."
        )
    number = 0 if number is None else number
    if isinstance(number, bool) or not isinstance(number, (int, np.integer)) or not 0 <= number < len(trees):
        raise InputError(f"tree must be between 0 and {len(trees) - 1}, got {number!r}.")
    return trees[number]
