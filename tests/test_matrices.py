"""Tests for native operations on sparse matrices: comparison with SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from carya.core import validation
from carya.core.matrices import Csr


def random_matrix(seed: int, rows: int, cols: int) -> tuple[np.ndarray, Csr]:
    """Return a random matrix as a NumPy array and as a Csr; all values are integers, so sums are exact."""
    rng = np.random.default_rng(seed)
    A = np.round(rng.standard_normal((rows, cols)) * 8).astype(np.float32)
    A *= rng.random((rows, cols)) < 0.5
    return A, validation.check_features(sp.csr_array(A)).sparse


@given(st.integers(0, 1000), st.integers(1, 12), st.integers(1, 12), st.integers(1, 9))
def test_merge_columns_sums_columns(seed: int, rows: int, cols: int, merged_cols: int) -> None:
    A, matrix = random_matrix(seed, rows, cols)
    target_columns = np.random.default_rng(seed).integers(0, merged_cols, cols, dtype=np.int32)
    merged = matrix.merge_columns(target_columns, merged_cols)
    assert (merged.to_scipy().toarray() == A @ (target_columns[:, None] == np.arange(merged_cols))).all()
    assert merged.to_scipy().has_canonical_format


@pytest.mark.parametrize(
    ("target_columns", "message"),
    [
        ([0, 1, 2], "target_columns must have one entry for each of the 4 columns"),
        ([0, 1, 2, 3], "target_columns must contain values >= 0 and less than the number of columns"),
        ([0, 1, -1, 2], "target_columns must contain values >= 0 and less than the number of columns"),
    ],
)
def test_merge_columns_rejects_invalid_targets(target_columns: list[int], message: str) -> None:
    _, matrix = random_matrix(0, 3, 4)
    with pytest.raises(ValueError, match=message):
        matrix.merge_columns(np.array(target_columns, np.int32), 3)


@given(st.integers(0, 1000), st.integers(1, 12), st.integers(1, 12))
def test_transpose_equals_scipy(seed: int, rows: int, cols: int) -> None:
    A, matrix = random_matrix(seed, rows, cols)
    transposed = matrix.transpose().to_scipy()
    assert (transposed.toarray() == A.T).all()
    assert transposed.has_sorted_indices


def test_scipy_arrays_share_indices_and_values() -> None:
    matrix = Csr.of(np.array([0, 1, 3]), np.array([0, 0, 2], np.int32), np.ones(3, np.float32), 3)
    shared = matrix.to_scipy()
    assert np.shares_memory(shared.indices, matrix.indices)
    assert np.shares_memory(shared.data, matrix.values)
    assert shared.toarray().tolist() == [[1, 0, 0], [1, 0, 1]]
