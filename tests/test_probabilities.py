"""Tests for probabilities that are learned from held-out predictions made inside `fit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.errors import InputError, ParameterError
from carya.models.calibration.calibration import (
    Calibration,
    Suggested,
    expected_calibration_error,
    is_correct,
    ranks_of,
)
from carya.models.calibration.cross_fitting import splits
from carya.models.calibration.training_rows import TrainingRows
from carya.ranking import NeuralRanker
from carya.text.cross_fitting import cross_fitted_calibration_of_texts

from command_line import run
from topics import corpus

TEXTS, LABELS = corpus(240)
NEW_TEXTS, NEW_LABELS = corpus(120, seed=7)
TREE: dict[str, Any] = {"max_leaf_size": 8, "branching": 4, "n_jobs": 1}


def words() -> carya.TextRanker:
    return carya.TextRanker(carya.Tfidf(min_df=1, n_jobs=1), carya.XRLinear(**TREE))


@pytest.fixture(scope="module")
def data() -> Any:
    return carya.data.generate_data(600, 60, labels_per_row=2.5, features_per_row=30, seed=3)


@pytest.mark.parametrize(
    "model",
    [
        carya.XRLinear(**TREE),
        carya.NearestNeighbors(n_jobs=1),
        carya.Ensemble(carya.XRLinear(**TREE), n_trees=2),
        carya.Reranked(carya.XRLinear(**TREE), NeuralRanker(epochs=2), n_jobs=1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_feature_models_have_probabilities(model: Any, data: Any, tmp_path: Path) -> None:
    plain = model.clone().fit(data.X, data.Y)
    with pytest.raises(InputError, match="The model is not calibrated"):
        plain.predict_proba(data.X)
    fitted = model.clone().fit(data.X, data.Y, calibrate=2)
    assert (fitted.predict(data.X) != plain.predict(data.X)).nnz == 0, "calibration must not change the model"
    fitted.save(tmp_path / "model")
    loaded = carya.load(tmp_path / "model")
    P, S = loaded.predict_proba(data.X, top_k=5), fitted.predict(data.X, top_k=5)
    assert np.array_equal(P.indices, S.indices)
    assert ((P.data > 0) & (P.data < 1)).all()
    suggestions = fitted.suggest(data.X[[0]], top_k=5)
    assert [suggestion.probability for suggestion in suggestions] == pytest.approx(P.data[:5])
    assert fitted.suggest_all(data.X, top_k=5)[0] == suggestions
    assert fitted.predict(data.X, top_k=5, as_frame=True)["probability"].to_numpy() == pytest.approx(P.data)
    with pytest.raises(InputError, match="About 100% of these rows occur in the training data"):
        loaded.calibrate(data.X[:100], data.Y[:100])


@pytest.mark.parametrize(
    "model",
    [
        words(),
        carya.TextEnsemble([words(), words()]),
        carya.TextReranker(words(), NeuralRanker(epochs=2)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_text_models_have_probabilities(model: Any, tmp_path: Path) -> None:
    fitted = model.clone().fit(TEXTS, LABELS, calibrate=2)
    fitted.save(tmp_path / "model")
    loaded = carya.load(tmp_path / "model")
    P = loaded.predict_proba(NEW_TEXTS, top_k=4)
    rows = fitted.suggest_all(NEW_TEXTS, top_k=4)
    assert [suggestion.probability for row in rows for suggestion in row] == pytest.approx(P.data)
    assert [suggestion.probability for suggestion in loaded.suggest(NEW_TEXTS[0], top_k=4)] == pytest.approx(P.data[:4])
    if not isinstance(model, carya.TextReranker):  # its reranker has too few training texts here
        correct = is_correct(P, fitted.label_matrix(NEW_LABELS))
        assert expected_calibration_error(P.data.astype(np.float64), correct) < 0.15
    with pytest.raises(InputError, match="occur in the training data"):
        loaded.calibrate(TEXTS, LABELS)
    assert loaded.calibrate(NEW_TEXTS, NEW_LABELS).calibration_ is not None


def test_calibration_does_not_depend_on_threads() -> None:
    tables = []
    for n_jobs in (1, 2):
        model = carya.TextRanker(carya.Tfidf(min_df=1), carya.XRLinear(max_leaf_size=8), n_jobs=n_jobs)
        tables.append(model.fit(TEXTS, LABELS, calibrate=True).calibration_.table.tobytes())  # type: ignore[union-attr]
    assert tables[0] == tables[1]


def test_groups_have_their_own_probabilities() -> None:
    """At the same score, first labels are correct in 80% of rows and second labels in 20%; rare labels never are."""
    rng = np.random.default_rng(0)
    scores = rng.random(40_000).astype(np.float32)
    ranks, counts = np.tile([1, 2], 20_000), np.repeat([1, 100], 20_000)
    correct = (rng.random(40_000) < np.where(ranks == 1, 0.8, 0.2)) & (counts == 100)
    calibration = Calibration.learn_by_group(Suggested(scores, correct, ranks, counts), np.array([1, 100]))
    labels = np.array([0, 1, 0, 1])
    probabilities = calibration.of_labels(labels, np.full(4, 0.5), np.array([1, 1, 2, 2]))
    assert np.abs(probabilities - [0, 0.8, 0, 0.2]).max() < 0.05
    assert abs(calibration([0.5])[0] - 0.25) < 0.05


def test_ranks() -> None:
    assert ranks_of(np.array([0, 2, 2, 5])).tolist() == [1, 2, 1, 2, 3]


def test_every_row_is_held_out_once() -> None:
    groups = np.repeat(np.arange(25), 4)
    for own_groups in (None, groups):
        held_out = []
        for train, rows in splits(100, 3, groups=own_groups):
            assert not set(train.tolist()) & set(rows.tolist())
            assert own_groups is None or not set(groups[train]) & set(groups[rows])
            held_out += rows.tolist()
        assert sorted(held_out) == list(range(100))


@pytest.mark.parametrize("value", [1, 0.5, "yes", -2, 101])
def test_invalid_numbers_of_folds(value: Any, data: Any) -> None:
    with pytest.raises(ParameterError, match="calibrate must be True, False or a number of folds >= 2, got"):
        carya.XRLinear().fit(data.X, data.Y, calibrate=value)


def test_too_few_rows(data: Any) -> None:
    with pytest.raises(InputError, match="Calibration with 3 folds requires at least 3 rows, got 2"):
        carya.XRLinear().fit(data.X[:2], data.Y[:2], calibrate=True)


def test_training_rows_are_recognized_in_large_data() -> None:
    rng = np.random.default_rng(0)
    X = sp.random_array((20_000, 1_000), density=0.01, format="csr", dtype=np.float32, random_state=rng)
    model = carya.XRLinear(max_depth=1, max_iter=1).fit(X, rng.integers(0, 3, 20_000))
    rows = model.training_rows_
    assert rows is not None
    assert rows.hashes.size == 4096
    features = carya.core.matrices.Features.of(carya.core.matrices.Csr.of_scipy(X))
    with pytest.raises(InputError, match="occur in the training data"):
        rows.check_held_out(features.take(slice(0, 2_000)))
    other = sp.random_array((2_000, 1_000), density=0.01, format="csr", dtype=np.float32, random_state=rng)
    rows.check_held_out(carya.core.matrices.Features.of(carya.core.matrices.Csr.of_scipy(other)))
    with pytest.raises(InputError, match="must be at most 4096 distinct uint64 values"):
        TrainingRows(np.zeros(2, np.uint64))


def test_the_values_of_rows_are_compared() -> None:
    """Rows with the same nonzero columns but different values are not training rows."""
    rng = np.random.default_rng(0)
    train, other = (sp.csr_array(rng.normal(size=(50, 4))) for _ in range(2))
    Y = sp.csr_array(np.eye(4)[rng.integers(0, 4, 50)])
    model = carya.XRLinear(n_jobs=1).fit(train, Y)
    model.calibrate(other, Y)
    for same in (model, model.subset([0, 1, 2, 3]), model.with_transform("sigmoid")):
        with pytest.raises(InputError, match="occur in the training data"):
            same.calibrate(train, Y)
        with pytest.raises(InputError, match="occur in the training data"):
            same.calibrate(train.toarray().tolist(), Y)


def test_the_columns_of_texts_can_have_any_order() -> None:
    texts, labels = corpus(120)
    known = sorted({label for row in labels for label in row})

    def calibration(ids: list[str]) -> Calibration:
        Y = sp.csr_array(np.array([[float(label in row) for label in ids] for row in labels]))

        def fit(rows: Any) -> carya.TextRanker:
            return words().fit([texts[row] for row in rows], [labels[row] for row in rows])

        def predict(part: carya.TextRanker, rows: Any, top_k: int) -> Any:
            return part.predict([texts[row] for row in rows], top_k=top_k)

        return cross_fitted_calibration_of_texts(Y, ids, 2, fit, predict)

    np.testing.assert_array_equal(calibration(known).probabilities, calibration(known[::-1]).probabilities)


def test_groups_must_have_one_entry_per_row() -> None:
    with pytest.raises(InputError, match=r"groups must have one entry per row \(6\), got 5"):
        list(splits(6, 2, groups=np.arange(5)))


def test_commands(tmp_path: Path) -> None:
    for name, texts, labels in (("train", TEXTS, LABELS), ("test", NEW_TEXTS, NEW_LABELS)):
        lines = (json.dumps({"text": text, "labels": row}) for text, row in zip(texts, labels, strict=True))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    result = run("train", "train.jsonl", "-o", "model", "--calibrate", "--quiet", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    ranker = carya.load(tmp_path / "model")
    result = run("predict", "model", NEW_TEXTS[0], cwd=tmp_path)
    labels = json.loads(result.stdout)["labels"]
    expected = [round(suggestion.probability, 6) for suggestion in ranker.suggest(NEW_TEXTS[0])]
    assert [label["probability"] for label in labels] == expected
    result = run("evaluate", "model", "test.jsonl", "--json", "--report", "report.html", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    measured = json.loads(result.stdout)
    P = ranker.predict_proba(NEW_TEXTS, top_k=5)
    correct = is_correct(P, ranker.label_matrix(NEW_LABELS))
    assert measured["ECE@5"] == pytest.approx(expected_calibration_error(P.data.astype(float), correct), abs=1e-3)
    assert len(measured["reliability"]) == 10
    assert "<h2>Reliability</h2>" in (tmp_path / "report.html").read_text()
    result = run("calibrate", "model", "train.jsonl", cwd=tmp_path)
    assert result.returncode != 0
    assert "occur in the training data" in result.stderr
