"""Ranking metrics: precision, recall, F1, nDCG and coverage at k, and propensity-scored precision and nDCG.

Every metric takes the relevant labels `Y_true`, of shape (rows, labels), and scores `S` of the same shape, such as the
output of :meth:`carya.XRLinear.predict`. The top k of a row are the k labels with the highest scores; ties are broken
in favor of the label with the lower index. All metrics are between 0 and 1, except that propensity-scored metrics can
exceed 1 because of rounding.

nDCG is averaged over rows. Precision, recall and F1 are averaged as in scikit-learn:

* ``"samples"``: the mean over rows. The denominator of P@k is k even if a row has fewer than k scores; R@k and
  F1@k ignore rows without relevant labels.
* ``"micro"``: computed from the total counts of correct, suggested and relevant labels.
* ``"macro"``: the mean over the labels that occur in `Y_true`. A rare label has the same weight as a common one.

>>> import numpy as np
>>> from carya import metrics
>>> Y = np.array([[1, 0, 1], [0, 1, 0]])
>>> S = np.array([[0.9, 0.2, 0.1], [0.3, 0.8, 0.0]])
>>> metrics.precision(Y, S, k=1)
1.0
>>> metrics.report(Y, S, k=[1])
{'P@1': 1.0, 'R@1': 0.75, 'F1@1': 0.8333333333333333, 'nDCG@1': 1.0, 'coverage@1': 0.6666666666666666,
 'micro-P@1': 1.0, 'micro-R@1': 0.6666666666666666, 'micro-F1@1': 0.8,
 'macro-P@1': 0.6666666666666666, 'macro-R@1': 0.6666666666666666, 'macro-F1@1': 0.6666666666666666}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
    "LabelReport",
    "coverage",
    "f1",
    "label_report",
    "ndcg",
    "precision",
    "propensities",
    "propensities_from_counts",
    "psndcg",
    "psp",
    "recall",
    "report",
    "row_ndcg",
    "scorer",
]

_Floats = NDArray[np.float64]

#: The averaging methods for precision, recall and F1.
AVERAGES = ("samples", "micro", "macro")


@dataclass(frozen=True, eq=False)
class LabelReport:
    """Precision, recall and F1 of each label.

    Attributes
    ----------
    support : ndarray of int64
        The number of rows for which the label is relevant.
    suggested : ndarray of int64
        The number of rows whose top k contain the label.
    correct : ndarray of int64
        The number of rows for which the label is relevant and in the top k.

    Examples
    --------
    >>> label_report([[1, 0], [1, 1]], [[0.9, 0.1], [0.2, 0.8]], k=1).recall.tolist()
    [0.5, 1.0]
    """

    support: NDArray[np.int64]
    suggested: NDArray[np.int64]
    correct: NDArray[np.int64]

    @property
    def precision(self) -> _Floats:
        """For each label, the fraction of its suggestions that are correct; 0 if it is never suggested."""
        return _ratio(self.correct, self.suggested)

    @property
    def recall(self) -> _Floats:
        """For each label, the fraction of the rows with this label for which it is suggested; 0 if there are no such
        rows.
        """
        return _ratio(self.correct, self.support)

    @property
    def f1(self) -> _Floats:
        """The harmonic mean of precision and recall."""
        return _ratio(2 * self.correct, self.suggested + self.support)


def precision(Y_true: Any, S: Any, k: int = 1, *, average: str = "samples") -> float:
    """Compute precision at k (P@k): the fraction of the top k labels that are relevant.

    Parameters
    ----------
    Y_true : array_like or sparse matrix of shape (rows, labels)
        The relevant labels of each row.
    S : array_like or sparse matrix of shape (rows, labels)
        The predicted scores.
    k : int
        The number of top-ranked labels per row.
    average : {"samples", "micro", "macro"}
        See the module documentation.

    Examples
    --------
    >>> precision([[1, 0, 1]], [[0.9, 0.2, 0.1]], k=2)
    0.5
    """
    return _average_of("P", average)(_Ranking(Y_true, S, k), k)


def recall(Y_true: Any, S: Any, k: int = 5, *, average: str = "samples") -> float:
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
    average : {"samples", "micro", "macro"}
        See the module documentation.

    Examples
    --------
    >>> recall([[1, 0, 1], [0, 0, 0]], [[0.9, 0.2, 0.1], [0.5, 0.4, 0.3]], k=2)
    0.5
    """
    return _average_of("R", average)(_Ranking(Y_true, S, k), k)


def f1(Y_true: Any, S: Any, k: int = 5, *, average: str = "samples") -> float:
    """Compute F1 at k (F1@k): the harmonic mean of the precision and recall of the top k labels.

    Rows without relevant labels are ignored. Only labels with a score count as suggested, so a row can have fewer than
    k suggestions.

    Parameters
    ----------
    Y_true : array_like or sparse matrix of shape (rows, labels)
        The relevant labels of each row.
    S : array_like or sparse matrix of shape (rows, labels)
        The predicted scores.
    k : int
        The number of top-ranked labels per row.
    average : {"samples", "micro", "macro"}
        See the module documentation.

    Examples
    --------
    >>> f1([[1, 0, 1]], [[0.9, 0.2, 0.1]], k=1)  # precision 1, recall 1/2
    0.6666666666666666
    """
    return _average_of("F1", average)(_Ranking(Y_true, S, k), k)


