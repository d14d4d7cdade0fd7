"""Tests with more than 2³¹ matrix entries and more than 4 GiB of weights, most of which occupy no physical memory."""

from __future__ import annotations

import ctypes
import mmap
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import carya
from carya import _core
from carya.core.matrices import Csr, Features
from carya.data import SyntheticData
from carya.data.io.csr_writer import CsrWriter
from carya.errors import InputError
from carya.models.calibration.training_rows import TrainingRows
from carya.models.training_data import TrainingData
from carya.trees.beam_search import BeamSearcher
from carya.trees.layer import Weights

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="requires memory that is not reserved")

OFFSET = 2**31 + 5
_MAP_NORESERVE, _MAP_FIXED = 0x4000, 0x10


def sparse_memory(size: int, dtype: Any) -> NDArray[Any]:
    """Return a zero-initialized array; only the pages that are written to occupy memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    return np.frombuffer(mmap.mmap(-1, size * np.dtype(dtype).itemsize, flags=flags), dtype)


def shifted(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that contains the given values after OFFSET zeros."""
    result = sparse_memory(OFFSET + array.size, array.dtype)
    result[OFFSET:] = array
    return result


def shifted_matrix(matrix: sp.csr_array) -> Csr:
    """Return a matrix whose entries are stored after OFFSET others that do not belong to any row."""
    matrix = sp.csr_array(matrix)
    indices, values = matrix.indices.astype(np.int32), matrix.data.astype(np.float32)
    arrays = matrix.indptr.astype(np.int64) + OFFSET, shifted(indices), shifted(values)
    return Csr.of_triple(arrays, matrix.shape[1])


def test_training_and_ranking(world: SyntheticData) -> None:
    """Train on rows after 2³¹ other entries, and rank them."""
    small = TrainingData.of(world.X, world.Y)
    large = replace(small, features=Features.of(shifted_matrix(world.X)))
    layers, rankings, hashes = [], [], []
    for data in (small, large):
        model = carya.XRLinear(max_leaf_size=8, n_jobs=2, negatives=["teacher", "matcher"]).fit_data(data)
        searcher = BeamSearcher(model.layers_)
        layers.append([layer.weights.data.tobytes() + layer.order.tobytes() for layer in model.layers_])
        rankings.append([part.tolist() for part in searcher.predict(data.features, top_k=5, beam_width=10, threads=2)])
        hashes.append(TrainingRows.of(data.features).hashes.tolist())
    assert layers[0] == layers[1]
    assert rankings[0] == rankings[1]
    assert hashes[0] == hashes[1]


def test_native_matrix_functions(world: SyntheticData) -> None:
    small, large = Csr.of_scipy(sp.csr_array(world.X)), shifted_matrix(world.X)
    targets = (np.arange(small.cols) // 2).astype(np.int32)
    results = []
    for matrix in (small, large):
        columns, values = _core.row_topk(matrix.native, 3, 2)
        united, merged = matrix.unite(matrix, threads=2), matrix.merge_columns(targets, small.cols, threads=2)
        results.append([array.tobytes() for array in (columns, values, united.indices, merged.indices, merged.values)])
    assert results[0] == results[1]


def test_packed_weights_of_more_than_4_gib(model: carya.XRLinear, world: SyntheticData) -> None:
    """Search a layer in which one block has 5 GiB, so that all following blocks are stored after it."""
    gap, last = 5 * 2**30, 27  # the first line of `starts` contains the starts of features 0 to 27
    X = sp.csr_array(world.X).tolil()
    X[:, last] = 0
    queries = Features.of(Csr.of_scipy(sp.csr_array(X)))
    large = [replace(layer, weights=insert_gap(layer.weights, gap), folder=None) for layer in model.layers_]
    rankings = [
        [part.tolist() for part in BeamSearcher(layers).predict(queries, top_k=5, beam_width=10, threads=2)]
        for layers in (model.layers_, large)
    ]
    assert rankings[0] == rankings[1]
    features = np.array([3, 500, 1000, 1600], np.int32)
    for small_layer, large_layer in zip(model.layers_, large, strict=True):
        assert large_layer.weights.data.size > gap
        for position in range(2):
            expected = small_layer.weights_at(features, position)
            assert np.array_equal(large_layer.weights_at(features, position), expected)


def insert_gap(weights: Weights, gap: int) -> Weights:
    """Extend the block of feature 27 by a number of bytes."""
    starts, data = weights.starts.copy(), np.array(weights.data)
    bases, entries = starts.view(np.int64)[:, 0], starts[:, 4:]
    end = int(bases[1])
    for line, slot in zip(*np.nonzero(entries & 0x8000), strict=True):  # large blocks are stored separately
        at = int(bases[line]) + int(entries[line, slot] & 0x3FFF)
        data[at : at + 8].view(np.uint64)[0] += np.uint64(gap)
    bases[1:] += gap
    large = sparse_memory(data.size + gap, np.uint8)
    large[:end], large[end + gap :] = data[:end], data[end:]
    return replace(weights, starts=starts, data=large)


def test_written_matrices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The row offsets of a matrix with more than 2³¹ entries are 64-bit integers."""
    monkeypatch.setattr(CsrWriter, "_copy_member", lambda *arguments: None)  # would write 17 GB
    block = sp.csr_array(np.eye(2, 3, dtype=np.float32))
    with CsrWriter(tmp_path / "X.npz", 3) as writer:
        writer._n_entries = 2**31 - 1
        writer.append(block)
        writer.append(block)
    with np.load(tmp_path / "X.npz") as arrays:
        assert arrays["indptr"].dtype == np.int64
        assert arrays["indptr"].tolist() == [0, 2**31, 2**31 + 1, 2**31 + 2, 2**31 + 3]


def test_matrices_with_too_many_rows() -> None:
    rows = 2**31
    nothing = np.zeros(0, np.int32), np.zeros(0, np.float32)
    with pytest.raises(InputError, match=f"X must have at most 2147483647 rows, got {rows}"):
        Csr.of(sparse_memory(rows + 1, np.int64), *nothing, 1, "X")
    X = sp.coo_array((np.ones(1), ([rows - 1], [0])), shape=(rows, 3))
    with pytest.raises(InputError, match=f"X has {rows} rows; the maximum is 2147483647"):
        carya.XRLinear().fit(X, np.ones((1, 1)))


def repeated(block: NDArray[Any], times: int, file: Path) -> NDArray[Any]:
    """Return an array that contains a block several times, as mappings of the same physical memory."""
    block.tofile(file)
    mmap_at = ctypes.CDLL(None, use_errno=True).mmap
    mmap_at.restype, mmap_at.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long],
    )
    array = sparse_memory(times * block.size, block.dtype)
    with file.open("rb") as stream:
        for number in range(times):
            address = array.ctypes.data + number * block.nbytes
            flags = mmap.MAP_SHARED | _MAP_FIXED
            assert mmap_at(address, block.nbytes, mmap.PROT_READ, flags, stream.fileno(), 0) == address
    return array


def test_validation(tmp_path: Path) -> None:
    """Validate 2.15 billion entries: each row has the same 2²⁰ features."""
    per_row, rows = 2**20, 2050
    indices = repeated(np.arange(per_row, dtype=np.int32), rows, tmp_path / "indices")
    values = repeated(np.full(per_row, 0.5, np.float32), rows, tmp_path / "values")
    indptr = np.arange(rows + 1, dtype=np.int64) * per_row
    assert Csr.of(indptr, indices, values, per_row).rows == rows
    indptr[-1] -= 1
    with pytest.raises(InputError, match="inconsistent lengths"):
        Csr.of(indptr, indices, values, per_row)
