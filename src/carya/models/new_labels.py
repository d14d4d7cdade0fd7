"""Validate the labels to add to a trained model, and their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from carya.core import lazy_sparse as sp
from carya.core import validation
from carya.core.inputs.labels import CoercedLabels, align_columns, check_label_names, match_labels
from carya.core.matrices import Csr, Features
from carya.core.strings import NumberStrings
from carya.core.validation import FeaturesLike, LabelsLike
from carya.errors import InputError
from carya.models.training_data import TrainingData


@dataclass(frozen=True, eq=False)
class NewLabels:
    """Labels to add to a trained model.

    Attributes
    ----------
    count : int
        The number of new labels.
    names : list of str or None
        The names of all labels, known and new; None if the labels have no names.
    data : TrainingData or None
        Rows with their known and new labels; the columns of the new labels follow those of the known labels. None if
        there are no rows.
    features : Features, one row per new label, or None
        The features of the new labels, which are used for labels without rows.
    """

    count: int
    names: list[str] | None
    data: TrainingData | None = None
    features: Features | None = None

    @classmethod
    def of(cls, labels: int | Sequence[str], known: Sequence[str], *, has_names: bool) -> Self:
        """Validate the names of new labels or, if the known labels have no names, their number."""
        if not has_names:
            if isinstance(labels, bool) or not isinstance(labels, (int, np.integer)) or labels < 1:
                raise InputError(
                    "The labels of the model have no names, so labels must be the number of new labels, an integer >= "
                    f"1, got {labels!r}."
                )
            return cls(int(labels), None)
        names = check_new_names(labels, known)
        return cls(len(names), [*known, *names])

    def with_rows(self, features: Features, Y: LabelsLike, n_known: int, sample_weight: ArrayLike | None) -> Self:
        """Return the new labels together with rows, given as validated features and labels in any form."""
        labels = match_new_labels(Y, n_known, self.count, self.names)
        in_all_rows = np.flatnonzero(labels.matrix.column_counts()[n_known:] == features.rows)
        if features.rows and in_all_rows.size:
            label = n_known + int(in_all_rows[0])
            name = label if self.names is None else repr(self.names[label])
            raise InputError(
                f"All given rows have the new label {name}. Without negative examples, it would be suggested for most "
                "rows. Pass other rows as well, such as earlier training rows."
            )
        return replace(self, data=TrainingData.of(features, labels, sample_weight=sample_weight))

    def with_label_rows(self, n_known: int) -> TrainingData | None:
        """Return the rows together with label features for all labels; the features of known labels are empty."""
        if self.data is None or self.features is None:
            return self.data
        sparse, dense = self.features.sparse.to_scipy(), self.features.dense
        none = sp.csr_array((n_known, sparse.shape[1]), dtype=np.float32)
        blocks: Any = (sp.vstack([none, sparse], format="csr"), np.pad(dense, ((n_known, 0), (0, 0))))
        widths = self.features.widths
        label_features: FeaturesLike = blocks if all(widths) else blocks[0] if widths[0] else blocks[1]
        return replace(self.data, label_features=label_features)


def check_new_names(labels: Any, known: Sequence[str]) -> list[str]:
    """Return the names of new labels; raise InputError if they are not distinct or not new."""
    if isinstance(labels, (str, bytes)) or not isinstance(labels, Iterable):
        raise InputError(f"labels must be a list with the names of the new labels, got {labels!r}.")
    names = check_label_names(labels, "labels")
    if not names or not all(names):
        raise InputError(f"labels must contain at least one name and no empty names, got {names!r}.")
    existing = sorted(set(names) & set(known))
    if existing:
        raise InputError(f"The model already has the label {existing[0]!r}. Pass only new labels.")
    return names


def match_new_labels(Y: Any, n_known: int, n_new: int, names: Sequence[str] | None, name: str = "Y") -> CoercedLabels:
    """Convert the labels of rows to a matrix with the columns of the known labels, followed by the new ones."""
    columns = n_known + n_new
    if isinstance(Y, CoercedLabels):
        if names is not None and Y.ids is not None:
            return align_columns(Y.matrix, Y.ids, names)
        Y = Y.matrix
    if isinstance(Y, Csr) or sp.issparse(Y) or (isinstance(Y, np.ndarray) and Y.ndim == 2):
        matrix = validation.check_labels(Y, name)
        if matrix.cols != columns:
            raise InputError(
                f"{name} has {matrix.cols} columns, but must have {columns}: one for each of the {n_known} known "
                f"labels, followed by one for each of the {n_new} new labels."
            )
        return CoercedLabels(matrix, None if names is None else list(names))
    return match_labels(Y, NumberStrings(columns) if names is None else names, name, nested_is_matrix=True)
