"""Methods shared by all text models: suggestions, scores, label matrices and label names."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from carya import metrics
from carya.core import lazy_sparse as sp
from carya.core import validation
from carya.core.parameters import Fitted
from carya.errors import InputError, UnknownTextWarning
from carya.text.labels import LabelSet, label_matrix

#: What to do about texts without known terms.
UNKNOWN_TEXT_ADVICE = (
    "Train on texts of the same language and domain, or with analyzer='char_wb', which also matches parts of words."
)


class Suggestion(NamedTuple):
    """A label suggested for a text.

    Attributes
    ----------
    label : str
        The label id, as in the training data.
    score : float
    name : str
        The human-readable name, or the id if no names were given.
    """

    label: str
    score: float
    name: str


#: Label numbers and scores for one text, best first.
RankedLabels = list[tuple[int, float]]


class LabeledState(Protocol):
    """Protocol for a fitted state with labels."""

    @property
    def labels(self) -> LabelSet:
        """The labels, in the column order of the predictions."""
        ...


StateT = TypeVar("StateT", bound=LabeledState)


class BaseTextRanker(Fitted[StateT]):
    """Base class of all text models.

    Subclasses implement `_predict`. All of a method's steps use one fitted state, because another thread may replace
    it.
    """

    #: The options of `open_data` with which the training data was read; set by `carya train` and saved with the model.
    data_options_: Mapping[str, Any] = MappingProxyType({})

    def predict(self, texts: Iterable[str], *, top_k: int = 10, beam_width: int | None = None) -> sp.csr_array:
        """Return the scores of the best labels as a (texts, labels) matrix; each row is sorted by descending score."""
        return self._predict(self._check_fitted(), texts, top_k=top_k, beam_width=beam_width)

    def _predict(self, state: StateT, texts: Iterable[str], *, top_k: int, beam_width: int | None) -> sp.csr_array:
        raise NotImplementedError

    def suggest(
        self, text: str, *, top_k: int = 10, beam_width: int | None = None, min_score: float | None = None
    ) -> list[Suggestion]:
        """Return the best labels for a text, best first; with `min_score`, only labels with at least this score."""
        check_text(text)
        return self.suggest_all([text], top_k=top_k, beam_width=beam_width, min_score=min_score)[0]

    def suggest_all(
        self, texts: Iterable[str], *, top_k: int = 10, beam_width: int | None = None, min_score: float | None = None
    ) -> list[list[Suggestion]]:
        """Return the best labels for each text, best first."""
        state, threshold = self._check_fitted(), validation.check_min_score(min_score)
        S = self._predict(state, texts, top_k=top_k, beam_width=beam_width)
        suggestions = to_suggestions((S.indptr, S.indices, S.data), state.labels)
        if min_score is None:
            return suggestions
        return [[suggestion for suggestion in best if suggestion.score >= threshold] for best in suggestions]

    def label_matrix(self, labels: Iterable[Iterable[str]]) -> sp.csr_array:
        """Convert lists of labels to a matrix of shape (rows, labels); unknown labels are ignored."""
        return label_matrix(labels, self._check_fitted().labels.ids)[0]

    def label_matrix_and_ids(self, labels: Iterable[Iterable[str]]) -> tuple[sp.csr_array, list[str]]:
        """Convert lists of labels to a matrix, with columns for unknown labels at the end; also return all labels."""
        return label_matrix(labels, self._check_fitted().labels.ids, keep_unknown=True)

    def score(self, texts: Iterable[str], labels: Any) -> float:
        """Return P@1, which scikit-learn's model selection uses as the default score.

        `labels` contains one list of labels per text, or is a matrix of shape (texts, labels).
        """
        Y = labels if sp.issparse(labels) else self.label_matrix(labels)
        return metrics.precision(Y, self.predict(texts, top_k=1), k=1)

    @property
    def label_set_(self) -> LabelSet:
        """The labels with their names, descriptions, counts and lookup index."""
        return self._check_fitted().labels

    @property
    def labels_(self) -> Sequence[str]:
        """The label ids, in the column order of the predictions."""
        return self._check_fitted().labels.ids

    @property
    def label_names_(self) -> Sequence[str]:
        """The label names, in the same order as `labels_`."""
        labels = self._check_fitted().labels
        return labels.ids if labels.names is None else labels.names

    @property
    def label_counts_(self) -> NDArray[np.int64] | None:
        """The number of training texts per label; None for models from early versions, which did not store it."""
        return self._check_fitted().labels.counts


def to_suggestions(
    rankings: tuple[NDArray[Any], NDArray[Any], NDArray[Any]], label_set: LabelSet
) -> list[list[Suggestion]]:
    """Convert row offsets, label numbers and scores to suggestions."""
    ids, name = label_set.ids, label_set.name
    ends, labels, scores = (array.tolist() for array in rankings)
    return [
        [Suggestion(ids[labels[i]], scores[i], name(labels[i])) for i in range(begin, end)]
        for begin, end in itertools.pairwise(ends)
    ]


def check_text(text: object) -> None:
    """Raise InputError if the argument is not a string."""
    if not isinstance(text, str):
        raise InputError(f"text must be a string, got {type(text).__name__}. Use suggest_all for several texts.")


def warn_unknown_texts(row_offsets: NDArray[np.int64], *, stacklevel: int = 2) -> None:
    """Issue UnknownTextWarning if rows are empty, given their offsets; `stacklevel` 2 is the caller's caller."""
    empty = row_offsets[1:] == row_offsets[:-1]
    if not empty.any():
        return
    rows = np.flatnonzero(empty).tolist()
    if empty.size == 1:
        subject = "The text contains no known terms, so nothing is suggested for it."
    else:
        verb, pronoun = ("contains", "it") if len(rows) == 1 else ("contain", "them")
        subject = (
            f"{len(rows):,} of {empty.size:,} texts {verb} no known terms, so nothing is suggested for {pronoun}; the "
            f"number of the first is {rows[0]}."
        )
    warnings.warn(UnknownTextWarning(f"{subject} {UNKNOWN_TEXT_ADVICE}", rows), stacklevel=stacklevel + 1)
