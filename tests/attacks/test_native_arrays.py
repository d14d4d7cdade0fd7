"""Tests with concurrently modified, misaligned or read-only arrays, and with arguments that would exhaust memory."""

from __future__ import annotations

import copy
import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya import _core
from carya.core import storage
from carya.data import SyntheticData
from carya.errors import ModelFormatError

from c_programs import CC, compile_program, run

EXAMPLES = Path(__file__).parents[2] / "examples"

MUTATED = """
import threading
import numpy as np
import carya

X, Y = carya.data.make_world(2000, 100, seed=0)
for matrix in (X, Y):
    matrix.indptr = matrix.indptr.astype(np.int64)
original = X.indptr.copy(), Y.indptr.copy()
stop = threading.Event()

def mutate():
    while not stop.wait(0.001):
        for matrix, indptr in zip((X, Y), original):
            matrix.indptr[1:] = 2**40
            matrix.indptr[:] = indptr

thread = threading.Thread(target=mutate)
thread.start()
outcomes = {"fitted": 0, "rejected": 0}
for _ in range(8):
    try:
        carya.XRLinear(n_jobs=2).fit(X, Y)
        outcomes["fitted"] += 1
    except ValueError:
        outcomes["rejected"] += 1
stop.set()
thread.join()
assert outcomes["fitted"] > 0, outcomes
"""


