"""Labeled texts that can be split into training texts and held-out texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya.core import validation
from carya.core.inputs.labels import LabelNames
from carya.core.inputs.texts import TextsLike
from carya.core.parameters import clone_with_checkpoints_in
from carya.errors import InputError
from carya.models.calibration.calibration import Calibration
from carya.models.interface import RankOptions
from carya.ranking.tasks.checkpoint_folder import fingerprint
from carya.text.cross_fitting import cross_fitted_calibration_of_texts
from carya.text.inputs import checked_list_of_texts, split_corpus
from carya.text.labels import label_matrix, training_labels


@dataclass(frozen=True, eq=False)
class LabeledTextLists:
    """Validated texts and the labels of each text.

    Attributes
    ----------
    texts : list of str
    labels : list of tuple of str
    names : mapping of str to str, or None
        The label names, if the texts come from a corpus that contains them.
    sample_weight : ndarray of float32 or None
    """

    texts: list[str]
    labels: list[tuple[str, ...]]
    names: Mapping[str, str] | None = None
    sample_weight: NDArray[np.float32] | None = None

    @classmethod
    def of(
        cls,
        texts: TextsLike,
        labels: Any,
        label_names: LabelNames | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> LabeledTextLists:
        """Validate texts and labels in any supported form; raise InputError if their lengths differ."""
        texts, labels, names = split_corpus(texts, labels)
        all_texts = checked_list_of_texts(texts)
        matrix, ids = training_labels(labels, label_names)
        if len(all_texts) != matrix.rows:
            raise InputError(f"texts and labels must have the same length, got {len(all_texts)} and {matrix.rows}.")
        if not matrix.indices.size:
            raise InputError("No text has a label. At least one label is required.")
        all_labels = [tuple(ids[label] for label in row) for row in _rows(matrix.indptr, matrix.indices)]
        weights = validation.check_sample_weight(sample_weight, len(all_texts))
        return cls(all_texts, all_labels, names, weights)

    def take(self, rows: NDArray[np.int64]) -> LabeledTextLists:
        """Return the given rows: their texts, labels and weights."""
        weights = None if self.sample_weight is None else self.sample_weight[rows]
        return LabeledTextLists(
            [self.texts[row] for row in rows], [self.labels[row] for row in rows], self.names, weights
        )

    def fit(self, model: Any, **options: Any) -> Any:
        """Train a text model on the labeled texts, with sample weights if they are given."""
        weights = {} if self.sample_weight is None else {"sample_weight": self.sample_weight}
        return model.fit(self.texts, self.labels, **weights, **options)

    def cross_fit(
        self, model: Any, folds: int, options: Mapping[str, Any], groups: NDArray[Any] | None = None
    ) -> Calibration:
        """Return the calibration of a text model, learned from held-out texts; `options` are passed to `fit`."""

        def fit(rows: NDArray[np.int64]) -> Any:
            texts = self.take(rows)
            own = {} if groups is None else {"groups": groups[rows]}
            # Checkpoints of transformers belong to one set of texts.
            part = clone_with_checkpoints_in(model, f"fold-{fingerprint([rows])[:8]}")
            return texts.fit(part, **texts.restrict(options), **own)

        def predict(part: Any, rows: NDArray[np.int64], top_k: int) -> Any:
            return part.rank_all([self.texts[row] for row in rows.tolist()], RankOptions.of(top_k, None, None))

        Y, ids = label_matrix(self.labels)
        return cross_fitted_calibration_of_texts(Y, ids, folds, fit, predict, groups=groups, seed=int(model.seed))

    def restrict(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Restrict each mapping to the labels of the texts; mappings that become empty are replaced by None."""
        known = sorted({label for row in self.labels for label in row})
        return {name: _restrict(mapping, known) for name, mapping in options.items()}


def _rows(indptr: NDArray[np.int64], indices: NDArray[np.int32]) -> list[list[int]]:
    return [row.tolist() for row in np.split(indices, indptr[1:-1])]


def _restrict(mapping: Any, labels: Sequence[str]) -> Any:
    if not isinstance(mapping, Mapping):
        return mapping
    return {label: mapping[label] for label in labels if label in mapping} or None
