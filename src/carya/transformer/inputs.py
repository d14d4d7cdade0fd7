"""Input validation for transformer models: texts, labels as lists or as a matrix, and validation data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core import validation
from carya.core.matrices import Csr, Features
from carya.core.progress import Progress
from carya.errors import InputError
from carya.text.labels import label_matrix

#: One list of labels per text, or a sparse matrix of shape (texts, labels).
Labels = Iterable[Iterable[str]] | Any


class LabeledTexts(NamedTuple):
    """Texts and their label matrix, of shape (texts, labels)."""

    texts: list[str]
    labels: Csr


@dataclass(frozen=True, eq=False)
class LabelTexts:
    """Texts that describe labels.

    Attributes
    ----------
    labels : ndarray of int32
        The labels that have a text, in ascending order.
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
        """Create an instance from the non-empty texts of known labels; return None if there are none."""
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
    """Validated input of `fit`.

    Attributes
    ----------
    texts : list of str
    labels : Csr of shape (n_texts, n_labels)
    validation : LabeledTexts or None
        Texts that are held out from training.
    label_texts : LabelTexts or None
    """

    texts: list[str]
    labels: Csr
    validation: LabeledTexts | None = None
    label_texts: LabelTexts | None = None


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """One training run in `fit`: the first may hold texts out for validation, the second uses all texts.

    Attributes
    ----------
    name : str
        The name of the run, which distinguishes the checkpoints of the two runs.
    data : TrainingTexts
    features : Features
        The TF-IDF features of the texts.
    stop_after : sequence of int, optional
        The number of epochs per stage, if a previous run determined it.
    progress : Progress
    """

    name: str
    data: TrainingTexts
    features: Features
    stop_after: Sequence[int] | None
    progress: Progress


def check_texts(texts: Iterable[str], name: str = "texts") -> list[str]:
    """Return the texts as a list; raise InputError if they are not strings."""
    if isinstance(texts, (str, bytes)):
        raise InputError(
            f"{name} must be a list of strings, got a single {type(texts).__name__}. Pass [text] for one text."
        )
    if not isinstance(texts, Iterable):
        raise InputError(f"{name} must be a list of strings, got {type(texts).__name__}.")
    checked = list(texts)
    for row, text in enumerate(checked):
        if not isinstance(text, str):
            raise InputError(f"{name} must be a list of strings, but item {row} has type {type(text).__name__}.")
    return checked


def check_labeled_texts(texts: Iterable[str], labels: Labels) -> tuple[LabeledTexts, list[str]]:
    """Validate training texts and their labels; return them with the label ids."""
    checked = check_texts(texts)
    if sp.issparse(labels):
        Y = validation.check_labels(labels, "labels")
        ids = [str(number) for number in range(Y.cols)]
    else:
        matrix, ids = label_matrix(labels)
        Y = Csr.of_scipy(matrix)
    if len(checked) != Y.rows:
        raise InputError(f"texts and labels must have the same length, got {len(checked)} and {Y.rows}.")
    if not checked or Y.values.size == 0:
        raise InputError("labels is empty for every text. At least one label is required.")
    return LabeledTexts(checked, Y), ids


def check_validation_data(
    validation_data: Any, ids: Sequence[str], n_texts: int
) -> LabeledTexts | NDArray[np.int64] | None:
    """Validate the validation texts and their labels, or the numbers of the training texts to hold out."""
    if validation_data is None:
        return None
    if isinstance(validation_data, np.ndarray):
        return _check_held_out_rows(validation_data, n_texts)
    if not isinstance(validation_data, tuple) or len(validation_data) != 2:
        raise InputError("validation_data must be a pair (texts, labels) or an array of text indices.")
    texts = check_texts(validation_data[0], "The texts in validation_data")
    if sp.issparse(validation_data[1]):
        Y = validation.check_labels(validation_data[1], "The label matrix in validation_data")
        if Y.cols != len(ids):
            raise InputError(
                f"The label matrix in validation_data must have {len(ids)} columns, like the training labels, got "
                f"{Y.cols}."
            )
    else:
        Y = Csr.of_scipy(label_matrix(validation_data[1], ids)[0])
    if not texts:
        raise InputError("validation_data contains no texts. At least one text is required.")
    if len(texts) != Y.rows:
        raise InputError(
            f"The texts and labels in validation_data must have the same length, got {len(texts)} and {Y.rows}."
        )
    if not Y.values.size:
        raise InputError("validation_data contains no labels of the training texts. At least one is required.")
    return LabeledTexts(texts, Y)


def _check_held_out_rows(rows: NDArray[Any], n_texts: int) -> NDArray[np.int64]:
    """Return the numbers of the held-out texts in ascending order."""
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise InputError("validation_data must be a pair (texts, labels) or a one-dimensional array of integers.")
    unique: NDArray[np.int64] = np.unique(rows).astype(np.int64)
    if unique.size != rows.size or not 0 < unique.size < n_texts or unique[0] < 0 or unique[-1] >= n_texts:
        raise InputError(
            f"validation_data must contain some, but not all, of the text indices from 0 to {n_texts - 1}, without "
            "duplicates."
        )
    return unique
