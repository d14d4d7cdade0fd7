"""Tests for the Annif backend with an Annif installation, in the environment of CARYA_ANNIF_PYTHON if it is set."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from topics import corpus

PYTHON = os.environ.get("CARYA_ANNIF_PYTHON") or sys.executable

if not os.environ.get("CARYA_ANNIF_PYTHON") and importlib.util.find_spec("annif") is None:
    pytest.skip("requires Annif", allow_module_level=True)

PROJECT = """[topics]
name=Topics
language=en
backend=carya
vocab=topics
trees=2
allow_learn=True
max_leaf_size=6

[accurate]
name=Accurate
language=en
backend=carya
vocab=topics
model=accurate

[wrong]
name=Wrong
language=en
backend=carya
vocab=topics
features=letters
"""


def run_annif(folder: Path, *arguments: str, text: str = "", is_valid: bool = True) -> str:
    process = subprocess.run(
        [PYTHON, "-m", "carya_annif", *arguments],
        cwd=folder,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (process.returncode == 0) == is_valid, process.stderr
    return process.stdout if is_valid else process.stderr


def write_corpus(path: Path, rows: list[tuple[str, list[str]]]) -> None:
    lines = [f"{text}\t{' '.join(f'<http://topics/{label}>' for label in labels)}\n" for text, labels in rows]
    path.write_text("".join(lines), encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a vocabulary and a trained project."""
    folder = tmp_path_factory.mktemp("annif")
    texts, labels = corpus(300)
    ids = sorted({label for row in labels for label in row} | {"new"})
    (folder / "topics.tsv").write_text("".join(f"<http://topics/{label}>\t{label.title()}\n" for label in ids))
    (folder / "projects.cfg").write_text(PROJECT)
    write_corpus(folder / "train.tsv", list(zip(texts, labels, strict=True)))
    write_corpus(folder / "test.tsv", list(zip(*corpus(60, seed=1), strict=True)))
    run_annif(folder, "load-vocab", "topics", "topics.tsv", "--language", "en")
    run_annif(folder, "train", "topics", "train.tsv")
    return folder


def test_suggest_and_eval(folder: Path) -> None:
    lines = run_annif(folder, "suggest", "topics", "--limit", "3", text="the telescope shows a planet").splitlines()
    assert lines[0].startswith("<http://topics/astronomy")
    scores = [float(line.split("\t")[-1]) for line in lines]
    assert all(0 < score <= 1 for score in scores)
    assert scores == sorted(scores, reverse=True)
    match = re.search(r"^F1@5:\s+([0-9.]+)", run_annif(folder, "eval", "topics", "test.tsv"), re.MULTILINE)
    assert match
    assert float(match[1]) > 0.4


def test_scores_of_rerankers_are_positive(folder: Path) -> None:
    pytest.importorskip("lightgbm")
    run_annif(folder, "train", "accurate", "train.tsv")
    lines = run_annif(folder, "suggest", "accurate", "--limit", "3", text="the telescope shows a planet").splitlines()
    assert len(lines) == 3
    assert all(0 < float(line.split("\t")[-1]) <= 1 for line in lines)


def test_learn_and_retrain_from_the_cache(folder: Path) -> None:
    write_corpus(folder / "new.tsv", [(f"zyzzyva {number} weevil", ["new"]) for number in range(20)])
    assert not run_annif(folder, "suggest", "topics", "--limit", "1", text="zyzzyva").startswith("<http://topics/new>")
    run_annif(folder, "learn", "topics", "new.tsv")
    assert run_annif(folder, "suggest", "topics", "--limit", "1", text="zyzzyva").startswith("<http://topics/new>")
    run_annif(folder, "train", "topics", "--cached")
    assert run_annif(folder, "suggest", "topics", "--limit", "1", text="zyzzyva").startswith("<http://topics/new>")


def test_hyperopt_recommends_parameters(folder: Path) -> None:
    output = run_annif(folder, "hyperopt", "topics", "test.tsv", "--trials", "2")
    assert re.search(r"^features=(word|char_wb|word\+char_wb)$", output, re.MULTILINE)
    assert re.search(r"^cost=[0-9.]+$", output, re.MULTILINE)


def test_mistakes_are_reported(folder: Path) -> None:
    message = run_annif(folder, "train", "wrong", "train.tsv", is_valid=False)
    assert "features must be one of word, char_wb, word+char_wb, got 'letters'." in message
    message = run_annif(folder, "suggest", "wrong", text="a", is_valid=False)
    assert "not trained" in message
