"""Precision and recall of each label, with confidence intervals, and over-suggested labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya import metrics
from carya.diagnostics.intervals import ratio_interval, wilson_interval


@dataclass(frozen=True, eq=False)
class LabelQuality:
    """Per-label results, most frequent labels first; labels that are neither relevant nor suggested for any row are
    omitted.

    Attributes
    ----------
    columns : ndarray of int64
        The column index of each label.
    labels, names : list of str
    training_rows : ndarray of int64 or None
        The number of training rows with each label, if known.
    support, suggested, correct : ndarray of int64
        The number of rows for which the label is relevant, for which it is suggested (in the top k), and for which it
        is both.
    precision, precision_low, precision_high, recall, recall_low, recall_high, f1 : ndarray of float64
        The estimates; the suffixes _low and _high denote the bounds of Wilson score intervals.
    excess, excess_low : ndarray of float64
        The label's share of all suggestions divided by its share of all relevant labels, and the lower confidence
        bound of this ratio.
    """

    columns: NDArray[np.int64]
    labels: list[str]
    names: list[str]
    training_rows: NDArray[np.int64] | None
    support: NDArray[np.int64]
    suggested: NDArray[np.int64]
    correct: NDArray[np.int64]
    precision: NDArray[np.float64]
    precision_low: NDArray[np.float64]
    precision_high: NDArray[np.float64]
    recall: NDArray[np.float64]
    recall_low: NDArray[np.float64]
    recall_high: NDArray[np.float64]
    f1: NDArray[np.float64]
    excess: NDArray[np.float64]
    excess_low: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def over_suggested(self) -> list[int]:
        """The positions of significantly over-suggested labels, sorted by descending number of incorrect
        suggestions.
        """
        wrong = self.suggested - self.correct
        found = np.flatnonzero((self.excess_low > 1) & (wrong > 0))
        return sorted(found.tolist(), key=lambda i: (-wrong.item(i), i))

    def record(self, position: int, *, digits: int = 6) -> dict[str, Any]:
        """Return the results for one label as a JSON-serializable dictionary."""
        values: dict[str, Any] = {"label": self.labels[position], "name": self.names[position]}
        if self.training_rows is not None:
            values["training_rows"] = self.training_rows.item(position)
        for name in ("support", "suggested", "correct"):
            values[name] = getattr(self, name).item(position)
        for name in _FLOATS:
            values[name] = round(getattr(self, name).item(position), digits)
        return values


_FLOATS = (
    "precision",
    "precision_low",
    "precision_high",
    "recall",
    "recall_low",
    "recall_high",
    "f1",
    "excess",
    "excess_low",
)


def label_quality(
    Y: Any,
    S: Any,
    labels: Sequence[str],
    names: Sequence[str],
    *,
    k: int = 5,
    confidence: float = 0.95,
    training_rows: NDArray[np.int64] | None = None,
) -> LabelQuality:
    """Compute the precision, recall, F1 and over-suggestion of each label, with confidence bounds.

    Parameters
    ----------
    Y, S : sparse matrices of shape (rows, labels)
        The relevant labels, and the scores of the suggested labels.
    labels, names : sequences of str
        One id and one name per column.
    k : int
        The number of suggestions per row.
    """
    report = metrics.label_report(Y, S, k)
    occurring = np.flatnonzero(report.support + report.suggested)
    columns = occurring[np.lexsort((occurring, -report.support[occurring]))]
    support, suggested, correct = (counts[columns] for counts in (report.support, report.suggested, report.correct))
    precision_low, precision_high = wilson_interval(correct, suggested, confidence)
    recall_low, recall_high = wilson_interval(correct, support, confidence)
    scale = float(support.sum() / max(1, suggested.sum()))  # at a ratio of 1, both shares are equal
    return LabelQuality(
        columns=columns,
        labels=[labels[column] for column in columns.tolist()],
        names=[names[column] for column in columns.tolist()],
        training_rows=None if training_rows is None else training_rows[columns],
        support=support,
        suggested=suggested,
        correct=correct,
        precision=report.precision[columns],
        precision_low=precision_low,
        precision_high=precision_high,
        recall=report.recall[columns],
        recall_low=recall_low,
        recall_high=recall_high,
        f1=report.f1[columns],
        excess=scale * (suggested + 0.5) / (support + 0.5),
        excess_low=ratio_interval(suggested, support, scale, confidence)[0],
    )
