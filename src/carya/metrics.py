"""Ranking metrics: precision, recall, nDCG, their propensity-scored forms, and coverage, all at k.

Every metric takes the true labels `Y_true`, rows x labels, and scores `S` of the same shape, such as
:meth:`carya.XRLinear.predict` gives; of each row of S the k largest scores count, ties to the lower label. Rows are
averaged, and the result is a number between 0 and 1 (propensity-scored ones can exceed 1 only through rounding).

>>> import numpy as np
>>> from carya import metrics
>>> Y = np.array([[1, 0, 1], [0, 1, 0]])
>>> S = np.array([[0.9, 0.2, 0.1], [0.3, 0.8, 0.0]])
>>> metrics.precision(Y, S, k=1)
1.0
>>> metrics.report(Y, S, k=[1])
{'P@1': 1.0, 'R@1': 0.75, 'nDCG@1': 1.0, 'coverage@1': 0.6666666666666666}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core import validation
from carya.core.matrices import Csr
from carya.core.parameters import hint
from carya.errors import InputError, ParameterError

__all__ = [
    "coverage",
    "ndcg",
    "precision",
    "propensities",
    "psndcg",
    "psp",
    "recall",
    "report",
    "scorer",
]

_Floats = NDArray[np.float64]


def precision(Y_true: Any, S: Any, k: int = 1) -> float:
    """P@k: the share of the first k labels that are right.

    >>> precision([[1, 0, 1]], [[0.9, 0.2, 0.1]], k=2)
    0.5
    """
    return _Ranking(Y_true, S, k).precision(k)


def recall(Y_true: Any, S: Any, k: int = 5) -> float:
    """R@k: the share of a row's labels among the first k; rows without labels do not count.

    >>> recall([[1, 0, 1], [0, 0, 0]], [[0.9, 0.2, 0.1], [0.5, 0.4, 0.3]], k=2)
    0.5
    """
    return _Ranking(Y_true, S, k).recall(k)


def ndcg(Y_true: Any, S: Any, k: int = 5) -> float:
    """nDCG@k: right labels count 1 / log2(1 + rank), relative to the best ranking possible.

    >>> round(ndcg([[0, 0, 1]], [[0.9, 0.2, 0.5]], k=3), 3)  # the right label is second: 1 / log2(3)
    0.631
    """
    return _Ranking(Y_true, S, k).ndcg(k)


def coverage(Y_true: Any, S: Any, k: int = 5) -> float:
    """The share of the labels occurring in `Y_true` that are found for at least one of their rows.

    >>> coverage([[1, 0, 1]], [[0.9, 0.2, 0.1]], k=1)
    0.5
    """
    return _Ranking(Y_true, S, k).coverage(k)


def psp(Y_true: Any, S: Any, k: int = 1, *, propensity: ArrayLike) -> float:
    """PSP@k, propensity-scored precision: rare labels count more; relative to the best ranking possible.

    Parameters
    ----------
    propensity : array_like of shape (labels,)
        From :func:`propensities` of the training labels.

    Examples
    --------
    >>> round(psp([[1, 0, 1]], [[0.9, 0.2, 0.1]], k=1, propensity=[0.8, 0.5, 0.4]), 3)  # (1/0.8) / (1/0.4)
    0.5
    """
    return _Ranking(Y_true, S, k, propensity).psp(k)


def psndcg(Y_true: Any, S: Any, k: int = 5, *, propensity: ArrayLike) -> float:
    """nDCG@k with every label weighted by the inverse of its propensity.

    >>> psndcg([[0, 0, 1]], [[0.1, 0.2, 0.9]], k=3, propensity=[0.8, 0.5, 0.4])
    1.0
    """
    return _Ranking(Y_true, S, k, propensity).psndcg(k)


def propensities(Y_train: Any, *, a: float = 0.55, b: float = 1.5) -> _Floats:
    """How likely each label is to be seen where it applies (Jain et al. 2016), from how often it occurs in training.

    p_l = 1 / (1 + C (N_l + b)^-a) with C = (log n - 1) (b + 1)^a. The usual values of `a` and `b` are 0.55 and 1.5;
    0.5 and 0.4 for Wikipedia, 0.6 and 2.6 for Amazon data.

    >>> propensities(np.array([[1, 0], [1, 0], [1, 1]])).round(2)
    array([0.93, 0.91])
    """
    labels = validation.labels(Y_train, "Y_train")
    counts = labels.column_counts()
    scale = max(np.log(max(labels.rows, 1)) - 1, 0.0) * (b + 1) ** a
    weight: _Floats = 1 / (1 + scale * (counts + b) ** -a)
    return weight


def report(
    Y_true: Any, S: Any, k: int | Iterable[int] = (1, 3, 5), *, propensity: ArrayLike | None = None
) -> dict[str, float]:
    """All metrics at several k.

    Parameters
    ----------
    propensity : array_like of shape (labels,), optional
        From :func:`propensities`; adds the propensity-scored metrics.

    Examples
    --------
    >>> report([[1, 0, 1]], [[0.9, 0.2, 0.1]], k=[2])["P@2"]
    0.5
    """
    ks = sorted({validation.positive_int(one, "k") for one in ([k] if isinstance(k, int) else k)})
    if not ks:
        raise ParameterError("k must name at least one rank")
    ranking = _Ranking(Y_true, S, max(ks), propensity)
    names = ["P", "R", "nDCG", "coverage"] + ([] if propensity is None else ["PSP", "PSnDCG"])
    return {f"{name}@{at}": ranking.metric(name)(at) for name in names for at in ks}


def scorer(name: str, *, propensity: ArrayLike | None = None) -> Callable[[Any, Any, Any], float]:
    """A scorer for scikit-learn: ``GridSearchCV(model, grid, scoring=carya.metrics.scorer("P@1"))``.

    Parameters
    ----------
    name : str
        A metric as :func:`report` names it: P, R, nDCG, coverage, PSP or PSnDCG, with @k.
    propensity : array_like of shape (labels,), optional
        Needed for PSP and PSnDCG.

    Examples
    --------
    >>> import carya
    >>> X, Y = carya.data.make_world(300, 30, seed=0)
    >>> scorer("P@1")(carya.XRLinear().fit(X, Y), X, Y) > 0.8
    True
    """
    metric, _, at = str(name).partition("@")
    if metric not in _METRICS or not at.isdigit() or int(at) < 1:
        known = [f"{known}@{at or 1}" for known in _METRICS]
        raise ParameterError(f"there is no metric {name!r}{hint(str(name), known) or '; try P@1'}")
    if metric.startswith("PS") and propensity is None:
        raise ParameterError(f"{name} needs propensity=carya.metrics.propensities(Y_train)")
    k = int(at)

    def score(estimator: Any, X: Any, Y: Any) -> float:
        return _Ranking(Y, estimator.predict(X, top_k=k), k, propensity).metric(metric)(k)

    return score


class _Ranking:
    """The first labels of every row, which of them are right, and what follows from that."""

    def __init__(self, Y_true: Any, S: Any, k: int, propensity: ArrayLike | None = None) -> None:
        k = validation.positive_int(k, "k")
        self.truth = validation.labels(Y_true, "Y_true")
        scores = _scores(S)
        if (self.truth.rows, self.truth.cols) != (scores.rows, scores.cols):
            raise InputError(
                f"Y_true is {self.truth.rows} x {self.truth.cols}, S is {scores.rows} x {scores.cols}: "
                "they must have the same shape"
            )
        threads = _core.thread_count(-1)
        k = min(k, max(scores.cols, 1))  # there are no more ranks than labels
        self.top, _ = _core.row_topk(scores.native, k, threads)
        self.hits = _core.contains(self.truth.native, self.top, threads).astype(np.float64)
        self.sizes = np.diff(self.truth.indptr)
        self.discount = 1 / np.log2(np.arange(2, k + 2))
        self.weights: _Floats | None = None
        if propensity is not None:
            try:
                p = np.asarray(propensity, np.float64)
            except (TypeError, ValueError):
                p = np.zeros(0)
            if p.shape != (self.truth.cols,) or not (p > 0).all() or not np.isfinite(p).all():
                raise InputError(f"propensity must be {self.truth.cols} numbers above 0, one a label")
            self.weights = 1 / p

    def metric(self, name: str) -> Callable[[int], float]:
        method: Callable[[int], float] = getattr(self, _METRICS[name])
        return method

    def precision(self, k: int) -> float:
        return _mean(self.hits[:, :k].sum(axis=1) / k)

    def recall(self, k: int) -> float:
        labelled = self.sizes > 0
        return _mean(self.hits[labelled, :k].sum(axis=1) / self.sizes[labelled])

    def ndcg(self, k: int) -> float:
        best = np.concatenate([[0.0], np.cumsum(self.discount[:k])])[np.minimum(self.sizes, k)]
        labelled = self.sizes > 0
        return _mean((self.hits[labelled, :k] @ self.discount[:k]) / best[labelled])

    def coverage(self, k: int) -> float:
        found = np.unique(self.top[:, :k][self.hits[:, :k] > 0])
        return float(found.size / max(np.unique(self.truth.indices).size, 1))

    def psp(self, k: int) -> float:
        gained, best = self._weighted(k)
        return float(gained.sum() / max(best.sum(), 1e-300))

    def psndcg(self, k: int) -> float:
        gained, best = self._weighted(k)
        return float((gained @ self.discount[:k]).sum() / max((best @ self.discount[:k]).sum(), 1e-300))

    def _weighted(self, k: int) -> tuple[_Floats, _Floats]:
        """The weights of the right labels found, and those of the best k of each row, both rows x k."""
        assert self.weights is not None
        gained = self.hits[:, :k] * self.weights[np.maximum(self.top[:, :k], 0)]
        own = self.weights[self.truth.indices].astype(np.float32)
        ideal = Csr.of(self.truth.indptr, self.truth.indices, own, self.truth.cols)
        _, best = _core.row_topk(ideal.native, min(k, self.hits.shape[1]), _core.thread_count(-1))
        return gained, best.astype(np.float64)


_METRICS = {
    "P": "precision",
    "R": "recall",
    "nDCG": "ndcg",
    "coverage": "coverage",
    "PSP": "psp",
    "PSnDCG": "psndcg",
}


def _scores(S: Any) -> Csr:
    """Scores as sorted rows. Zeros count as scores where they are stored, and in an array everywhere."""
    if sp.issparse(S):
        return validation.features(S, "S").sparse
    dense = validation.features(S, "S").dense
    rows, cols = dense.shape
    indptr = np.arange(rows + 1, dtype=np.int64) * cols
    return Csr.of(indptr, np.tile(np.arange(cols, dtype=np.int32), rows), dense.reshape(-1), cols, "S")


def _mean(values: _Floats) -> float:
    return float(values.mean()) if values.size else 0.0
