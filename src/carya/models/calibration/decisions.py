"""Decisions: which of the suggested labels to assign, using cut-offs learned on held-out rows.

The rule ``macro-f1@5`` assigns the five labels with the largest utilities. The utility of a label is an affine function
of its probability p: F1 of a label is 2·tp / (predicted + relevant), and its gradient with respect to one more
prediction, which is correct with probability p, is 2·p / (predicted + relevant) - 2·tp / (predicted + relevant)². The
counts depend on the decisions, which are therefore updated repeatedly (a Frank-Wolfe method, as in xCOLUMNs). A
constant added to the coefficient of p limits the loss of precision.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.errors import InputError, ParameterError

#: Number of labels per row that the rule macro-f1@5 assigns.
MACRO_K = 5
_MAX_ROWS = 50_000
_N_CUTOFFS = 50
_MAX_LEAST = 5  # upper bound on the minimum number of labels for the rule f1
_STEPS = 8
_PRECISION_WEIGHTS = (0.2, 0.3, 0.5, 1.0, 2.0, 4.0)
_MAX_PRECISION_LOSS = 0.018
_RULES = '"f1", "precision>=P" with P between 0 and 1, "macro-f1@5", or a number of labels'
_PRECISION = re.compile(r"precision>=(0?\.\d+|0|1|1\.0+)")


@dataclass(frozen=True)
class DecisionRule:
    """A parsed rule: a number of labels, a minimum precision, or the name of a metric."""

    kind: str
    value: float = 0.0

    @classmethod
    def parse(cls, decide: object) -> DecisionRule:
        """Parse the argument `decide`; raise ParameterError if it is invalid."""
        text = str(decide).replace(" ", "") if isinstance(decide, (str, int, np.integer)) else ""
        if isinstance(decide, bool):
            text = ""
        if text in ("f1", f"macro-f1@{MACRO_K}"):
            return cls(text)
        if re.fullmatch(r"[1-9]\d{0,8}", text):
            return cls("k", int(text))
        match = _PRECISION.fullmatch(text)
        if match is None:
            raise ParameterError(f"decide must be {_RULES}, got {decide!r}.")
        return cls("precision", float(match[1]))


@dataclass(frozen=True, eq=False)
class HeldOutPools:
    """The suggestions for held-out rows as matrices of shape (rows, suggestions per row); missing labels are -1.

    Attributes
    ----------
    labels : ndarray of int64
    probabilities : ndarray of float64
    correct : ndarray of bool
    n_relevant : ndarray of int64, shape (rows,)
        The number of relevant labels per row.
    relevant : ndarray of float64, shape (labels,)
        The number of rows per label.
    """

    labels: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    correct: NDArray[np.bool_]
    n_relevant: NDArray[np.int64]
    relevant: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Decisions:
    """Cut-offs learned on held-out rows.

    Attributes
    ----------
    f1_cutoff : ndarray of float32, shape (2,)
        The minimum probability and the minimum number of labels for the rule ``f1``.
    cutoffs : ndarray of float32, shape (2, n)
        Minimum probabilities in ascending order, and the precision of the suggestions with at least this probability.
    utilities : ndarray of float32, shape (2, labels)
        The slope and the offset of each label's utility for the rule ``macro-f1@5``.
    """

    f1_cutoff: NDArray[np.float32]
    cutoffs: NDArray[np.float32]
    utilities: NDArray[np.float32]

    def __post_init__(self) -> None:
        for name, ndim, size in (("f1_cutoff", 1, 2), ("cutoffs", 2, 2), ("utilities", 2, 2)):
            array = getattr(self, name)
            if (
                array.dtype != np.float32
                or array.ndim != ndim
                or array.shape[0] != size
                or not np.isfinite(array).all()
            ):
                raise InputError(f"{name} must be a finite float32 array of {size} rows.")
        probabilities = np.append(self.cutoffs, self.f1_cutoff[0])
        if probabilities.min() < 0 or probabilities.max() > 1 or (np.diff(self.cutoffs[0]) <= 0).any():
            raise InputError("cutoffs must contain probabilities in ascending order.")
        if self.f1_cutoff[1] < 0:
            raise InputError(f"The minimum number of labels must be >= 0, got {self.f1_cutoff[1]}.")

    @classmethod
    def learn(cls, pools: HeldOutPools) -> Decisions:
        """Learn all cut-offs."""
        found = pools.labels >= 0
        values, hits = pools.probabilities[found], pools.correct[found]
        order = np.argsort(-values, kind="stable")
        cuts = np.unique(np.quantile(values, np.arange(_N_CUTOFFS) / _N_CUTOFFS).astype(np.float32))
        precision = np.cumsum(hits[order]) / np.arange(1, order.size + 1)
        counts = np.searchsorted(-values[order], -cuts.astype(np.float64), side="right").clip(1)
        pairs = [
            (cut, least) for least in range(1, min(_MAX_LEAST, pools.labels.shape[1]) + 1) for cut in cuts.tolist()
        ]
        f1 = [_mean_f1(pools, cut, least) for cut, least in pairs]
        return cls(
            np.array(pairs[int(np.argmax(f1))], np.float32),
            np.stack([cuts, precision[counts - 1].astype(np.float32)]),
            _learn_utilities(pools),
        )

    def select(
        self, rule: DecisionRule, labels: NDArray[np.int64], probabilities: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Return the positions of the assigned labels in one ranking, in the order of assignment."""
        if rule.kind == "k":
            return np.arange(min(int(rule.value), labels.size))
        if rule.kind == "f1":
            kept = probabilities >= self.f1_cutoff[0]
            kept[: int(self.f1_cutoff[1])] = True
            return np.flatnonzero(kept)
        if rule.kind == "precision":
            reached = np.flatnonzero(self.cutoffs[1] >= rule.value)
            return (
                np.flatnonzero(probabilities >= self.cutoffs[0, reached[0]]) if reached.size else np.zeros(0, np.int64)
            )
        utilities = self.utilities[0, labels] * probabilities + self.utilities[1, labels]
        return np.argsort(-utilities, kind="stable")[:MACRO_K]


