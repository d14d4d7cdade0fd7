"""Tests for decision rules: which labels to assign, using cut-offs learned on held-out rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import carya
from carya.errors import InputError, ParameterError
from carya.models.calibration.decisions import DecisionRule, Decisions, HeldOutPools
from carya.serve.app import create_app
from carya.serve.settings import ServerSettings

from command_line import run
from serving import Client
from topics import corpus

TEXTS, LABELS = corpus(240)
NEW_TEXTS, NEW_LABELS = corpus(120, seed=7)
RULES = ("f1", "precision>=0.8", "macro-f1@5", "3")


@pytest.fixture(scope="module")
def ranker() -> carya.TextRanker:
    model = carya.XRLinear(max_leaf_size=8, branching=4, n_jobs=1)
    return carya.TextRanker(carya.Tfidf(min_df=1, n_jobs=1), model).fit(TEXTS, LABELS, calibrate=2)


def pools(n_rows: int = 3_000, n_labels: int = 200) -> HeldOutPools:
    """Return suggestions whose probabilities are exact; label i occurs with a frequency of about 1 / (i + 1)."""
    rng = np.random.default_rng(0)
    frequency = 1 / np.arange(1, n_labels + 1)
    keys = rng.random((n_rows, n_labels)) ** (1 / frequency)
    labels = rng.permuted(np.argsort(-keys, axis=1)[:, :10], axis=1)
    probabilities = -np.sort(-(rng.random((n_rows, 10)) ** 2), axis=1)
    correct = rng.random((n_rows, 10)) < probabilities
    relevant = np.bincount(labels[correct], minlength=n_labels).astype(np.float64)
    return HeldOutPools(labels, probabilities, correct, correct.sum(1), relevant)


def test_cutoffs_have_the_requested_precision() -> None:
    data = pools()
    decisions = Decisions.learn(data)
    for target in (0.4, 0.5, 0.7):
        rule = DecisionRule.parse(f"precision>={target}")
        chosen = [
            data.correct[row, decisions.select(rule, data.labels[row], data.probabilities[row])]
            for row in range(data.labels.shape[0])
        ]
        assert 0 <= np.concatenate(chosen).mean() - target < 0.1
    rule = DecisionRule.parse("precision>=1")
    assert decisions.select(rule, data.labels[0], np.full(10, 0.5)).size == 0


def test_f1_is_at_least_that_of_any_number_of_labels() -> None:
    data = pools()
    decisions = Decisions.learn(data)

    def mean_f1(rule: str) -> float:
        parsed, values = DecisionRule.parse(rule), []
        for row in range(data.labels.shape[0]):
            hits = data.correct[row, decisions.select(parsed, data.labels[row], data.probabilities[row])]
            values.append(2 * hits.sum() / (hits.size + data.n_relevant[row]))
        return float(np.mean(values))

    assert mean_f1("f1") > max(mean_f1(str(k)) for k in range(1, 11)) - 0.01


def test_macro_f1_is_larger_and_precision_is_not_much_smaller() -> None:
    data = pools()
    decisions = Decisions.learn(data)
    results = {}
    for rule in ("5", "macro-f1@5"):
        parsed = DecisionRule.parse(rule)
        hits, made = np.zeros(200), np.zeros(200)
        for row in range(data.labels.shape[0]):
            chosen = decisions.select(parsed, data.labels[row], data.probabilities[row])
            np.add.at(made, data.labels[row, chosen], 1)
            np.add.at(hits, data.labels[row, chosen], data.correct[row, chosen])
        results[rule] = (2 * hits / (made + data.relevant).clip(1)).mean(), hits.sum() / made.sum()
    assert results["macro-f1@5"][0] > results["5"][0]
    assert results["macro-f1@5"][1] > results["5"][1] - 0.02


@pytest.mark.parametrize("decide", ["f2", 0, True, "precision>=2", 1.5, None, "macro-f1@3", "-1"])
def test_invalid_rules(ranker: carya.TextRanker, decide: Any) -> None:
    with pytest.raises(ParameterError, match="decide must be"):
        ranker.assign(TEXTS, decide=decide)


def test_models_without_cutoffs(ranker: carya.TextRanker) -> None:
    plain = carya.TextRanker(carya.Tfidf(min_df=1)).fit(TEXTS, LABELS)
    with pytest.raises(InputError, match="requires cut-offs learned on held-out rows"):
        plain.assign(NEW_TEXTS, decide="f1")
    assert [len(row) for row in plain.assign(NEW_TEXTS, decide=3)] == [3] * len(NEW_TEXTS)


def test_cutoffs_are_saved(ranker: carya.TextRanker, tmp_path: Path) -> None:
    ranker.save(tmp_path / "model")
    loaded = carya.load(tmp_path / "model")
    for rule in RULES:
        assigned = ranker.assign(NEW_TEXTS, decide=rule)
        assert loaded.assign(NEW_TEXTS, decide=rule) == assigned
    assert loaded.assign([], decide="f1") == []


def test_feature_models_assign_labels() -> None:
    data = carya.data.generate_data(400, 40, labels_per_row=2.5, features_per_row=30, seed=3)
    model = carya.Ensemble(carya.XRLinear(max_leaf_size=8), n_trees=2).fit(data.X, data.Y, calibrate=2)
    for rule in RULES:
        best = model.suggest_all(data.X[:20], top_k=20)
        for assigned, suggestions in zip(model.assign(data.X[:20], decide=rule), best, strict=True):
            assert set(assigned) <= set(suggestions)


def test_command_and_server(ranker: carya.TextRanker, tmp_path: Path) -> None:
    ranker.save(tmp_path / "model")
    with Client(create_app({"m": tmp_path / "model"}, ServerSettings(log_level="error"))) as client:
        for rule in RULES[:2]:
            (assigned,) = ranker.assign(NEW_TEXTS[:1], decide=rule)
            expected = [suggestion.label for suggestion in assigned]
            result = run("predict", "model", NEW_TEXTS[0], "--decide", rule, cwd=tmp_path)
            assert result.returncode == 0, result.stderr
            assert [label["label"] for label in json.loads(result.stdout)["labels"]] == expected
            response = client.post("/v1/suggest", {"text": NEW_TEXTS[0], "decide": rule})
            assert [label["label"] for label in response.json()["results"][0]["suggestions"]] == expected
        response = client.post("/v1/suggest", {"text": NEW_TEXTS[0], "decide": "f2"})
        assert response.status_code == 400
    result = run("predict", "model", NEW_TEXTS[0], "--decide", "f1", "--top-k", "3", cwd=tmp_path)
    assert "--top-k cannot be combined with --decide" in result.stderr