def label_report(Y_true: Any, S: Any, k: int = 5) -> LabelReport:
    """Compute precision, recall and F1 at k for each label.

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
    >>> report_at_1 = label_report([[1, 0], [1, 1]], [[0.9, 0.1], [0.2, 0.8]], k=1)
    >>> report_at_1.support.tolist(), report_at_1.f1.round(2).tolist()
    ([2, 1], [0.67, 1.0])
    """
    return _Ranking(Y_true, S, k).label_report(k)


def ndcg(Y_true: Any, S: Any, k: int = 5) -> float:
    """Compute normalized discounted cumulative gain at k (nDCG@k).

    A relevant label at rank r contributes 1 / log2(1 + r); the sum over the top k is divided by the sum for an ideal
    ranking. Rows without relevant labels are ignored.

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


def row_ndcg(Y_true: Any, S: Any, k: int = 5) -> _Floats:
    """Compute nDCG@k for each row; NaN for rows without relevant labels.

    Parameters
    ----------
    Y_true : array_like or sparse matrix of shape (rows, labels)
        The relevant labels of each row.
    S : array_like or sparse matrix of shape (rows, labels)
        The predicted scores.
    k : int
        The number of top-ranked labels per row.

    Returns
    -------
    ndarray of shape (rows,)

    Examples
    --------
    >>> row_ndcg([[0, 0, 1], [0, 0, 0]], [[0.9, 0.2, 0.5], [0.1, 0.2, 0.3]], k=3).round(3).tolist()
    [0.631, nan]
    """
    return _Ranking(Y_true, S, k).row_ndcg(k)


def coverage(Y_true: Any, S: Any, k: int = 5) -> float:
    """Compute label coverage at k: the fraction of the labels in `Y_true` that are in the top k of any of their rows.

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

    Each relevant label in the top k contributes its inverse propensity; the sum over all rows is divided by the sum for
    an ideal ranking.

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
        values = propensities_from_counts(np.array(list(counter.values())), len(Y_train), a=a, b=b)
        return dict(zip(counter, values, strict=True))
    labels = validation.check_labels(Y_train, "Y_train")
    return propensities_from_counts(labels.column_counts(), labels.rows, a=a, b=b)


def propensities_from_counts(label_counts: ArrayLike, n_rows: int, *, a: float = 0.55, b: float = 1.5) -> _Floats:
    """Estimate the propensity of each label from its number of training rows; see :func:`propensities`.

    Parameters
    ----------
    label_counts : array_like of shape (labels,)
        The number of training rows per label, such as `TextRanker.label_counts_`.
    n_rows : int
        The number of training rows.
    a, b : float
        Constants that depend on the data set, as in :func:`propensities`.

    Returns
    -------
    ndarray of shape (labels,)

    Examples
    --------
    >>> propensities_from_counts([3, 1], 3).round(2)
    array([0.93, 0.91])
    """
    counts = np.asarray(label_counts, np.float64)
    if counts.ndim != 1 or not ((counts >= 0) & (counts <= n_rows)).all():
        raise InputError(f"label_counts must contain one number per label, between 0 and n_rows = {n_rows}.")
    if not (0 <= a < np.inf and 0 < b < np.inf):
        raise ParameterError(f"a must be finite and >= 0, and b must be finite and > 0, got a={a!r} and b={b!r}.")
    scale = max(np.log(max(n_rows, 1)) - 1, 0.0) * (b + 1) ** a
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
    """Compute all metrics for one or more values of k; the prefixes ``micro-`` and ``macro-`` denote averaging methods.

    Parameters
    ----------
    Y_true : array_like or sparse matrix of shape (rows, labels)
        The relevant labels of each row.
    S : array_like or sparse matrix of shape (rows, labels)
        The predicted scores.
    k : int or iterable of int
        One or more numbers of top-ranked labels per row.
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
    names = [name for name in _METRICS if propensity is not None or not name.startswith("PS")]
    return {f"{name}@{cutoff}": _METRICS[name](ranking, cutoff) for name in names for cutoff in ks}


def mean_precision(Y_true: Any, S: Any) -> float:
    """Compute the mean of P@1, P@3 and P@5, the criterion for choosing settings on held-out rows."""
    values = report(Y_true, S, k=(1, 3, 5))
    return (values["P@1"] + values["P@3"] + values["P@5"]) / 3


def scorer(name: str, *, propensity: ArrayLike | Mapping[str, float] | None = None) -> Callable[[Any, Any, Any], float]:
    """Return a scorer for scikit-learn: ``GridSearchCV(model, grid, scoring=carya.metrics.scorer("P@1"))``.

    Parameters
    ----------
    name : str
        The name of a metric, as in :func:`report`: P, R, F1, nDCG, coverage, PSP or PSnDCG, followed by @k. P, R and F1
        can be preceded by ``micro-`` or ``macro-``.
    propensity : array_like of shape (labels,), or mapping of str to float, optional
        The result of :func:`propensities` for the training labels: one value per column of Y or, for text
        models, a mapping from labels to propensities. Required for PSP and PSnDCG.

    Returns
    -------
    callable
        A function that takes an estimator, X and Y, and returns the metric. For text models, such as
        :class:`carya.TextRanker`, X contains texts and Y contains one list of labels per text; labels on which the
        model was not trained, such as those that occur only in the held-out fold, count as false negatives.

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
        return _METRICS[metric](_Ranking(Y, S, k, by_column), k)

    return score


