"""Tests for prediction on a Ray cluster: the same output as on one machine, for all models and inputs."""

from __future__ import annotations

import functools
import gzip
import io
import json
import os
import pickle
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.cli import evaluate
from carya.cli.app import app
from carya.cli.shared import cluster as cli_cluster
from carya.cluster import prediction, rank_rows, row_sources
from carya.cluster.row_sources import Shard
from carya.errors import InputError, ModelFormatError, ParameterError, UnknownTextWarning

from command_line import cli_runner
from golden_models import ANSWERS, GOLDEN, load, model_names
from matrix_helpers import same_matrix
from small_tree import X, Y, tree
from topics import corpus

TEXTS, LABELS = corpus(30)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide the data into many small shards."""
    monkeypatch.setattr(cli_cluster, "BATCH_SIZE", 4)
    monkeypatch.setattr(prediction, "BATCH_SIZE", 4)
    monkeypatch.setattr(evaluate, "_BATCH", 4)
    monkeypatch.setattr(row_sources, "_MAX_SHARDS", 3)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """Replace the cluster with three workers in this process, and return the number of calls per worker.

    As on a cluster, the function and the shards are pickled, shards can be processed in any order, and the workers
    have a different working directory than the command.
    """
    calls = [0, 0, 0]

    def map_items(_: Any, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        copies = [pickle.loads(pickle.dumps(function)) for _ in calls]
        folder = Path.cwd()
        results = {}
        os.chdir(tmp_path_of_workers)
        try:
            for number in reversed(range(len(items))):
                worker = number * 7 % len(calls)
                calls[worker] += 1
                results[number] = copies[worker](pickle.loads(pickle.dumps(items[number])))
        finally:
            os.chdir(folder)
        yield from (results[number] for number in range(len(items)))

    tmp_path_of_workers = tmp_path / "workers"
    tmp_path_of_workers.mkdir()
    monkeypatch.setattr(carya.RayEngine, "map", map_items)
    monkeypatch.setattr(carya.RayEngine, "check_dependencies", lambda _: None)
    return calls


def output(*arguments: Any, standard_input: str = "") -> str:
    """Run a command in this process and return its output."""
    written = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as stdin, pytest.MonkeyPatch.context() as patch:
        stdin.write(standard_input)
        stdin.seek(0)
        patch.setattr(sys, "stdin", stdin)
        patch.setattr(sys, "stdout", written)
        app.main([*map(str, arguments), "--quiet"], standalone_mode=False)
    return written.buffer.getvalue().decode()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the saved models ``texts`` and ``features``."""
    folder = tmp_path_factory.mktemp("models")
    carya.TextRanker(carya.Tfidf(min_df=1), tree()).fit(*corpus(300)).save(folder / "texts")
    tree().fit(X, Y).save(folder / "features")
    return folder


@pytest.mark.parametrize("name", model_names(ANSWERS))
def test_every_kind_of_model(name: str, workers: list[int], tmp_path: Path) -> None:
    load(name)
    path = tmp_path / "data.npz"
    if "texts" in ANSWERS[name]:
        path = path.with_suffix(".txt")
        path.write_text("".join(f"{text}\n" for text in ANSWERS[name]["texts"] * 5))
    else:
        with np.load(GOLDEN / "queries.npz") as arrays:
            if name == "neighbors-graph":
                path = path.with_suffix(".npy")
                np.save(path, arrays["dense"])
            else:
                parts = (arrays["data"], arrays["indices"], arrays["indptr"])
                sp.save_npz(path, sp.csr_array(parts, shape=tuple(arrays["shape"])))
    arguments = ("predict", GOLDEN / name, path, "--top-k", 4)
    expected = output(*arguments)
    assert len(expected.splitlines()) >= 5
    assert output(*arguments, "--ray", "auto") == expected
    assert sum(workers) > 1


