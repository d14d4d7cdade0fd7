"""Validated training data: features, labels and the other arguments of `fit`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya.core import validation
from carya.core.inputs.feature_names import feature_names
from carya.core.inputs.labels import CoercedLabels, LabelNames, coerce_labels
from carya.core.matrices import Csr, Features
from carya.core.validation import FeaturesLike, LabelsLike
from carya.data.corpus import Corpus, Matrices
from carya.errors import InputError
from carya.ranking.tasks.engine import Engine
from carya.trees.label_tree import LabelTree

#: The inputs of `fit` that only some models use.
_OPTIONAL_INPUTS = ("label_features", "label_graph", "shortlist", "tree", "engine")
#: The settings or models that use each input, for error messages.
_REQUIREMENTS = {
    "label_graph": "a representation with 'graph' in its name",
    "shortlist": "negatives with 'given'",
    "tree": "XRLinear models with tree=None",
    "engine": "XRLinear models",
}


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
    sample_weight : ndarray of float32, shape (n,), or None
        Positive weights of the rows; None means 1 for all rows.
    label_ids : list of str or None
        The label names, one per column of `labels`; None if the labels have no names.
    engine : Engine or None
        The engine that runs the training tasks; None means that they run in this process.
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
    sample_weight: NDArray[np.float32] | None = None
    label_ids: list[str] | None = None
    engine: Engine | None = None

    @classmethod
    def of(
        cls,
        X: FeaturesLike,
        Y: LabelsLike | None = None,
        *,
        label_names: LabelNames | None = None,
        sample_weight: ArrayLike | None = None,
        **options: Any,
    ) -> TrainingData:
        """Validate features, labels and weights; rows with weight 0 are removed."""
        engine = options.get("engine")
        if engine is not None and not isinstance(engine, Engine):
            raise InputError(f"engine must be an engine such as carya.RayEngine, or None, got {engine!r}.")
        X, Y = split_data(X, Y)
        labels = coerce_labels_of_rows(Y, label_names)
        names = feature_names(X)
        features, matrix = validation.check_training_data(X, labels.matrix)
        weights = validation.check_sample_weight(sample_weight, features.rows)
        data = cls(features, matrix, **options, feature_names=names, sample_weight=weights, label_ids=labels.ids)
        return data if weights is None or weights.all() else data._without_zero_weights(weights)

    def _without_zero_weights(self, weights: NDArray[np.float32]) -> TrainingData:
        rows = np.flatnonzero(weights)
        data = self.take(rows)
        if not data.labels.values.size:
            raise InputError("Y has no positive entries in rows with sample_weight > 0. At least one is required.")
        return replace(data, sample_weight=None) if (weights[rows] == 1).all() else data

    def take(self, rows: NDArray[np.int64]) -> TrainingData:
        """Return the data for a subset of the rows."""
        shortlist, groups = self.shortlist, self.groups
        if shortlist is not None:
            shortlist = self._take_rows(validation.check_labels(shortlist, "shortlist").to_scipy(), rows, "shortlist")
        if groups is not None:
            groups = self._take_rows(np.asarray(groups), rows, "groups")
        return replace(
            self,
            features=self.features.take(rows),
            labels=self.labels.take(rows),
            shortlist=shortlist,
            groups=groups,
            sample_weight=None if self.sample_weight is None else self.sample_weight[rows],
        )

    def _take_rows(self, matrix: Any, rows: NDArray[np.int64], name: str) -> Any:
        if matrix.shape[0] != self.labels.rows:
            raise InputError(f"{name} must have {self.labels.rows} rows, like X, got {matrix.shape[0]}.")
        return matrix[rows]

    def for_member(self, member: Any, features: Features | None = None) -> TrainingData:
        """Return the data that a member of a model uses, with the member's own features if `features` is given."""
        unused = {name: None for name in _OPTIONAL_INPUTS if not getattr(member, f"uses_{name}", False)}
        return replace(self, features=self.features if features is None else features, **unused)  # type: ignore[arg-type]

    def check_used(self, members: Iterable[Any]) -> None:
        """Raise InputError if an input other than label_features was passed but is not used by any member."""
        models = list(members)
        for name, requirement in _REQUIREMENTS.items():
            if getattr(self, name) is not None and not any(getattr(model, f"uses_{name}", False) for model in models):
                raise InputError(f"{name} is not used by any of the models. Omit it, or use {requirement}.")


def split_data(X: Any, Y: Any) -> tuple[Any, Any]:
    """Return the features and the labels; if `X` is a :class:`carya.data.Matrices` object, it contains both."""
    if isinstance(X, Corpus):
        raise InputError(
            f"{X.source} contains texts, but this model requires features. Use carya.TextRanker for texts."
        )
    if not isinstance(X, Matrices):
        if Y is None:
            raise InputError("Y is missing. Pass the labels of the rows, or Matrices, which contain them.")
        return X, Y
    if Y is not None:
        return X.X, Y
    ids = None if X.vocabulary is None else X.vocabulary.ids
    return X.X, CoercedLabels(validation.check_labels(X.Y), ids)


def coerce_labels_of_rows(Y: LabelsLike, label_names: LabelNames | None = None) -> CoercedLabels:
    """Convert the labels of feature rows unless they are already converted; nested lists of numbers form a matrix."""
    if isinstance(Y, CoercedLabels):
        return Y
    return coerce_labels(Y, "Y", label_names=label_names, nested_is_matrix=True)


def features_of(X: Any) -> Any:
    """Return the features of :class:`carya.data.Matrices`, and all other objects unchanged."""
    return split_data(X, ())[0] if isinstance(X, (Corpus, Matrices)) else X
