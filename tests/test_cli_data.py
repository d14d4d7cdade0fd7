"""`carya data debian` and `carya data synth`."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from carya.data.io.atomic_folder import new_folder
from carya.errors import SaveError

import fake_archive

COMMAND = [sys.executable, "-c", "from carya.cli import main; main()", "data"]


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, cwd=cwd, timeout=120)


def lines(path: Path) -> list[str]:
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
    done = run("debian", "set", "--what", what, "--lists", "lists", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["train_rows"] + told["test_rows"] == 60
    assert told["suites"] == ["deb.example.org/debian sid/main"]
    names = lines(tmp_path / "set" / "label_names.txt.gz")
    for part in ("train", "test"):
        texts, labels = (lines(tmp_path / "set" / f"{part}.{kind}.txt.gz") for kind in ("texts", "labels"))
        assert len(texts) == len(labels) == told[f"{part}_rows"]
        assert {label for row in labels for label in row.split("\t")} <= set(names)
    assert "deb.example.org/debian sid/main" in (tmp_path / "set" / "README.md").read_text(encoding="utf-8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lists", "set"]


def test_a_set_is_replaced_by_the_same_bytes_and_strangers_stay(lists: Path, tmp_path: Path) -> None:
    assert run("debian", "set", "--lists", "lists", cwd=tmp_path).returncode == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "set").iterdir()}
    assert run("debian", "set", "--lists", "lists", cwd=tmp_path).returncode == 0
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "set").iterdir()}
    (tmp_path / "set" / "thesis.tex").write_text("years of work")
    done = run("debian", "set", "--lists", "lists", cwd=tmp_path)
    assert done.returncode == 2
    assert "holds 'thesis.tex'" in done.stderr
    assert (tmp_path / "set" / "thesis.tex").exists()


def test_what_is_odd_about_lists_is_said(lists: Path, tmp_path: Path) -> None:
    next(lists.glob("*Translation-en")).unlink()
    with next(lists.glob("*Packages")).open("ab") as file:
        file.write(b"\nnonsense\n")
    done = run("debian", "set", "--lists", "lists", cwd=tmp_path)
    assert done.returncode == 0
    assert "1 stanzas were skipped; the first: lists/" in done.stderr
    assert "no long descriptions" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["debian", "set", "--lists", "nowhere"], "apt-get update -o Dir::State::lists=$PWD/lists"),
        (["debian", "set", "--what", "dep"], "--what is 'dep'; it must be deps or tags"),
        (["debian", "set", "--lists", "lists", "--min-rows", "1000"], "gives no data set"),
        (["debian", "set", "--lists", "lists", "--download"], "exclude each other"),
        (["synth", "set", "--like", "eurlex"], "did you mean 'eurlex-4k'?"),
        (["synth", "set", "--scale", "-1"], "scale is -1.0"),
        (["synth", "lists", "--scale", "0.01"], "it is left alone"),
    ],
)
def test_errors_are_one_message_and_leave_nothing(
    arguments: list[str], message: str, lists: Path, tmp_path: Path
) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == [lists]


def test_synth(tmp_path: Path) -> None:
    done = run("synth", "--like", "eurlex-4k", "--scale", "0.02", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    Y = sp.load_npz(tmp_path / "eurlex-4k-0.02" / "Y.trn.npz")
    assert Y.shape == (told["train_rows"], told["labels"]) == (309, 79)
    assert run("synth", "texts", "--scale", "0.02", "--texts", cwd=tmp_path).returncode == 0
    rows = [row.split("\t") for row in lines(tmp_path / "texts" / "train.labels.txt.gz")]
    assert [len(row) for row in rows] == np.diff(Y.indptr).tolist()


def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "synth", "set", "--like", "wiki-500k"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        until = time.monotonic() + 30
        while not list(tmp_path.glob(".set.*/X.trn.indices")) and time.monotonic() < until and process.poll() is None:
            time.sleep(0.02)
        assert list(tmp_path.glob(".set.*"))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in said
    assert not list(tmp_path.iterdir())


def test_new_folder_refuses_what_is_no_place_for_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path)
    for place, message in (("file", "not a folder"), ("link", "not a folder"), ("file/x", "cannot be written")):
        with pytest.raises(SaveError, match=message), new_folder(tmp_path / place, ()):
            pytest.fail("not refused")


@pytest.mark.parametrize("verb", ["debian", "synth"])
def test_help_ends_with_examples(verb: str, tmp_path: Path) -> None:
    done = run(verb, "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "Examples:" in done.stdout
    assert f"carya data {verb}" in done.stdout
