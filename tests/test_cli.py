from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.data import World

GOLDEN = Path(__file__).parent / "golden" / "pecos" / "model"


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from carya.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=120)


def test_demo_on_packages(tmp_path: Path) -> None:
    topics = {"python3": "python module for scripts", "libc6": "compiled tool for files", "perl": "perl module parser"}
    stanzas = [
        f"Package: p{i}-{name}\nSource: s{i}\nDepends: {name}\nDescription: {text} number {i % 7}\n\n"
        for i in range(600)
        for name, text in topics.items()
    ]
    (tmp_path / "x_Packages").write_text("".join(stanzas))
    done = run("demo", "--lists", str(tmp_path), "--out", str(tmp_path / "model"), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["P@1"] > 0.9
    assert "perl module to parse dates" in done.stderr
    assert carya.load(tmp_path / "model").suggest("a perl module", top_k=1)[0].label == "perl"


def test_demo_elsewhere(tmp_path: Path) -> None:
    done = run("demo", "--lists", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "generated world" in done.stdout
    assert "Trained on 20,000 texts" in done.stdout
    assert "Try next" in done.stdout
    assert done.stderr == ""  # no bars where there is no terminal


def test_import_pecos(tmp_path: Path) -> None:
    done = run("import-pecos", str(GOLDEN), "model", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert carya.load(tmp_path / "model").tree_.n_labels == 24


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["import-pecos", "nowhere", "model"], "carya: nowhere is not an XR-Linear model of libpecos"),
        (["inspect", "nowhere"], "carya: nowhere is not a Carya model"),
        (["demo", "--seed", "many"], "'--seed'"),
        (["demo", "--seed", "-5"], "'--seed'"),
        (["data", "synth", "--scale", "nan"], "carya: "),
        (["dem"], "demo"),
        (["evaluate", "nowhere", "x.npz", "y.npz"], "carya: nowhere is not a Carya model"),
    ],
)
def test_errors_are_one_message_and_exit_code_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_inspect(saved_model: Path) -> None:
    done = run("inspect", str(saved_model))
    assert done.returncode == 0, done.stderr
    assert "LabelTree(1 →" in done.stdout
    assert "int8" in done.stdout
    told = json.loads(run("inspect", str(saved_model), "--json").stdout)
    model = carya.load(saved_model)
    assert told["labels"] == model.tree_.n_labels
    assert [layer["nodes"] for layer in told["layers"]] == list(model.tree_.level_sizes[1:])
    assert {layer["layout"] for layer in told["layers"]} == {"packed"}
    assert all("mapped from the file" in layer["reason"] for layer in told["layers"])
    assert sum(layer["weights"] for layer in told["layers"]) == sum(
        layer.unpacked().values.size for layer in model.layers_
    )
    assert told["bytes"] == sum(file.stat().st_size for file in saved_model.iterdir())


def test_evaluate(world: World, saved_model: Path, tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "X.npz", world.X[:200])
    np.save(tmp_path / "Y.npy", world.Y[:200].toarray())
    paths = [str(saved_model), "X.npz", "Y.npy"]
    done = run("evaluate", *paths, "--precisions", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "on 200 rows" in done.stdout
    assert "What precision costs" in done.stdout
    told = json.loads(run("evaluate", *paths, "--json", cwd=tmp_path).stdout)
    S = carya.load(saved_model).predict(world.X[:200])
    assert told["P@3"] == carya.metrics.precision(world.Y[:200], S, k=3)
    assert told["rows"] == 200


def test_evaluate_names_the_file_that_is_wrong(world: World, saved_model: Path, tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "X.npz", world.X[:20])
    (tmp_path / "text.npz").write_text("no matrix")
    np.savez(tmp_path / "odd.npz", a=np.eye(3))
    np.save(tmp_path / "objects.npy", np.array([{}, []], object), allow_pickle=True)
    for name, message in (
        ("missing.npz", "missing.npz: No such file"),
        ("text.npz", "text.npz does not hold a matrix"),
        ("odd.npz", "odd.npz does not hold a matrix"),
        ("objects.npy", "objects.npy does not hold a matrix"),
        ("matrix.txt", "matrices are read from .npz files of SciPy and .npy files of NumPy"),
    ):
        done = run("evaluate", str(saved_model), "X.npz", name, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr


def test_version() -> None:
    assert run("--version").stdout.strip() == f"carya {carya.__version__}"


@pytest.mark.parametrize("verb", ["demo", "import-pecos", "inspect", "evaluate", "c-flags"])
def test_help_ends_with_examples(verb: str) -> None:
    done = run(verb, "--help")
    assert done.returncode == 0
    assert f"carya {verb}" in done.stdout
    assert "Examples:" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [
        (["train", "--help"], {"numpy"}),
        (["predict", "--help"], set()),
        (["data", "synth", "--help"], set()),
        (["data", "synth", "world", "--scale", "0.01", "--seed", "3"], {"numpy", "scipy"}),
        (["train", "texts", "-o", "model", "--threads", "2", "--negatives", "teacher"], {"numpy"}),
    ],
    ids=" ".join,
)
def test_commands_load_no_more_than_they_need(arguments: list[str], loaded: set[str], tmp_path: Path) -> None:
    code = (
        "import atexit, sys; from carya.cli import main; heavy = {'numpy', 'scipy', 'pydantic', 'sklearn'}; "
        "atexit.register(lambda: print(*(heavy & set(sys.modules)), file=sys.stderr)); main()"
    )
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "train.texts.txt").write_text("a red apple\na green apple\na green pear\n")
    (tmp_path / "texts" / "label_names.txt").write_text("apple\npear\n")
    sp.save_npz(tmp_path / "texts" / "train.labels.npz", sp.csr_array(np.array([[1, 0], [1, 0], [0, 1]], np.float32)))
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=60)
    assert set(done.stderr.split()) == loaded
