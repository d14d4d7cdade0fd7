"""Tests for the commands `carya data debian` and `carya data synth`."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from carya.data.io.atomic_folder import atomic_folder
from carya.errors import SaveError

import fake_archive
from command_line import run, start


def read_lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().rstrip("\n").split("\n")


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / "deb.example.org_debian_dists_sid_main_binary-amd64_Packages").write_bytes(fake_archive.packages())
    (folder / "deb.example.org_debian_dists_sid_main_i18n_Translation-en").write_bytes(fake_archive.translation())
    return folder


@pytest.mark.parametrize("what", ["deps", "tags"])
def test_debian(what: str, lists: Path, tmp_path: Path) -> None:
    result = run("data", "debian", "set", "--what", what, "--lists", "lists", "--json", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    summary = json.loads(result.stdout)
    assert summary["train_rows"] + summary["test_rows"] == 60
    assert summary["labels_per_row"] >= 1
    assert summary["suites"] == ["deb.example.org/debian sid/main"]
    names = read_lines(tmp_path / "set" / "label_names.txt.gz")
    for part in ("train", "test"):
        texts, labels = (read_lines(tmp_path / "set" / f"{part}.{kind}.txt.gz") for kind in ("texts", "labels"))
        assert len(texts) == len(labels) == summary[f"{part}_rows"]
        assert {label for row in labels for label in row.split("\t")} <= set(names)
    assert "deb.example.org/debian sid/main" in (tmp_path / "set" / "README.md").read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lists", "set"]


def test_data_sets_are_reproducible_and_other_files_are_not_replaced(lists: Path, tmp_path: Path) -> None:
    assert run("data", "debian", "set", "--lists", "lists", cwd=tmp_path).returncode == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "set").iterdir()}
    assert run("data", "debian", "set", "--lists", "lists", cwd=tmp_path).returncode == 0
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "set").iterdir()}
    (tmp_path / "set" / "thesis.tex").write_text("years of work")
    result = run("data", "debian", "set", "--lists", "lists", cwd=tmp_path)
    assert result.returncode == 2
    assert "contains 'thesis.tex'" in result.stderr
    assert (tmp_path / "set" / "thesis.tex").exists()


def test_defective_package_lists_cause_warnings(lists: Path, tmp_path: Path) -> None:
    next(lists.glob("*Translation-en")).unlink()
    with next(lists.glob("*Packages")).open("ab") as file:
        file.write(b"\nnonsense\n")
    result = run("data", "debian", "set", "--lists", "lists", cwd=tmp_path)
    assert result.returncode == 0
    assert "carya: Number of invalid stanzas skipped: 1. The first: lists/" in result.stderr
    assert "carya: The lists contain no long descriptions." in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["debian", "set", "--lists", "nowhere"], "apt-get update -o Dir::State::lists=$PWD/lists"),
        (["debian", "set", "--what", "dep"], "--what must be 'deps' or 'tags', got 'dep'."),
        (
            ["debian", "set", "--lists", "lists", "--min-rows", "1000"],
            "The index contains too few packages with labels (--what deps).",
        ),
        (["debian", "set", "--lists", "lists", "--download"], "--download cannot be combined with --lists."),
        (["synth", "set", "--like", "eurlex"], "Did you mean 'eurlex-4k'?"),
        (["synth", "set", "--scale", "-1"], "scale must be > 0 and <= 10, got -1."),
        (["synth", "lists", "--scale", "0.01"], "The folder was not modified."),
    ],
)
def test_errors_write_nothing(arguments: list[str], message: str, lists: Path, tmp_path: Path) -> None:
    result = run("data", *arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("carya: ")
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == [lists]


def test_synth(tmp_path: Path) -> None:
    result = run("data", "synth", "--like", "eurlex-4k", "--scale", "0.02", "--json", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    summary = json.loads(result.stdout)
    Y = sp.load_npz(tmp_path / "eurlex-4k-0.02" / "Y.trn.npz")
    assert Y.shape == (summary["train_rows"], summary["labels"]) == (309, 79)
    assert summary["features_per_row"] > summary["labels_per_row"] > 1
    result = run("data", "synth", "texts", "--scale", "0.02", "--texts", cwd=tmp_path)
    assert result.returncode == 0
    assert "309 training rows" in result.stdout
    assert "labels per row" in (tmp_path / "texts" / "README.md").read_text(encoding="utf-8")
    rows = [row.split("\t") for row in read_lines(tmp_path / "texts" / "train.labels.txt.gz")]
    assert [len(row) for row in rows] == np.diff(Y.indptr).tolist()


def test_ctrl_c_leaves_no_partial_files(tmp_path: Path) -> None:
    with start("data", "synth", "set", "--like", "wiki-500k", cwd=tmp_path, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while (
            not list(tmp_path.glob(".set.*/X.trn.indices")) and time.monotonic() < deadline and process.poll() is None
        ):
            time.sleep(0.02)
        assert list(tmp_path.glob(".set.*"))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == "carya: Interrupted."
    assert not list(tmp_path.iterdir())


def test_atomic_folder_rejects_files_and_links(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path)
    for path, message in (("file", "not a folder"), ("link", "not a folder"), ("file/x", "cannot be written")):
        with pytest.raises(SaveError, match=message), atomic_folder(tmp_path / path, ()):
            pytest.fail("no error")
