"""Fingerprints of training rows, used to detect calibration on training rows.

A model stores the smallest hashes of its training rows, at most 4,096 of them (a bottom-k sketch). To check other rows,
their hashes in the same range are compared with the stored hashes; the fraction of matches estimates the fraction of
rows that occur in the training data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core.matrices import Features
from carya.errors import InputError

_MAX_HASHES = 4096
_BLOCK = 1 << 16  # number of feature values hashed at a time; their arrays fit into the L2 cache
_MAX_SHARE = 0.5  # some texts, such as short titles, occur several times in most collections
_MIN_COMPARED = 5


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Hashes of training rows.

    Attributes
    ----------
    hashes : ndarray of uint64
        The smallest distinct hashes, in ascending order.
    """

    hashes: NDArray[np.uint64]

    def __post_init__(self) -> None:
        hashes = self.hashes
        if (
            hashes.dtype != np.uint64
            or hashes.ndim != 1
            or hashes.size > _MAX_HASHES
            or (hashes[1:] <= hashes[:-1]).any()
        ):
            raise InputError(
                f"The hashes of training rows must be at most {_MAX_HASHES} distinct uint64 values in ascending order."
            )

    @classmethod
    def of(cls, rows: Features | Sequence[str]) -> Self:
        """Return the hashes of feature rows or texts."""
        return cls(_row_hashes(rows)[:_MAX_HASHES])

    def with_rows(self, rows: Features) -> Self:
        """Return the hashes of the training rows and of additional rows."""
        return type(self)(np.union1d(self.hashes, _row_hashes(rows))[:_MAX_HASHES])

    def check_held_out(self, rows: Features | Sequence[str]) -> None:
        """Raise InputError if most of the given rows occur in the training rows."""
        hashes = _row_hashes(rows)
        if self.hashes.size == _MAX_HASHES:
            hashes = hashes[hashes <= self.hashes[-1]]
        share = np.isin(hashes, self.hashes).mean() if hashes.size else 0.0
        if share > _MAX_SHARE and (hashes.size >= _MIN_COMPARED or self.hashes.size < _MAX_HASHES):
            raise InputError(
                f"About {share:.0%} of these rows occur in the training data. Scores of training rows are too high, so "
                "probabilities learned from them would be wrong. Pass rows that were not used for training, or use "
                "fit(..., calibrate=True)."
            )


def _row_hashes(rows: Features | Sequence[str]) -> NDArray[np.uint64]:
    """Return the distinct hashes of all rows, in ascending order; feature rows without features are omitted."""
    if not isinstance(rows, Features):
        texts = (np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8) for text in rows if text)
        return np.unique(np.fromiter((_core.xxh64(text) for text in texts), np.uint64))
    sparse, dense = rows.sparse, rows.dense
    hashes = np.zeros(rows.rows, np.uint64)
    begin = 0
    while begin < rows.rows:
        end = int(np.searchsorted(sparse.indptr, sparse.indptr[begin] + _BLOCK, side="right"))
        end = min(max(end - 1, begin + 1), rows.rows)
        first, last = int(sparse.indptr[begin]), int(sparse.indptr[end])
        sums = np.zeros(last - first + 1, np.uint64)
        bits = np.ascontiguousarray(sparse.values[first:last]).view(np.uint32).astype(np.uint64)
        np.cumsum(_mix(sparse.indices[first:last].astype(np.uint64) | bits << np.uint64(32)), out=sums[1:])
        bounds = sparse.indptr[begin : end + 1] - first
        hashes[begin:end] = sums[bounds[1:]] - sums[bounds[:-1]]
        begin = end
    for column in range(dense.shape[1]):
        bits = np.ascontiguousarray(dense[:, column], np.float32).view(np.uint32).astype(np.uint64)
        hashes += _mix(bits + np.uint64((column + 1) << 32)) * (dense[:, column] != 0)
    return np.unique(_mix(hashes[hashes != 0]))


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return well-distributed hashes of integers (SplitMix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    values ^= values >> np.uint64(31)
    return values
