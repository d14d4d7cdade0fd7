"""What scores are worth: learned from held-out texts, kept with the model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import carya
from carya.cli import app
from carya.core import storage
from carya.errors import InputError, ModelFormatError
from carya.text.calibration import Calibration, error

from topics import corpus


@pytest.fixture(scope="module")
def ranker() -> carya.TextRanker:
    texts, labels = corpus()
    return carya.TextRanker(None, carya.XRLinear(branching=4, max_leaf=6)).fit(texts, labels)


def test_a_world_whose_chances_are_known() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random(100_000).astype(np.float32)
    known = Calibration.learn(scores, rng.random(scores.size) < scores**2)
    at = np.linspace(0.02, 0.98, 49)
    assert np.abs(known(at) - at**2).max() < 0.05
    fresh = rng.random(100_000)
    right = rng.random(fresh.size) < fresh**2
    assert error(known(fresh), right) < 0.01 < error(fresh, right)


@given(st.lists(st.tuples(st.floats(-5, 5, width=32), st.booleans()), min_size=1, max_size=400))
def test_chances_never_fall_and_are_never_certain(seen: list[tuple[float, bool]]) -> None:
    scores, right = zip(*seen, strict=True)
    known = Calibration.learn(scores, right)
    chances = known(np.linspace(-6, 6, 50))
    assert (np.diff(chances) >= 0).all()
    assert 0 < chances[0] <= chances[-1] < 1


def test_right_suggestions_are_those_of_the_texts(ranker: carya.TextRanker) -> None:
    texts, labels = corpus(20, seed=4)
    scores, right = ranker.suggested(texts, labels, top_k=6)
    best = ranker.suggest_all(texts, top_k=6)
    assert scores.tolist() == [one.score for some in best for one in some]
    assert right.tolist() == [one.label in row for some, row in zip(best, labels, strict=True) for one in some]


def test_it_is_kept_with_the_model(ranker: carya.TextRanker, tmp_path: Path) -> None:
    texts, labels = corpus(300, seed=9)
    ranker.save(tmp_path / "bare")
    assert carya.load(tmp_path / "bare").calibration_ is None
    made = carya.load(tmp_path / "bare").calibrate(texts, labels)
    made.save(tmp_path / "model")
    opened = carya.load(tmp_path / "model")
    assert opened.calibration_([0.1, 0.9]).tolist() == made.calibration_([0.1, 0.9]).tolist()
    assert opened.calibration_([0.9])[0] > opened.calibration_([1e-4])[0]
    assert opened.suggest_all(texts) == ranker.suggest_all(texts)
    opened.fit(*corpus(50))
    assert opened.calibration_ is None, "another model's scores are worth something else"


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.update({"calibration.scores": a["calibration.scores"][::-1].copy()}),
        lambda a: a.update({"calibration.chances": a["calibration.chances"] + np.float32(1)}),
        lambda a: a.update({"calibration.chances": a["calibration.chances"][1:]}),
        lambda a: a.update({"calibration.chances": a["calibration.chances"] * np.float32("nan")}),
        lambda a: a.pop("calibration.chances"),
        lambda a: a.pop("calibration.scores"),
        lambda a: a.update({"labels.counts": a["labels.counts"][1:]}),
        lambda a: a.update({"labels.counts": a["labels.counts"] + 10_000}),
        lambda a: a.update({"labels.counts": a["labels.counts"].astype(np.int32)}),
    ],
)
def test_parts_that_do_not_fit_are_refused(ranker: carya.TextRanker, tmp_path: Path, change) -> None:
    ranker.save(tmp_path / "bare")
    carya.load(tmp_path / "bare").calibrate(*corpus(100, seed=2)).save(tmp_path / "model")
    saved = storage.load(tmp_path / "model")
    change(saved.arrays)
    storage.save(tmp_path / "model", saved)
    with pytest.raises(ModelFormatError, match="do not fit together"):
        carya.load(tmp_path / "model")


def test_labels_are_counted_and_older_folders_open(ranker: carya.TextRanker, tmp_path: Path) -> None:
    _, labels = corpus()
    counts = ranker.label_counts_
    assert counts is not None
    assert counts.tolist() == [sum(label in row for row in labels) for label in ranker.labels_]
    ranker.save(tmp_path / "model")
    opened = carya.load(tmp_path / "model")
    assert opened.label_counts_.tolist() == counts.tolist()
    assert opened.known().n_texts == len(labels)
    saved = storage.load(tmp_path / "model")
    del saved.arrays["labels.counts"], saved.shape["texts"]
    storage.save(tmp_path / "older", saved)
    older = carya.load(tmp_path / "older")
    assert older.label_counts_ is None
    assert older.known().n_texts is None
    older.save(tmp_path / "again")
    assert carya.load(tmp_path / "again").label_counts_ is None


def test_the_command(ranker: carya.TextRanker, tmp_path: Path) -> None:
    ranker.save(tmp_path / "model")
    texts, labels = corpus(200, seed=6)
    with (tmp_path / "held.jsonl").open("w") as file:
        for text, some in zip(texts, labels, strict=True):
            file.write(json.dumps({"text": text, "labels": some}) + "\n")
    ask = ["calibrate", str(tmp_path / "model"), str(tmp_path / "held.jsonl")]
    told = CliRunner().invoke(app, [*ask, "--json", "-o", str(tmp_path / "other")], catch_exceptions=False)
    found = json.loads(told.stdout)
    assert found["suggestions"] == 200 * 20
    assert found["right"] == pytest.approx(ranker.suggested(texts, labels)[1].mean())
    assert found["error"] < 0.1
    assert carya.load(tmp_path / "model").calibration_ is None
    assert carya.load(tmp_path / "other").calibration_ is not None
    told = CliRunner().invoke(app, ask, catch_exceptions=False)
    assert "what a score is worth" in told.stdout
    assert carya.load(tmp_path / "model").calibration_ is not None


def test_what_cannot_be(ranker: carya.TextRanker) -> None:
    with pytest.raises(InputError, match="there are 1 texts but labels for 2"):
        ranker.calibrate(["rook"], [["chess"], []])
    with pytest.raises(InputError, match="suggests nothing for these texts"):
        ranker.calibrate(["zzz"], [["chess"]])
    with pytest.raises(InputError, match="there are 2 scores, and 1 are right or wrong"):
        Calibration.learn([0.1, 0.2], [True])
