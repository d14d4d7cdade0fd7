"""Tests for calibration, which is fitted on held-out texts and saved with the model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import carya
from carya.core import storage
from carya.errors import InputError, ModelFormatError, UnknownTextWarning
from carya.models.calibration.calibration import Calibration, expected_calibration_error

from command_line import run
from topics import corpus


@pytest.fixture(scope="module")
def ranker() -> carya.TextRanker:
    texts, labels = corpus()
    return carya.TextRanker(None, carya.XRLinear(branching=4, max_leaf_size=6)).fit(texts, labels)


def test_known_probabilities_are_learned() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random(100_000).astype(np.float32)
    calibration = Calibration.learn(scores, rng.random(scores.size) < scores**2)
    grid = np.linspace(0.02, 0.98, 49)
    assert np.abs(calibration(grid) - grid**2).max() < 0.05
    test_scores = rng.random(100_000)
    correct = rng.random(test_scores.size) < test_scores**2
    assert expected_calibration_error(calibration(test_scores), correct) < 0.01
    assert expected_calibration_error(test_scores, correct) > 0.01


@given(st.lists(st.tuples(st.floats(-5, 5, width=32), st.booleans()), min_size=1, max_size=400))
def test_probabilities_never_decrease_and_are_never_0_or_1(suggestions: list[tuple[float, bool]]) -> None:
    scores, correct = zip(*suggestions, strict=True)
    probabilities = Calibration.learn(scores, correct)(np.linspace(-6, 6, 50))
    assert (np.diff(probabilities) >= 0).all()
    assert 0 < probabilities[0] <= probabilities[-1] < 1


def test_suggestion_scores(ranker: carya.TextRanker) -> None:
    texts, labels = corpus(20, seed=4)
    scores, correct = ranker.suggestion_scores(texts, labels, top_k=6)
    rows = list(zip(ranker.suggest_all(texts, top_k=6), labels, strict=True))
    assert scores.tolist() == [suggestion.score for suggestions, _ in rows for suggestion in suggestions]
    assert correct.tolist() == [suggestion.label in truth for suggestions, truth in rows for suggestion in suggestions]


def test_the_calibration_is_saved_with_the_model(ranker: carya.TextRanker, tmp_path: Path) -> None:
    texts, labels = corpus(300, seed=9)
    ranker.save(tmp_path / "uncalibrated")
    assert carya.load(tmp_path / "uncalibrated").calibration_ is None
    calibrated = carya.load(tmp_path / "uncalibrated").calibrate(texts, labels)
    calibrated.save(tmp_path / "model")
    loaded = carya.load(tmp_path / "model")
    assert loaded.calibration_([0.1, 0.9]).tolist() == calibrated.calibration_([0.1, 0.9]).tolist()
    assert loaded.calibration_([0.9])[0] > loaded.calibration_([1e-4])[0]
    assert (loaded.predict(texts) != ranker.predict(texts)).nnz == 0
    loaded.fit(*corpus(50))
    assert loaded.calibration_ is None, "retraining must discard the old calibration"


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.update({"calibration.scores": a["calibration.scores"][::-1].copy()}),
        lambda a: a.update({"calibration.probabilities": a["calibration.probabilities"] + np.float32(1)}),
        lambda a: a.update({"calibration.probabilities": a["calibration.probabilities"][1:]}),
        lambda a: a.update({"calibration.probabilities": a["calibration.probabilities"] * np.float32("nan")}),
        lambda a: a.pop("calibration.probabilities"),
        lambda a: a.pop("calibration.scores"),
        lambda a: a.update({"labels.counts": a["labels.counts"][1:]}),
        lambda a: a.update({"labels.counts": a["labels.counts"] + 10_000}),
        lambda a: a.update({"labels.counts": a["labels.counts"].astype(np.int32)}),
    ],
)
def test_inconsistent_parts_are_rejected(
    ranker: carya.TextRanker, tmp_path: Path, change: Callable[[dict[str, np.ndarray]], object]
) -> None:
    ranker.save(tmp_path / "uncalibrated")
    carya.load(tmp_path / "uncalibrated").calibrate(*corpus(100, seed=2)).save(tmp_path / "model")
    saved = storage.load(tmp_path / "model")
    change(saved.arrays)
    storage.save(tmp_path / "model", saved)
    with pytest.raises(ModelFormatError, match="are inconsistent"):
        carya.load(tmp_path / "model")


def test_label_counts_are_saved_but_not_required(ranker: carya.TextRanker, tmp_path: Path) -> None:
    _, labels = corpus()
    counts = ranker.label_counts_
    assert counts is not None
    assert counts.tolist() == [sum(label in row for row in labels) for label in ranker.labels_]
    ranker.save(tmp_path / "model")
    loaded = carya.load(tmp_path / "model")
    assert loaded.label_counts_.tolist() == counts.tolist()
    assert loaded.label_set_.n_texts == len(labels)
    saved = storage.load(tmp_path / "model")
    del saved.arrays["labels.counts"], saved.shape["texts"]
    storage.save(tmp_path / "older", saved)
    older = carya.load(tmp_path / "older")
    assert older.label_counts_ is None
    assert older.label_set_.n_texts is None
    older.save(tmp_path / "again")
    assert carya.load(tmp_path / "again").label_counts_ is None


def test_calibrate_command(ranker: carya.TextRanker, tmp_path: Path) -> None:
    ranker.save(tmp_path / "model")
    texts, labels = corpus(200, seed=6)
    lines = (json.dumps({"text": text, "labels": row}) for text, row in zip(texts, labels, strict=True))
    (tmp_path / "held-out.jsonl").write_text("\n".join(lines) + "\n")
    result = run("calibrate", "model", "held-out.jsonl", "--json", "-o", "other", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    measured = json.loads(result.stdout)
    assert measured["texts"] == 200
    assert measured["suggestions"] == 200 * 20
    assert measured["precision"] == pytest.approx(ranker.suggestion_scores(texts, labels)[1].mean())
    assert measured["calibration_error"] < 0.1
    assert carya.load(tmp_path / "model").calibration_ is None
    calibration = carya.load(tmp_path / "other").calibration_
    assert calibration is not None
    for knot in measured["probabilities"]:
        assert calibration([knot["score"]])[0] == pytest.approx(knot["probability"])
    result = run("calibrate", "model", "held-out.jsonl", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "score  probability" in result.stdout
    assert "expected calibration error on held-out texts" in result.stdout
    assert carya.load(tmp_path / "model").calibration_ is not None


def test_invalid_input_is_rejected(ranker: carya.TextRanker) -> None:
    with pytest.raises(InputError, match="texts and labels must have the same length, got 1 and 2"):
        ranker.calibrate(["rook"], [["chess"], []])
    with (
        pytest.warns(UnknownTextWarning, match="no known terms"),
        pytest.raises(InputError, match="The ranker returns no suggestions for these texts"),
    ):
        ranker.calibrate(["zzz"], [["chess"]])
    with pytest.raises(InputError, match="must have the same nonzero length, got 2 and 1"):
        Calibration.learn([0.1, 0.2], [True])
