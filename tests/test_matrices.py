from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from carya.core import validation
from carya.core.matrices import Csr


def some(seed: int, rows: int, cols: int) -> tuple[np.ndarray, Csr]:
    rng = np.random.default_rng(seed)
    A = np.round(rng.standard_normal((rows, cols)) * 8).astype(np.float32)  # whole numbers: sums are exact
    A *= rng.random((rows, cols)) < 0.5
    return A, validation.features(sp.csr_array(A)).sparse


@given(st.integers(0, 1000), st.integers(1, 12), st.integers(1, 12), st.integers(1, 9))
def test_merged_columns_are_added_up(seed: int, rows: int, cols: int, into: int) -> None:
    A, matrix = some(seed, rows, cols)
    to = np.random.default_rng(seed).integers(0, into, cols, dtype=np.int32)
    merged = matrix.merge_columns(to, into)
    assert (merged.to_scipy().toarray() == A @ (to[:, None] == np.arange(into))).all()
    assert merged.to_scipy().has_canonical_format


def test_merged_columns_must_exist() -> None:
    _, matrix = some(0, 3, 4)
    for to in ([0, 1, 2], [0, 1, 2, 3], [0, 1, -1, 2]):
        with pytest.raises(ValueError, match="merge into"):
            matrix.merge_columns(np.array(to, np.int32), 3)


@given(st.integers(0, 1000), st.integers(1, 12), st.integers(1, 12))
def test_transposed_matrices_are_those_of_scipy(seed: int, rows: int, cols: int) -> None:
    A, matrix = some(seed, rows, cols)
    turned = matrix.transpose().to_scipy()
    assert (turned.toarray() == A.T).all()
    assert turned.has_sorted_indices
