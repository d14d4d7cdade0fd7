"""Tests for `carya evaluate`: all metrics, propensities, the per-label report, and the worst errors."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import f1_score, precision_recall_fscore_support

import carya
from carya import metrics
from carya.data import Corpus, SyntheticData, write_data

from command_line import run
from topics import corpus

KS = (1, 3, 5, 10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that contains training and test data, both with ids, and a model that has label names."""
    folder = tmp_path_factory.mktemp("evaluate")
    texts, labels = corpus(300, 0)
    for part, seed in (("train", 0), ("test", 1)):
        rows = enumerate(zip(*corpus(300, seed), strict=True), 1)
        records = [{"id": f"{part}-{number}", "text": text, "labels": names} for number, (text, names) in rows]
        if part == "test":
            records[0]["labels"] = [*records[0]["labels"], "an unknown label"]
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    names = {"astronomy": 'Stars, "planets"'}
    carya.TextRanker(carya.Tfidf(), carya.XRLinear(max_leaf_size=6)).fit(texts, labels, names=names).save(
        folder / "model"
    )
    return folder


def read(folder: Path, part: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{part}.jsonl").read_text().splitlines()]


def truth_and_scores(folder: Path) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return dense matrices of relevant labels and scores, and the labels; the last label is unknown to the model."""
    rows, ranker = read(folder, "test"), carya.load(folder / "model")
    labels = [*ranker.labels_, "an unknown label"]
    Y = np.array([[label in row["labels"] for label in labels] for row in rows], int)
    S = np.zeros(Y.shape)
    for number, row in enumerate(rows):
        for suggestion in ranker.suggest(row["text"], top_k=10):
            S[number, labels.index(suggestion.label)] = suggestion.score
    return Y, S, labels


def top_labels(S: np.ndarray, k: int) -> np.ndarray:
    """Return a binary matrix of the k labels with the highest scores; ties are broken in favor of the first label."""
    top = np.zeros(S.shape, int)
    for row, scores in enumerate(S):
        best = np.argsort(-scores, kind="stable")[:k]
        top[row, best[scores[best] > 0]] = 1
    return top


def evaluate(folder: Path, *options: str) -> dict[str, Any]:
    result = run("evaluate", "model", "test.jsonl", "--json", *options, cwd=folder)
    assert result.returncode == 0, result.stderr
    measured: dict[str, Any] = json.loads(result.stdout)
    return measured


def test_all_metrics(folder: Path) -> None:
    measured = evaluate(folder)
    Y, S, labels = truth_and_scores(folder)
    training = read(folder, "train")
    counts = [sum(label in row["labels"] for row in training) for label in labels]
    propensity = metrics.propensities_from_counts(counts, len(training))
    expected = metrics.report(Y, sp.csr_array(S), k=KS, propensity=propensity)
    assert {name: measured[name] for name in expected} == pytest.approx(expected)
    assert len(expected) == 13 * len(KS)
    for k in KS:
        top = top_labels(S, k)
        assert measured[f"micro-F1@{k}"] == pytest.approx(f1_score(Y, top, average="micro"))
        per_label = f1_score(Y, top, average=None, zero_division=0)
        assert measured[f"macro-F1@{k}"] == pytest.approx(per_label[Y.any(axis=0)].mean())


def test_propensities_from_training_data_equal_the_stored_ones(folder: Path) -> None:
    stored = evaluate(folder)
    read_again = evaluate(folder, "--train", "train.jsonl")
    assert read_again["PSP@3"] == pytest.approx(stored["PSP@3"])
    other = evaluate(folder, "--propensity-a", "0.6", "--propensity-b", "2.6")
    assert other["PSP@3"] != stored["PSP@3"]
    assert other["P@3"] == stored["P@3"]


def test_features_need_training_labels_for_psp(world: SyntheticData, saved_model: Path, tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "X.npz", world.X[:200].tocoo())
    sp.save_npz(tmp_path / "Y.npz", world.Y[:200])
    sp.save_npz(tmp_path / "train.npz", world.Y)
    arguments = ["evaluate", str(saved_model), "X.npz", "Y.npz"]
    result = run(*arguments, cwd=tmp_path)
    assert "PSP" not in result.stdout.partition("For PSP")[0]
    assert (
        "For PSP and PSnDCG, pass --train. These metrics require the label frequencies in the training data."
        in result.stdout
    )
    measured = json.loads(run(*arguments, "--train", "train.npz", "--json", cwd=tmp_path).stdout)
    S = carya.load(saved_model).predict(world.X[:200])
    expected = metrics.psp(world.Y[:200], S, k=5, propensity=metrics.propensities(world.Y))
    assert measured["PSP@5"] == pytest.approx(expected)
    assert "PSP" in run(*arguments, "--train", "train.npz", cwd=tmp_path).stdout


def test_features_are_matched_by_label_names(world: SyntheticData, tmp_path: Path) -> None:
    """Columns are matched by label name, even if they are permuted and include labels unknown to the model."""
    names = [f"label {number}" for number in range(world.Y.shape[1])]
    model = carya.XRLinear().fit(world.X, world.Y, label_names=names)
    model.save(tmp_path / "model")
    rows = world.X.shape[0]
    order = np.random.default_rng(0).permutation(len(names) + 2)  # two additional columns contain unknown labels
    extended = sp.hstack([world.Y, sp.csr_array((rows, 1)), sp.csr_array(np.ones((rows, 1)))], format="csr")
    sp.save_npz(tmp_path / "X.npz", sp.csr_array(world.X))
    sp.save_npz(tmp_path / "Y.npz", sp.csr_array(extended[:, order]))
    (tmp_path / "names.txt").write_text("".join(f"{[*names, 'empty', 'unknown'][column]}\n" for column in order))
    options = ["--vocabulary", "names.txt", "--train", "Y.npz", "--json", "--per-label", "labels.csv", "--errors", "1"]
    result = run("evaluate", "model", "X.npz", "Y.npz", *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    measured = json.loads(result.stdout)
    S = model.predict(world.X)
    assert measured["P@1"] == pytest.approx(metrics.precision(world.Y, S, k=1))
    assert measured["R@5"] < metrics.recall(world.Y, S, k=5)  # the unknown label counts as a false negative
    assert "unknown" in {label["label"] for label in measured["errors"][0]["labels"]}
    with (tmp_path / "labels.csv").open(newline="") as file:
        report = {row["label"]: row for row in csv.DictReader(file)}
    counts = np.asarray((world.Y != 0).sum(axis=0)).ravel()
    assert {label: int(row["training_rows"]) for label, row in report.items() if label != "unknown"} == {
        name: count for name, count in zip(names, counts.tolist(), strict=True) if name in report
    }
    refused = run("evaluate", "model", "X.npz", "Y.npz", cwd=tmp_path)
    assert refused.returncode == 2
    assert "Pass the column names with --vocabulary." in refused.stderr


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".csv.gz"])
def test_report_per_label(folder: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"labels{suffix}"
    evaluate(folder, "--per-label", str(path), "--per-label-k", "3")
    text = gzip.decompress(path.read_bytes()).decode() if suffix.endswith(".gz") else path.read_text()
    if suffix == ".jsonl":
        rows = [{name: str(value) for name, value in json.loads(line).items()} for line in text.splitlines()]
    elif suffix == ".tsv":
        rows = list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
    else:
        rows = list(csv.DictReader(text.splitlines()))
    Y, S, labels = truth_and_scores(folder)
    top = top_labels(S, 3)
    precision, recall, f1, support = precision_recall_fscore_support(Y, top, zero_division=0)
    training = read(folder, "train")
    assert [int(row["support"]) for row in rows] == sorted((int(row["support"]) for row in rows), reverse=True)
    assert {row["label"] for row in rows} == {
        label for i, label in enumerate(labels) if Y[:, i].any() or top[:, i].any()
    }
    for row in rows:
        number = labels.index(row["label"])
        assert int(row["support"]) == support[number]
        assert int(row["suggested"]) == top[:, number].sum()
        assert int(row["training_rows"]) == sum(row["label"] in example["labels"] for example in training)
        expected = (precision[number], recall[number], f1[number])
        assert (float(row["precision"]), float(row["recall"]), float(row["f1"])) == pytest.approx(expected, abs=1e-6)
    assert {row["name"] for row in rows if row["label"] == "astronomy"} == {'Stars, "planets"'}


def test_worst_errors(folder: Path) -> None:
    errors = evaluate(folder, "--errors", "4")["errors"]
    Y, S, labels = truth_and_scores(folder)
    rows = read(folder, "test")
    ndcg = metrics.row_ndcg(Y, sp.csr_array(S), 10)
    best_wrong = [S[row][Y[row] == 0].max() for row in range(len(Y))]
    expected = sorted((row for row in range(len(Y)) if ndcg[row] < 1), key=lambda row: (ndcg[row], -best_wrong[row]))
    assert [error["row"] - 1 for error in errors] == expected[:4]
    for error in errors:
        row = rows[error["row"] - 1]
        assert (error["id"], error["text"]) == (row["id"], row["text"])
        assert sorted(label["label"] for label in error["labels"]) == sorted(row["labels"])
        for label in error["suggestions"]:
            assert label["correct"] is (label["label"] in row["labels"])
            assert label["score"] == pytest.approx(S[error["row"] - 1, labels.index(label["label"])], abs=1e-5)
    printed = run("evaluate", "model", "test.jsonl", "--errors", "2", cwd=folder).stdout
    assert f"row {errors[0]['row']}, id {errors[0]['id']}: nDCG@10 " in printed
    assert f"  text: {errors[0]['text']}\n" in printed
    assert printed.count("\n  suggestions: ") == 2


def test_the_table_has_macro_figures_and_says_if_there_are_no_errors(tmp_path: Path) -> None:
    texts, labels = ["a planet", "a soup"] * 5, [["sky"], ["food"]] * 5
    write_data(tmp_path / "data.jsonl", Corpus.of(zip(texts, labels, strict=True)))
    carya.TextRanker().fit(texts, labels).save(tmp_path / "model")
    result = run("evaluate", "model", "data.jsonl", "--errors", "3", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    for name in ("precision", "recall", "F1", "PSP", "macro-precision", "macro-recall", "macro-F1"):
        assert re.search(rf"│ {name} +│ 100.00 │", result.stdout), name
    assert result.stdout.endswith("\nNo errors: in every row, all relevant labels are ranked first.\n")


def test_errors_of_features_have_no_texts(world: SyntheticData, saved_model: Path, tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "X.npz", world.X[:300])
    sp.save_npz(tmp_path / "Y.npz", world.Y[:300])
    result = run("evaluate", str(saved_model), "X.npz", "Y.npz", "--errors", "1", "--json", cwd=tmp_path)
    (error,) = json.loads(result.stdout)["errors"]
    assert "text" not in error
    relevant = world.Y[[error["row"] - 1]].indices.tolist()
    assert [int(label["label"]) for label in error["labels"]] == sorted(relevant)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model", "test.jsonl", "--per-label", "labels.xlsx"], 'labels.xlsx: Unknown table type ".xlsx". Use .csv,'),
        (["model", "test.jsonl", "--per-label-k", "11"], "--per-label-k must be an integer between 1 and 10, got 11."),
        (["model", "test.jsonl", "--errors", "0"], "--errors must be an integer >= 1, got 0."),
        (["model", "test.jsonl", "--train", "nowhere.jsonl"], "nowhere.jsonl: No such file or directory."),
        (["model", "test.jsonl", "--train", "other.jsonl"], "--train other.jsonl contains no label of the model"),
        (
            ["model", "test.jsonl", "--train", "data.svm"],
            "--train must contain texts, like the model's training data, but",
        ),
        (["model", "unlabeled.jsonl"], "unlabeled.jsonl contains no labels. At least one is required."),
        (["features", "X.npz", "short.npz"], "X.npz has shape (10, "),
        (
            ["features", "X.npz", "narrow.npz"],
            "narrow.npz has 3 columns, but the model has 150 labels. Pass one column",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_mistakes(folder: Path, world: SyntheticData, saved_model: Path, arguments: list[str], message: str) -> None:
    (folder / "other.jsonl").write_text('{"text": "a", "labels": ["other"]}\n')
    (folder / "unlabeled.jsonl").write_text('{"text": "a", "labels": []}\n')
    (folder / "data.svm").write_text("1 2:1\n")
    sp.save_npz(folder / "X.npz", world.X[:10])
    sp.save_npz(folder / "short.npz", world.Y[:9])
    sp.save_npz(folder / "narrow.npz", world.Y[:10, :3])
    if not (folder / "features").exists():
        (folder / "features").symlink_to(saved_model)
    result = run("evaluate", *arguments, cwd=folder)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
