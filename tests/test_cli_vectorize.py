"""Tests for `carya vectorize`, `carya encode`, and saved vectorizers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.errors import ModelFormatError, NotFittedError

from command_line import run
from topics import corpus


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vectorize")
    texts, labels = corpus(3000)
    lines = (json.dumps({"text": text, "labels": names}) for text, names in zip(texts, labels, strict=True))
    (folder / "data.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "texts.txt").write_text("\n".join(texts) + "\n")
    carya.TextRanker(carya.Tfidf(min_df=3)).fit(texts, labels).save(folder / "model")
    X, Y = carya.data.make_world(100, 20, seed=0)
    carya.XRLinear().fit(X, Y).save(folder / "features")
    return folder


def equal(first: sp.csr_array, second: sp.csr_array) -> bool:
    return bool(first.shape == second.shape and (first != second).nnz == 0)


@pytest.mark.parametrize("source", ["data.jsonl", "texts.txt", "-"])
def test_vectorize_with_a_new_vocabulary(folder: Path, tmp_path: Path, source: str) -> None:
    options = ["--ngram-range", "1,1", "--min-df", "5", "--json", "--save-vectorizer", str(tmp_path / "tfidf")]
    standard_input = (folder / "texts.txt").read_text() if source == "-" else None
    result = run("vectorize", source, "-o", str(tmp_path / "X.npz"), *options, cwd=folder, input=standard_input)
    assert result.returncode == 0, result.stderr
    expected = carya.Tfidf(analyzer="auto", ngram_range=(1, 1), min_df=5).fit_transform(corpus(3000)[0])
    X = sp.load_npz(tmp_path / "X.npz")
    assert equal(X, expected)
    assert X.dtype == np.float32
    assert json.loads(result.stdout)["rows"] == 3000
    assert json.loads(result.stdout)["features"] == expected.shape[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["X.npz", "tfidf"]
    vectorizer = carya.load(tmp_path / "tfidf")
    assert equal(
        vectorizer.transform(corpus(20, 5)[0]),
        carya.Tfidf(analyzer="auto", ngram_range=(1, 1), min_df=5).fit(corpus(3000)[0]).transform(corpus(20, 5)[0]),
    )
    (tmp_path / "new.txt").write_text("\n".join(corpus(20, 5)[0]) + "\n")
    result = run("vectorize", "new.txt", "-o", "new.npz", "--model", "tfidf", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"new.npz: 20 rows, {expected.shape[1]:,} features; ")
    assert equal(sp.load_npz(tmp_path / "new.npz"), vectorizer.transform(corpus(20, 5)[0]))


def test_vectorize_with_the_vectorizer_of_a_model(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "X.npz"
    result = run("vectorize", "data.jsonl", "-o", str(out), "--model", "model", "--n-jobs", "1", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert equal(sp.load_npz(out), carya.load(folder / "model").vectorizer_.transform(corpus(3000)[0]))


def test_an_ensemble_of_text_models_has_no_vectorizer(folder: Path, tmp_path: Path) -> None:
    ranker = carya.TextRanker(carya.Tfidf(min_df=1))
    carya.TextEnsemble([ranker, ranker]).fit(["a pear", "an oak"] * 5, ["fruit", "tree"] * 5).save(tmp_path / "model")
    result = run("vectorize", str(folder / "data.jsonl"), "-o", "X.npz", "--model", "model", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "model contains a model of kind TextEnsemble, which has no vectorizer of its own." in result.stderr


def test_a_vectorizer_stores_the_options_of_its_texts(tmp_path: Path) -> None:
    texts, labels = corpus(50)
    for name, selected in (("train", slice(0, 40)), ("test", slice(40, 50))):
        lines = [f"{text};{names[0]}" for text, names in zip(texts[selected], labels[selected], strict=True)]
        (tmp_path / f"{name}.csv").write_text("title;subject\n" + "\n".join(lines) + "\n")
    columns = ["--text-column", "title", "--label-column", "subject"]
    for command in (
        ["vectorize", "train.csv", "-o", "X.npz", "--save-vectorizer", "tfidf", *columns[:2]],
        ["train", "train.csv", "-o", "model", *columns],
        ["vectorize", "test.csv", "-o", "tfidf.npz", "--model", "tfidf"],
        ["vectorize", "test.csv", "-o", "model.npz", "--model", "model"],
    ):
        result = run(*command, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    assert carya.load(tmp_path / "tfidf").data_options_ == {"format": "csv", "text_column": "title"}
    expected = carya.Tfidf(analyzer="auto").fit(texts[:40]).transform(texts[40:])
    for name in ("tfidf", "model"):
        assert equal(sp.load_npz(tmp_path / f"{name}.npz"), expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["vectorize", "data.jsonl"], "Missing option '--out' / '-o'."),
        (["vectorize", "data.jsonl", "-o", "X.npy"], "X.npy must end with .npz, the suffix of the matrix format."),
        (["vectorize", "data.jsonl", "-o", "folder.npz"], "folder.npz is a folder. Pass the path of a file."),
        (["vectorize", "missing.jsonl", "-o", "X.npz"], "missing.jsonl: No such file or directory."),
        (["vectorize", "x.npz", "-o", "X.npz"], "x.npz contains features. Pass texts."),
        (["vectorize", "x.svm", "-o", "X.npz"], "x.svm contains features. Pass texts."),
        (["vectorize", "empty.jsonl", "-o", "X.npz"], "texts is empty. At least one text is required."),
        (["vectorize", "empty.jsonl", "-o", "X.npz", "--model", "model"], "empty.jsonl contains no rows."),
        (
            ["vectorize", "data.jsonl", "-o", "X.npz", "--model", "features"],
            "features was trained on features and has no",
        ),
        (
            ["vectorize", "data.jsonl", "-o", "X.npz", "--model", "model", "--min-df", "2"],
            "--min-df cannot be combined with --model, because the vocabulary of a saved model is fixed.",
        ),
        (
            ["vectorize", "data.jsonl", "-o", "X.npz", "--model", "model", "--save-vectorizer", "v"],
            "--save-vectorizer cannot be combined with --model",
        ),
        (
            ["vectorize", "data.jsonl", "-o", "X.npz", "--save-vectorizer", "model"],
            "model already contains a model. Pass --force to replace it, or choose a different path.",
        ),
        (["predict", "tfidf", "a text"], "tfidf contains a vectorizer, not a model. Train a model with:"),
        (["evaluate", "tfidf", "data.jsonl"], "tfidf contains a vectorizer, not a model."),
        (["inspect", "tfidf"], "tfidf contains a vectorizer, not a model."),
        (
            ["explain", "tfidf", "text"],
            "carya explain requires a text model, but tfidf contains a model of kind Tfidf.",
        ),
        (["encode", "data.jsonl", "-o", "E.npy"], "Pass either --encoder or --model (a saved transformer model)."),
        (
            ["encode", "data.jsonl", "-o", "E.npz", "--encoder", "e"],
            "E.npz must end with .npy, the suffix of the matrix format.",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_mistakes(folder: Path, arguments: list[str], message: str) -> None:
    (folder / "folder.npz").mkdir(exist_ok=True)
    (folder / "empty.jsonl").touch()
    (folder / "x.svm").write_text("1 2:1\n")
    sp.save_npz(folder / "x.npz", sp.eye_array(3, format="csr"))
    if not (folder / "tfidf").exists():
        carya.Tfidf().fit(["a text", "a text"]).save(folder / "tfidf")
    before = sorted(path.name for path in folder.iterdir())
    result = run(*arguments, cwd=folder)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == before


def test_saved_vectorizers(tmp_path: Path) -> None:
    texts, _ = corpus(200)
    for number, vectorizer in enumerate(
        (
            carya.Tfidf(),
            carya.Tfidf(analyzer=["word", "char_wb"], ngram_range=[(1, 1), (3, 4)], stop_words=["the"]),
            carya.Tfidf(n_buckets=1000, use_idf=False),
        )
    ):
        with pytest.raises(NotFittedError):
            vectorizer.save(tmp_path / "unfitted")
        expected = vectorizer.fit_transform(texts)
        vectorizer.save(tmp_path / str(number))
        loaded = carya.load(tmp_path / str(number))
        assert type(loaded) is carya.Tfidf
        assert equal(loaded.transform(texts), expected)
        assert loaded.get_feature_names_out().tolist() == vectorizer.get_feature_names_out().tolist()
    data = bytearray((tmp_path / "0" / "arrays.bin").read_bytes())
    data[200] ^= 1
    (tmp_path / "0" / "arrays.bin").write_bytes(data)
    with pytest.raises(ModelFormatError, match="checksum"):
        carya.load(tmp_path / "0")


@pytest.mark.transformer
def test_encode(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from carya.transformer.encoder.encoder import Encoder

    from tiny_encoders import WORDS, save_encoder

    save_encoder("bert", tmp_path / "encoder")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(1, 30))) for _ in range(2100)]  # more than one batch
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    options = ["--encoder", "encoder", "--max-length", "32", "--pooling", "mean", "--device", "cpu", "--json"]
    result = run("encode", "texts.txt", "-o", "E.npy", *options, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    expected = Encoder.load(tmp_path / "encoder", pooling="mean").encode_texts(texts, max_length=32)
    embeddings = np.load(tmp_path / "E.npy")
    assert (embeddings.dtype, embeddings.shape) == (np.float32, expected.shape)
    assert embeddings == pytest.approx(expected, abs=1e-5)
    description = json.loads(result.stdout)
    assert (description["rows"], description["dimensions"]) == expected.shape
    for arguments, message in (
        (["--encoder", "nowhere"], "encoder 'nowhere' cannot be loaded"),
        (["--encoder", "encoder"], "max_length must be at most 64, the limit of the encoder, got 128."),
        (["--encoder", "encoder", "--device", "toaster"], "device 'toaster' cannot be used"),
    ):
        result = run("encode", "texts.txt", "-o", "no.npy", "--quiet", *arguments, cwd=tmp_path)
        assert result.returncode == 2
        assert message in result.stderr
        assert not (tmp_path / "no.npy").exists()


@pytest.mark.transformer
def test_encode_with_a_trained_model(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tiny_encoders import N_LABELS, WORDS, WORDS_PER_LABEL, save_encoder

    save_encoder("bert", tmp_path / "encoder")
    rng = np.random.default_rng(0)
    labels = [[str(number % N_LABELS)] for number in range(240)]
    texts = [" ".join(rng.choice(WORDS[int(row[0]) * WORDS_PER_LABEL :][:WORDS_PER_LABEL], 6)) for row in labels]
    model = carya.XRTransformer(
        encoder=str(tmp_path / "encoder"), max_length=16, epochs=1, fine_tune=False, validation_fraction=0, device="cpu"
    )
    model.fit(texts, labels).save(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    result = run("encode", "texts.txt", "-o", "E.npy", "--model", "model", "--device", "cpu", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert np.load(tmp_path / "E.npy") == pytest.approx(model.encode(texts), abs=1e-5)
    result = run("vectorize", "texts.txt", "-o", "X.npz", "--model", "model", cwd=tmp_path)
    assert equal(sp.load_npz(tmp_path / "X.npz"), model.vectorizers_[0].transform(texts))
    result = run("encode", "texts.txt", "-o", "E.npy", "--model", "model", "--pooling", "mean", cwd=tmp_path)
    assert "--pooling cannot be combined with --model, because the setting of the saved model is used." in result.stderr
    carya.TextRanker(carya.Tfidf(min_df=1)).fit(texts, labels).save(tmp_path / "linear")
    result = run("encode", "texts.txt", "-o", "E.npy", "--model", "linear", cwd=tmp_path)
    assert "linear contains a model of kind TextRanker, which has no encoder." in result.stderr
