"""The verbs that models share: from what a caller gives to what a kind of model says of checked queries, and back."""

from __future__ import annotations

import os
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from carya import checks, metrics, store
from carya import sparse as sp
from carya.checks import FeaturesLike, LabelsLike
from carya.errors import NotFittedError
from carya.matrices import Csr, Features
from carya.models.kinds import Rankings
from carya.progress import Bars, Progress

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
        queries = checks.features_like(X, self.widths_)
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
        return self._answer_one(*checks.query(x, self.widths_), top_k, beam_width, min_score)

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
        queries = checks.sparse_rows(indptr, features, values, self.widths_)
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
        checks.no_dense(self.widths_, "x")
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
        store.save(path, self.to_saved(precision=precision))

    def to_saved(self, *, precision: str | None = None) -> store.Saved:
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
