"""The interface of models for feature matrices, and the options of a ranking request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya.core import validation
from carya.core.storage import SavedModel
from carya.core.validation import FeaturesLike, LabelsLike
from carya.models.calibration.calibration import Calibration
from carya.models.calibration.training_rows import TrainingRows
from carya.models.restriction import check_label_subset
from carya.models.training_data import TrainingData
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


class RankOptions(NamedTuple):
    """Validated options of a ranking request; a beam width of None means the model's default.

    `labels` contains the indices of the labels to rank, in ascending order; None means all labels.
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
        """Validate user-supplied options; `n_labels` is the model's number of labels."""
        return cls(
            validation.check_positive_int(top_k, "top_k"),
            None if beam_width is None else validation.check_positive_int(beam_width, "beam_width"),
            validation.check_min_score(min_score),
            None if labels is None else check_label_subset(labels, n_labels),
        )


@runtime_checkable
class Model(Protocol):
    """A model that ranks labels for feature rows; it can be a member of an ensemble or the model of a text ranker.

    A fitted model has the attributes `n_labels_` and `widths_` (the numbers of sparse and dense features).
    """

    @property
    def training_rows_(self) -> TrainingRows | None:
        """The fingerprints of the training rows, if they are stored."""
        ...

    def set_calibration(self, calibration: Calibration | None, training_rows: TrainingRows | None) -> None:
        """Set the calibration and the fingerprints of the training rows; None removes them."""
        ...

    @property
    def needs_label_features(self) -> bool:
        """Whether `fit` requires `label_features`."""
        ...

    @property
    def uses_label_features(self) -> bool:
        """Whether `fit` accepts `label_features`."""
        ...

    @property
    def scores_any_label(self) -> bool:
        """Whether `predict_selected` can score labels that a search would not retrieve."""
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
        """Rank rows like `predict`, but take and return CSR arrays instead of SciPy matrices."""
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
        """Rank a row like `rank`, but take the indices and values of its sparse features as arrays."""
        ...

    def predict_selected(self, X: FeaturesLike, candidates: LabelsLike) -> Any:
        """Return the scores of the given (row, label) pairs; raise InputError if the model cannot score them."""
        ...

    def score(self, X: FeaturesLike, Y: LabelsLike) -> float:
        """Return P@1."""
        ...

    def to_saved(self, *, weight_dtype: str | None = None) -> SavedModel:
        """Return the contents of a model folder."""
        ...
