"""Calibration: a mapping from scores to probabilities, learned from held-out rows.

The scores of different labels for the same row are comparable, but they are not probabilities: a hinge score of 0.9
does not mean that nine out of ten suggestions with this score are correct. Suggestions for held-out rows are sorted by
score and divided into bins. The fraction of correct suggestions in each bin, made monotonic by isotonic regression
(Zadrozny and Elkan, 2002), is the probability at the bin's mean score. Probabilities between bins are interpolated
linearly. One correct and one incorrect suggestion are added to each bin, so that no bin has a probability of 0 or 1.

At the same score, the first label of a ranking is more often correct than the tenth, and a frequent label more often
than a rare one. Therefore, a separate mapping is learned for each group of ranks and label frequencies. Groups with few
suggestions are shrunk toward the mapping of their rank group, and rank groups toward the mapping of all suggestions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya.core import lazy_sparse as sp
from carya.errors import InputError
from carya.models.calibration.decisions import Decisions, HeldOutPools

_MAX_BINS = 100
_MIN_BIN_SIZE = 50
#: The first rank of each rank group.
_RANKS = (1, 2, 3, 4, 5, 6, 8, 11)
#: Number of label-frequency groups.
_FREQUENCY_GROUPS = 5
#: Weight of the parent group's probability in each bin, as a number of suggestions.
_PRIOR_SIZE = 10.0

_ARRAYS = ("scores", "probabilities")
_GROUP_ARRAYS = ("ranks", "label_groups", "table")
_DECISION_ARRAYS = ("f1_cutoff", "cutoffs", "utilities")


class Suggested(NamedTuple):
    """Suggestions for held-out rows.

    Attributes
    ----------
    scores : ndarray of float32
    correct : ndarray of bool
    ranks : ndarray of int64
        The rank of each suggestion in its row, from 1.
    counts : ndarray of int64
        The number of training rows of each suggestion's label.
    labels : ndarray of int64
        The label of each suggestion.
    n_relevant : ndarray of int64
        The number of relevant labels of each suggestion's row.
    """

    scores: NDArray[np.float32]
    correct: NDArray[np.bool_]
    ranks: NDArray[np.int64]
    counts: NDArray[np.int64]
    labels: NDArray[np.int64] = np.zeros(0, np.int64)
    n_relevant: NDArray[np.int64] = np.zeros(0, np.int64)

    @classmethod
    def of(cls, S: sp.csr_array, Y: sp.csr_array, counts: NDArray[np.int64] | None) -> Self:
        """Return the suggestions in a prediction, given the relevant labels and the training rows per label."""
        own = np.zeros(S.nnz, np.int64) if counts is None else counts[S.indices]
        relevant = np.repeat(np.diff(Y.indptr).astype(np.int64), np.diff(S.indptr))
        scores = S.data.astype(np.float32, copy=False)
        return cls(scores, is_correct(S, Y), ranks_of(S.indptr), own, S.indices.astype(np.int64), relevant)

    @classmethod
    def concatenate(cls, parts: list[Suggested]) -> Self:
        """Concatenate the suggestions of several parts."""
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def is_correct(S: sp.csr_array, Y: sp.csr_array) -> NDArray[np.bool_]:
    """Return a mask of the suggestions in `S` that are relevant labels in `Y`."""
    width = max(S.shape[1], Y.shape[1], 1)
    rows = np.repeat(np.arange(S.shape[0], dtype=np.int64), np.diff(S.indptr))
    truth = np.repeat(np.arange(Y.shape[0], dtype=np.int64), np.diff(Y.indptr)) * width + Y.indices
    return np.isin(rows * width + S.indices, truth)


def ranks_of(indptr: NDArray[Any]) -> NDArray[np.int64]:
    """Return the rank of each entry in its row, from 1."""
    lengths = np.diff(indptr)
    return np.arange(1, int(indptr[-1]) + 1, dtype=np.int64) - np.repeat(np.asarray(indptr[:-1], np.int64), lengths)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Monotonic mapping from scores to probabilities, optionally by rank and label frequency.

    Attributes
    ----------
    scores : ndarray of float32
        Scores in ascending order.
    probabilities : ndarray of float32
        The probability at each score, in non-decreasing order, regardless of rank and label.
    ranks : ndarray of int32 or None
        The first rank of each rank group; None if there are no groups.
    label_groups : ndarray of uint8 or None
        The frequency group of each label.
    table : ndarray of float32 or None
        The probability at each score, one row per group: row ``r * n + f`` for rank group r and frequency group f of n.
    decisions : Decisions or None
        The cut-offs learned from the same suggestions.

    Examples
    --------
    >>> import numpy as np
    >>> scores, uniform = np.random.default_rng(0).random((2, 20_000))
    >>> calibration = Calibration.learn(scores, uniform < scores**2)  # P(correct) is the square of the score
    >>> calibration([0.2, 0.5, 0.9]).round(1).tolist()
    [0.0, 0.2, 0.8]
    """

    scores: NDArray[np.float32]
    probabilities: NDArray[np.float32]
    ranks: NDArray[np.int32] | None = None
    label_groups: NDArray[np.uint8] | None = None
    table: NDArray[np.float32] | None = None
    decisions: Decisions | None = None

    def __post_init__(self) -> None:
        for array in (self.scores, self.probabilities):
            if array.dtype != np.float32 or array.shape != self.scores.shape or array.ndim != 1 or not array.size:
                raise InputError("scores and probabilities must be non-empty float32 vectors of equal length.")
            if not np.isfinite(array).all():
                raise InputError("scores and probabilities must be finite.")
        ascending = (np.diff(self.scores) > 0).all() and (np.diff(self.probabilities) >= 0).all()
        if not ascending or self.probabilities[0] < 0 or self.probabilities[-1] > 1:
            raise InputError(
                "scores must be strictly increasing; probabilities must be non-decreasing and between 0 and 1."
            )
        if self.table is not None:
            self._check_groups(self.table)

    def _check_groups(self, table: NDArray[np.float32]) -> None:
        ranks, groups = self.ranks, self.label_groups
        if ranks is None or groups is None:
            raise InputError("A table of probabilities requires ranks and label_groups.")
        if ranks.dtype != np.int32 or ranks.ndim != 1 or not ranks.size or ranks[0] != 1 or (np.diff(ranks) <= 0).any():
            raise InputError("ranks must be a strictly increasing int32 vector that begins with 1.")
        if table.dtype != np.float32 or table.ndim != 2 or table.shape[1] != self.scores.size:
            raise InputError(f"table must be a float32 matrix with {self.scores.size} columns.")
        if not table.shape[0] or table.shape[0] % ranks.size or not ((table >= 0) & (table <= 1)).all():
            raise InputError("table must contain probabilities, with the same number of rows per rank group.")
        if groups.dtype != np.uint8 or groups.ndim != 1 or int(groups.max(initial=0)) >= table.shape[0] // ranks.size:
            raise InputError("label_groups must be a uint8 vector of existing groups.")

    @classmethod
    def learn(cls, scores: ArrayLike, correct: ArrayLike) -> Self:
        """Learn a calibration from the score of each suggestion and whether the suggestion is correct."""
        values = np.asarray(scores, np.float32).ravel()
        hits = np.asarray(correct).astype(bool).ravel()
        if values.size != hits.size or values.size == 0:
            raise InputError(
                f"scores and correct must have the same nonzero length, got {values.size} and {hits.size}."
            )
        order = np.argsort(values, kind="stable")
        values, hits = values[order], hits[order]
        means, fractions, sizes = [], [], []
        for begin, end in _bins(values):
            means.append(values[begin:end].astype(np.float64).mean())
            fractions.append((hits[begin:end].sum() + 1) / (end - begin + 2))
            sizes.append(end - begin)
        monotone = _isotonic(np.array(fractions), np.array(sizes, np.float64))
        knots, first = np.unique(np.array(means, np.float32), return_index=True)
        return cls(knots, _probabilities(monotone[first]))

    @classmethod
    def learn_by_group(cls, suggested: Suggested, label_counts: NDArray[np.int64]) -> Self:
        """Learn a calibration with one mapping per group of ranks and label frequencies.

        Parameters
        ----------
        suggested : Suggested
        label_counts : ndarray of int64, shape (labels,)
            The number of training rows per label of the model to be calibrated.
        """
        scores, hits = suggested.scores, suggested.correct.astype(np.float64)
        edges = _weighted_edges(scores, 1 / suggested.ranks)
        bins = np.searchsorted(edges, scores, side="right")
        n_bins = edges.size + 1
        means = np.bincount(bins, scores, minlength=n_bins) / np.bincount(bins, minlength=n_bins)
        knots, first = np.unique(means.astype(np.float32), return_index=True)
        bounds = _frequency_bounds(suggested)
        rank_group = np.searchsorted(_RANKS, suggested.ranks, side="right") - 1
        frequency_group = np.searchsorted(bounds, suggested.counts, side="right")

        def learn(mask: NDArray[np.bool_], parent: NDArray[np.float64] | None) -> NDArray[np.float64]:
            sizes = np.bincount(bins[mask], minlength=n_bins).astype(np.float64)
            correct = np.bincount(bins[mask], hits[mask], minlength=n_bins)
            prior, mean = (2.0, 0.5) if parent is None else (_PRIOR_SIZE, parent)
            return _isotonic((correct + prior * mean) / (sizes + prior), sizes + prior)

        overall = learn(np.ones(scores.size, bool), None)
        rows = []
        for rank in range(len(_RANKS)):
            at_rank = rank_group == rank
            of_rank = learn(at_rank, overall)
            rows += [learn(at_rank & (frequency_group == group), of_rank) for group in range(bounds.size + 1)]
        return cls(
            knots,
            _probabilities(overall[first]),
            np.array(_RANKS, np.int32),
            np.searchsorted(bounds, label_counts, side="right").astype(np.uint8),
            np.stack([_probabilities(row[first]) for row in rows]),
        )

    def __call__(self, scores: ArrayLike) -> NDArray[np.float64]:
        """Return the probability at each score, averaged over ranks and labels."""
        probabilities: NDArray[np.float64] = np.interp(np.asarray(scores, np.float64), self.scores, self.probabilities)
        return probabilities

    def of_labels(self, labels: ArrayLike, scores: ArrayLike, ranks: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of each suggestion, given its label, its score and its rank from 1."""
        if self.table is None or self.ranks is None or self.label_groups is None:
            return self(scores)
        values = np.asarray(scores, np.float64)
        n_frequencies = self.table.shape[0] // self.ranks.size
        row = (np.searchsorted(self.ranks, ranks, side="right") - 1) * n_frequencies + self.label_groups[
            np.asarray(labels)
        ]
        upper = np.searchsorted(self.scores, values).clip(1, max(self.scores.size - 1, 1))
        if self.scores.size == 1:
            only: NDArray[np.float64] = self.table[row, 0].astype(np.float64)
            return only
        low, high = self.scores[upper - 1].astype(np.float64), self.scores[upper]
        share = ((values - low) / (high - low)).clip(0, 1)
        probabilities: NDArray[np.float64] = (1 - share) * self.table[row, upper - 1] + share * self.table[row, upper]
        return probabilities

    def of_rankings(self, indptr: NDArray[Any], labels: NDArray[Any], scores: NDArray[Any]) -> NDArray[np.float64]:
        """Return the probability of each suggestion in complete rankings, each sorted best first."""
        return self.of_labels(labels, scores, ranks_of(indptr))

    def of_ranking_arrays(self, rankings: tuple[Any, Any, Any], *, is_restricted: bool) -> NDArray[np.float64]:
        """Return the probability of each suggestion in (indptr, labels, scores) arrays.

        If the ranking is restricted to some labels, ranks have a different meaning, so only scores are used.
        """
        return self(rankings[2]) if is_restricted else self.of_rankings(*rankings)

    def with_decisions(self, suggested: Suggested, label_counts: NDArray[np.int64]) -> Calibration:
        """Return a copy with the cut-offs learned from suggestions for held-out rows."""
        rows = np.cumsum(suggested.ranks == 1) - 1
        shape = (int(rows[-1]) + 1, int(suggested.ranks.max()))
        at = rows, suggested.ranks - 1
        labels, probabilities, correct = np.full(shape, -1), np.zeros(shape), np.zeros(shape, bool)
        labels[at], correct[at] = suggested.labels, suggested.correct
        probabilities[at] = self.of_labels(suggested.labels, suggested.scores, suggested.ranks)
        n_relevant = suggested.n_relevant[suggested.ranks == 1]
        pools = HeldOutPools(labels, probabilities, correct, n_relevant, label_counts.astype(np.float64))
        return replace(self, decisions=Decisions.learn(pools))

    def without_groups(self) -> Calibration:
        """Return the calibration that depends only on the score."""
        return Calibration(self.scores, self.probabilities)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the calibration by name, for saving."""
        names = _ARRAYS if self.table is None else (*_ARRAYS, *_GROUP_ARRAYS)
        arrays = {name: getattr(self, name) for name in names}
        if self.decisions is not None:
            arrays |= {name: getattr(self.decisions, name) for name in _DECISION_ARRAYS}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], n_labels: int) -> Self:
        """Restore a calibration; raise InputError or KeyError if its arrays are inconsistent."""
        names = (*_ARRAYS, *_GROUP_ARRAYS) if _GROUP_ARRAYS[0] in arrays else _ARRAYS
        parts: dict[str, Any] = {name: arrays[name] for name in names}
        calibration = cls(**parts)
        if _DECISION_ARRAYS[0] in arrays:
            decisions = Decisions(*(arrays[name] for name in _DECISION_ARRAYS))
            if decisions.utilities.shape[1] != n_labels or calibration.table is None:
                raise InputError(f"utilities must have one column for each of the {n_labels} labels.")
            calibration, names = replace(calibration, decisions=decisions), (*names, *_DECISION_ARRAYS)
        if calibration.label_groups is not None and calibration.label_groups.size != n_labels:
            raise InputError(f"label_groups must have one value for each of the {n_labels} labels.")
        if len(arrays) != len(names):
            raise InputError("The calibration contains unknown arrays.")
        return calibration


