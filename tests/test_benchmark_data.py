"""Tests for benchmark data sets: building them, and reading files written by `carya data`."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import scipy.sparse as sp

import carya

import command_line

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("measure")


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    module = importlib.import_module("build_data")

    def run(*arguments: object) -> None:
        monkeypatch.setattr(sys, "argv", ["build_data.py", *map(str, arguments)])
        module.main()

    return run


def write_record(path: Path, title: str, abstract: object, subjects: list[str]) -> None:
    record: dict[str, Any] = {"@id": "tib:1", "title": title, "abstract": abstract}
    if subjects:
        record["dcterms:subject"] = [{"@id": subject} for subject in subjects]
    path.parent.mkdir(parents=True, exist_ok=True)
    names = [{"@id": subject, "sameAs": "name"} for subject in subjects]
    path.write_text(json.dumps({"@graph": [*names, record]}))


def test_tibkat_records_become_a_text_folder(build: Any, measure: Any, tmp_path: Path) -> None:
    for number in range(3):
        write_record(tmp_path / f"train/Book/en/{number}.jsonld", f"Title {number}", ["one", "two\nthree"], ["gnd:2"])
    write_record(tmp_path / "train/Book/de/4.jsonld", "Titel", "", ["gnd:9"])
    write_record(tmp_path / "test/blind/Book/en/5.jsonld", "Blind", "", [])
    write_record(tmp_path / "test/gold/Book/en/6.jsonld", "Gold", "", ["gnd:1", "gnd:2"])
    build("tibkat", tmp_path, tmp_path / "out")
    assert measure.read_texts(tmp_path / "out", "train")[2] == "Title 2 . one two three"
    assert measure.read_texts(tmp_path / "out", "test") == ["Gold"]
    assert measure.label_names(tmp_path / "out") == ["gnd:1", "gnd:2"]
    assert measure.read(tmp_path / "out", "test.labels.npz").toarray().tolist() == [[1, 1]]
    assert "CC BY-SA 4.0" in (tmp_path / "out" / "README.md").read_text()


def test_yso_records_are_filtered_and_split(build: Any, measure: Any, tmp_path: Path) -> None:
    uris = [f"<http://www.yso.fi/onto/yso/p{number}>" for number in range(4)]
    lines = [f"text number {number}\t{' '.join(uris[: 2 + number % 3])}" for number in range(90)]
    with gzip.open(tmp_path / "yso.tsv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    build("yso", tmp_path / "yso.tsv.gz", tmp_path / "out")
    texts = {part: measure.read_texts(tmp_path / "out", part) for part in ("train", "test")}
    numbers = sorted(int(text.split()[-1]) for part in texts.values() for text in part)
    assert numbers == [number for number in range(90) if number % 3]  # only those with at least three subjects
    assert 0 < len(texts["test"]) < 20
    assert measure.read(tmp_path / "out", "train.labels.npz").sum(axis=1).min() == 3


def test_benchmarks_read_what_carya_data_writes(build: Any, measure: Any, tmp_path: Path) -> None:
    size = ["--like", "eurlex-4k", "--scale", "0.02"]
    assert command_line.run("data", "synth", str(tmp_path / "matrices"), *size).returncode == 0
    assert command_line.run("data", "synth", str(tmp_path / "texts"), *size, "--texts").returncode == 0
    X, Y, Xt, Yt = measure.load(tmp_path / "matrices")
    assert X.shape[0] == Y.shape[0] > Xt.shape[0] == Yt.shape[0]
    corpus: Any = carya.data.open_data(tmp_path / "texts", part="test")
    expected = list(corpus)
    names = measure.label_names(tmp_path / "texts")
    labels = measure.read(tmp_path / "texts", "test.labels.npz")
    assert [sorted(example.labels) for example in expected] == [
        sorted(names[column] for column in labels[[row]].indices) for row in range(labels.shape[0])
    ]
    build("features", tmp_path / "texts", tmp_path / "features")
    X, Y, Xt, Yt = measure.load(tmp_path / "features")
    assert X.shape[1] == Xt.shape[1]
    assert sp.issparse(Y)
    assert (Yt != labels).nnz == 0


def test_missing_records_are_reported(build: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="No records were found"):
        build("tibkat", tmp_path, tmp_path / "out")
