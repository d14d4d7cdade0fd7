"""Tests for `carya predict`: ids, row numbers, probabilities, output formats, and texts passed as arguments."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.data import Corpus, Example, Matrices, Vocabulary, open_data, write_data

from command_line import run
from topics import corpus

TEXT = "the telescope shows a planet and its moon"
COLUMNS = ["row", "id", "rank", "label", "name", "score", "probability"]

# Some test texts contain no known terms.
pytestmark = pytest.mark.filterwarnings("ignore::carya.errors.UnknownTextWarning")


@pytest.fixture(scope="module")
def ranker() -> carya.TextRanker:
    """A calibrated ranker with names for some of its labels."""
    names = {"astronomy": "The stars, the sky"}
    ranker = carya.TextRanker(carya.Tfidf(), carya.XRLinear(max_leaf_size=6)).fit(*corpus(300, 0), names=names)
    return ranker.calibrate(*corpus(300, 1))


@pytest.fixture(scope="module")
def text_model(ranker: carya.TextRanker, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("saved") / "model"
    ranker.save(path)
    return str(path)


def expected_objects(ranker: carya.TextRanker, texts: list[str], ids: list[str] | None, top_k: int) -> list[Any]:
    """Return the expected JSON objects, computed separately for each text."""
    objects = []
    for number, text in enumerate(texts):
        labels = []
        for suggestion in ranker.suggest(text, top_k=top_k):
            assert suggestion.probability is not None
            entry = {
                "label": suggestion.label,
                "score": round(suggestion.score, 6),
                "probability": round(suggestion.probability, 6),
            }
            labels.append(entry | ({"name": suggestion.name} if suggestion.name != suggestion.label else {}))
        objects.append({"row": number + 1} | ({"id": ids[number]} if ids else {}) | {"labels": labels})
    return objects


def parse_table(text: str, form: str) -> list[dict[str, str]]:
    rows = list(csv.DictReader(io.StringIO(text), delimiter="," if form == "csv" else "\t"))
    assert text.splitlines()[0] == ("," if form == "csv" else "\t").join(COLUMNS)
    return rows


def flatten(objects: list[Any]) -> list[dict[str, str]]:
    """Convert the JSON objects to table rows, one per suggested label."""
    return [
        {
            "row": str(entry["row"]),
            "id": entry.get("id", ""),
            "rank": str(rank),
            "label": label["label"],
            "name": label.get("name", label["label"]),
            "score": str(label["score"]),
            "probability": str(label["probability"]),
        }
        for entry in objects
        for rank, label in enumerate(entry["labels"], 1)
    ]


@pytest.mark.parametrize("source", ["jsonl", "csv", "tsv", "parquet"])
def test_ids_of_the_data_are_written(source: str, ranker: carya.TextRanker, text_model: str, tmp_path: Path) -> None:
    texts, _ = corpus(4, seed=9)
    ids = ["a-1", "7", "x y", "ü"]
    if source == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.table({"id": ids, "text": texts}), tmp_path / "data.parquet")
    elif source == "jsonl":
        rows = [{"id": 7 if name == "7" else name, "text": text} for name, text in zip(ids, texts, strict=True)]
        (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        separator = "," if source == "csv" else "\t"
        lines = [separator.join(pair) for pair in [("id", "text"), *zip(ids, texts, strict=True)]]
        (tmp_path / f"data.{source}").write_text("\n".join(lines) + "\n")
    result = run("predict", text_model, f"data.{source}", "--top-k", "3", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    objects = [json.loads(line) for line in result.stdout.splitlines()]
    assert objects == expected_objects(ranker, texts, ids, 3)


def test_ids_of_other_tables(tmp_path: Path) -> None:
    records = [{"id": f"d{row}", "text": f"text {row}", "labels": [f"l{row}"]} for row in range(3)]
    columns = {name: [record[name] for record in records] for name in records[0]}
    (tmp_path / "array.json").write_text(json.dumps(records))
    (tmp_path / "columns.json").write_text(json.dumps(columns))
    (tmp_path / "pandas.json").write_text(json.dumps({key: dict(enumerate(column)) for key, column in columns.items()}))
    raw = [{"uid": record["id"], "title": record["text"], "target_ind": []} for record in records]
    (tmp_path / "trn.json").write_text("".join(json.dumps(record) + "\n" for record in raw))
    if importlib.util.find_spec("pyarrow"):
        pyarrow = importlib.import_module("pyarrow")
        for name, ids in {"text.arrow": columns["id"], "number.arrow": [1, 2, 3], "other.arrow": [0.5, 1.5, 2]}.items():
            table = pyarrow.table(columns | {"id": ids})
            with pyarrow.OSFile(str(tmp_path / name), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
    expected: dict[str, list[str | None]] = {"number.arrow": ["1", "2", "3"], "other.arrow": [None] * 3}
    for path in tmp_path.iterdir():
        data = open_data(path)
        assert isinstance(data, Corpus)
        assert [example.id for example in data] == expected.get(path.name, ["d0", "d1", "d2"]), path.name


def test_other_ids_are_ignored_and_do_not_change_examples(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(
        '{"id": {"a": 1}, "text": "t", "labels": []}\n{"id": true, "text": "u", "labels": []}\n'
    )
    data = open_data(tmp_path / "data.jsonl")
    assert isinstance(data, Corpus)
    examples = list(data)
    assert [example.id for example in examples] == [None, None]
    assert examples == [Example("t"), Example("u", id="ids are not compared")]


def test_ids_of_documents_are_their_file_names(tmp_path: Path) -> None:
    (tmp_path / "planets.txt").write_text("a planet")
    (tmp_path / "planets.key").write_text("astronomy\n")
    data = open_data(tmp_path)
    assert isinstance(data, Corpus)
    assert [example.id for example in data] == ["planets"]


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize("selected_by", ["suffix", "option"])
def test_output_formats(form: str, selected_by: str, ranker: carya.TextRanker, text_model: str, tmp_path: Path) -> None:
    texts, _ = corpus(5, seed=4)
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    arguments = ["predict", text_model, "texts.txt", "--top-k", "2"]
    if selected_by == "suffix":
        result = run(*arguments, "-o", f"labels.{form}.gz", cwd=tmp_path)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
        text = gzip.decompress((tmp_path / f"labels.{form}.gz").read_bytes()).decode()
    else:
        result = run(*arguments, "--output-format", form, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        text = result.stdout
    expected = expected_objects(ranker, texts, None, 2)
    assert any("name" in label for row in expected for label in row["labels"]), "no suggested name contains a comma"
    if form == "jsonl":
        assert [json.loads(line) for line in text.splitlines()] == expected
    else:
        assert parse_table(text, form) == flatten(expected)


def test_tables_without_rows_have_a_header(text_model: str, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    result = run("predict", text_model, "empty.txt", "--output-format", "csv", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, ",".join(COLUMNS) + "\n")


def test_a_tsv_table_refuses_labels_with_tabs(tmp_path: Path) -> None:
    carya.TextRanker(carya.Tfidf(min_df=1)).fit(["red apple", "blue sky"], [["a\tb"], ["c"]]).save(tmp_path / "model")
    result = run("predict", "model", "red apple", "--output-format", "tsv", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "'a\\tb' contains '\\t', which this format cannot represent." in result.stderr
    result = run("predict", "model", "red apple", "--output-format", "csv", "--top-k", "1", cwd=tmp_path)
    assert "1,,1,a\tb,a\tb," in result.stdout


@pytest.mark.filterwarnings("ignore::carya.errors.UnknownTextWarning")
def test_texts_can_be_arguments(ranker: carya.TextRanker, text_model: str, tmp_path: Path) -> None:
    texts = [TEXT, "a game of chess", "telescope"]
    result = run("predict", text_model, *texts, "--top-k", "2", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert [json.loads(line) for line in result.stdout.splitlines()] == expected_objects(ranker, texts, None, 2)


@pytest.mark.filterwarnings("ignore::carya.errors.UnknownTextWarning")
def test_a_path_that_exists_is_a_file(ranker: carya.TextRanker, text_model: str, tmp_path: Path) -> None:
    (tmp_path / "planet").write_text(f"{TEXT}\nchess\n")
    result = run("predict", text_model, "planet", "--top-k", "1", cwd=tmp_path)
    assert [json.loads(line) for line in result.stdout.splitlines()] == expected_objects(
        ranker, [TEXT, "chess"], None, 1
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["missing.jsonl"],
            "missing.jsonl: No such file or directory. If it is a text, pass it on standard input: echo",
        ),
        (["data/test"], "data/test: No such file or directory."),
        (["a planet", "missing.txt"], "missing.txt: No such file or directory."),
        (["./planet and moon"], "./planet and moon: No such file or directory."),
        (
            ["a planet", "texts.txt"],
            "texts.txt is a file or folder. Pass either a single file or folder, or only texts.",
        ),
        (
            ["texts.txt", "texts.txt"],
            "texts.txt is a file or folder. Pass either a single file or folder, or only texts.",
        ),
        ([""], "An argument is empty. Pass a text, a file or a folder, or - for standard input."),
        (["a planet", "--format", "csv"], "--format applies to a file or folder, but 'a planet' is neither."),
        (
            ["a planet", "--text-column", "title"],
            "--text-column applies to a file or folder, but 'a planet' is neither.",
        ),
        (["texts.txt", "-o", "labels.npz"], 'labels.npz: Unknown output type ".npz". Use .jsonl, .csv or .tsv, or'),
        (["texts.txt", "-o", "texts.txt"], "texts.txt is also the input. Choose a different path for the output."),
        (["texts.txt", "--output-format", "xml"], "--output-format must be 'jsonl', 'csv' or 'tsv', got 'xml'."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_mistakes(arguments: list[str], message: str, text_model: str, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(f"{TEXT}\n")
    result = run("predict", text_model, *arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]
    assert (tmp_path / "texts.txt").read_text() == f"{TEXT}\n"


def test_a_long_text_is_not_a_path(ranker: carya.TextRanker, text_model: str) -> None:
    text = f"{TEXT} " * 200  # exceeds the maximum length of a file name
    result = run("predict", text_model, text, "--top-k", "3")
    assert result.returncode == 0, result.stderr
    assert [json.loads(line) for line in result.stdout.splitlines()] == expected_objects(ranker, [text], None, 3)


@pytest.mark.parametrize("source", ["data.svm", "data.xmc", "-"])
def test_features_in_text_formats(source: str, saved_model: Path, world: Any, tmp_path: Path) -> None:
    data = Matrices.of(world.X[:3], world.Y[:3])
    for name in ("data.svm", "data.xmc"):
        write_data(tmp_path / name, data)
    standard_input = (tmp_path / "data.xmc").read_text() if source == "-" else None
    options = ["--top-k", "2", "--output-format", "csv", *(["--one-based"] if source == "data.svm" else [])]
    result = run("predict", str(saved_model), source, *options, cwd=tmp_path, input=standard_input)
    assert result.returncode == 0, result.stderr
    rows = parse_table(result.stdout, "csv")
    S = carya.load(saved_model).predict(world.X[:3], top_k=2)
    assert [int(row["label"]) for row in rows] == S.indices.tolist()
    assert np.allclose([float(row["score"]) for row in rows], S.data, atol=1e-5)
    assert [(row["row"], row["id"], row["rank"]) for row in rows] == [
        (str(r), "", str(k)) for r in (1, 2, 3) for k in (1, 2)
    ]


def test_feature_matrices(saved_model: Path, world: Any, tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "X.npz", world.X[:3])
    result = run("predict", str(saved_model), "X.npz", "--top-k", "2", "--output-format", "csv", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    rows = parse_table(result.stdout, "csv")
    S = carya.load(saved_model).predict(world.X[:3], top_k=2)
    assert [int(row["label"]) for row in rows] == S.indices.tolist()
    assert [(row["row"], row["rank"]) for row in rows] == [(str(r), str(k)) for r in (1, 2, 3) for k in (1, 2)]
    assert {row["probability"] for row in rows} == {""}
    refused = run("predict", str(saved_model), "a text")
    assert refused.returncode == 2
    assert "was trained on features. DATA must contain features, got a text." in refused.stderr


def test_labels_of_features_have_names(world: Any, tmp_path: Path) -> None:
    names = [f"label {number}" for number in range(world.Y.shape[1])]
    write_data(tmp_path / "data", Matrices(world.X, world.Y, Vocabulary(names)))
    (tmp_path / "names.txt").write_text("\n".join(names) + "\n")
    folder = tmp_path / "data"
    expected = carya.XRLinear().fit(world.X, world.Y, label_names=names).suggest_all(world.X[:2], top_k=2)
    sp.save_npz(tmp_path / "X.npz", world.X[:2])
    listed = ["data/X.trn.npz", "--labels", "data/Y.trn.npz", "--vocabulary", "names.txt"]
    for model, data in {"from-folder": [str(folder)], "from-file": listed}.items():
        trained = run("train", *data, "-o", model, "--quiet", cwd=tmp_path)
        assert trained.returncode == 0, trained.stderr
        lines = run("predict", model, "X.npz", "--top-k", "2", cwd=tmp_path).stdout.splitlines()
        ranked = [[label["label"] for label in json.loads(line)["labels"]] for line in lines]
        assert ranked == [[suggestion.label for suggestion in row] for row in expected]
        table = run("predict", model, "X.npz", "--top-k", "2", "--output-format", "csv", cwd=tmp_path).stdout
        assert [row["name"] for row in parse_table(table, "csv")] == [label for row in ranked for label in row]
        assert "labels: label 0, label 1, label 2, label 3, label 4, …" in run("inspect", model, cwd=tmp_path).stdout


def test_sparse_and_dense_features(world: Any, text_model: str, tmp_path: Path) -> None:
    embeddings = np.random.default_rng(0).standard_normal((world.X.shape[0], 4)).astype(np.float32)
    model = carya.XRLinear().fit((world.X, embeddings), world.Y)
    model.save(tmp_path / "model")
    sp.save_npz(tmp_path / "X.npz", world.X)
    np.save(tmp_path / "E.npy", embeddings)
    options = ["--dense", "E.npy", "--top-k", "1", "--output-format", "csv"]
    result = run("predict", "model", "X.npz", *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    S = model.predict((world.X, embeddings), top_k=1)
    assert [int(row["label"]) for row in parse_table(result.stdout, "csv")] == S.indices.tolist()
    refused = run("predict", text_model, "X.npz", "--dense", "E.npy", cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--dense requires a model trained on features" in refused.stderr
