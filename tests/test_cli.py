"""Tests for the `carya` command: help, errors, shell completion, imports, and commands for feature matrices."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

import carya
from carya.cli import demo
from carya.core.rules import Choice, Either, Integer, Real
from carya.data import SyntheticData
from carya.data.debian import PackageIndex
from carya.errors import MissingExtraError, ParameterError
from carya.models.presets import PRESETS

from command_line import run

GOLDEN = Path(__file__).parent / "golden" / "pecos" / "model"
COMMANDS = (
    ["train"],
    ["predict"],
    ["evaluate"],
    ["vectorize"],
    ["encode"],
    ["calibrate"],
    ["explain"],
    ["inspect"],
    ["report"],
    ["tune"],
    ["serve"],
    ["push"],
    ["pull"],
    ["demo"],
    ["import-pecos"],
    ["c-flags"],
    ["data", "debian"],
    ["data", "synth"],
    ["data", "convert"],
)


def test_demo_with_a_package_index(tmp_path: Path) -> None:
    topics = {"python3": "python module for scripts", "libc6": "compiled tool for files", "perl": "perl module parser"}
    stanzas = [
        f"Package: p{i}-{name}\nSource: s{i}\nDepends: {name}\nDescription: {text} number {i % 7}\n\n"
        for i in range(600)
        for name, text in topics.items()
    ]
    (tmp_path / "x_Packages").write_text("".join(stanzas))
    result = run("demo", "--lists", str(tmp_path), "--out", str(tmp_path / "model"), "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["P@1"] > 0.9
    assert "perl module to parse dates" in result.stderr
    assert "precision" in result.stderr
    assert carya.load(tmp_path / "model").suggest("a perl module", top_k=1)[0].label == "perl"


def test_demo_without_a_package_index(tmp_path: Path) -> None:
    result = run("demo", "--lists", str(tmp_path), "--quiet")
    assert result.returncode == 0, result.stderr
    assert "Using generated data instead." in result.stdout
    assert "Trained on 20,000 texts" in result.stdout
    assert "Try next" in result.stdout
    assert result.stderr == "", "--quiet shows no progress"


def test_demo_with_lists_that_require_lz4(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Debian's Docker images have such lists, and the default installation of Carya does not include lz4."""
    lists = tmp_path / "deb.debian.org_debian_dists_sid_main_binary-amd64_Packages.lz4"
    lists.write_bytes(b"\x04\x22\x4d\x18")
    monkeypatch.setitem(sys.modules, "lz4", None)
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    monkeypatch.setattr("carya.data.debian.find_index", lambda _: PackageIndex((lists,), ()))
    monkeypatch.setattr(demo, "_GENERATED_ROWS", 200)
    monkeypatch.setattr(demo, "_GENERATED_LABELS", 50)
    result = CliRunner().invoke(demo.demo, ["--quiet"])
    assert result.exit_code == 0, result.output
    assert "requires lz4. Install it with: pip install 'carya[debian]'\nUsing generated data instead." in result.output
    with pytest.raises(MissingExtraError, match="requires lz4"):
        demo.demo.main(["--lists", str(tmp_path)], standalone_mode=False)


