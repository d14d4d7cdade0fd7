from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

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
def test_all_metrics_are_those_of_the_twin(seed: int, rows: int, labels: int, k: int, sparse: bool) -> None:
    rng = np.random.default_rng(seed)
    Y = (rng.random((rows, labels)) < 0.4).astype(np.float32)
    Y[0, 0] = 1
    S = rng.integers(0, 4, (rows, labels)).astype(np.float32)  # ties on purpose
    propensity = rng.uniform(0.1, 1.0, labels)
    scores = sp.csr_array(S) if sparse else S
    got = metrics.report(sp.csr_array(Y), scores, k=[k], propensity=propensity)
    want = reference.metrics(Y, scores, k, propensity)
    assert {name.partition("@")[0]: value for name, value in got.items()} == pytest.approx(want, abs=1e-6)
    single = {
        "P": metrics.precision(Y, scores, k),
        "R": metrics.recall(Y, scores, k),
        "nDCG": metrics.ndcg(Y, scores, k),
        "coverage": metrics.coverage(Y, scores, k),
        "PSP": metrics.psp(Y, scores, k, propensity=propensity),
        "PSnDCG": metrics.psndcg(Y, scores, k, propensity=propensity),
    }
    assert single == pytest.approx(want, abs=1e-6)


def test_a_perfect_ranking_scores_one() -> None:
    Y = np.array([[1, 1, 0, 0], [0, 0, 1, 1]])
    got = metrics.report(Y, Y * 1.0, k=(1, 2), propensity=np.array([0.2, 0.4, 0.6, 0.8]))
    at_two = {name: value for name, value in got.items() if name.endswith("@2")}
    assert at_two == pytest.approx(dict.fromkeys(at_two, 1.0))


def test_rows_sorted_best_first_are_taken_by_score() -> None:
    S = sp.csr_array((np.array([0.9, 0.5, 0.1], np.float32), np.array([2, 0, 1]), np.array([0, 3])), shape=(1, 3))
    before = S.indices.copy()
    assert metrics.precision([[0, 0, 1]], S, k=1) == 1.0
    assert np.array_equal(S.indices, before)


def test_propensities_follow_jain() -> None:
    Y = np.zeros((100, 3))
    Y[:50, 0] = 1
    Y[:5, 1] = 1
    got = metrics.propensities(Y, a=0.6, b=2.6)
    scale = (np.log(100) - 1) * 3.6**0.6
    assert got == pytest.approx([1 / (1 + scale * (n + 2.6) ** -0.6) for n in (50, 5, 0)])


def test_propensities_of_tiny_sets_stay_between_0_and_1() -> None:
    for rows in (1, 2, 3):
        got = metrics.propensities(np.ones((rows, 2)))
        assert ((got > 0) & (got <= 1)).all()


def test_bad_input() -> None:
    Y = np.eye(3)
    with pytest.raises(InputError, match="Y_true is 3 x 3, S is 2 x 3"):
        metrics.precision(Y, Y[:2])
    with pytest.raises(InputError, match="k must be an integer of at least 1, got 0"):
        metrics.precision(Y, Y, k=0)
    with pytest.raises(InputError, match="propensity must be 3 numbers above 0"):
        metrics.psp(Y, Y, propensity=[1, 2])
    with pytest.raises(InputError, match="S contains NaN"):
        metrics.precision(Y, np.full((3, 3), np.nan))
    for wrong in ((-1, 5), (0, 5), 0):
        with pytest.raises(InputError, match="k must be an integer of at least 1"):
            metrics.report(Y, Y, k=wrong)
    assert metrics.report(Y, Y, k=1) == metrics.report(Y, Y, k=[1])
    with pytest.raises(InputError, match="propensity must be 3 numbers above 0"):
        metrics.report(Y, Y, propensity="inverse")
    with pytest.raises(ParameterError, match="no metric 3"):
        metrics.scorer(3)
    with pytest.raises(ParameterError, match="k must name"):
        metrics.report(Y, Y, k=())
    with pytest.raises(ParameterError, match="no metric 'p@1'; did you mean 'P@1'"):
        metrics.scorer("p@1")
    with pytest.raises(ParameterError, match="PSP@1 needs propensity"):
        metrics.scorer("PSP@1")


def test_empty_truth_is_zero_not_an_error() -> None:
    Y = sp.csr_array((4, 5), dtype=np.float32)
    S = sp.csr_array((4, 5), dtype=np.float32)
    got = metrics.report(Y, S, propensity=np.full(5, 0.5))
    assert set(got.values()) == {0.0}