def test_row_offsets_that_change_during_training() -> None:
    process = subprocess.run([sys.executable, "-c", MUTATED], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


CHANGED = """
import numpy as np
import carya
from carya.models.training_data import TrainingData

X, Y = carya.data.make_world(300, 30, seed=0)
for matrix in (X, Y):
    matrix.indptr = matrix.indptr.astype(np.int64)
expected = carya.XRLinear(n_jobs=2).fit(X, Y).predict(X)
queries = X.copy()
data = TrainingData.of(X, Y)
for matrix in (X, Y):
    matrix.indptr[1:] = 2**40
model = carya.XRLinear(n_jobs=2).fit_data(data)
assert (model.predict(queries) != expected).nnz == 0
"""


def test_row_offsets_that_change_after_validation() -> None:
    process = subprocess.run([sys.executable, "-c", CHANGED], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def copies(model: carya.XRLinear, folder: Path) -> dict[str, carya.XRLinear]:
    """Return a model and copies of it, created in every supported way."""
    model.save(folder)
    return {
        "fitted": model,
        "loaded": carya.load(folder),
        "pickled": pickle.loads(pickle.dumps(model)),
        "copied": copy.deepcopy(model),
        "subset": model.subset([0, 1, 2]),
    }


def test_fitted_arrays_are_read_only(model: carya.XRLinear, tmp_path: Path) -> None:
    """Regression test: after a write to the node order, the next query crashed the process."""
    for name, fitted in copies(model, tmp_path / "model").items():
        for layer in fitted.layers_:
            arrays: list[np.ndarray[Any, Any]] = [layer.order, layer.chunks, layer.biases, layer.dense]
            arrays += [layer.weights.data, layer.weights.starts, layer.weights.scales]
            assert not any(array.flags.writeable for array in arrays), name
        with pytest.raises(ValueError, match="read-only"):
            fitted.layers_[0].order[0] = 2**30


def test_training_data_remains_writable() -> None:
    X = np.eye(6, dtype=np.float32)
    model = carya.NearestNeighbors(over="rows").fit(X, np.eye(6))
    X[0, 0] = 2
    assert model.predict(np.eye(6)).shape == (6, 6)


def misaligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a misaligned copy of an array."""
    buffer = np.zeros(array.nbytes + 1, np.uint8)[1:]
    shifted: np.ndarray[Any, Any] = buffer[: array.nbytes].view(array.dtype).reshape(array.shape)
    shifted[...] = array
    assert not shifted.flags.aligned
    return shifted


def test_misaligned_arrays_give_the_same_results(world: SyntheticData) -> None:
    dense = np.random.default_rng(0).random((world.X.shape[0], 5), np.float32)
    X = sp.csr_array(world.X)
    shifted = sp.csr_array(X.shape, dtype=np.float32)
    shifted.data, shifted.indices, shifted.indptr = misaligned(X.data), misaligned(X.indices), misaligned(X.indptr)
    expected = carya.XRLinear(n_jobs=2).fit((X, dense), world.Y)
    actual = carya.XRLinear(n_jobs=2).fit((shifted, misaligned(dense)), world.Y)
    for a, b in zip(actual.layers_, expected.layers_, strict=True):
        assert np.array_equal(a.weights.data, b.weights.data)
    row = X[[0]]
    one = sp.csr_array((misaligned(row.data), misaligned(row.indices), row.indptr), shape=row.shape)
    for query in ((one, dense[:1]), (row, misaligned(dense[:1]))):
        assert actual.rank(query)[0].tolist() == expected.rank((row, dense[:1]))[0].tolist()


def test_kernels_reject_misaligned_arrays() -> None:
    with pytest.raises(ValueError, match="aligned"):
        _core.Csr(misaligned(np.array([0, 1])), np.zeros(1, np.int32), np.ones(1, np.float32), 1, "X")


def limited(script: str, *arguments: str, gigabytes: float = 3.0) -> subprocess.CompletedProcess[str]:
    """Run a script with a limited address space."""

    def limit() -> None:
        size = int(gigabytes * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))

    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limit,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        timeout=100,
    )


MANY_THREADS = """
import sys
import carya
from carya import _core

assert _core.thread_count(2**31 - 1) <= max(16, _core.thread_count(-1))
X, Y = carya.data.make_world(2000, 100, seed=0)
model = carya.XRLinear(n_jobs=2**31 - 1).fit(X, Y)
model.predict(X)
carya.Tfidf(n_jobs=2**31 - 1).fit([f"text {number}" for number in range(5_000)])
model.save(sys.argv[1])
carya.load(sys.argv[1]).predict(X)
"""


def test_a_huge_number_of_threads_takes_little_memory(tmp_path: Path) -> None:
    process = limited(MANY_THREADS, str(tmp_path / "model"))
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("labels", [2**31 - 1, 10**9, 10**12, -1])
@pytest.mark.parametrize("ranker", ["linear", None])
def test_forged_numbers_of_labels_are_rejected(
    labels: int, ranker: str | None, tmp_path: Path, world: SyntheticData
) -> None:
    carya.NearestNeighbors(over="rows", ranker=ranker).fit(world.X[:200], world.Y[:200]).save(tmp_path / "model")
    saved = storage.load(tmp_path / "model")
    saved.shape["labels"] = labels
    storage.save(tmp_path / "forged", saved)
    with pytest.raises(ModelFormatError, match="inconsistent"):
        carya.load(tmp_path / "forged")


@pytest.mark.parametrize("name", ["avx51", "AVX2"])
def test_misspelled_instruction_sets_are_errors(name: str) -> None:
    process = subprocess.run(
        [sys.executable, "-c", "import carya; carya.XRLinear"],
        env=os.environ | {"CARYA_ISA": name},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    assert f"CARYA_ISA must be 'avx512', 'avx2' or 'baseline', got '{name}'." in process.stderr


@pytest.mark.skipif(CC is None, reason="requires a C compiler")
def test_transforms_are_the_same_in_c(saved_model: Path, tmp_path: Path) -> None:
    """C and Python reject the same transform names."""
    program = compile_program(EXAMPLES / "rank.c", tmp_path)
    for transform in ("linf-hinge", "lnan-hinge", "l1e9-hinge", "log-linfinity-hinge"):
        saved = storage.load(saved_model)
        saved.shape["transforms"][0] = transform
        storage.save(tmp_path / "model", saved)
        with pytest.raises(ModelFormatError, match="Unknown transform"):
            carya.load(tmp_path / "model")
        process = run(program, tmp_path / "model")
        assert process.returncode == 1
        assert f"unknown transform '{transform}'" in process.stderr


@pytest.mark.skipif(CC is None, reason="requires a C compiler")
def test_the_example_program_rejects_invalid_numbers(saved_model: Path, tmp_path: Path) -> None:
    """Regression test: feature 2³² + 3 was read as feature 3."""
    program = compile_program(EXAMPLES / "rank.c", tmp_path)
    for query in (f"{2**32 + 3}:1", "-1:1", "3:", "3:x", "3:1 x", "99999999999999999999:1"):
        process = run(program, saved_model, query + "\n")
        assert process.returncode == 1, query
        assert "Cannot parse the query" in process.stderr