def test_import_pecos(tmp_path: Path) -> None:
    result = run("import-pecos", str(GOLDEN), "model", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert carya.load(tmp_path / "model").tree_.n_labels == 24


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["import-pecos", "nowhere", "model"], "nowhere is not a libpecos XR-Linear model"),
        (["inspect", "nowhere"], "nowhere is not a Carya model"),
        (["inspect", "empty"], "empty is not a Carya model"),
        (["evaluate", "nowhere", "x.npz", "y.npz"], "nowhere is not a Carya model"),
        (["predict", "empty"], "empty is not a Carya model"),
        (["demo", "--seed", "many"], "--seed must be an integer >= 0, got 'many'."),
        (["demo", "--seed", "-5"], "--seed must be an integer >= 0, got -5."),
        (["predict", "empty", "--top-k", "0"], "--top-k must be an integer >= 1, got 0."),
        (["predict", "empty", "--top-k", "2.5"], "--top-k must be an integer >= 1, got 2.5."),
        (["predict", "empty", "--min-score", "high"], "--min-score must be a number, got 'high'."),
        (["predict", "empty", "--threads", "0"], "--n-jobs must be -1 or an integer >= 1, got 0."),
        (["evaluate", "empty", "data", "--part", "tets"], "--part must be 'train', 'test' or 'dev', got 'tets'."),
        (["train", "data", "-o", "model", "--preset", "fsat"], "Unknown preset 'fsat'. Did you mean 'fast'?"),
        (["train", "data", "-o", "model", "--model", "xt"], "--model must be 'xr-linear', 'xr-transformer' or"),
        (["train", "data", "-o", "model", "--beam-width", "0"], "--beam-width must be an integer >= 1, got 0."),
        (["train", "nowhere", "-o", "model"], "nowhere: No such file or directory"),
        (["train", "empty", "-o", "model"], "empty contains no data for part 'train'."),
        (["train", "data"], "Missing option '--out' / '-o'. Run 'carya train --help' for usage."),
        (["train", "data", "-o"], "Option '-o' requires an argument."),
        (["train"], "Missing argument 'DATA'. Run 'carya train --help' for usage."),
        (
            ["train", "data", "-o", "model", "--treshold", "1"],
            "Unknown option '--treshold'. Did you mean '--threshold'?",
        ),
        (["inspect", "model", "--verbose"], "Unknown option '--verbose'. Run 'carya inspect --help' for usage."),
        (["inspect", "model", "other"], "Got unexpected extra argument (other)"),
        (["data", "synth", "--scale", "nan"], "scale must be > 0 and <= 10, got nan."),
        (["dem"], "Unknown command 'dem'. Did you mean 'demo'? Run 'carya --help' for usage."),
        (["data", "synht"], "Unknown command 'synht'. Did you mean 'synth'? Run 'carya data --help' for usage."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_errors_print_one_line_and_exit_with_code_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = run(*arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("carya: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_parsing_of_option_values() -> None:
    from carya.cli.options.rule_type import parse_value

    transforms = carya.XRLinear.parameters()[carya.XRLinear.parameter_names().index("transform")].metadata["rule"]
    assert parse_value("l3-hinge", transforms, "--transform") == "l3-hinge"
    assert parse_value("l3-hinge, noop", transforms, "--transform") == ("l3-hinge", "noop")
    assert parse_value("None", Either(Integer(1), Choice(None)), "--max-depth") is None
    assert parse_value("1e-3", Real(0), "--tol") == 0.001
    with pytest.raises(ParameterError, match=r"^--tol must be a number >= 0, got -1.$"):
        parse_value("-1", Real(0), "--tol")
    with pytest.raises(ParameterError, match=r"^--norm must be 'l1' or None, got 'l3'.$"):
        parse_value("l3", Choice("l1", None), "--norm")


def test_inspect(saved_model: Path) -> None:
    result = run("inspect", str(saved_model))
    assert result.returncode == 0, result.stderr
    assert "LabelTree(1 →" in result.stdout
    assert "int8" in result.stdout
    description = json.loads(run("inspect", str(saved_model), "--json").stdout)
    model = carya.load(saved_model)
    assert description["labels"] == model.tree_.n_labels
    assert [layer["nodes"] for layer in description["layers"]] == list(model.tree_.level_sizes[1:])
    assert {layer["layout"] for layer in description["layers"]} == {"packed"}
    assert {layer["weight_dtype"] for layer in description["layers"]} == {"int8"}
    assert all(" would " in layer["reason"] for layer in description["layers"])
    assert sum(layer["weights"] for layer in description["layers"]) == sum(
        layer.unpacked().values.size for layer in model.layers_
    )
    assert description["bytes"] == sum(file.stat().st_size for file in saved_model.iterdir())


def test_evaluate(world: SyntheticData, saved_model: Path, tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "X.npz", world.X[:200])
    np.save(tmp_path / "Y.npy", world.Y[:200].toarray())
    paths = [str(saved_model), "X.npz", "Y.npy"]
    result = run("evaluate", *paths, "--weight-dtypes", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "on 200 rows" in result.stdout
    for name in ("precision", "recall", "nDCG", "coverage", "µs per row", "Data types of the weights"):
        assert name in result.stdout
    measured = json.loads(run("evaluate", *paths, "--weight-dtypes", "--json", cwd=tmp_path).stdout)
    S = carya.load(saved_model).predict(world.X[:200])
    assert measured["P@3"] == carya.metrics.precision(world.Y[:200], S, k=3)
    assert measured["rows"] == 200
    assert measured["microseconds_per_row"] > 0
    assert measured["weight_dtypes"]["int8"]["P@3"] == measured["P@3"]


def test_evaluate_names_the_invalid_file(world: SyntheticData, saved_model: Path, tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "X.npz", world.X[:20])
    (tmp_path / "text.npz").write_text("no matrix")
    np.savez(tmp_path / "odd.npz", a=np.eye(3))
    np.save(tmp_path / "objects.npy", np.array([{}, []], object), allow_pickle=True)
    for name, message in (
        ("missing.npz", "missing.npz: No such file"),
        ("text.npz", "text.npz does not contain a matrix"),
        ("odd.npz", "odd.npz does not contain a matrix"),
        ("objects.npy", "objects.npy does not contain a matrix"),
        ("matrix.txt", "Use .npz (SciPy) or .npy (NumPy)."),
    ):
        result = run("evaluate", str(saved_model), "X.npz", name, cwd=tmp_path)
        assert (result.returncode, result.stdout) == (2, "")
        assert message in result.stderr


def test_features_and_texts_are_not_interchangeable(world: SyntheticData, saved_model: Path, tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "X.npz", world.X[:20])
    (tmp_path / "texts.txt").write_text("a red apple\n")
    (tmp_path / "texts.jsonl").write_text('{"text": "a red apple", "labels": ["fruit"]}\n')
    model = str(saved_model)
    for arguments, message in (
        (
            ["predict", model, "texts.txt"],
            "was trained on features. DATA must contain features, but texts.txt does not.",
        ),
        (["predict", model], "was trained on features. DATA must contain features, but standard input does not."),
        (["evaluate", model, "texts.jsonl"], "texts.jsonl contains texts, but"),
        (["evaluate", model, "X.npz"], f"Also pass the labels: carya evaluate {model} X.npz Y.npz"),
        (["explain", model, "a red apple"], "carya explain requires a text model"),
        (["calibrate", model, "texts.jsonl"], "carya calibrate requires a text model"),
    ):
        result = run(*arguments, cwd=tmp_path)
        assert (result.returncode, result.stdout) == (2, "")
        assert message in result.stderr
        assert result.stderr.count("\n") == 1


def test_version() -> None:
    assert run("--version").stdout.strip() == f"carya {carya.__version__}"


def test_help_is_printed_without_a_command() -> None:
    for group in ([], ["data"]):
        result = run(*group)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr == run(*group, "--help").stdout


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_ends_with_examples(command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.returncode == 0
    _, _, examples = result.stdout.partition("\nExamples:\n")
    assert f"carya {' '.join(command)}" in examples
    assert examples.splitlines()[-1].split()[0] in ("carya", "zcat", "cat", "echo", "curl", "cc")


def test_groups_list_their_commands_with_complete_sentences() -> None:
    listed = [run(*group, "--help").stdout.partition("\nCommands:\n")[2] for group in ([], ["data"])]
    for command in COMMANDS:
        assert f"  {command[-1]} " in "".join(listed)
    assert "..." not in "".join(listed), "a command description is truncated"


def test_train_help_lists_parameters_by_heading_and_presets() -> None:
    text = run("train", "--help", env={**os.environ, "COLUMNS": "300"}).stdout
    pieces = re.split(r"^(\S.*):\n", text, flags=re.MULTILINE)
    sections = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    assert list(sections) == [
        "Arguments",
        "Data",
        "Model",
        "Text features",
        "Label tree",
        "Negatives and search",
        "Training",
        "Transformer",
        "Output",
        "Options",
        "Choosing a preset",
        "Presets (--preset)",
        "Examples",
    ]
    assert "--ngram-range" in sections["Text features"]
    assert "--max-leaf-size INTEGER" in sections["Label tree"]
    assert "Maximum number of labels per leaf cluster.  [default: 100]" in sections["Label tree"]
    assert "--beam-width" in sections["Negatives and search"]
    assert "--seed, --random-state" in sections["Training"]
    assert "--n-jobs, --threads" in sections["Training"]
    assert "--encoder" in sections["Transformer"]
    for name, preset in PRESETS.items():
        assert f"  {name} " in sections["Presets (--preset)"]
        assert preset.description.split()[-1] in sections["Presets (--preset)"]


def test_every_parameter_has_an_option() -> None:
    text = run("train", "--help").stdout
    for name in [*carya.Tfidf.parameter_names(), *carya.XRLinear.parameter_names()]:
        assert (f"--{name.replace('_', '-')} " in text.replace(",", " ")) is (name != "verbose"), name


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("carya pre", ["predict"]),
        ("carya data s", ["synth"]),
        ("carya train --max-le", ["--max-leaf-size", "--max-length"]),
        ("carya train --norm l", ["l1", "l2"]),
    ],
)
def test_shell_completion(words: str, completions: list[str]) -> None:
    environment = {"_CARYA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    result = run(env={**os.environ, **environment})
    assert result.returncode == 0, result.stderr
    assert sorted(line.partition(",")[2] for line in result.stdout.splitlines()) == completions


@pytest.mark.parametrize(
    ("arguments", "modules"),
    [
        (["--help"], set()),
        (["train", "--help"], {"numpy"}),
        (["predict", "--help"], set()),
        (["serve", "--help"], set()),
        (["data", "synth", "--help"], set()),
        (["data", "synth", "world", "--scale", "0.01", "--seed", "3"], {"numpy", "scipy"}),
        (["train", "texts", "-o", "model", "--n-jobs", "2", "--negatives", "teacher"], {"numpy"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_commands_import_only_required_packages(arguments: list[str], modules: set[str], tmp_path: Path) -> None:
    code = (
        "import atexit, sys; from carya.cli import main; heavy = {'numpy', 'scipy', 'pydantic', 'sklearn', 'torch'}; "
        "atexit.register(lambda: print(*(heavy & set(sys.modules)), file=sys.stderr)); main()"
    )
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "train.texts.txt").write_text("a red apple\na green apple\na green pear\n")
    (tmp_path / "texts" / "label_names.txt").write_text("apple\npear\n")
    sp.save_npz(tmp_path / "texts" / "train.labels.npz", sp.csr_array(np.array([[1, 0], [1, 0], [0, 1]], np.float32)))
    command = [sys.executable, "-c", code, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=60)
    assert set(result.stderr.split()) == modules
