"""Convert rankings to lists of suggestions and to data frames."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carya.core.extras import require
from carya.core.strings import NumberStrings


class Suggestion(NamedTuple):
    """A label suggested for a text or a feature row.

    Attributes
    ----------
    label : str
        The label id, as in the training data.
    score : float
    name : str
        The human-readable name, or the id if no names were given.
    probability : float or None
        The probability that the label is correct; None if the model is not calibrated.
    """

    label: str
    score: float
    name: str
    probability: float | None = None

    @property
    def is_new(self) -> bool:
        """Whether the label is a phrase that occurs in the text but not in the label list."""
        return False


class NewLabel(Suggestion):
    """A suggested phrase that occurs in the text but not in the label list; its score is comparable to label scores."""

    __slots__ = ()

    @property
    def is_new(self) -> bool:
        """Whether the label is not in the label list; always true."""
        return True


#: Row offsets, label indices and scores.
RankingArrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


def to_suggestions(
    rankings: RankingArrays,
    ids: Sequence[str],
    name: Callable[[int], str] | None = None,
    probabilities: NDArray[np.float64] | None = None,
) -> list[list[Suggestion]]:
    """Convert row offsets, label indices and scores to suggestions; by default, the name of a label is its id."""
    name = ids.__getitem__ if name is None else name
    ends, labels, scores = (array.tolist() for array in rankings)
    values = [None] * len(labels) if probabilities is None else probabilities.tolist()
    return [
        [Suggestion(ids[labels[i]], scores[i], name(labels[i]), values[i]) for i in range(begin, end)]
        for begin, end in itertools.pairwise(ends)
    ]


def to_frame(
    rankings: RankingArrays,
    ids: Sequence[str],
    probabilities: NDArray[np.float64] | None = None,
) -> Any:
    """Convert rankings to a pandas DataFrame with one row per suggestion.

    The columns are ``row``, ``rank`` (from 1), ``label``, ``score`` and, for calibrated models,
    ``probability``. Labels without names are given as integers.
    """
    pandas = require("pandas", extra="pandas", purpose="as_frame=True", alternative="as_frame=False")
    indptr, labels, scores = rankings
    lengths = np.diff(indptr)
    first = np.repeat(np.asarray(indptr[:-1], np.int64), lengths)
    are_numbers = isinstance(ids, NumberStrings)
    columns: dict[str, Any] = {
        "row": np.repeat(np.arange(lengths.size, dtype=np.int64), lengths),
        "rank": np.arange(labels.size, dtype=np.int64) - first + 1,
        "label": labels.astype(np.int64) if are_numbers else [ids[label] for label in labels.tolist()],
        "score": scores,
    }
    if probabilities is not None:
        columns["probability"] = probabilities
    return pandas.DataFrame(columns)
