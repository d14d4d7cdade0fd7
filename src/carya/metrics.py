"""Ranking metrics: precision, recall, nDCG and coverage at k, and propensity-scored precision and nDCG.

Every metric takes the relevant labels `Y_true`, of shape (rows, labels), and scores `S` of the same shape, such as the
output of :meth:`carya.XRLinear.predict`. The top k of a row are the k labels with the highest scores; ties are broken
in favor of the label with the lower index. All metrics are between 0 and 1; precision, recall and nDCG are averaged
over rows. Propensity-scored metrics can exceed 1 only because of rounding.

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

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core import validation
from carya.core.matrices import Csr
from carya.core.parameters import did_you_mean
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
    """Compute precision at k (P@k): the fraction of the top k labels that are relevant.

    Parameters
    ----------
    Y_true : array_like or sparse matrix of shape (rows, labels)
        The relevant labels of each row.
    S : array_like or sparse matrix of shape (rows, labels)
        The predicted scores.
    k : int
        The number of top-ranked labels per row.

    Examples
    --------
    >>> precision([[1, 0, 1]], [[0.9, 0.2, 0.1]], k=2)
    0.5
    """
    return _Ranking(Y_true, S, k).precision(k)


def recall(Y_true: Any, S: Any, k: int = 5) -> float:
    """Compute recall at k (R@k): the fraction of a row's relevant labels that are in its top k.

    Rows without relevant labels are ignored.

    Parameters
    ----------
    Y_true : array_like or sparse matrix of shape (rows, labels)
        The relevant labels of each row.
    S : array_like or sparse matrix of shape (rows, labels)
        The predicted scores.
    k : int
        The number of top-ranked labels per row.

    Examples
    --------
    >>> recall([[1, 0, 1], [0, 0, 0]], [[0.9, 0.2, 0.1], [0.5, 0.4, 0.3]], k=2)
    0.5
    """
    return _Ranking(Y_true, S, k).recall(k)


def ndcg(Y_true: Any, S: Any, k: int = 5) -> float:
    """Compute normalized discounted cumulative gain at k (nDCG@k).

    A relevant label at rank r contributes 1 / log2(1 + r); the sum is divided by that of an ideal ranking. Rows without
    relevant labels are ignored.

    Parameters
    ----------
    Y_true : array_like or sparse matrix of shape (rows, labels)
        The relevant labels of each row.
    S : array_like or sparse matrix of shape (rows, labels)
        The predicted scores.
    k : int
        The number of top-ranked labels per row.

    Examples
    --------
    >>> round(ndcg([[0, 0, 1]], [[0.9, 0.2, 0.5]], k=3), 3)  # the relevant label has rank 2: 1 / log2(3)
    0.631
    """
    return _Ranking(Y_true, S, k).ndcg(k)


def coverage(Y_true: Any, S: Any, k: int = 5) -> float:
    """Compute label coverage at k: the fraction of labels in `Y_true` that are in the top k of one of their rows.

    Parameters
    ----------
    Y_true : array_like or sparse matrix of shape (rows, labels)
        The relevant labels of each row.
    S : array_like or sparse matrix of shape (rows, labels)
        The predicted scores.
    k : int
        The number of top-ranked labels per row.

    Examples
    --------
    >>> coverage([[1, 0, 1]], [[0.9, 0.2, 0.1]], k=1)
    0.5
    """
    return _Ranking(Y_true, S, k).coverage(k)


def psp(Y_true: Any, S: Any, k: int = 1, *, propensity: ArrayLike) -> float:
    """Compute propensity-scored precision at k (PSP@k), which gives more weight to rare labels.

    Each label is weighted by its inverse propensity; the sum is divided by that of an ideal ranking.

    Parameters
    ----------
    Y_true : array_like or sparse matrix of shape (rows, labels)
        The relevant labels of each row.
    S : array_like or sparse matrix of shape (rows, labels)
        The predicted scores.
    k : int
        The number of top-ranked labels per row.
    propensity : array_like of shape (labels,)
        The result of :func:`propensities` for the training labels.

    Examples
    --------
    >>> round(psp([[1, 0, 1]], [[0.9, 0.2, 0.1]], k=1, propensity=[0.8, 0.5, 0.4]), 3)  # (1/0.8) / (1/0.4)
    0.5
    """
    return _Ranking(Y_true, S, k, propensity).psp(k)


def psndcg(Y_true: Any, S: Any, k: int = 5, *, propensity: ArrayLike) -> float:
    """Compute propensity-scored nDCG at k (PSnDCG@k), which gives more weight to rare labels.

    Parameters
    ----------
    Y_true : array_like or sparse matrix of shape (rows, labels)
        The relevant labels of each row.
    S : array_like or sparse matrix of shape (rows, labels)
        The predicted scores.
    k : int
        The number of top-ranked labels per row.
    propensity : array_like of shape (labels,)
        The result of :func:`propensities` for the training labels.

    Examples
    --------
    >>> psndcg([[0, 0, 1]], [[0.1, 0.2, 0.9]], k=3, propensity=[0.8, 0.5, 0.4])
    1.0
    """
    return _Ranking(Y_true, S, k, propensity).psndcg(k)


def propensities(Y_train: Any, *, a: float = 0.55, b: float = 1.5) -> Any:
    """Estimate the propensity of each label from its training frequency (Jain et al., 2016).

    The propensity is the probability that a relevant label is observed: p_l = 1 / (1 + C (N_l + b)^-a) with
    C = (log n - 1) (b + 1)^a, for a label that occurs in N_l of n rows.

    Parameters
    ----------
    Y_train : array_like or sparse matrix of shape (rows, labels), or list of list of str
        The training labels, as a matrix or as one list of labels per text.
    a, b : float
        Constants that depend on the data set: usually 0.55 and 1.5; 0.5 and 0.4 for Wikipedia data, 0.6 and 2.6 for
        Amazon data.

    Returns
    -------
    ndarray of shape (labels,), or dict of str to float if the labels are lists of strings

    Examples
    --------
    >>> propensities(np.array([[1, 0], [1, 0], [1, 1]])).round(2)
    array([0.93, 0.91])
    >>> propensities([["a"], ["a"], ["a", "b"]])["b"].round(2)
    np.float64(0.91)
    """
    if _is_label_lists(Y_train):
        counter = Counter(label for labels in Y_train for label in set(labels))
        values = _propensities(np.array(list(counter.values())), len(Y_train), a, b)
        return dict(zip(counter, values, strict=True))
    labels = validation.check_labels(Y_train, "Y_train")
    return _propensities(labels.column_counts(), labels.rows, a, b)


def _propensities(counts: NDArray[np.int64], rows: int, a: float, b: float) -> _Floats:
    scale = max(np.log(max(rows, 1)) - 1, 0.0) * (b + 1) ** a
    propensity: _Floats = 1 / (1 + scale * (counts + b) ** -a)
    return propensity


def _is_label_lists(labels: Any) -> bool:
    """Return whether labels are lists of strings rather than a matrix."""
    if sp.issparse(labels) or not hasattr(labels, "__len__") or not hasattr(labels, "__iter__"):
        return False
    first = next((label for row in labels if not np.isscalar(row) for label in row), None)
    return isinstance(first, str)


def report(
    Y_true: Any, S: Any, k: int | Iterable[int] = (1, 3, 5), *, propensity: ArrayLike | None = None
) -> dict[str, float]:
    """Compute all metrics for one or more values of k.

    Parameters
    ----------
    Y_true : array_like or sparse matrix of shape (rows, labels)
        The relevant labels of each row.
    S : array_like or sparse matrix of shape (rows, labels)
        The predicted scores.
    k : int or iterable of int
        The numbers of top-ranked labels per row.
    propensity : array_like of shape (labels,), optional
        The result of :func:`propensities` for the training labels; if given, the propensity-scored metrics are
        included.

    Returns
    -------
    dict of str to float
        The value of each metric, keyed by its name, such as ``"P@1"``.

    Examples
    --------
    >>> report([[1, 0, 1]], [[0.9, 0.2, 0.1]], k=[2])["P@2"]
    0.5
    """
    ks = sorted({validation.check_positive_int(cutoff, "k") for cutoff in ([k] if isinstance(k, int) else k)})
    if not ks:
        raise ParameterError("k must contain at least one integer >= 1, got none.")
    ranking = _Ranking(Y_true, S, max(ks), propensity)
    names = ["P", "R", "nDCG", "coverage"] + ([] if propensity is None else ["PSP", "PSnDCG"])
    return {f"{name}@{cutoff}": ranking.metric(name)(cutoff) for name in names for cutoff in ks}


def mean_precision(Y_true: Any, S: Any) -> float:
    """Compute the mean of P@1, P@3 and P@5, the objective of all choices that models make on held-out rows."""
    values = report(Y_true, S, k=(1, 3, 5))
    return (values["P@1"] + values["P@3"] + values["P@5"]) / 3


def scorer(name: str, *, propensity: ArrayLike | Mapping[str, float] | None = None) -> Callable[[Any, Any, Any], float]:
    """Return a scorer for scikit-learn: ``GridSearchCV(model, grid, scoring=carya.metrics.scorer("P@1"))``.

    Parameters
    ----------
    name : str
        The name of a metric, as in :func:`report`: P, R, nDCG, coverage, PSP or PSnDCG, followed by @k.
    propensity : array_like of shape (labels,), or mapping of str to float, optional
        The result of :func:`propensities` for the training labels, one per column of Y or, for models that rank texts,
        a mapping from labels; required for PSP and PSnDCG.

    Returns
    -------
    callable
        A function that takes an estimator, X and Y, and returns the metric. For models that rank texts, such as
        :class:`carya.TextRanker`, X is a list of texts and Y a list of labels per text; labels that the model was not
        trained on, such as those that occur only in the held-out fold, count as missed.

    Examples
    --------
    >>> import carya
    >>> X, Y = carya.data.make_world(300, 30, seed=0)
    >>> scorer("P@1")(carya.XRLinear().fit(X, Y), X, Y) > 0.8
    True
    >>> texts, labels = ["a mail server", "a photo editor", "a mail client"], [["mail"], ["graphics"], ["mail"]]
    >>> scorer("P@1")(carya.TextRanker(carya.Tfidf(min_df=1)).fit(texts, labels), texts, labels)
    1.0
    """
    metric, _, cutoff = str(name).partition("@")
    if metric not in _METRICS or not cutoff.isdigit() or int(cutoff) < 1:
        known = [f"{known}@{cutoff or 1}" for known in _METRICS]
        raise ParameterError(f"Unknown metric {name!r}.{did_you_mean(str(name), known) or ' Use a name such as P@1.'}")
    if metric.startswith("PS") and propensity is None:
        raise ParameterError(f"{name} requires propensity. Pass propensity=carya.metrics.propensities(Y_train).")
    k = int(cutoff)

    def score(estimator: Any, X: Any, Y: Any) -> float:
        S = estimator.predict(X, top_k=k)
        by_column: Any = propensity
        ranker = _text_ranker(estimator)
        if ranker is None:
            if isinstance(by_column, Mapping):
                raise InputError("propensity must be an array with one number per column of Y, got a mapping.")
        elif not sp.issparse(Y):
            Y, labels = ranker.label_matrix_and_ids(Y)
            S.resize((S.shape[0], len(labels)))
            by_column = None if propensity is None else _propensity_of(propensity, labels)
        return _Ranking(Y, S, k, by_column).metric(metric)(k)

    return score


def _text_ranker(estimator: Any) -> Any:
    """Return the estimator, or the last step of a pipeline, if it ranks labels for texts; otherwise None."""
    while hasattr(estimator, "steps"):
        estimator = estimator.steps[-1][1]
    return estimator if hasattr(estimator, "label_matrix_and_ids") else None


def _propensity_of(propensity: Any, labels: Sequence[str]) -> list[float]:
    """Return the propensity of each label, given by name."""
    if not isinstance(propensity, Mapping):
        raise InputError(
            "propensity must be a mapping from labels to numbers for a model that ranks texts. Pass "
            "carya.metrics.propensities(labels)."
        )
    missing = next((label for label in labels if label not in propensity), None)
    if missing is not None:
        raise InputError(f"propensity has no entry for the label {missing!r}.")
    return [propensity[label] for label in labels]


class _Ranking:
    """The top k labels of each row, their relevance, and the metrics computed from them."""

    def __init__(self, Y_true: Any, S: Any, k: int, propensity: ArrayLike | None = None) -> None:
        k = validation.check_positive_int(k, "k")
        self.truth = validation.check_labels(Y_true, "Y_true")
        scores = _scores(S)
        if (self.truth.rows, self.truth.cols) != (scores.rows, scores.cols):
            raise InputError(
                f"Y_true and S must have the same shape, got ({self.truth.rows}, {self.truth.cols}) and "
                f"({scores.rows}, {scores.cols})."
            )
        threads = _core.thread_count(-1)
        k = min(k, max(scores.cols, 1))  # ranks beyond the number of labels would be empty
        self.top, _ = _core.row_topk(scores.native, k, threads)
        self.hits = _core.contains(self.truth.native, self.top, threads).astype(np.float64)
        self.sizes = np.diff(self.truth.indptr)
        self.discount = 1 / np.log2(np.arange(2, k + 2))
        self.weights = None if propensity is None else 1 / _check_propensity(propensity, self.truth.cols)

    def metric(self, name: str) -> Callable[[int], float]:
        method: Callable[[int], float] = getattr(self, _METRICS[name])
        return method

    def precision(self, k: int) -> float:
        return _mean(self.hits[:, :k].sum(axis=1) / k)

    def recall(self, k: int) -> float:
        labeled = self.sizes > 0
        return _mean(self.hits[labeled, :k].sum(axis=1) / self.sizes[labeled])

    def ndcg(self, k: int) -> float:
        ideal = np.concatenate([[0.0], np.cumsum(self.discount[:k])])[np.minimum(self.sizes, k)]
        labeled = self.sizes > 0
        return _mean((self.hits[labeled, :k] @ self.discount[:k]) / ideal[labeled])

    def coverage(self, k: int) -> float:
        covered = np.unique(self.top[:, :k][self.hits[:, :k] > 0])
        return float(covered.size / max(np.unique(self.truth.indices).size, 1))

    def psp(self, k: int) -> float:
        gains, ideal_gains = self._weighted_gains(k)
        return float(gains.sum() / max(ideal_gains.sum(), 1e-300))

    def psndcg(self, k: int) -> float:
        gains, ideal_gains = self._weighted_gains(k)
        return float((gains @ self.discount[:k]).sum() / max((ideal_gains @ self.discount[:k]).sum(), 1e-300))

    def _weighted_gains(self, k: int) -> tuple[_Floats, _Floats]:
        """Return the weights of the relevant labels in the top k and in an ideal top k, both of shape (rows, k)."""
        assert self.weights is not None
        gains = self.hits[:, :k] * self.weights[np.maximum(self.top[:, :k], 0)]
        true_weights = self.weights[self.truth.indices].astype(np.float32)
        ideal = Csr.of(self.truth.indptr, self.truth.indices, true_weights, self.truth.cols)
        _, ideal_gains = _core.row_topk(ideal.native, min(k, self.hits.shape[1]), _core.thread_count(-1))
        return gains, ideal_gains.astype(np.float64)


_METRICS = {
    "P": "precision",
    "R": "recall",
    "nDCG": "ndcg",
    "coverage": "coverage",
    "PSP": "psp",
    "PSnDCG": "psndcg",
}


def _scores(S: Any) -> Csr:
    """Convert scores to CSR. Explicit zeros in a sparse matrix and all zeros in an array count as scores."""
    if sp.issparse(S):
        return validation.check_features(S, "S").sparse
    dense = validation.check_features(S, "S").dense
    rows, cols = dense.shape
    indptr = np.arange(rows + 1, dtype=np.int64) * cols
    return Csr.of(indptr, np.tile(np.arange(cols, dtype=np.int32), rows), dense.reshape(-1), cols, "S")


def _check_propensity(propensity: ArrayLike, n_labels: int) -> _Floats:
    """Convert propensities to an array; raise InputError unless there is one positive number per label."""
    try:
        values = np.asarray(propensity, np.float64)
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.shape != (n_labels,) or not (values > 0).all() or not np.isfinite(values).all():
        raise InputError(f"propensity must contain {n_labels} positive, finite numbers, one per label.")
    return values


def _mean(values: _Floats) -> float:
    return float(values.mean()) if values.size else 0.0
