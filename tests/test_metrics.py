"""Tests for ranking metrics: comparison with a simple reference implementation."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score, precision_score, recall_score

from carya import metrics
from carya.errors import InputError, ParameterError

import reference


@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 12),
    labels=st.integers(1, 12),
    k=st.integers(1, 8),
    sparse=st.booleans(),
)
def test_metrics_agree_with_the_reference(seed: int, rows: int, labels: int, k: int, sparse: bool) -> None:
    rng = np.random.default_rng(seed)
    Y = (rng.random((rows, labels)) < 0.4).astype(np.float32)
    Y[0, 0] = 1
    S = rng.integers(0, 4, (rows, labels)).astype(np.float32)  # includes ties
    propensity = rng.uniform(0.1, 1.0, labels)
    scores = sp.csr_array(S) if sparse else S
    actual = metrics.report(sp.csr_array(Y), scores, k=[k], propensity=propensity)
    expected = reference.metrics(Y, scores, k, propensity)
    named = {name.partition("@")[0]: value for name, value in actual.items()}
    assert {name: named[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    single = {
        "P": metrics.precision(Y, scores, k),
        "R": metrics.recall(Y, scores, k),
        "nDCG": metrics.ndcg(Y, scores, k),
        "coverage": metrics.coverage(Y, scores, k),
        "PSP": metrics.psp(Y, scores, k, propensity=propensity),
        "PSnDCG": metrics.psndcg(Y, scores, k, propensity=propensity),
    }
    assert single == pytest.approx(expected, abs=1e-6)
    values = metrics.row_ndcg(Y, scores, k)
    labeled = Y.any(axis=1)
    per_row = [reference.metrics(Y[[row]], scores[[row]], k, propensity)["nDCG"] for row in np.flatnonzero(labeled)]
    assert values[labeled].tolist() == pytest.approx(per_row, abs=1e-6)
    assert np.isnan(values[~labeled]).all()


@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(1, 12),
    labels=st.integers(1, 12),
    k=st.integers(1, 8),
    sparse=st.booleans(),
)
def test_averages_agree_with_scikit_learn(seed: int, rows: int, labels: int, k: int, sparse: bool) -> None:
    rng = np.random.default_rng(seed)
    Y = (rng.random((rows, labels)) < 0.4).astype(int)
    Y[0, 0] = 1
    S = rng.random((rows, labels))
    if sparse:
        S *= rng.random((rows, labels)) < 0.6  # rows with fewer than k scores
    scores = sp.csr_array(S) if sparse else S
    top = np.zeros((rows, labels), int)
    for row in range(rows):
        best = np.argsort(-S[row])[:k]
        top[row, best[S[row, best] > 0]] = 1
    actual = metrics.report(Y, scores, k=k)
    labeled, occurring = Y.any(axis=1), Y.any(axis=0)
    for name, function, single in (
        ("P", precision_score, metrics.precision),
        ("R", recall_score, metrics.recall),
        ("F1", f1_score, metrics.f1),
    ):
        micro = function(Y, top, average="micro", zero_division=0) if labels > 1 else None
        per_label = [function(Y[:, label], top[:, label], zero_division=0) for label in range(labels)]
        if micro is not None:
            assert actual[f"micro-{name}@{k}"] == pytest.approx(micro)
        assert actual[f"macro-{name}@{k}"] == pytest.approx(np.mean(np.array(per_label)[occurring]))
        per_row = [function(Y[row], top[row], zero_division=0) for row in range(rows)]
        if name != "P":  # P@k divides by k even if fewer labels are ranked
            assert actual[f"{name}@{k}"] == pytest.approx(np.mean(np.array(per_row)[labeled]))
        for average in metrics.AVERAGES:
            key = f"{name}@{k}" if average == "samples" else f"{average}-{name}@{k}"
            assert single(Y, scores, k, average=average) == actual[key]
        assert getattr(metrics.label_report(Y, scores, k), single.__name__) == pytest.approx(per_label)
    report = metrics.label_report(Y, scores, k)
    assert report.support.tolist() == Y.sum(axis=0).tolist()
    assert report.suggested.tolist() == top.sum(axis=0).tolist()
    assert report.correct.tolist() == (Y * top).sum(axis=0).tolist()


def test_propensities_from_counts_equal_those_from_a_matrix() -> None:
    Y = np.random.default_rng(0).random((50, 7)) < 0.3
    expected = metrics.propensities(Y, a=0.6, b=2.6)
    assert metrics.propensities_from_counts(Y.sum(axis=0), 50, a=0.6, b=2.6) == pytest.approx(expected)
    for counts in ([51], [-1], [[1]], [np.nan]):
        with pytest.raises(
            InputError, match="label_counts must contain one number per label, between 0 and n_rows = 50"
        ):
            metrics.propensities_from_counts(counts, 50)
    with pytest.raises(
        ParameterError, match=r"a must be finite and >= 0, and b must be finite and > 0, got a=0\.5 and b=-1"
    ):
        metrics.propensities_from_counts([1], 50, a=0.5, b=-1)


def test_perfect_ranking_scores_one() -> None:
    Y = np.array([[1, 1, 0, 0], [0, 0, 1, 1]])
    values = metrics.report(Y, Y * 1.0, k=(1, 2), propensity=np.array([0.2, 0.4, 0.6, 0.8]))
    at_two = {name: value for name, value in values.items() if name.endswith("@2")}
    assert at_two == pytest.approx(dict.fromkeys(at_two, 1.0))
    assert len(at_two) == 13


def test_rows_sorted_by_score_are_ranked_by_score() -> None:
    S = sp.csr_array((np.array([0.9, 0.5, 0.1], np.float32), np.array([2, 0, 1]), np.array([0, 3])), shape=(1, 3))
    indices = S.indices.copy()
    assert metrics.precision([[0, 0, 1]], S, k=1) == 1.0
    assert np.array_equal(S.indices, indices)


def test_propensities_follow_the_formula() -> None:
    Y = np.zeros((100, 3))
    Y[:50, 0] = 1
    Y[:5, 1] = 1
    actual = metrics.propensities(Y, a=0.6, b=2.6)
    scale = (np.log(100) - 1) * 3.6**0.6
    assert actual == pytest.approx([1 / (1 + scale * (n + 2.6) ** -0.6) for n in (50, 5, 0)])


def test_propensities_of_tiny_data_sets_are_probabilities() -> None:
    for rows in (1, 2, 3):
        propensities = metrics.propensities(np.ones((rows, 2)))
        assert ((propensities > 0) & (propensities <= 1)).all()


def test_invalid_input() -> None:
    Y = np.eye(3)
    with pytest.raises(InputError, match=r"Y_true and S must have the same shape, got \(3, 3\) and \(2, 3\)\."):
        metrics.precision(Y, Y[:2])
    with pytest.raises(InputError, match="k must be an integer >= 1, got 0"):
        metrics.precision(Y, Y, k=0)
    with pytest.raises(InputError, match="propensity must contain 3 positive, finite numbers, one per label"):
        metrics.psp(Y, Y, propensity=[1, 2])
    with pytest.raises(InputError, match="S contains NaN"):
        metrics.precision(Y, np.full((3, 3), np.nan))
    for invalid in ((-1, 5), (0, 5), 0):
        with pytest.raises(InputError, match="k must be an integer >= 1"):
            metrics.report(Y, Y, k=invalid)
    assert metrics.report(Y, Y, k=1) == metrics.report(Y, Y, k=[1])
    with pytest.raises(InputError, match="propensity must contain 3 positive, finite numbers, one per label"):
        metrics.report(Y, Y, propensity="inverse")
    with pytest.raises(ParameterError, match="Unknown metric 3"):
        metrics.scorer(3)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="k must contain at least one integer"):
        metrics.report(Y, Y, k=())
    with pytest.raises(ParameterError, match=r"Unknown metric 'p@1'\. Did you mean 'P@1'\?"):
        metrics.scorer("p@1")
    with pytest.raises(ParameterError, match=r"average must be one of 'samples', 'micro', 'macro', got 'weighted'\."):
        metrics.f1(Y, Y, average="weighted")
    with pytest.raises(ParameterError, match=r"Unknown metric 'makro-F1@1'\. Did you mean 'macro-F1@1'\?"):
        metrics.scorer("makro-F1@1")
    with pytest.raises(ParameterError, match="PSP@1 requires propensity"):
        metrics.scorer("PSP@1")


def test_metrics_are_zero_without_true_labels() -> None:
    Y = sp.csr_array((4, 5), dtype=np.float32)
    S = sp.csr_array((4, 5), dtype=np.float32)
    values = metrics.report(Y, S, propensity=np.full(5, 0.5))
    assert set(values.values()) == {0.0}
