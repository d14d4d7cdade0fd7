"""Tests for the C interface: the example program, and a program that passes invalid arguments."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import carya
from carya.c_library import compiler_flags
from carya.data import SyntheticData

from forging import forge

TESTS = Path(__file__).parent
CC = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(CC is None, reason="requires a C compiler")


def compile_program(source: Path, folder: Path) -> Path:
    """Compile a C program with warnings as errors, and return its path."""
    program = folder / source.stem
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"]
    subprocess.run([str(CC), *strict, str(source), *compiler_flags(), "-o", str(program)], check=True)
    return program


@pytest.fixture(scope="module")
def rank_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled example program."""
    return compile_program(TESTS.parent / "examples" / "rank.c", tmp_path_factory.mktemp("example"))


def run(program: Path, model: Path, queries: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program with a model folder as argument and queries on standard input."""
    return subprocess.run([program, model], input=queries, capture_output=True, text=True, check=False)


def test_example_ranks_like_python(world: SyntheticData, saved_model: Path, rank_program: Path) -> None:
    model = carya.load(saved_model)
    rows = [world.X[[row]] for row in range(40)]
    queries = "".join(
        " ".join(f"{i}:{v!r}" for i, v in zip(row.indices.tolist(), row.data.tolist(), strict=True)) + "\n"
        for row in rows
    )
    process = run(rank_program, saved_model, queries)
    assert process.returncode == 0
    for row, line in zip(rows, process.stdout.splitlines(), strict=True):
        labels, scores = model.rank(row, top_k=5)
        pairs = [pair.split(":") for pair in line.split()]
        assert [int(label) for label, _ in pairs] == labels.tolist()
        assert [float(score) for _, score in pairs] == pytest.approx(scores.tolist(), rel=1e-5)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("5:1 3:1\n", "features must be strictly increasing"),
        (f"{10**6}:1\n", "less than carya_sparse_features(model)"),
        ("3:nan\n", "values and dense must be finite."),
    ],
)
def test_invalid_queries_are_errors(saved_model: Path, rank_program: Path, query: str, message: str) -> None:
    process = run(rank_program, saved_model, query)
    assert process.returncode == 1
    assert message in process.stderr


def test_folder_without_a_model_is_an_error(tmp_path: Path, rank_program: Path) -> None:
    process = run(rank_program, tmp_path)
    assert process.returncode == 1
    assert process.stderr == f"{tmp_path} is not a Carya model: manifest.json is missing.\n"


def test_model_of_a_different_kind_is_an_error(world: SyntheticData, tmp_path: Path, rank_program: Path) -> None:
    carya.Ensemble(carya.XRLinear(max_depth=1), n_trees=2).fit(world.X[:100], world.Y[:100]).save(tmp_path / "model")
    process = run(rank_program, tmp_path / "model")
    assert process.returncode == 1
    assert "is not an XR-Linear model. The C interface supports only models of kind 'xr-linear'." in process.stderr


def test_damaged_model_is_an_error(saved_model: Path, tmp_path: Path, rank_program: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(saved_model, damaged)
    raw = bytearray((damaged / "arrays.bin").read_bytes())
    raw[len(raw) // 2] ^= 1
    (damaged / "arrays.bin").write_bytes(bytes(raw))
    process = run(rank_program, damaged)
    assert process.returncode == 1
    assert "arrays.bin is damaged: the checksum of the block at byte" in process.stderr


def test_forged_models_are_rejected_or_harmless(saved_model: Path, tmp_path: Path, rank_program: Path) -> None:
    """A forged model leads to an error message or a ranking, but never to a crash."""
    query = " ".join(f"{feature}:0.1" for feature in range(0, 60, 3)) + "\n"
    original = (saved_model / "arrays.bin").read_bytes()
    rejected = accepted = 0
    for seed in range(60):
        forged = tmp_path / f"forged-{seed}"
        forge(saved_model, forged, seed)
        if (forged / "arrays.bin").read_bytes() == original:
            continue
        process = run(rank_program, forged, query)
        assert process.returncode in (0, 1), (seed, process.returncode)
        assert (process.returncode == 1) == bool(process.stderr)
        rejected += process.returncode == 1
        accepted += process.returncode == 0
    assert rejected > 0
    assert accepted > 0
    assert rejected + accepted >= 50  # forged models that differ from the original


def test_invalid_arguments_and_concurrent_threads(world: SyntheticData, tmp_path: Path) -> None:
    """Run tests/native/misuse.c, which passes every kind of invalid argument and ranks in several threads."""
    rng = np.random.default_rng(0)
    model = carya.XRLinear(max_leaf_size=10, branching=4).fit((world.X, rng.random((world.X.shape[0], 3))), world.Y)
    model.save(tmp_path / "model")
    process = run(compile_program(TESTS / "native" / "misuse.c", tmp_path), tmp_path / "model")
    assert process.returncode == 0, process.stdout + process.stderr
