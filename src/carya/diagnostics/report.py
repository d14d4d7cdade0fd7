"""`carya.label_report`: per-label metrics, and the differences between training data and new data."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya import metrics
from carya.core import lazy_sparse as sp
from carya.core import rules
from carya.core.atomic import atomic_file
from carya.core.extras import require
from carya.core.rules import Integer, Real
from carya.core.strings import NumberStrings
from carya.diagnostics.label_quality import LabelQuality, label_quality
from carya.diagnostics.page import html_page
from carya.diagnostics.shift import LabelShift, VocabularyShift, label_shift, vocabulary_shift
from carya.errors import InputError
from carya.models.calibration.reliability import reliability as reliability_of_top_k
from carya.models.interface import RankOptions
from carya.models.training_data import coerce_labels_of_rows, split_data
from carya.text.base import BaseTextRanker
from carya.text.inputs import list_of_texts, split_corpus

_TOP = 20


@dataclass(frozen=True, eq=False)
class DiagnosticReport:
    """Per-label metrics of a model on a data set; see :func:`carya.label_report`.

    Attributes
    ----------
    k : int
        The number of suggestions per row.
    confidence : float
        The confidence level of all intervals.
    n_rows : int
    metrics : dict of str to float
        P@k, R@k, F1@k and nDCG@k.
    labels : LabelQuality
        The per-label results.
    label_shift : LabelShift or None
        None if the label frequencies of the training data are unknown.
    vocabulary_shift : VocabularyShift or None
        None if the model has no vectorizer.
    reliability : dict or None
        The expected calibration error of the probabilities (``error``) and, for ten bins, the mean probability,
        precision and number of suggestions (``bins``); None if the model is not calibrated.
    """

    k: int
    confidence: float
    n_rows: int
    metrics: dict[str, float]
    labels: LabelQuality
    label_shift: LabelShift | None = None
    vocabulary_shift: VocabularyShift | None = None
    reliability: dict[str, Any] | None = None

    def over_suggested(self, top: int = _TOP) -> list[dict[str, Any]]:
        """Return the significantly over-suggested labels, sorted by descending number of incorrect suggestions."""
        return [self.labels.record(position) for position in self.labels.over_suggested[:top]]

    def records(self) -> list[dict[str, Any]]:
        """Return the results for all labels as a list of dictionaries."""
        return [self.labels.record(position) for position in range(len(self.labels))]

    def to_frame(self) -> Any:
        """Return the results for all labels as a pandas DataFrame."""
        pandas = require("pandas", extra="pandas", purpose="to_frame")
        return pandas.DataFrame(self.records())

    def to_dict(self, top: int = _TOP) -> dict[str, Any]:
        """Return a JSON-serializable summary; it contains per-label results only for over-suggested labels."""
        return {
            "k": self.k,
            "confidence": self.confidence,
            "rows": self.n_rows,
            "labels": len(self.labels),
            "metrics": self.metrics,
            "over_suggested": self.over_suggested(top),
            "label_shift": None if self.label_shift is None else asdict(self.label_shift),
            "vocabulary_shift": None if self.vocabulary_shift is None else asdict(self.vocabulary_shift),
            "reliability": self.reliability,
        }

    def to_html(self, path: str | os.PathLike[str], *, title: str = "Label report") -> None:
        """Write the report to a self-contained HTML page with inline charts."""
        with atomic_file(Path(path)) as file:
            file.write(html_page(self, title).encode())


def label_report(
    model: Any, data: Any, labels: Any = None, *, k: int = 5, confidence: float = 0.95, train_labels: Any = None
) -> DiagnosticReport:
    """Report the precision and recall of each label, over-suggested labels, and the shift from the training data.

    Parameters
    ----------
    model : any fitted model
    data : texts or features
        New rows, in any form that the model accepts.
    labels : labels, optional
        The relevant labels of the rows; not needed for a Corpus, a table with labels, or Matrices.
    k : int
        The number of suggestions to evaluate per row.
    confidence : float
        The confidence level of all intervals.
    train_labels : labels, optional
        The labels of the training data. Required for the label shift if the model does not store label frequencies,
        as is the case for models trained on features.

    Examples
    --------
    >>> import carya
    >>> texts, labels = ["a web server", "a photo editor", "a mail server"] * 20, [["net"], ["graphics"], ["net"]] * 20
    >>> ranker = carya.TextRanker().fit(texts, labels)
    >>> report = carya.label_report(ranker, texts[:30] + ["a chess game"], labels[:30] + [["games"]], k=1)
    >>> report.labels.labels, report.labels.support.tolist()
    (['net', 'graphics', 'games'], [20, 10, 1])
    >>> report.label_shift.unknown
    [('games', 1)]
    >>> report.vocabulary_shift.unknown
    [('chess', 1), ('game', 1)]
    """
    rules.check("k", k, Integer(1))
    rules.check("confidence", confidence, Real(0, 1, open_low=True))
    if confidence == 1:
        raise InputError("confidence must be less than 1, got 1.")
    texts: list[str] | None = None
    if isinstance(model, BaseTextRanker):
        given, labels, _ = split_corpus(data, labels)
        texts = list(list_of_texts(given))
        # Unlike `predict`, `rank_all` does not warn about texts without known terms; the report counts them.
        S = model.rank_all(texts, RankOptions.of(k, None, None))
        Y, ids = model.label_matrix_and_ids(labels)
        names = list(model.label_names_) + ids[len(model.label_names_) :]
    else:
        X, labels = split_data(data, labels)
        coerced = coerce_labels_of_rows(labels)
        S, Y = model.predict(X, top_k=k), coerced.matrix.to_scipy()
        ids = list(model.labels_)
        if coerced.ids is not None and not isinstance(model.labels_, NumberStrings):
            from carya.core.inputs.labels import align_columns

            aligned = align_columns(coerced.matrix, coerced.ids, ids, keep_unknown=True)
            Y, ids = aligned.matrix.to_scipy(), aligned.all_ids()
        ids += [str(column) for column in range(len(ids), Y.shape[1])]
        names = ids
    if S.shape[0] != Y.shape[0]:
        raise InputError(f"The data and labels must have the same length, got {S.shape[0]} and {Y.shape[0]}.")
    if not Y.nnz:
        raise InputError("No row has a label. At least one label is required.")
    counts, n_training_rows = _training_counts(model, train_labels, len(ids))
    calibration = getattr(model, "calibration_", None)
    return build_report(
        Y,
        S,
        ids,
        names,
        k=k,
        confidence=confidence,
        counts=counts,
        n_training_rows=n_training_rows,
        texts=texts,
        vectorizer=next(iter(getattr(model, "vectorizers_", ())), None),
        reliability=None if calibration is None else reliability_of_top_k(calibration, Y, S, k=k),
    )


def build_report(
    Y: Any,
    S: Any,
    labels: Sequence[str],
    names: Sequence[str],
    *,
    k: int = 5,
    confidence: float = 0.95,
    counts: NDArray[np.int64] | None = None,
    n_training_rows: int = 0,
    texts: Sequence[str] | None = None,
    vectorizer: Any = None,
    reliability: dict[str, Any] | None = None,
) -> DiagnosticReport:
    """Build the report from relevant labels and scores.

    Parameters
    ----------
    Y, S : sparse matrices
        The relevant labels and the scores. The columns of S correspond to the first columns of Y; S can have fewer
        columns than Y.
    labels, names : sequences of str
        One per column of Y.
    counts : ndarray of int64, optional
        The number of training rows per column of Y.
    n_training_rows : int
    texts : sequence of str, optional
    vectorizer : Tfidf, optional
        The fitted vectorizer, used to measure the vocabulary shift.
    reliability : dict, optional
        See :class:`DiagnosticReport`.
    """
    if S.shape[1] < Y.shape[1]:
        S = sp.csr_array((S.data, S.indices, S.indptr), shape=(S.shape[0], Y.shape[1]))
    elif Y.shape[1] < S.shape[1]:
        Y = sp.csr_array((Y.data, Y.indices, Y.indptr), shape=(Y.shape[0], S.shape[1]))
    values = metrics.report(Y, S, k=[k])
    quality = label_quality(Y, S, labels, names, k=k, confidence=confidence, training_rows=counts)
    shift = None
    if counts is not None and counts.any():
        new = np.bincount(Y.indices[Y.data > 0], minlength=Y.shape[1])
        shift = label_shift(new, counts, n_training_rows, Y.shape[0], names)
    words = None
    if texts is not None and vectorizer is not None:
        words = vocabulary_shift(vectorizer, texts, n_training_rows or None)
    chosen = {name: values[name] for name in (f"P@{k}", f"R@{k}", f"F1@{k}", f"nDCG@{k}")}
    return DiagnosticReport(k, confidence, int(Y.shape[0]), chosen, quality, shift, words, reliability)


def _training_counts(model: Any, train_labels: Any, n_columns: int) -> tuple[NDArray[np.int64] | None, int]:
    """Return the number of training rows per label (0 for unknown labels) and the total number of training rows."""
    if train_labels is not None:
        if isinstance(model, BaseTextRanker):
            Y = model.label_matrix(train_labels)
        else:
            Y = coerce_labels_of_rows(train_labels).matrix.to_scipy()
        counts, n_rows = np.bincount(Y.indices[Y.data > 0], minlength=Y.shape[1]), Y.shape[0]
    else:
        label_set = getattr(model, "label_set_", None)
        if label_set is None or label_set.counts is None:
            return None, 0
        counts, n_rows = label_set.counts, label_set.n_texts or 0
    padded = np.zeros(n_columns, np.int64)
    padded[: min(n_columns, counts.size)] = counts[:n_columns]
    return padded, int(n_rows)
