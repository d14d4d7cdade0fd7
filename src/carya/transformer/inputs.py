"""Input validation for transformer models: texts, labels as lists or as a matrix, and validation data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core import validation
from carya.core.inputs.labels import LabelNames, match_labels
from carya.core.inputs.texts import TextsLike
from carya.core.matrices import Csr, Features
from carya.core.progress import Progress
from carya.core.validation import FeaturesLike
from carya.errors import InputError
from carya.ranking.tasks.engine import Engine
from carya.text.inputs import checked_list_of_texts
from carya.text.labels import add_unseen_labels, training_labels


class LabeledTexts(NamedTuple):
    """Texts, their label matrix of shape (texts, labels), and the user-supplied features, if any."""

    texts: list[str]
    labels: Csr
    features: Features | None = None

    def take(self, rows: NDArray[np.int64]) -> LabeledTexts:
        """Return the selected texts with their labels and features."""
        features = None if self.features is None else self.features.take(rows)
        return LabeledTexts([self.texts[row] for row in rows], self.labels.take(rows), features)


@dataclass(frozen=True, eq=False)
class LabelTexts:
    """Texts that describe labels.

    Attributes
    ----------
    labels : ndarray of int32
        The indices of the labels that have a text, in ascending order.
    texts : list of str
        The text of each label in `labels`.
    n_labels : int
        The total number of labels, with or without a text.
    """

    labels: NDArray[np.int32]
    texts: list[str]
    n_labels: int

    @classmethod
    def of(cls, texts: Mapping[str, str] | None, ids: Sequence[str]) -> LabelTexts | None:
        """Create an instance from the non-empty texts of known labels; return None if there are no such texts."""
        by_id = {} if texts is None else texts
        selected = [(number, by_id[label]) for number, label in enumerate(ids) if by_id.get(label, "").strip()]
        if not selected:
            return None
        labels, label_texts = zip(*selected, strict=True)
        return cls(np.array(labels, np.int32), list(label_texts), len(ids))

    def targets(self, repeats: int) -> Csr:
        """Return the label matrix of the repeated texts, with one label per text."""
        labels = np.tile(self.labels, repeats)
        return Csr.of(
            np.arange(labels.size + 1, dtype=np.int64), labels, np.ones(labels.size, np.float32), self.n_labels
        )


@dataclass(frozen=True, eq=False)
class TrainingTexts:
    """Validated input to `fit`.

    Attributes
    ----------
    training : LabeledTexts
    validation : LabeledTexts or None
        Texts that are held out from training.
    label_texts : LabelTexts or None
    label_features : Features or None
        User-supplied features of the labels, one row per label.
    """

    training: LabeledTexts
    validation: LabeledTexts | None = None
    label_texts: LabelTexts | None = None
    label_features: Features | None = None

    @property
    def texts(self) -> list[str]:
        """The training texts."""
        return self.training.texts

    @property
    def labels(self) -> Csr:
        """The labels of the training texts."""
        return self.training.labels


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """A training run in `fit`.

    The first run may hold out texts for validation; the second, if any, uses all texts.

    Attributes
    ----------
    name : str
        The name of the run, which distinguishes the checkpoints of the two runs.
    data : TrainingTexts
    features : Features
        The TF-IDF features of the texts, followed by the user-supplied features.
    label_features : Features or None
        The features of the labels, for label trees that use them.
    stop_after : sequence of int, optional
        The number of epochs per stage, if it was chosen in a previous run.
    progress : Progress
    engine : Engine, optional
        The engine that trains the linear rankers.
    """

    name: str
    data: TrainingTexts
    features: Features
    label_features: Features | None
    stop_after: Sequence[int] | None
    progress: Progress
    engine: Engine | None = None


def check_own_features(features: FeaturesLike | None, n_texts: int, widths: tuple[int, int] | None) -> Features | None:
    """Validate user-supplied features of the texts; `widths` are the numbers of columns used in training."""
    if features is None:
        if widths is not None and any(widths):
            raise InputError(
                f"The model was trained with user-supplied features ({_describe_widths(widths)}), so it requires the "
                "features of the texts. Pass features."
            )
        return None
    if widths is None:
        checked = validation.check_features(features, "features")
    elif any(widths):
        checked = validation.check_features_like(features, widths, "features")
    else:
        raise InputError("The model was trained without user-supplied features. Omit features.")
    if checked.rows != n_texts:
        raise InputError(f"texts and features must have the same length, got {n_texts} and {checked.rows}.")
    return checked


def _describe_widths(widths: tuple[int, int]) -> str:
    parts = [f"{width} {block}" for width, block in zip(widths, ("sparse", "dense"), strict=True) if width]
    return f"{' and '.join(parts)} columns"


def check_labeled_texts(
    texts: TextsLike,
    labels: Any,
    features: FeaturesLike | None = None,
    label_names: LabelNames | None = None,
    vocabulary: Iterable[str] | None = None,
) -> tuple[LabeledTexts, list[str]]:
    """Validate training texts, their labels and their features; return them with the label ids."""
    checked = checked_list_of_texts(texts)
    Y, ids = training_labels(labels, label_names)
    if len(checked) != Y.rows:
        raise InputError(f"texts and labels must have the same length, got {len(checked)} and {Y.rows}.")
    if not checked or Y.values.size == 0:
        raise InputError("No text has a label. At least one label is required.")
    Y, ids = add_unseen_labels(Y, ids, vocabulary)
    return LabeledTexts(checked, Y, check_own_features(features, len(checked), None)), ids


def check_validation_data(
    validation_data: Any, ids: Sequence[str], training: LabeledTexts
) -> LabeledTexts | NDArray[np.int64] | None:
    """Validate and return the validation texts and their labels, or the indices of the training texts to hold out."""
    if validation_data is None:
        return None
    if isinstance(validation_data, np.ndarray):
        return _check_held_out_rows(validation_data, len(training.texts))
    widths = None if training.features is None else training.features.widths
    if not isinstance(validation_data, tuple) or len(validation_data) not in (2, 3):
        raise InputError(
            "validation_data must be a pair (texts, labels), a triple (texts, labels, features) or an array of text "
            "indices."
        )
    texts = checked_list_of_texts(validation_data[0], "The texts in validation_data")
    if sp.issparse(validation_data[1]):
        Y = validation.check_labels(validation_data[1], "The label matrix in validation_data")
        if Y.cols != len(ids):
            raise InputError(
                f"The label matrix in validation_data must have {len(ids)} columns, as in the training labels, got "
                f"{Y.cols}."
            )
    else:
        Y = match_labels(validation_data[1], ids, "The labels in validation_data").matrix
    if not texts:
        raise InputError("validation_data contains no texts. At least one text is required.")
    if len(texts) != Y.rows:
        raise InputError(
            f"The texts and labels in validation_data must have the same length, got {len(texts)} and {Y.rows}."
        )
    if not Y.values.size:
        raise InputError("validation_data contains none of the training labels. At least one is required.")
    own = validation_data[2] if len(validation_data) == 3 else None
    return LabeledTexts(texts, Y, check_own_features(own, len(texts), widths or (0, 0)))


def _check_held_out_rows(rows: NDArray[Any], n_texts: int) -> NDArray[np.int64]:
    """Return the indices of the held-out texts in ascending order."""
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise InputError(
            "validation_data must be a pair (texts, labels), a triple (texts, labels, features) or a one-dimensional "
            f"array of integers, got an array of shape {rows.shape} and type {rows.dtype}."
        )
    unique: NDArray[np.int64] = np.unique(rows).astype(np.int64)
    if unique.size != rows.size or not 0 < unique.size < n_texts or unique[0] < 0 or unique[-1] >= n_texts:
        raise InputError(
            f"validation_data must contain some, but not all, of the text indices from 0 to {n_texts - 1}, without "
            "duplicates."
        )
    return unique
