"""Helpers for feature matrices in all formats that models accept: sparse, dense, or a (sparse, dense) pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

#: Feature formats that models accept.
FORMS = ("sparse", "dense", "pair")


def in_form(pair: tuple[sp.csr_array, np.ndarray], form: str) -> Any:
    """Return the sparse matrix, the dense matrix, or the pair of both, depending on `form`."""
    return {"sparse": pair[0], "dense": pair[1], "pair": pair}[form]


def take_rows(X: Any, rows: Any) -> Any:
    """Return the selected rows of a matrix or of a (sparse, dense) pair."""
    return tuple(block[rows] for block in X) if isinstance(X, tuple) else X[rows]


def scale(X: Any, factor: float) -> Any:
    """Multiply a matrix, or both matrices of a pair, by a number."""
    return tuple(block * factor for block in X) if isinstance(X, tuple) else X * factor


def same_matrix(a: sp.csr_array, b: sp.csr_array) -> bool:
    """Return whether two CSR matrices contain bit-identical entries in the same order."""
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in ("indptr", "indices", "data"))


def same_arrays(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> bool:
    """Return whether two sequences contain equal arrays."""
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def ranking_of(S: sp.csr_array, row: int) -> list[tuple[int, float]]:
    """Return the (label, score) pairs in one row of a prediction, best first."""
    begin, end = S.indptr[row], S.indptr[row + 1]
    return list(zip(S.indices[begin:end].tolist(), S.data[begin:end].tolist(), strict=True))