def text_inputs(folder: Path) -> dict[str, tuple[list[Any], str]]:
    """Return arguments and standard input for every way to pass texts."""
    records = [
        json.dumps({"id": f"t{number}", "text": text, "labels": labels})
        for number, (text, labels) in enumerate(zip(TEXTS, LABELS, strict=True))
    ]
    rows = [f"{text},{';'.join(labels)}" for text, labels in zip(TEXTS, LABELS, strict=True)]
    (folder / "data.jsonl").write_text("\n".join([*records[:9], "", *records[9:]]) + "\n")
    with gzip.open(folder / "data.csv.gz", "wt") as stream:
        stream.write("\n".join(["text,labels", *rows]) + "\n")
    (folder / "data.txt").write_text("\n".join(TEXTS) + "\n\n")
    (folder / "folder").mkdir()
    (folder / "folder" / "test.texts.txt").write_text("\n".join(TEXTS) + "\n")
    return {
        "jsonl": (["data.jsonl"], ""),
        "csv.gz": (["data.csv.gz", "--output-format", "csv"], ""),
        "lines": (["data.txt", "--output-format", "tsv"], ""),
        "folder": (["folder", "--top-k", "3"], ""),
        "standard input": (["-", "--beam-width", "2"], "\n".join(TEXTS)),
        "JSON on standard input": (["-", "--min-score", "0.1"], "\n".join(records)),
        "arguments": (TEXTS[:9], ""),
        "empty": (["-", "--output-format", "csv"], ""),
    }