def _mean_f1(pools: HeldOutPools, cutoff: float, least: int) -> float:
    chosen = (pools.labels >= 0) & (pools.probabilities >= cutoff)
    chosen[:, :least] = pools.labels[:, :least] >= 0
    total = chosen.sum(1) + pools.n_relevant
    return float((2 * (chosen & pools.correct).sum(1) / total.clip(1)).mean())


def _learn_utilities(pools: HeldOutPools) -> NDArray[np.float32]:
    """Return the utilities with the best macro-F1 among those that lose at most 1.8 points of precision."""
    step = -(-pools.labels.shape[0] // _MAX_ROWS)
    labels, values, correct = pools.labels[::step], pools.probabilities[::step], pools.correct[::step]
    relevant = pools.relevant / step
    base = correct[:, :MACRO_K].mean()
    best = np.stack([np.ones(relevant.size), np.zeros(relevant.size)])
    best_f1 = -1.0
    for weight in _PRECISION_WEIGHTS:
        utilities = _optimize(labels, values, relevant, weight)
        predicted, hits = _count(labels, correct, values, utilities, relevant.size)
        f1 = float((2 * hits / (predicted + relevant).clip(1)).mean())
        loss = base - hits.sum() / (labels.shape[0] * MACRO_K)
        if f1 > best_f1 and (loss <= _MAX_PRECISION_LOSS or (best_f1 < 0 and weight == _PRECISION_WEIGHTS[-1])):
            best, best_f1 = utilities, f1
    return best.astype(np.float32)


def _optimize(
    labels: NDArray[np.int64], values: NDArray[np.float64], relevant: NDArray[np.float64], weight: float
) -> NDArray[np.float64]:
    n_labels = relevant.size
    constant = weight * n_labels / (MACRO_K * labels.shape[0])
    utilities = np.stack([np.ones(n_labels), np.zeros(n_labels)])
    for number in range(_STEPS):
        predicted, hits = _count(labels, values, values, utilities, n_labels)
        total = predicted + relevant + 1
        updated = np.stack([2 / total + constant, -2 * hits / total**2])
        utilities = updated if number == 0 else (utilities + updated) / 2
    return utilities


def _count(
    labels: NDArray[np.int64],
    gains: NDArray[np.float64] | NDArray[np.bool_],
    values: NDArray[np.float64],
    utilities: NDArray[np.float64],
    n_labels: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the number of assignments of each label, and the sum of their gains."""
    scores = np.where(labels >= 0, utilities[0, labels] * values + utilities[1, labels], -np.inf)
    k = min(MACRO_K, labels.shape[1])
    best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    chosen, gained = np.take_along_axis(labels, best, 1), np.take_along_axis(gains, best, 1)
    found = chosen >= 0
    made: NDArray[np.int64] = np.bincount(chosen[found], minlength=n_labels)
    total: NDArray[Any] = np.bincount(chosen[found], gained[found].astype(np.float64), minlength=n_labels)
    return made, total
