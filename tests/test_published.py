"""Worlds of the size of published data sets: their sizes, law, topics, and that something can be learned from them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.data.synthetic import files, topic_model
from carya.data.synthetic.published_sizes import SHAPES, scaled, synthesise
from carya.data.synthetic.topic_model import TopicWorld
from carya.errors import ParameterError

#: The table of the paper gives it too: so rows, labels and labels a row must agree with each other.
ROWS_A_LABEL = {
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


@pytest.mark.parametrize("like", SHAPES)
def test_the_table_agrees_with_itself(like: str) -> None:
    shape = SHAPES[like]
    assert shape.n_train * shape.labels_per_row / shape.n_labels == pytest.approx(ROWS_A_LABEL[like], rel=0.01)


@pytest.mark.parametrize("like", SHAPES)
def test_sizes_are_as_asked(like: str) -> None:
    shape = scaled(like, SCALES[like])
    world = synthesise(like, SCALES[like])
    X, Y = world.matrices("train")
    assert X.shape == (shape.n_train, shape.n_features)
    assert Y.shape == (shape.n_train, shape.n_labels)
    assert X.nnz / X.shape[0] == pytest.approx(shape.features_per_row, rel=0.03)
    assert Y.nnz / Y.shape[0] == pytest.approx(shape.labels_per_row, rel=0.03)
    assert np.diff(Y.indptr).min() >= 1
    assert (np.bincount(X.indices, minlength=X.shape[1]) == 0).mean() < 0.02
    assert (np.bincount(Y.indices, minlength=Y.shape[1]) == 0).mean() < 0.1
    assert (Y.data == 1).all()
    assert np.sqrt(X.multiply(X).sum(axis=1)) == pytest.approx(1, abs=1e-5)
    Xt, Yt = world.matrices("test")
    assert (Xt.shape[0], Yt.shape[0]) == (shape.n_test, shape.n_test)


def small(seed: int = 0) -> TopicWorld:
    return TopicWorld(6000, 600, 4000, 500, labels_per_row=3, features_per_row=40, seed=seed)


def test_label_frequencies_follow_the_law() -> None:
    _, Y = small().matrices("train")
    count = np.sort(np.bincount(Y.indices, minlength=500))[::-1]
    law = (np.arange(1, 501) + 3.0) ** -1
    rank = np.array([5, 10, 30, 100, 300])
    expected = law[rank] / law[10]
    assert count[rank] / count[10] == pytest.approx(expected, rel=0.3)


def test_labels_of_a_row_are_of_near_topics() -> None:
    world = small()
    _, Y = world.matrices("train")
    topic = world._topic(np.arange(500), world._topics[0])
    several = np.flatnonzero(np.diff(Y.indptr) > 1)
    first, second = Y.indices[Y.indptr[several]], Y.indices[Y.indptr[several] + 1]
    together = (topic[first] == topic[second]).mean()
    by_chance = (topic[first] == np.roll(topic[second], 1)).mean()
    assert together > 3 * by_chance


def test_the_same_seed_gives_the_same_world() -> None:
    for one, other in zip(small().blocks("test"), small().blocks("test"), strict=True):
        for a, b in zip(one, other, strict=True):
            assert (a != b).nnz == 0
    assert (small(0).matrices("test")[0] != small(1).matrices("test")[0]).nnz


@pytest.mark.parametrize(("like", "scale", "least"), [("eurlex-4k", 0.2, 0.6), ("amazon-670k", 0.01, 0.3)])
def test_a_linear_model_learns(like: str, scale: float, least: float) -> None:
    world = synthesise(like, scale)
    model = carya.XRLinear(n_jobs=1).fit(*world.matrices("train"))
    X, Y = world.matrices("test")
    reached = carya.metrics.precision(Y, model.predict(X, top_k=1), k=1)
    assert least < reached < 0.97


def test_written_matrices_are_those_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_model, "_TOKENS", 20_000)  # many blocks
    world = small()
    assert sum(1 for _ in world.blocks("train")) > 5
    sizes = files.write_matrices(world, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == files.MATRICES - {"README.md"}
    for part, short in (("train", "trn"), ("test", "tst")):
        for name, made in zip("XY", world.matrices(part), strict=True):
            read = sp.load_npz(tmp_path / f"{name}.{short}.npz")
            assert read.shape == made.shape
            assert read.dtype == np.float32
            assert (sp.csr_array(read) != made).nnz == 0
    assert sizes["features_a_row"] == pytest.approx(40, rel=0.05)


def test_texts_say_the_same_as_matrices(tmp_path: Path) -> None:
    world = small()
    files.write_texts(world, tmp_path)
    lines = {
        path.name: gzip.decompress(path.read_bytes()).decode().rstrip("\n").split("\n") for path in tmp_path.iterdir()
    }
    X, Y = world.matrices("test")
    names = lines["label_names.txt.gz"]
    assert len(set(names)) == 500
    assert len(lines["train.texts.txt.gz"]) == 6000
    column = {world.word(i): i for i in range(4000)}
    for row in range(0, 600, 37):
        spoken = {column[word] for word in lines["test.texts.txt.gz"][row].split()}
        assert spoken == set(X[[row]].indices.tolist())
        assert lines["test.labels.txt.gz"][row].split("\t") == [names[label] for label in Y[[row]].indices]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("amazon-67k",), "like is 'amazon-67k'; it must be one of .*; did you mean 'amazon-670k'"),
        (("eurlex-4k", 0.0), "scale is 0.0; it must be more than 0"),
        (("eurlex-4k", float("nan")), "scale is nan"),
        (("eurlex-4k", 1.0, -1), "seed is -1; it must be a whole number"),
    ],
)
def test_wrong_parameters_are_named(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        synthesise(*arguments)


def test_the_smallest_scale_still_is_a_data_set() -> None:
    for like in SHAPES:
        X, Y = synthesise(like, 1e-9).matrices("train")
        assert (X.shape[0], X.shape[1], Y.shape[1]) == (20, 200, 20)
