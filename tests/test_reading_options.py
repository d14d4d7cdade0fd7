"""Tests for reading data in commands: pairs of sparse files, feature numbering, standard input, and stored options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.data import Matrices, open_data, write_data
from carya.errors import InputError

from command_line import run
from topics import corpus

TEXT = "telescope galaxy orbit"


def write_pair(folder: Path, part: str, X: Any, Y: Any) -> None:
    """Write features and labels in the format of the Extreme Classification Repository, without the code under test."""
    for name, matrix in (("Xf", X), ("Y", Y)):
        rows = sp.csr_array(matrix)
        lines = [f"{rows.shape[0]} {rows.shape[1]}"]
        for row in range(rows.shape[0]):
            entries = slice(rows.indptr[row], rows.indptr[row + 1])
            lines.append(
                " ".join(f"{i}:{v:.6f}" for i, v in zip(rows.indices[entries], rows.data[entries], strict=True))
            )
        (folder / f"{part}_X_{name}.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    X, Y = carya.data.make_world(400, 30, seed=0)
    write_pair(folder, "trn", X[:300], Y[:300])
    write_pair(folder, "tst", X[300:], Y[300:])
    sp.save_npz(folder / "X.test.npz", sp.csr_matrix(X[300:]))
    sp.save_npz(folder / "Y.test.npz", sp.csr_matrix(Y[300:]))
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ["trn_X_Xf.txt"],
        ["trn_X_Y.txt"],
        ["trn_X_Xf.txt", "--labels", "trn_X_Y.txt"],
        ["trn_X_Y.txt", "--labels", "trn_X_Xf.txt"],
        ["."],
    ],
    ids=" ".join,
)
def test_pairs_of_sparse_files_are_features_not_words(arguments: list[str], pairs: Path, tmp_path: Path) -> None:
    result = run("train", *arguments, "-o", str(tmp_path / "model"), "--json", cwd=pairs)
    assert result.returncode == 0, result.stderr
    trained = json.loads(result.stdout)
    assert (trained["kind"], trained["rows"], trained["labels"]) == ("xr-linear", 300, 30)
    expected = None
    for test in (["."], ["tst_X_Xf.txt"], ["tst_X_Y.txt"], ["X.test.npz", "Y.test.npz"]):
        result = run("evaluate", str(tmp_path / "model"), *test, "--json", cwd=pairs)
        assert result.returncode == 0, result.stderr
        measured = json.loads(result.stdout)
        expected = expected or measured["P@1"]
        assert measured["P@1"] == expected > 0.5
    ranked = run("predict", str(tmp_path / "model"), "tst_X_Xf.txt", "--top-k", "1", cwd=pairs).stdout.splitlines()
    assert len(ranked) == 100
    alone = tmp_path / "tst_X_Xf.txt"
    alone.write_bytes((pairs / "tst_X_Xf.txt").read_bytes())
    assert run("predict", str(tmp_path / "model"), str(alone), "--top-k", "1").stdout.splitlines() == ranked
    result = run("data", "convert", ".", str(tmp_path / "test.xmc"), "--test", cwd=pairs)
    assert (result.returncode, result.stdout.endswith("test.xmc: 100 rows\n")) == (0, True)
    result = run("data", "convert", ".", str(tmp_path / "test.xmc"), "--test", "--part", "dev", cwd=pairs)
    assert "--test cannot be combined with --part dev." in result.stderr
    piped = run("predict", str(tmp_path / "model"), "--top-k", "1", input=alone.read_text())
    assert piped.stdout.splitlines() == ranked


def test_matrices_of_labels_belong_to_features_or_texts(pairs: Path, tmp_path: Path) -> None:
    X, Y = (sp.load_npz(pairs / f"{name}.test.npz") for name in "XY")
    data = open_data(pairs / "X.test.npz", labels=pairs / "Y.test.npz")
    mixed = open_data(pairs / "X.test.npz", labels=pairs / "tst_X_Y.txt")
    for matrices in (data, mixed, open_data(pairs / "tst_X_Xf.txt", labels=pairs / "Y.test.npz")):
        assert isinstance(matrices, Matrices)
        assert np.allclose(matrices.X.toarray(), X.toarray(), atol=1e-6)
        assert (matrices.Y.toarray() == Y.toarray()).all()
    (tmp_path / "texts.txt").write_text("".join(f"text {row}\n" for row in range(100)))
    for labels in ("Y.test.npz", "tst_X_Y.txt"):
        texts = open_data(tmp_path / "texts.txt", labels=pairs / labels)
        assert not isinstance(texts, Matrices)
        assert [list(map(int, example.labels)) for example in texts] == [
            sorted(Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()) for row in range(100)
        ]
    for second, message in (
        (None, r"X.test.npz contains features only\. Pass the label matrix as labels"),
        (tmp_path / "texts.txt", "texts.txt is not a matrix"),
    ):
        with pytest.raises(InputError, match=message):
            open_data(pairs / "X.test.npz", labels=second)


def test_sparse_matrices_are_rejected_where_texts_are_expected(pairs: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a red apple\na pear\n" * 100)
    (tmp_path / "labels.txt").write_text("red\nfruit\n" * 100)
    model = str(tmp_path / "model")
    assert run("train", "texts.txt", "--labels", "labels.txt", "-o", model, cwd=tmp_path).returncode == 0
    complete = tmp_path / "complete.txt"
    complete.write_text("2 3 4\n0,3 1:0.5 2:1\n 0:2\n")
    lines = tmp_path / "rows.svm.txt"
    lines.write_text("0,3 1:0.5 2:1\n1 1:2\n")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "test.texts.txt").write_text("2 3\n\n1:0.5 2:1\n")
    features = str(pairs / "tst_X_Xf.txt")
    for arguments, message in (
        (["predict", model, features], "contains features, but"),
        (["predict", model, features, "--format", "lines"], "pass the feature file, such as trn_X_Xf.txt"),
        (["predict", model, "set"], "Expected texts, but the file contains a sparse matrix: it begins with '2 3'"),
        (["predict", model, str(complete)], "contains features, but"),
        (["predict", model, str(complete), "--format", "lines"], "specify the format 'xmc'"),
        (["predict", model, str(lines), "--format", "lines"], "specify the format 'svmlight'"),
        (["evaluate", model, features], "contains features, but"),
        (["train", features, "--labels", "labels.txt", "--format", "pair", "-o", "no"], "contains a sparse matrix"),
        (["train", "texts.txt", "--labels", features, "-o", "no"], "tst_X_Xf.txt contains features, not labels. Pass"),
        (["train", str(complete), "--labels", "labels.txt", "-o", "no"], "The format 'xmc' does not support labels"),
    ):
        result = run(*arguments, cwd=tmp_path)
        assert (result.returncode, result.stdout) == (2, ""), arguments
        assert message in result.stderr, arguments
    result = run("predict", model, "-", input=Path(features).read_text(), cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "standard input contains features, but" in result.stderr
    texts = "3 4\nrows of numbers\n1:2\n"  # "3 4" is a text unless the next line contains index:value pairs
    assert run("predict", model, "-", input=texts, cwd=tmp_path).stdout.count("\n") == 3


def svmlight(X: Any, Y: Any, base: int) -> str:
    lines = []
    for row in range(X.shape[0]):
        labels = ",".join(map(str, Y.indices[Y.indptr[row] : Y.indptr[row + 1]]))
        x = slice(X.indptr[row], X.indptr[row + 1])
        pairs = (f"{i + base}:{v:.6f}" for i, v in zip(X.indices[x], X.data[x], strict=True))
        lines.append(f"{labels} {' '.join(pairs)}\n")
    return "".join(lines)


@pytest.mark.parametrize("base", [0, 1])
def test_the_model_stores_the_number_of_the_first_feature(base: int, tmp_path: Path) -> None:
    X, Y = (sp.csr_array(matrix) for matrix in carya.data.make_world(500, 30, seed=0))
    counts = np.bincount(X.indices, minlength=X.shape[1])
    X = sp.csr_array(X[:, np.roll(np.arange(X.shape[1]), -int(np.abs(counts - 100).argmin()))])
    X.sort_indices()  # one in five rows contains feature 0
    (tmp_path / "train.svm").write_text(svmlight(X[:400], Y[:400], base))
    without_first = [row for row in range(400, 500) if 0 not in X.indices[X.indptr[row] : X.indptr[row + 1]]]
    assert len(without_first) > 50
    test_X, test_Y = X[without_first], Y[without_first]
    (tmp_path / "test.svm").write_text(svmlight(test_X, test_Y, base))
    result = run("train", "train.svm", "-o", "model", cwd=tmp_path)
    assert (result.returncode, "numbered from 1" in result.stderr) == (0, base == 1)
    model = carya.load(tmp_path / "model")
    assert model.data_options_ == {"format": "svmlight", "zero_based": base == 0}
    S = model.predict(test_X, top_k=1)
    expected = carya.metrics.precision(test_Y, S, k=1)
    result = run("evaluate", "model", "test.svm", "--json", cwd=tmp_path)
    assert json.loads(result.stdout)["P@1"] == expected
    assert result.stderr == ""
    other = run("evaluate", "model", "test.svm", "--json", "--one-based" if base == 0 else "--zero-based", cwd=tmp_path)
    if base == 0:
        assert json.loads(other.stdout)["P@1"] < expected - 0.1  # the index base suggested by this file alone is wrong
    ranked = run("predict", "model", "test.svm", "--top-k", "1", cwd=tmp_path).stdout.splitlines()
    assert [json.loads(line)["labels"][0]["label"] for line in ranked] == S.indices.tolist()
    piped = run("predict", "model", "--top-k", "1", input=(tmp_path / "test.svm").read_text(), cwd=tmp_path)
    assert piped.stdout.splitlines() == ranked, piped.stderr
    if base == 1:
        (tmp_path / "zero.svm").write_text("1 2:1\n1 0:1 3:1\n")
        for command in ("evaluate", "predict"):
            result = run(command, "model", "zero.svm", cwd=tmp_path)
            assert (result.returncode, result.stdout) == (2, "")
            assert "zero.svm, line 2: Expected features numbered from 1, but feature 0 occurs." in result.stderr
            assert "zero_based=False is stored in the model" in result.stderr
    model.save(tmp_path / "copy")
    assert carya.load(tmp_path / "copy").data_options_ == model.data_options_


def test_a_model_without_stored_options_causes_a_warning(tmp_path: Path) -> None:
    X, Y = (sp.csr_array(matrix) for matrix in carya.data.make_world(200, 20, seed=0))
    carya.XRLinear().fit(X, Y).save(tmp_path / "model")
    assert "data_options" not in json.loads((tmp_path / "model" / "manifest.json").read_text())
    (tmp_path / "test.svm").write_text(svmlight(X, Y, 1))
    result = run("evaluate", "model", "test.svm", cwd=tmp_path)
    assert result.returncode == 0
    assert "test.svm contains no feature 0, so features are assumed to be numbered from 1." in result.stderr
    assert run("evaluate", "model", "test.svm", "--one-based", cwd=tmp_path).stderr == ""


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that contains the same data in several formats and with several sets of column names."""
    folder = tmp_path_factory.mktemp("texts")
    rows = list(zip(*corpus(300), strict=True))
    records = [{"title": text.split()[0], "body": " ".join(text.split()[1:]), "topics": row} for text, row in rows]
    for name, own in (("data", records[:200]), ("held-out", records[200:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in own))
        (folder / f"{name}.csv").write_text(
            "title;body;topics\n" + "".join(f"{r['title']};{r['body']};{'|'.join(r['topics'])}\n" for r in own)
        )
    rows = rows[:200]
    (folder / "plain.jsonl").write_text(
        "".join(json.dumps({"text": text, "labels": list(row)}) + "\n" for text, row in rows)
    )
    return folder


COLUMNS = ["--text-column", "title,body", "--label-column", "topics"]


def test_json_lines_on_standard_input_are_recognized(texts: Path, tmp_path: Path) -> None:
    lines = (texts / "plain.jsonl").read_text()
    result = run("train", "-", "-o", "model", "--json", input=lines, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert carya.load(tmp_path / "model").data_options_ == {"format": "jsonl"}
    terms = carya.load(tmp_path / "model").vectorizer_.get_feature_names_out()
    assert not {"text", "labels"} & set(terms)
    result = run("evaluate", "model", "-", "--json", input=lines, cwd=tmp_path)
    assert json.loads(result.stdout)["P@1"] > 0.9, result.stderr
    expected = run("predict", "model", str(texts / "plain.jsonl"), cwd=tmp_path).stdout
    assert expected.count("\n") == 200
    assert run("predict", "model", input=lines, cwd=tmp_path).stdout == expected
    (tmp_path / "data.txt").write_text(lines)
    assert run("predict", "model", "data.txt", cwd=tmp_path).stdout == expected
    raw = run("predict", "model", "--format", "lines", input=lines, cwd=tmp_path)
    assert raw.stdout != expected
    result = run("predict", "model", input='{"title": "a"}\n', cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert 'standard input, line 1: Missing key "text"; the keys are "title".' in result.stderr
    not_json = run("predict", "model", input="{telescope} galaxy\n", cwd=tmp_path)
    assert (not_json.returncode, not_json.stdout.count("\n")) == (0, 1)
    array = "[" + ",\n".join(lines.splitlines()) + "]"
    assert run("predict", "model", input=array, cwd=tmp_path).stdout == expected
    result = run("evaluate", "model", "-", input="some text\n", cwd=tmp_path)
    assert "standard input, line 1: Invalid JSON" in result.stderr  # read in the format stored in the model


def test_tables_on_standard_input_are_recognized(texts: Path, tmp_path: Path) -> None:
    table = (texts / "data.csv").read_text()
    options = [*COLUMNS, "--label-separator", "|", "--quiet"]
    assert run("train", str(texts / "data.csv"), "-o", "model", *options, cwd=tmp_path).returncode == 0
    expected = run("predict", "model", str(texts / "data.csv"), cwd=tmp_path).stdout
    assert expected.count("\n") == 200
    excel = "\ufeffsep=;\r\n" + table.replace("\n", "\r\n")
    for content in (table, excel, table.replace(";", "\t")):
        assert run("predict", "model", input=content, cwd=tmp_path).stdout == expected
    header, *lines = table.splitlines(keepends=True)
    plain = run("predict", "model", "--format", "lines", input="".join(lines), cwd=tmp_path).stdout
    assert run("predict", "model", input="".join(lines), cwd=tmp_path).stdout == plain  # texts without a header
    assert plain != expected
    other = run("train", str(texts / "plain.jsonl"), "-o", "other", "--quiet", cwd=tmp_path)
    assert other.returncode == 0, other.stderr
    piped = run("predict", "other", "--text-column", "title,body", input=table, cwd=tmp_path)
    assert piped.stdout == run("predict", "other", str(texts / "data.csv"), *COLUMNS[:2], cwd=tmp_path).stdout
    listing = run("predict", "other", input="speech,text,video\nand pictures\n", cwd=tmp_path)
    assert listing.stdout.count("\n") == 2, listing.stderr
    for model in ("model", "other"):
        nothing = run("predict", model, input="", cwd=tmp_path)
        assert (nothing.returncode, nothing.stdout, nothing.stderr) == (0, "", "")
    damaged = run("predict", "model", input=header + "a;b;c\n1;2\n", cwd=tmp_path)
    assert (damaged.returncode, damaged.stdout) == (2, "")
    assert "standard input, line 3: Expected 3 fields, as in the header, got 2." in damaged.stderr


@pytest.mark.parametrize(
    ("name", "options", "stored"),
    [
        ("data.jsonl", COLUMNS, {"format": "jsonl", "text_column": "title,body", "label_column": "topics"}),
        (
            "data.csv",
            [*COLUMNS, "--label-separator", "|"],
            {"format": "csv", "text_column": "title,body", "label_column": "topics", "label_separator": "|"},
        ),
    ],
)
def test_the_model_stores_columns_and_separators(
    name: str, options: list[str], stored: dict[str, str], texts: Path, tmp_path: Path
) -> None:
    data = str(texts / name)
    assert run("train", data, "-o", "model", *options, cwd=tmp_path).returncode == 0
    assert carya.load(tmp_path / "model").data_options_ == stored
    held_out = texts / f"held-out{Path(name).suffix}"  # calibration is refused for the training data
    for command in (["evaluate", "--json"], ["calibrate", "--json"], ["predict"]):
        result = run(command[0], "model", str(held_out), *command[1:], cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    assert carya.load(tmp_path / "model").data_options_ == stored  # also in the calibrated model
    assert json.loads(run("inspect", "model", "--json", cwd=tmp_path).stdout)["data_options"] == stored
    assert "text_column='title,body', label_column='topics'" in run("inspect", "model", cwd=tmp_path).stdout
    measured = json.loads(run("evaluate", "model", data, "--json", cwd=tmp_path).stdout)
    assert measured["P@1"] > 0.9
    assert json.loads(run("evaluate", "model", str(texts / "data.jsonl"), "--json", cwd=tmp_path).stdout)["P@1"] > 0.9
    piped = run("predict", "model", input=(texts / "data.jsonl").read_text(), cwd=tmp_path)
    assert piped.stdout == run("predict", "model", data, cwd=tmp_path).stdout
    other = str(texts / "plain.jsonl")
    result = run("evaluate", "model", other, cwd=tmp_path)
    assert result.returncode == 2
    assert 'line 1: Missing key "title"; the keys are "text", "labels".' in result.stderr
    assert "text_column='title,body' is stored in the model" in result.stderr
    given = ["--text-column", "text", "--label-column", "labels"]
    assert json.loads(run("evaluate", "model", other, *given, "--json", cwd=tmp_path).stdout)["P@1"] > 0.9


def test_a_stored_separator_belongs_to_tables_or_to_files_of_labels(texts: Path, tmp_path: Path) -> None:
    options = [*COLUMNS, "--label-separator", "|"]
    assert run("train", str(texts / "data.csv"), "-o", "model", *options, cwd=tmp_path).returncode == 0
    rows = [json.loads(line) for line in (texts / "plain.jsonl").read_text().splitlines()]
    (tmp_path / "texts.txt").write_text("".join(f"{row['text']}\n" for row in rows))
    (tmp_path / "labels.txt").write_text("".join("\t".join(row["labels"]) + "\n" for row in rows))
    result = run("evaluate", "model", "texts.txt", "--labels", "labels.txt", "--json", cwd=tmp_path)
    expected = json.loads(run("evaluate", "model", str(texts / "data.csv"), "--json", cwd=tmp_path).stdout)
    assert json.loads(result.stdout)["R@1"] == expected["R@1"]


def test_a_stored_format_is_used_where_none_can_be_detected(texts: Path, tmp_path: Path) -> None:
    (tmp_path / "train.dat").write_bytes((texts / "data.csv").read_bytes())
    options = [*COLUMNS, "--label-separator", "|", "--format", "csv"]
    assert run("train", "train.dat", "-o", "model", *options, cwd=tmp_path).returncode == 0
    result = run("evaluate", "model", "train.dat", "--json", cwd=tmp_path)
    assert json.loads(result.stdout)["P@1"] > 0.9, result.stderr
    piped = run("evaluate", "model", "-", "--json", input=(texts / "data.csv").read_text(), cwd=tmp_path)
    assert json.loads(piped.stdout)["P@1"] > 0.9
    assert json.loads(run("evaluate", "model", str(texts / "data.jsonl"), "--json", cwd=tmp_path).stdout)["P@1"] > 0.9


def test_forged_options_in_a_model_are_rejected(tmp_path: Path) -> None:
    X, Y = carya.data.make_world(200, 20, seed=0)
    model = carya.XRLinear().fit(X, Y)
    write_data(tmp_path / "data.svm", Matrices(sp.csr_array(X), sp.csr_array(Y)))
    model.data_options_ = {"zero_based": "no"}
    model.save(tmp_path / "model")
    result = run("evaluate", "model", "data.svm", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "with valid values, got zero_based='no'" in result.stderr
