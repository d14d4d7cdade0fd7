"""The verbs that models share: from what a caller gives to what a kind of model says of checked queries, and back."""

from __future__ import annotations

import os
from typing import Any, Generic, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from carya import metrics
from carya.core import lazy_sparse as sp
from carya.core import storage, validation
from carya.core.matrices import Csr, Features
from carya.core.progress import Bars, Progress
from carya.core.storage import Saved
from carya.core.validation import FeaturesLike, LabelsLike
from carya.errors import NotFittedError

Learned = TypeVar("Learned")


class Verbs(Generic[Learned]):
    """What a trained model does.

    A kind of model says how it answers (`_answer`, and `_answer_one` if it has a shorter way for one query) and what is
    saved of it (`to_saved`). What it has learned is `_fitted`, set in one step, as other threads may be asking.
    """

    _fitted: Learned
    widths_: tuple[int, int]
    n_labels_: int

    def predict(
        self, X: FeaturesLike, *, top_k: int = 10, beam_width: int | None = None, min_score: float | None = None
    ) -> sp.csr_array:
        """Scores of the `top_k` best labels of every row, rows x labels, each row sorted best first.

        Ties go to the lower label; trees compare logarithms, which differ where scores near 1 or 0 no longer do. Rows
        without features get no labels. With `min_score`, labels below it are left out.
        """
        self._ready()
        queries = validation.features_like(X, self.widths_)
        indptr, labels, scores = self._answer(queries, top_k, beam_width, min_score)
        return sp.csr_array((scores, labels, indptr), shape=(queries.rows, self.n_labels_))

    def rank(
        self, x: FeaturesLike, *, top_k: int = 10, beam_width: int | None = None, min_score: float | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The `top_k` best labels of one query and their scores, best first; any number of threads may ask at once.

        Parameters
        ----------
        x : one row of what `fit` took; it may have one dimension
        """
        self._ready()
        return self._answer_one(*validation.query(x, self.widths_), top_k, beam_width, min_score)

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
        """What :meth:`predict` says, from the arrays of a CSR matrix to those of another, without SciPy."""
        self._ready()
        queries = validation.sparse_rows(indptr, features, values, self.widths_)
        return self._answer(queries, top_k, beam_width, min_score)

    def rank_sparse(
        self,
        features: NDArray[np.int32],
        values: NDArray[np.float32],
        *,
        top_k: int = 10,
        beam_width: int | None = None,
        min_score: float | None = None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """What :meth:`rank` says, for the features of a query as in a row of a CSR matrix: ascending, and finite."""
        self._ready()
        validation.no_dense(self.widths_, "x")
        return self._answer_one(features, values, np.zeros(0, np.float32), top_k, beam_width, min_score)

    def score(self, X: FeaturesLike, Y: LabelsLike) -> float:
        """P@1, what scikit-learn compares models by unless told otherwise."""
        return metrics.precision(Y, self.predict(X, top_k=1), k=1)

    def save(self, path: str | os.PathLike[str], *, precision: str | None = None) -> None:
        """Write the model to a folder, in one step: a reader sees the old model or the new one, never half of it.

        Parameters
        ----------
        precision : {"float32", "float16", "int8"}, optional
            Keep the weights of trees otherwise than the model does.
        """
        storage.save(path, self.to_saved(precision=precision))

    def to_saved(self, *, precision: str | None = None) -> storage.Saved:
        """What :meth:`save` writes."""
        raise NotImplementedError

    def _answer(self, queries: Features, top_k: int, beam_width: int | None, min_score: float | None) -> Rankings:
        """The rankings of some queries."""
        raise NotImplementedError

    def _answer_one(
        self,
        features: NDArray[np.int32],
        values: NDArray[np.float32],
        dense: NDArray[np.float32],
        top_k: int,
        beam_width: int | None,
        min_score: float | None,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The ranking of one."""
        row = Csr.of(np.array([0, features.size], np.int64), features, values, self.widths_[0], "x")
        _, labels, scores = self._answer(Features.of(row, dense.reshape(1, -1), "x"), top_k, beam_width, min_score)
        return labels, scores

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    def _ready(self) -> Learned:
        """What the model has learned; raises NotFittedError before that."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self._fitted

    def _progress(self: Any) -> Progress:
        return Bars() if self.verbose else Progress()


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
