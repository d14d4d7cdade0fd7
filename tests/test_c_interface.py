"""The C library: the example and a program that misuses it are compiled and run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import carya
from carya.core.c_library import flags
from carya.data import World

from forging import forge

HERE = Path(__file__).parent
CC = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler")


def compiled(source: Path, folder: Path) -> Path:
    program = folder / source.stem
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread"]
    subprocess.run([str(CC), *strict, str(source), *flags(), "-o", str(program)], check=True)
    return program


def test_the_example_ranks_as_python_does(world: World, saved_model: Path, tmp_path: Path) -> None:
    program = compiled(HERE.parent / "examples" / "rank.c", tmp_path)
    model = carya.load(saved_model)
    rows = [world.X[[row]] for row in range(40)]
    text = "".join(
        " ".join(f"{i}:{v!r}" for i, v in zip(row.indices.tolist(), row.data.tolist(), strict=True)) + "\n"
        for row in rows
    )
    done = subprocess.run([program, saved_model], input=text, capture_output=True, text=True, check=True)
    answers = done.stdout.splitlines()
    assert len(answers) == len(rows)
    for row, answer in zip(rows, answers, strict=True):
        labels, scores = model.rank(row, top_k=5)
        pairs = [pair.split(":") for pair in answer.split()]
        assert [int(label) for label, _ in pairs] == labels.tolist()
        assert [float(score) for _, score in pairs] == pytest.approx(scores.tolist(), rel=1e-5)


def test_what_is_wrong_is_said(saved_model: Path, tmp_path: Path) -> None:
    program = compiled(HERE.parent / "examples" / "rank.c", tmp_path)
    broken = tmp_path / "broken"
    shutil.copytree(saved_model, broken)
    raw = bytearray((broken / "arrays.bin").read_bytes())
    raw[len(raw) // 2] ^= 1
    (broken / "arrays.bin").write_bytes(bytes(raw))
    for model, text, message in (
        (tmp_path, "", "is not a Carya model: it has no manifest.json"),
        (broken, "", "arrays.bin has been altered"),
        (saved_model, "5:1 3:1\n", "features must be strictly ascending"),
        (saved_model, f"{10**6}:1\n", "below carya_sparse_features"),
        (saved_model, "3:nan\n", "finite"),
    ):
        done = subprocess.run([program, model], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert message in done.stderr


def test_forged_models_are_refused_or_safe(saved_model: Path, tmp_path: Path) -> None:
    """An error or some answer, never a signal."""
    program = compiled(HERE.parent / "examples" / "rank.c", tmp_path)
    text = " ".join(f"{feature}:0.1" for feature in range(0, 60, 3)) + "\n"
    refused = 0
    for seed in range(60):
        place = tmp_path / f"model-{seed}"
        forge(saved_model, place, seed)
        done = subprocess.run([program, place], input=text, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1), (seed, done.returncode)
        refused += done.returncode
        assert (done.returncode == 1) == bool(done.stderr)
    assert 0 < refused < 60


def test_misuse_and_many_threads(world: World, tmp_path: Path) -> None:
    """tests/native/misuse.c passes every wrong argument it can, and asks from several threads at once."""
    rng = np.random.default_rng(0)
    model = carya.XRLinear(max_leaf=10, branching=4).fit((world.X, rng.random((world.X.shape[0], 3))), world.Y)
    model.save(tmp_path / "model")
    program = compiled(HERE / "native" / "misuse.c", tmp_path)
    done = subprocess.run([program, tmp_path / "model"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
