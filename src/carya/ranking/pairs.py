"""Input to rerankers: features of (query, label) pairs, grouped by query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya.errors import InputError


@dataclass(frozen=True, eq=False)
class PairTexts:
    """Texts of (query, label) pairs, for rerankers that read them.

    Attributes
    ----------
    queries : sequence of str
        The text of each query.
    label_texts : sequence of str
        The name or description of each label.
    labels : ndarray of int32, shape (pairs,)
        The index of each pair's label.
    """

    queries: Sequence[str]
    label_texts: Sequence[str]
    labels: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Features of (query, label) pairs.

    Attributes
    ----------
    values : ndarray of float32, shape (pairs, features)
        Finite values.
    names : tuple of str
        The name of each feature.
    offsets : ndarray of int64, shape (queries + 1,)
        Query q has the pairs ``offsets[q]`` to ``offsets[q + 1] - 1``.
    texts : PairTexts or None
        The texts of the pairs; None if the queries are feature rows.

    Examples
    --------
    >>> pairs = Pairs.of([[0.5, 3], [0.25, 1], [1, 2]], ["score", "votes"], [0, 2, 3])
    >>> pairs
    Pairs(3 pairs for 2 queries, 2 features)
    >>> pairs.column("votes")
    array([3., 1., 2.], dtype=float32)
    >>> pairs.queries
    array([0, 0, 1])
    """

    values: NDArray[np.float32]
    names: tuple[str, ...]
    offsets: NDArray[np.int64]
    texts: PairTexts | None = None

    @classmethod
    def of(cls, values: ArrayLike, names: Sequence[str], offsets: ArrayLike) -> Self:
        """Create pairs from array-like values; raise InputError if they are inconsistent."""
        array = np.ascontiguousarray(values, np.float32)
        ends = np.ascontiguousarray(offsets, np.int64)
        if array.ndim != 2 or array.shape[1] != len(names):
            raise InputError(f"values must have one column per feature name ({len(names)}), got shape {array.shape}.")
        if ends.ndim != 1 or ends.size == 0 or ends[0] != 0 or ends[-1] != len(array) or (np.diff(ends) < 0).any():
            raise InputError(f"offsets must be in ascending order from 0 to the number of pairs ({len(array)}).")
        if not np.isfinite(array).all():
            raise InputError("values must be finite, got NaN or infinity.")
        return cls(array, tuple(names), ends)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Pairs({len(self)} pairs for {self.offsets.size - 1} queries, {len(self.names)} features)"

    @property
    def queries(self) -> NDArray[np.int64]:
        """The query of each pair."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))

    def column(self, name: str) -> NDArray[np.float32]:
        """Return the values of one feature for all pairs."""
        if name not in self.names:
            raise InputError(f"Unknown feature {name!r}. The available features are {', '.join(self.names)}.")
        return self.values[:, self.names.index(name)]

    def check_relevance(self, relevance: ArrayLike) -> NDArray[np.float32]:
        """Validate training targets: one non-negative, finite value per pair, of which at least one is positive."""
        targets = np.asarray(relevance, np.float32)
        if targets.shape != (len(self),):
            raise InputError(f"relevance must have one value per pair ({len(self)}), got shape {targets.shape}.")
        if not (np.isfinite(targets) & (targets >= 0)).all():
            raise InputError("relevance must be finite and >= 0.")
        if not targets.any():
            raise InputError("relevance is 0 for every pair. At least one pair must be relevant.")
        return targets

    def check_names(self, trained: tuple[str, ...]) -> None:
        """Raise InputError if the features differ from those on which a ranker was trained."""
        if self.names != trained:
            raise InputError(
                f"The ranker was trained on the features {', '.join(trained)}, but the pairs have "
                f"{', '.join(self.names)}."
            )

    @classmethod
    def concatenate(cls, parts: Sequence[Pairs]) -> Pairs:
        """Concatenate the pairs from several batches of queries; all batches must have the same features."""
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        values = np.concatenate([part.values for part in parts])
        return cls(values, parts[0].names, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