def test_every_way_to_pass_texts(
    workers: list[int], models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, (arguments, standard_input) in text_inputs(tmp_path).items():
        command = ("predict", models / "texts", *arguments)
        expected = output(*command, standard_input=standard_input)
        assert output(*command, "--ray", "auto", standard_input=standard_input) == expected, name
    assert min(workers) > 0


def test_every_way_to_pass_features(
    workers: list[int], models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (few, labels) = (X[:20], Y[:20])
    sp.save_npz("x.npz", few)
    for name in ("x.svm", "x.xmc", "folder"):
        carya.data.write_data(tmp_path / name, carya.data.Matrices(few, labels), part="test")
    inputs: list[tuple[list[str], str]] = [
        (["x.npz"], ""),
        (["x.svm", "--one-based"], ""),
        (["x.xmc"], ""),
        (["folder"], ""),
        (["-", "--format", "svmlight", "--one-based"], (tmp_path / "x.svm").read_text()),
    ]
    for arguments, standard_input in inputs:
        command = ("predict", models / "features", *arguments)
        expected = output(*command, standard_input=standard_input)
        assert len(expected.splitlines()) == 20
        assert output(*command, "--ray", "auto", standard_input=standard_input) == expected, arguments
    dense = np.ones((20, 3), np.float32)
    np.save("dense.npy", dense)
    carya.XRLinear(max_leaf_size=10).fit((X[:300], np.ones((300, 3), np.float32)), Y[:300]).save("pair")
    command = ("predict", "pair", "x.npz", "--dense", "dense.npy")
    assert output(*command, "--ray", "auto") == output(*command)


def test_a_pipe_is_read_once(workers: list[int], models: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    outputs = []
    for options in ([], ["--ray", "auto"]):
        writer = threading.Thread(target=pipe.write_text, args=("\n".join(TEXTS),))
        writer.start()
        outputs.append(output("predict", models / "texts", pipe, "--format", "lines", *options))
        writer.join()
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == len(TEXTS)


def test_evaluation(workers: list[int], models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    inputs = text_inputs(tmp_path)
    sp.save_npz("x.npz", X[:20])
    sp.save_npz("y.npz", Y[:20])
    commands: list[tuple[Any, ...]] = [
        (models / "texts", "data.jsonl"),
        (models / "texts", "-", "--format", "jsonl"),
        (models / "features", "x.npz", "y.npz"),
    ]
    records = inputs["JSON on standard input"][1]
    for command in commands:
        standard_input = records if "-" in command else ""
        arguments = ("evaluate", *command, "--json", "--errors", "2")
        expected = json.loads(output(*arguments, standard_input=standard_input))
        result = json.loads(output(*arguments, "--ray", "auto", standard_input=standard_input))
        assert expected.pop("microseconds_per_row") != result.pop("microseconds_per_row") > 0
        assert result == expected
    assert min(workers) > 0


def test_unknown_texts_are_reported(workers: list[int], models: Path, tmp_path: Path) -> None:
    texts = [*TEXTS, "???", *TEXTS, "!!!"]
    (tmp_path / "data.txt").write_text("\n".join(texts) + "\n")
    for options in ([], ["--ray", "auto"]):
        result = cli_runner().invoke(app, ["predict", str(models / "texts"), str(tmp_path / "data.txt"), *options])
        assert "carya: warning: Text 31 contains no known terms" in result.stderr
        assert "carya: warning: 2 of 62 texts contain no known terms." in result.stderr
    with pytest.warns(UnknownTextWarning, match="2 of 62 texts contain no known terms.*the first is text 30"):
        carya.RayEngine().predict(models / "texts", texts)


def test_predict_in_python(workers: list[int], models: Path, tmp_path: Path) -> None:
    text_inputs(tmp_path)
    sp.save_npz(tmp_path / "x.npz", X[:20])
    carya.data.write_data(tmp_path / "x.svm", carya.data.Matrices(X[:20], Y[:20]))
    engine = carya.RayEngine()
    expected = carya.load(models / "texts").predict(TEXTS, top_k=3, beam_width=2)
    for data in (TEXTS, tmp_path / "data.jsonl", str(tmp_path / "data.csv.gz")):
        assert same_matrix(engine.predict(models / "texts", data, top_k=3, beam_width=2), expected)
    expected = carya.load(models / "features").predict(X[:20], min_score=0.1)
    assert same_matrix(engine.predict(models / "features", tmp_path / "x.npz", min_score=0.1), expected)
    assert same_matrix(
        engine.predict(models / "features", tmp_path / "x.svm", min_score=0.1, zero_based=False), expected
    )
    cases: list[tuple[str, Any, dict[str, Any], str]] = [
        ("features", TEXTS, {}, "data must be a path or, for a text model, a list of texts"),
        ("texts", TEXTS, {"format": "csv"}, "format applies only to files, but data is a list of texts. Pass a path"),
        ("features", tmp_path / "data.jsonl", {}, "contains texts, but the model was trained on features"),
        ("texts", tmp_path / "x.svm", {}, "contains features, but the model was trained on texts"),
        ("texts", tmp_path / "none.jsonl", {}, "No such file or directory"),
    ]
    for model, data, options, message in cases:
        with pytest.raises(InputError, match=message):
            engine.predict(models / model, data, **options)
    with pytest.raises(ModelFormatError, match="there is no such folder"):
        engine.predict(models / "none", TEXTS)


def test_machines_with_other_files_are_reported(models: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(models / "texts", model)
    shared = rank_rows.SharedModel.of(model)
    assert shared.load(2).model_.n_jobs == 2
    shutil.rmtree(model)
    shutil.copytree(models / "features", model)
    with pytest.raises(InputError, match=r"differs from the model on .*\. All machines must have the same model"):
        shared.load(1)
    shutil.rmtree(model)
    with pytest.raises(InputError, match=r"does not exist on the machine .* The model must be on storage that all"):
        shared.load(1)
    path = tmp_path / "data.txt"
    path.write_text("a\nb\nc\n")
    rows = row_sources.TextFiles(path, functools.partial(carya.data.open_data, path, format="lines"))
    assert [example.text for example in rows.read(Shard(1, 2))] == ["b", "c"]
    with pytest.raises(InputError, match=r"has only 3 rows on the machine .*, but at least 4 rows are expected"):
        rows.read(Shard(2, 2))
    features = row_sources.FeatureFiles(path, lambda: np.eye(3))
    with pytest.raises(InputError, match="has only 3 rows on the machine"):
        features.read(Shard(0, 4))
    path.unlink()
    with pytest.raises(InputError, match=r"does not exist on the machine .* The data must be on storage that all"):
        rows.read(Shard(0, 1))


def test_invalid_options(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParameterError, match="--weight-dtypes cannot be combined with --ray"):
        output("evaluate", models / "features", "x.npz", "--ray", "auto", "--weight-dtypes")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(carya.errors.MissingExtraError, match=r"RayEngine requires ray.*pip install 'carya\[ray\]'"):
        output("predict", models / "texts", "a boat", "--ray", "auto")


def test_unreachable_clusters(models: Path) -> None:
    pytest.importorskip("ray")
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1", "no-such-host.invalid:6379"):
        with pytest.raises(InputError, match=f"Cannot connect to a Ray cluster at '{address}': .* Pass the address of"):
            carya.RayEngine(address).predict(models / "texts", TEXTS)
