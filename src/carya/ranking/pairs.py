"""What a ranker of pairs sees: numbers about (query, label) pairs, the pairs of one query side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya.errors import InputError


@dataclass(frozen=True, eq=False)
class Pairs:
    """Features of (query, label) pairs.

    Attributes
    ----------
    values : ndarray of float32, shape (pairs, features)
        Finite.
    names : tuple of str
        What each feature is.
    offsets : ndarray of int64, shape (queries + 1,)
        The pairs of query q are those from ``offsets[q]`` up to ``offsets[q + 1]``.

    Examples
    --------
    >>> pairs = Pairs.of([[0.5, 3], [0.25, 1], [1, 2]], ["score", "votes"], [0, 2, 3])
    >>> pairs
    Pairs(3 pairs of 2 queries, 2 features)
    >>> pairs.column("votes")
    array([3., 1., 2.], dtype=float32)
    >>> pairs.queries
    array([0, 0, 1])
    """

    values: NDArray[np.float32]
    names: tuple[str, ...]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, values: ArrayLike, names: Sequence[str], offsets: ArrayLike) -> Self:
        """Check what belongs together; raises InputError if it does not."""
        array = np.ascontiguousarray(values, np.float32)
        ends = np.ascontiguousarray(offsets, np.int64)
        if array.ndim != 2 or array.shape[1] != len(names):
            raise InputError(f"values have the shape {array.shape}, there are {len(names)} names of features")
        if ends.ndim != 1 or ends.size == 0 or ends[0] != 0 or ends[-1] != len(array) or (np.diff(ends) < 0).any():
            raise InputError(f"offsets must ascend from 0 to {len(array)}, the number of pairs")
        if not np.isfinite(array).all():
            raise InputError("values of pairs must be finite")
        return cls(array, tuple(names), ends)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Pairs({len(self)} pairs of {self.offsets.size - 1} queries, {len(self.names)} features)"

    @property
    def queries(self) -> NDArray[np.int64]:
        """The query of each pair."""
        return np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))

    def column(self, name: str) -> NDArray[np.float32]:
        """One feature of all pairs."""
        if name not in self.names:
            raise InputError(f"there is no feature {name!r}; there are {', '.join(self.names)}")
        return self.values[:, self.names.index(name)]

    @classmethod
    def joined(cls, parts: Sequence[Pairs]) -> Pairs:
        """Pairs of several batches of queries as one; all must have the same features."""
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        values = np.concatenate([part.values for part in parts])
        return cls(values, parts[0].names, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