def _text_ranker(estimator: Any) -> Any:
    """Return the estimator (for a pipeline, its last step) if it ranks labels for texts; otherwise None."""
    while hasattr(estimator, "steps"):
        estimator = estimator.steps[-1][1]
    return estimator if hasattr(estimator, "label_matrix_and_ids") else None


def _propensity_of(propensity: Any, labels: Sequence[str]) -> list[float]:
    """Return the propensity of each of the given labels."""
    if not isinstance(propensity, Mapping):
        raise InputError(
            "propensity must be a mapping from labels to numbers for a text model. Pass "
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
        self._label_reports: dict[int, LabelReport] = {}
        self.weights = None if propensity is None else 1 / _check_propensity(propensity, self.truth.cols)

    def precision(self, k: int) -> float:
        return _mean(self.hits[:, :k].sum(axis=1) / k)

    def recall(self, k: int) -> float:
        labeled = self.sizes > 0
        return _mean(self.hits[labeled, :k].sum(axis=1) / self.sizes[labeled])

    def f1(self, k: int) -> float:
        labeled = self.sizes > 0
        suggested = (self.top[labeled, :k] >= 0).sum(axis=1)
        return _mean(2 * self.hits[labeled, :k].sum(axis=1) / (suggested + self.sizes[labeled]))

    def micro(self, k: int) -> LabelReport:
        """Return the counts summed over all labels, as a report with a single entry."""
        totals = (self.truth.indices.size, (self.top[:, :k] >= 0).sum(), self.hits[:, :k].sum())
        return LabelReport(*(np.array([total], np.int64) for total in totals))

    def macro(self, k: int) -> LabelReport:
        """Return the report restricted to the labels that occur in `Y_true`."""
        report = self.label_report(k)
        occurring = report.support > 0
        return LabelReport(report.support[occurring], report.suggested[occurring], report.correct[occurring])

    def label_report(self, k: int) -> LabelReport:
        if k not in self._label_reports:
            top, hits, cols = self.top[:, :k], self.hits[:, :k] > 0, self.truth.cols
            self._label_reports[k] = LabelReport(
                np.bincount(self.truth.indices, minlength=cols),
                np.bincount(top[top >= 0], minlength=cols),
                np.bincount(top[hits], minlength=cols),
            )
        return self._label_reports[k]

    def ndcg(self, k: int) -> float:
        return _mean(self.row_ndcg(k)[self.sizes > 0])

    def row_ndcg(self, k: int) -> _Floats:
        k = min(k, self.discount.size)
        ideal = np.concatenate([[np.nan], np.cumsum(self.discount[:k])])[np.minimum(self.sizes, k)]
        values: _Floats = (self.hits[:, :k] @ self.discount[:k]) / ideal
        return values

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


_METRICS: dict[str, Callable[[_Ranking, int], float]] = {
    "P": _Ranking.precision,
    "R": _Ranking.recall,
    "F1": _Ranking.f1,
    "nDCG": _Ranking.ndcg,
    "coverage": _Ranking.coverage,
    "micro-P": lambda ranking, k: _mean(ranking.micro(k).precision),
    "micro-R": lambda ranking, k: _mean(ranking.micro(k).recall),
    "micro-F1": lambda ranking, k: _mean(ranking.micro(k).f1),
    "macro-P": lambda ranking, k: _mean(ranking.macro(k).precision),
    "macro-R": lambda ranking, k: _mean(ranking.macro(k).recall),
    "macro-F1": lambda ranking, k: _mean(ranking.macro(k).f1),
    "PSP": _Ranking.psp,
    "PSnDCG": _Ranking.psndcg,
}


def _average_of(metric: str, average: str) -> Callable[[_Ranking, int], float]:
    """Return the function that computes precision, recall or F1 with the given averaging method."""
    if average not in AVERAGES:
        raise ParameterError(f"average must be one of {', '.join(map(repr, AVERAGES))}, got {average!r}.")
    return _METRICS[metric if average == "samples" else f"{average}-{metric}"]


def _ratio(numerator: NDArray[np.int64], denominator: NDArray[np.int64]) -> _Floats:
    """Return the elementwise quotients; they are 0 where the denominator is 0."""
    quotients: _Floats = numerator / np.maximum(denominator, 1)
    return quotients


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