def require_calibration(calibration: Calibration | None, rows: str) -> Calibration:
    """Return the calibration; raise InputError if it is None. `rows` is the kind of input, for the error message."""
    if calibration is None:
        raise InputError(
            "The model is not calibrated, so its scores have no probabilities. Train it with calibrate=True, or call "
            f"calibrate with {rows} that were not used for training."
        )
    return calibration


def _isotonic(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    from sklearn.isotonic import isotonic_regression

    monotone: NDArray[np.float64] = isotonic_regression(values, sample_weight=weights)
    return monotone


def _probabilities(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return values as float32 probabilities; rounding must not change their order."""
    return np.clip(np.maximum.accumulate(values.astype(np.float32)), 0, 1)


def _bins(ascending: NDArray[np.float32]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each bin; equal scores are assigned to the same bin."""
    size = max(_MIN_BIN_SIZE, -(-ascending.size // _MAX_BINS))
    begin = 0
    while begin < ascending.size:
        end = min(begin + size, ascending.size)
        end = int(np.searchsorted(ascending, ascending[end - 1], side="right"))
        if ascending.size - end < _MIN_BIN_SIZE:
            end = ascending.size
        yield begin, end
        begin = end


def _weighted_edges(scores: NDArray[np.float32], weights: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the lower bounds of all bins but the first; the bins have approximately the same total weight."""
    order = np.argsort(scores, kind="stable")
    ascending, total = scores[order], np.cumsum(weights[order])
    n_bins = max(1, min(_MAX_BINS, scores.size // _MIN_BIN_SIZE))
    cuts = np.searchsorted(total, total[-1] * np.arange(1, n_bins) / n_bins)
    edges: list[float] = []
    last = 0
    for edge in np.unique(ascending[cuts]).tolist():
        begin = int(np.searchsorted(ascending, edge))
        if min(begin - last, ascending.size - begin) >= _MIN_BIN_SIZE:
            edges.append(edge)
            last = begin
    return np.array(edges, np.float32)


def _frequency_bounds(suggested: Suggested) -> NDArray[np.int64]:
    """Return the lowest label frequency of all frequency groups but the first."""
    counts = np.sort(suggested.counts[suggested.ranks <= _RANKS[-4]])
    cuts = counts[np.arange(1, _FREQUENCY_GROUPS) * counts.size // _FREQUENCY_GROUPS]
    bounds: NDArray[np.int64] = np.unique(cuts[cuts > counts[0]])
    return bounds


def expected_calibration_error(probabilities: NDArray[np.float64], correct: NDArray[np.bool_], bins: int = 10) -> float:
    """Return the mean absolute difference between predicted and observed probabilities in bins of equal size.

    >>> expected_calibration_error(np.array([0.5, 0.5, 0.5, 0.5]), np.array([True, False, True, False]), bins=1)
    0.0
    """
    order = np.argsort(probabilities, kind="stable")
    parts = [part for part in np.array_split(order, min(bins, max(order.size, 1))) if part.size]
    differences = (abs(probabilities[part].mean() - correct[part].mean()) * part.size for part in parts)
    return float(sum(differences)) / max(order.size, 1)
