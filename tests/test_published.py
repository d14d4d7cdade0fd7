"""Tests for synthetic data with the same sizes as published data sets: sizes, power law, topics and learnability."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.data.synthetic import files, topic_model
from carya.data.synthetic.published_sizes import PUBLISHED_SIZES, scaled_size, synthesize
from carya.data.synthetic.topic_model import TopicModel
from carya.errors import ParameterError

#: Mean number of rows per label, from the paper's table of published sizes; used to check the other sizes.
ROWS_PER_LABEL = {
    "eurlex-4k": 20.79,
    "wiki10-31k": 8.52,
    "amazoncat-13k": 448.57,
    "wiki-500k": 16.86,
    "amazon-670k": 3.99,
    "amazon-3m": 22.02,
}
SCALES = {
    "eurlex-4k": 0.2,
    "wiki10-31k": 0.1,
    "amazoncat-13k": 0.01,
    "wiki-500k": 0.003,
    "amazon-670k": 0.02,
    "amazon-3m": 0.003,
}


@pytest.mark.parametrize("like", PUBLISHED_SIZES)
def test_published_sizes_are_consistent(like: str) -> None:
    size = PUBLISHED_SIZES[like]
    assert size.n_train * size.labels_per_row / size.n_labels == pytest.approx(ROWS_PER_LABEL[like], rel=0.01)


@pytest.mark.parametrize("like", PUBLISHED_SIZES)
def test_generated_sizes(like: str) -> None:
    size = scaled_size(like, SCALES[like])
    model = synthesize(like, SCALES[like])
    X, Y = model.matrices("train")
    assert X.shape == (size.n_train, size.n_features)
    assert Y.shape == (size.n_train, size.n_labels)
    assert X.nnz / X.shape[0] == pytest.approx(size.features_per_row, rel=0.03)
    assert Y.nnz / Y.shape[0] == pytest.approx(size.labels_per_row, rel=0.03)
    assert np.diff(Y.indptr).min() >= 1
    assert (np.bincount(X.indices, minlength=X.shape[1]) == 0).mean() < 0.02
    assert (np.bincount(Y.indices, minlength=Y.shape[1]) == 0).mean() < 0.1
    assert (Y.data == 1).all()
    assert np.sqrt(X.multiply(X).sum(axis=1)) == pytest.approx(1, abs=1e-5)
    Xt, Yt = model.matrices("test")
    assert (Xt.shape[0], Yt.shape[0]) == (size.n_test, size.n_test)


def small_model(seed: int = 0) -> TopicModel:
    return TopicModel(6000, 600, 4000, 500, labels_per_row=3, features_per_row=40, seed=seed)


def test_label_frequencies_follow_the_power_law() -> None:
    _, Y = small_model().matrices("train")
    counts = np.sort(np.bincount(Y.indices, minlength=500))[::-1]
    law = (np.arange(1, 501) + 3.0) ** -1
    ranks = np.array([5, 10, 30, 100, 300])
    expected = law[ranks] / law[10]
    assert counts[ranks] / counts[10] == pytest.approx(expected, rel=0.3)


def test_labels_in_a_row_share_topics() -> None:
    model = small_model()
    _, Y = model.matrices("train")
    topic = model._topics_of(np.arange(500), model._topic_counts[0])
    rows = np.flatnonzero(np.diff(Y.indptr) > 1)
    first, second = Y.indices[Y.indptr[rows]], Y.indices[Y.indptr[rows] + 1]
    same_row = (topic[first] == topic[second]).mean()
    other_row = (topic[first] == np.roll(topic[second], 1)).mean()
    assert same_row > 3 * other_row


def test_same_seed_gives_same_data() -> None:
    for block, repeated in zip(small_model().blocks("test"), small_model().blocks("test"), strict=True):
        for a, b in zip(block, repeated, strict=True):
            assert (a != b).nnz == 0
    assert (small_model(0).matrices("test")[0] != small_model(1).matrices("test")[0]).nnz


@pytest.mark.parametrize(("like", "scale", "min_precision"), [("eurlex-4k", 0.2, 0.6), ("amazon-670k", 0.01, 0.3)])
def test_linear_model_learns(like: str, scale: float, min_precision: float) -> None:
    data = synthesize(like, scale)
    X, Y = data.matrices("test")
    models = [carya.XRLinear(n_jobs=1, seed=seed).fit(*data.matrices("train")) for seed in range(3)]
    precision = np.mean([carya.metrics.precision(Y, model.predict(X, top_k=1), k=1) for model in models])
    assert min_precision < precision < 0.97


def test_written_matrices_equal_matrices_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_model, "_BLOCK_WORDS", 20_000)  # splits the data into many blocks
    model = small_model()
    assert sum(1 for _ in model.blocks("train")) > 5
    sizes = files.write_matrices(model, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == files.MATRIX_FILE_NAMES - {"README.md"}
    for part, short in (("train", "trn"), ("test", "tst")):
        for name, expected in zip("XY", model.matrices(part), strict=True):
            matrix = sp.load_npz(tmp_path / f"{name}.{short}.npz")
            assert matrix.shape == expected.shape
            assert matrix.dtype == np.float32
            assert (sp.csr_array(matrix) != expected).nnz == 0
    assert sizes["features_per_row"] == pytest.approx(40, rel=0.05)


def test_written_texts_equal_the_matrices(tmp_path: Path) -> None:
    model = small_model()
    files.write_texts(model, tmp_path)
    lines = {
        path.name: gzip.decompress(path.read_bytes()).decode().rstrip("\n").split("\n") for path in tmp_path.iterdir()
    }
    X, Y = model.matrices("test")
    names = lines["label_names.txt.gz"]
    assert len(set(names)) == 500
    assert len(lines["train.texts.txt.gz"]) == 6000
    column = {model.word(i): i for i in range(4000)}
    for row in range(0, 600, 37):
        words = {column[word] for word in lines["test.texts.txt.gz"][row].split()}
        assert words == set(X[[row]].indices.tolist())
        assert lines["test.labels.txt.gz"][row].split("\t") == [names[label] for label in Y[[row]].indices]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("amazon-67k",), r"like must be one of .*, got 'amazon-67k'\. Did you mean 'amazon-670k'\?"),
        (("eurlex-4k", 0.0), "scale must be > 0 and <= 10, got 0.0"),
        (("eurlex-4k", float("nan")), "scale must be > 0 and <= 10, got nan"),
        (("eurlex-4k", 1.0, -1), "seed must be an integer >= 0, got -1"),
    ],
)
def test_invalid_parameters(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        synthesize(*arguments)


def test_minimum_sizes() -> None:
    for like in PUBLISHED_SIZES:
        X, Y = synthesize(like, 1e-9).matrices("train")
        assert (X.shape[0], X.shape[1], Y.shape[1]) == (20, 200, 20)
