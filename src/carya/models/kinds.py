"""What every model can do, and where models of each kind live: only the one that is needed is imported."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from carya.checks import FeaturesLike, LabelsLike
from carya.errors import ModelFormatError
from carya.matrices import Csr, Features
from carya.store import Saved

#: Saved kinds, and the classes they are opened as.
KINDS = {
    "xr-linear": ("carya.models.xr_linear", "XRLinear"),
    "nearest-neighbours": ("carya.models.neighbours", "NearestNeighbours"),
    "ensemble": ("carya.models.ensemble", "Ensemble"),
    "reranked": ("carya.models.reranked", "Reranked"),
}

#: Row offsets, labels and scores of rankings.
Rankings = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]


@runtime_checkable
class Model(Protocol):
    """What ranks labels for rows of features: a member of an ensemble, or the inside of a text ranker.

    After training it has `n_labels_` and `widths_`, how many features are sparse and how many dense. Whether it
    `needs_label_features` or at least `uses_label_features` is known before.
    """

    @property
    def needs_label_features(self) -> bool:
        """Whether `fit` fails without label_features."""
        ...

    @property
    def uses_label_features(self) -> bool:
        """Whether `fit` takes label_features."""
        ...

    def check_parameters(self) -> None:
        """Raise ParameterError if a parameter cannot be."""
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters."""
        ...

    def fit_checked(self, features: Features, labels: Csr, *, label_features: FeaturesLike | None = None) -> Self:
        """Train on matrices that came through the door."""
        ...

    def predict(
        self, X: FeaturesLike, *, top_k: int = 10, beam_width: int | None = None, min_score: float | None = None
    ) -> Any:
        """Scores of the best labels of every row, rows x labels, each row sorted best first."""
        ...

    def rank(
        self, x: FeaturesLike, *, top_k: int = 10, beam_width: int | None = None, min_score: float | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The best labels of one query and their scores."""
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
        """What `predict` says, from the arrays of a CSR matrix to those of another."""
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
        """What `rank` says, for the sparse features of a query as they are in a row of a CSR matrix."""
        ...

    def score(self, X: FeaturesLike, Y: LabelsLike) -> float:
        """P@1."""
        ...

    def to_saved(self, *, precision: str | None = None) -> Saved:
        """What a saved folder holds."""
        ...


def fresh(model: Model) -> Any:
    """An untrained model with the same parameters."""
    return type(model)(**model.get_params(deep=False))


def open_saved(saved: Saved, kinds: Mapping[str, tuple[str, str]] = KINDS) -> Any:
    """The model of what a folder holds; raises ModelFormatError for a kind that is none of `kinds`."""
    if saved.kind not in kinds:
        raise ModelFormatError(f"it holds a model of kind {saved.kind!r}, which this version of Carya does not know")
    module, name = kinds[saved.kind]
    return getattr(importlib.import_module(module), name).from_saved(saved)
