"""Tests for the native solver: comparison with SciPy's minimization of the same objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import carya
from carya import LabelTree
from carya.core.validation import FeaturesLike
from carya.errors import ParameterError
from carya.trees.trained_tree import TrainedTree

import reference

EXACT: dict[str, Any] = {"C": 1.0, "tol": 0.0, "max_iter": 3000, "threshold": 0.0, "weight_dtype": "float32"}
LOSSES = ["squared-hinge", "hinge", "logistic"]


def problem(
    seed: int, rows: int = 40, columns: int = 15, labels: int = 3, density: float = 0.3
) -> tuple[np.ndarray, np.ndarray]:
    """Return random features and labels; the first row has all labels, and the second row has none."""
    rng = np.random.default_rng(seed)
    X = rng.random((rows, columns)) * (rng.random((rows, columns)) < density)
    Y = (rng.random((rows, labels)) < 0.3).astype(np.float32)
    Y[0] = 1
    Y[1] = 0
    return X.astype(np.float32), Y


def flat_weights(X: FeaturesLike, Y: np.ndarray, **parameters: Any) -> np.ndarray:
    """Return the weights of a one-versus-rest model, of shape (features + 1, labels); the last row contains biases."""
    model = carya.XRLinear(max_depth=1, **{**EXACT, **parameters}).fit(X, Y)
    weights: np.ndarray = model.layers_[0].matrix().toarray()
    return weights.astype(np.float64)


def with_bias(X: np.ndarray, bias: float = 1.0) -> np.ndarray:
    """Append a constant column for the bias."""
    return np.hstack([X, np.full((X.shape[0], 1), bias)]).astype(np.float64)


@pytest.mark.parametrize("loss", ["squared-hinge", "logistic"])  # the hinge loss is tested below
@given(
    seed=st.integers(0, 10_000),
    C=st.sampled_from([0.1, 1.0, 5.0]),
    columns=st.integers(1, 30),
    density=st.sampled_from([0.05, 0.3]),  # rows with few entries per feature are copied
)
def test_weights_minimize_the_objective(loss: str, seed: int, C: float, columns: int, density: float) -> None:
    X, Y = problem(seed, columns=columns, density=density)
    weights = flat_weights(sp.csr_array(X), Y, loss=loss, C=C)
    A = with_bias(X)
    for label in range(Y.shape[1]):
        y = 2.0 * Y[:, label] - 1
        costs = np.full(len(y), C)
        value = reference.objective(weights[:, label], A, y, costs, loss)
        expected = reference.minimize(A, y, costs, loss)
        assert value <= reference.objective(expected, A, y, costs, loss) * (1 + 1e-4) + 1e-6
        assert np.allclose(weights[:, label], expected, atol=2e-3)


@pytest.mark.parametrize("loss", ["squared-hinge", "logistic"])
@pytest.mark.parametrize("scale", [0.1, 3.0, 10.0, 100.0])
def test_rows_with_any_norm_are_solved(loss: str, scale: float) -> None:
    """The solver converges for any row norm; with large norms, step sizes for the logistic loss are hard to choose."""
    X, Y = problem(3, rows=60, columns=40)
    X = (X * scale).astype(np.float32)
    weights = flat_weights(sp.csr_array(X), Y, loss=loss)
    A = with_bias(X)
    for label in range(Y.shape[1]):
        y = 2.0 * Y[:, label] - 1
        costs = np.ones(len(y))
        expected = reference.objective(reference.minimize(A, y, costs, loss), A, y, costs, loss)
        assert reference.objective(weights[:, label], A, y, costs, loss) <= expected * 1.01 + 1e-4


@pytest.mark.parametrize("seed", range(3))
def test_weights_minimize_the_hinge_objective(seed: int) -> None:
    X, Y = problem(seed, rows=25, columns=8)
    weights = flat_weights(sp.csr_array(X), Y, loss="hinge")
    A = with_bias(X)
    for label in range(Y.shape[1]):
        y = 2.0 * Y[:, label] - 1
        costs = np.ones(len(y))
        expected = reference.objective(reference.minimize(A, y, costs, "hinge"), A, y, costs, "hinge")
        assert reference.objective(weights[:, label], A, y, costs, "hinge") <= expected * (1 + 5e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_bias_follows_the_majority_of_rows_without_features(loss: str) -> None:
    X = sp.csr_array(np.eye(30, 3, dtype=np.float32))
    Y = np.zeros((30, 2), np.float32)
    Y[:2, 0] = 1
    Y[:28, 1] = 1
    weights = flat_weights(X, Y, loss=loss)
    assert weights[-1, 0] < -0.5
    assert weights[-1, 1] > 0.5


@pytest.mark.parametrize("loss", LOSSES)
def test_bias_zero_disables_the_bias(loss: str) -> None:
    X, Y = problem(5)
    weights = flat_weights(sp.csr_array(X), Y, loss=loss, bias=0.0)
    assert (weights[-1] == 0).all()
    if loss == "hinge":
        return
    y = 2.0 * Y[:, 0] - 1
    expected = reference.minimize(X.astype(np.float64), y, np.ones(len(y)), loss)
    assert np.allclose(weights[:-1, 0], expected, atol=2e-3)


def test_the_bias_feature_can_have_any_value() -> None:
    X, Y = problem(6)
    weights = flat_weights(sp.csr_array(X), Y, bias=3.0)
    y = 2.0 * Y[:, 1] - 1
    expected = reference.minimize(with_bias(X, 3.0), y, np.ones(len(y)), "squared-hinge")
    assert np.allclose(weights[:-1, 1], expected[:-1], atol=2e-3)
    assert weights[-1, 1] == pytest.approx(3.0 * expected[-1], abs=2e-3)


@pytest.mark.parametrize("loss", ["squared-hinge", "logistic"])
def test_positive_and_negative_weights_scale_the_costs(loss: str) -> None:
    X, Y = problem(7)
    weights = flat_weights(sp.csr_array(X), Y, loss=loss, C=2.0, positive_weight=3.0, negative_weight=0.5)
    for label in range(Y.shape[1]):
        y = 2.0 * Y[:, label] - 1
        expected = reference.minimize(with_bias(X), y, np.where(y > 0, 6.0, 1.0), loss)
        assert np.allclose(weights[:, label], expected, atol=5e-3)


@pytest.mark.parametrize("loss", ["squared-hinge", "logistic"])
def test_relevance_leaf_uses_the_values_of_y_as_costs(loss: str) -> None:
    X, Y = problem(8)
    rng = np.random.default_rng(0)
    Y = Y * rng.uniform(0.2, 4.0, Y.shape).astype(np.float32)
    weights = flat_weights(sp.csr_array(X), Y, loss=loss, relevance="leaf")
    weights_without_costs = flat_weights(sp.csr_array(X), Y, loss=loss)
    for label in range(Y.shape[1]):
        y = np.where(Y[:, label] > 0, 1.0, -1.0)
        expected = reference.minimize(with_bias(X), y, np.where(y > 0, Y[:, label], 1.0), loss)
        assert np.allclose(weights[:, label], expected, atol=5e-3)
        plain = reference.minimize(with_bias(X), y, np.ones(len(y)), loss)
        assert np.allclose(weights_without_costs[:, label], plain, atol=5e-3)


def test_relevance_induce_sums_costs_from_the_leaves_to_the_root() -> None:
    X, _ = problem(9, rows=30)
    Y = np.zeros((30, 4), np.float32)
    Y[:10, 0] = 2
    Y[5:15, 1] = 3
    Y[15:, 2] = 1
    Y[20:, 3] = 0.5
    tree = LabelTree([[0, 0], [0, 0, 1, 1]])
    above = np.stack([Y[:, 0] + Y[:, 1], Y[:, 2] + Y[:, 3]], axis=1)
    for costs, inner in (("induce", above), ("leaf", (above > 0) * 1.0), ("none", (above > 0) * 1.0)):
        model = carya.XRLinear(tree=tree, relevance=costs, **EXACT).fit(sp.csr_array(X), Y)
        weights = model.layers_[0].matrix().toarray()
        for node in range(2):
            y = np.where(above[:, node] > 0, 1.0, -1.0)
            expected = reference.minimize(with_bias(X), y, np.where(y > 0, inner[:, node], 1.0), "squared-hinge")
            assert np.allclose(weights[:, node], expected, atol=5e-3), (costs, node)


@pytest.mark.parametrize("loss", ["squared-hinge", "logistic"])
@given(seed=st.integers(0, 10_000), C=st.sampled_from([0.5, 2.0, 20.0]), split=st.integers(0, 12))
def test_weights_minimize_the_l1_objective(loss: str, seed: int, C: float, split: int) -> None:
    X, Y = problem(seed, columns=12, labels=5)
    features = X if split == 0 else (sp.csr_array(X[:, :split]), X[:, split:]) if split < 12 else sp.csr_array(X)
    weights = flat_weights(features, Y, loss=loss, C=C, penalty="l1")
    A = with_bias(X)
    for label in range(Y.shape[1]):
        y = 2.0 * Y[:, label] - 1
        costs = np.full(len(y), C)
        best = reference.objective_l1(reference.minimize_l1(A, y, costs, loss), A, y, costs, loss)
        assert reference.objective_l1(weights[:, label], A, y, costs, loss) <= best * (1 + 1e-3) + 1e-5


@pytest.mark.parametrize("loss", ["squared-hinge", "logistic"])
@pytest.mark.parametrize("size", [0.3, 1.0])
def test_l1_solves_rare_features(loss: str, size: float) -> None:
    """Ten of 1,000 rows have the feature and the label; large steps reach a nearly flat region of the logistic loss."""
    X = np.zeros((1000, 2), np.float32)
    X[:10, 0] = size
    X[5:500, 1] = 0.1
    Y = np.zeros((1000, 1), np.float32)
    Y[:10] = 1
    weights = flat_weights(sp.csr_array(X), Y, loss=loss, penalty="l1", max_iter=50)
    y, costs = 2.0 * Y[:, 0] - 1, np.ones(1000)
    best = reference.objective_l1(reference.minimize_l1(with_bias(X), y, costs, loss), with_bias(X), y, costs, loss)
    assert reference.objective_l1(weights[:, 0], with_bias(X), y, costs, loss) <= best * 1.02 + 1e-3


def test_l1_gives_fewer_weights_than_l2_and_uses_costs() -> None:
    X, Y = problem(21, rows=300, columns=60, labels=6)
    sparse = sp.csr_array(X)
    counts = {
        penalty: np.count_nonzero(flat_weights(sparse, Y, penalty=penalty, C=0.3, max_iter=100)[:-1])
        for penalty in ("l1", "l2")
    }
    assert 0 < counts["l1"] < 0.7 * counts["l2"]
    weighted = flat_weights(sparse, Y, penalty="l1", positive_weight=6.0)
    for label in range(2):
        y = 2.0 * Y[:, label] - 1
        costs = np.where(y > 0, 6.0, 1.0)
        best = reference.objective_l1(reference.minimize_l1(with_bias(X), y, costs, "squared-hinge"), with_bias(X), y,
                                      costs, "squared-hinge")  # fmt: skip
        assert reference.objective_l1(weighted[:, label], with_bias(X), y, costs, "squared-hinge") <= best * 1.001
    with pytest.raises(
        ParameterError, match="penalty='l1' requires loss='squared-hinge' or loss='logistic', got loss='hinge'"
    ):
        carya.XRLinear(penalty="l1", loss="hinge").fit(sparse, Y)


def test_relevance_norm_divides_the_costs_of_each_row_at_every_level() -> None:
    X, _ = problem(9, rows=30)
    Y = np.zeros((30, 4), np.float32)
    Y[:10, 0] = 2
    Y[5:15, 1] = 3
    Y[15:, 2] = 1
    Y[20:, 3] = 0.5
    Y[:, 3] += 0.25
    tree = LabelTree([[0, 0], [0, 0, 1, 1]])
    above = np.stack([Y[:, 0] + Y[:, 1], Y[:, 2] + Y[:, 3]], axis=1)
    scales: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "l1": lambda Z: Z.sum(axis=1, keepdims=True),
        "l2": lambda Z: np.linalg.norm(Z, axis=1, keepdims=True),
        "max": lambda Z: Z.max(axis=1, keepdims=True),
    }
    for norm, scale in scales.items():
        model = carya.XRLinear(tree=tree, relevance="induce", relevance_norm=norm, **EXACT).fit(sp.csr_array(X), Y)
        costs = above / scale(above)
        weights = model.layers_[0].matrix().toarray()
        for node in range(2):
            y = np.where(above[:, node] > 0, 1.0, -1.0)
            expected = reference.minimize(with_bias(X), y, np.where(y > 0, costs[:, node], 1.0), "squared-hinge")
            assert np.allclose(weights[:, node], expected, atol=5e-3), (norm, node)


@given(seed=st.integers(0, 1000), split=st.integers(0, 15))
def test_sparse_and_dense_features_give_the_same_weights(seed: int, split: int) -> None:
    X, Y = problem(seed)
    sparse = flat_weights(sp.csr_array(X), Y)
    pair = flat_weights((sp.csr_array(X[:, :split]), X[:, split:]), Y) if split < 15 else flat_weights(X, Y)
    assert np.allclose(pair, sparse, atol=1e-3)


@pytest.mark.parametrize("labels", [1, 3, 4, 5, 8, 9, 16, 17, 40])
def test_the_weights_of_a_label_do_not_depend_on_other_labels(labels: int) -> None:
    """Labels are trained in blocks of 4, 8 or 16; the weights of a label are bit-identical for every block size."""
    X, Y = problem(11, rows=60, labels=40)
    ranker = carya.XRLinear(max_depth=1, threshold=0.0, weight_dtype="float32")
    together = clone(ranker).fit(sp.csr_array(X), Y[:, :labels])
    alone = ranker.fit(sp.csr_array(X), Y[:, [labels - 1]])
    among_others = together.layers_[0].matrix()[:, [labels - 1]].toarray()
    assert np.array_equal(among_others, alone.layers_[0].matrix().toarray())


def test_threshold_and_max_weights_keep_the_largest_weights() -> None:
    X, Y = problem(12, rows=80, columns=40, labels=20)
    full = flat_weights(sp.csr_array(X), Y, tol=0.03, max_iter=20)
    for threshold in (0.05, 0.3):
        kept = flat_weights(sp.csr_array(X), Y, tol=0.03, max_iter=20, threshold=threshold)
        expected = np.where(np.abs(full) >= threshold, full, 0)
        expected[-1] = full[-1]  # biases are always kept
        assert np.array_equal(kept, expected)
    limited = flat_weights(sp.csr_array(X), Y, tol=0.03, max_iter=20, max_weights=5)
    for label in range(Y.shape[1]):
        kept = np.flatnonzero(limited[:-1, label])
        assert kept.size == 5
        assert np.array_equal(limited[kept, label], full[kept, label])
        assert np.abs(np.delete(full[:-1, label], kept)).max() <= np.abs(full[kept, label]).min()


@pytest.mark.parametrize("penalty", ["l2", "l1"])
@pytest.mark.parametrize("rows", [80, 3])  # with 3 rows, most features occur only once
def test_threshold_by_effect_scales_weights_by_feature_size(penalty: str, rows: int) -> None:
    """The effect is the weight times the root mean square (RMS) of the feature's values, divided by the median RMS."""
    X, Y = problem(12, rows=rows, columns=40, labels=20)
    X[:, 3] = 0
    X = X * 2.0 ** (np.arange(40) % 7 - 3)  # gives features very different scales
    settings = {"tol": 0.03, "max_iter": 20, "penalty": penalty, "C": 5.0}
    full = flat_weights(sp.csr_array(X), Y, **settings)
    nonzero = X != 0
    size = np.sqrt((X**2).sum(axis=0) / np.maximum(nonzero.sum(axis=0), 1))
    median_size = np.quantile(np.repeat(size, nonzero.sum(axis=0)), 0.5, method="inverted_cdf")
    for threshold in (0.0, 0.05, 0.3):
        kept = flat_weights(sp.csr_array(X), Y, threshold=threshold, threshold_by="effect", **settings)
        expected = np.where(np.abs(full[:-1]) * size[:, None] / median_size >= threshold, full[:-1], 0)
        assert np.array_equal(kept, np.vstack([expected, full[-1:]]))
    assert 0 < np.count_nonzero(expected) < np.count_nonzero(full[:-1])


def test_threshold_by_effect_is_robust() -> None:
    """If a feature has a huge value, the weights of other features are kept; explicitly stored zeros have no effect."""
    X, Y = problem(15, rows=80, columns=40, labels=20)
    settings: dict[str, Any] = {"threshold": 0.1, "threshold_by": "effect", "tol": 0.03, "max_iter": 20}
    plain = flat_weights(sp.csr_array(X), Y, **settings)
    huge = np.hstack([X, np.zeros((80, 1))])
    huge[7, -1] = 1e6
    kept = flat_weights(sp.csr_array(huge), Y, **settings)
    assert np.count_nonzero(kept) > 0.8 * np.count_nonzero(plain)
    stored = sp.csr_array(np.where(X == 0, 1.0, X))  # zeros are stored explicitly
    stored.data[:] = X.ravel()
    assert np.array_equal(flat_weights(stored, Y, **settings) != 0, plain != 0)
    wide = X * np.logspace(-12, 6, 40)
    assert np.array_equal(
        flat_weights(sp.csr_array(wide), Y, threshold=0.0, threshold_by="effect"),
        flat_weights(sp.csr_array(wide), Y, threshold=0.0),
    )
    pair = (sp.csr_array(X[:, :20]), np.ascontiguousarray(X[:, 20:], dtype=np.float32))
    model = carya.XRLinear(max_depth=1, **settings).fit(pair, Y)
    assert 0 < model.layers_[0].weights.n_weights < 20 * 20


def test_teacher_negatives_are_the_rows_of_the_cluster() -> None:
    """A label is trained only on the rows that have a label in its cluster."""
    X, Y = problem(13, rows=60, labels=6)
    tree = LabelTree([[0, 0], [0, 0, 0, 1, 1, 1]])
    model = carya.XRLinear(tree=tree, negatives="teacher", **EXACT).fit(sp.csr_array(X), Y)
    weights = model.layers_[1].matrix().toarray()
    for label in range(6):
        rows = np.flatnonzero(Y[:, tree.clusters(1) == tree.clusters(1)[label]].any(axis=1))
        y = 2.0 * Y[rows, label] - 1
        expected = reference.minimize(with_bias(X[rows]), y, np.ones(len(y)), "squared-hinge")
        assert np.allclose(weights[:, label], expected, atol=3e-3)


@pytest.mark.parametrize("negatives", ["given", "matcher"])
def test_positives_outside_the_shortlist_are_used(negatives: str) -> None:
    """A row outside the shortlist of a cluster is used to train only its own labels in that cluster."""
    X, Y = problem(14, rows=50, labels=6)
    tree = LabelTree([[0, 0], [0, 0, 0, 1, 1, 1]])
    parameters: dict[str, Any] = {"tree": tree, "negatives": negatives, "beam_width": 1, **EXACT}
    if negatives == "given":
        shortlist = np.zeros_like(Y)
        shortlist[::3, 0] = 1  # shortlists cluster 0 for every third row
        shortlist[1::3, 4] = 1
        model = carya.XRLinear(**parameters).fit(sp.csr_array(X), Y, shortlist=shortlist)
        inside = np.stack([shortlist[:, :3].any(axis=1), shortlist[:, 3:].any(axis=1)], axis=1)
    else:
        model = carya.XRLinear(**parameters).fit(sp.csr_array(X), Y)
        first = carya.XRLinear.from_trained_tree(TrainedTree(LabelTree.flat(2), model.layers_[:1], model.widths_))
        inside = first.predict(sp.csr_array(X), top_k=1).toarray() > 0
    weights = model.layers_[1].matrix().toarray()
    for label in range(6):
        rows = np.flatnonzero(inside[:, tree.clusters(1)[label]] | (Y[:, label] > 0))
        y = 2.0 * Y[rows, label] - 1
        expected = reference.minimize(with_bias(X[rows]), y, np.ones(len(y)), "squared-hinge")
        assert np.allclose(weights[:, label], expected, atol=3e-3)


def test_many_rows_are_visited_in_windows() -> None:
    """The order of the rows is random within windows if there are many rows; the solution is the same."""
    windows = 5
    rows = windows * 2**15 + 7
    rng = np.random.default_rng(0)
    X = rng.random((rows, 4)).astype(np.float32)
    y = (X @ np.array([1, -1, 0.5, 0]) + 0.3 * rng.standard_normal(rows) > 0.3).astype(np.float32)
    order = np.argsort(y, kind="stable")  # all positives are adjacent
    weights = flat_weights(sp.csr_array(X[order]), y[order, None], C=0.01, max_iter=60)
    A = with_bias(X)
    costs = np.full(rows, 0.01)
    expected = reference.minimize(A, 2.0 * y - 1, costs, "squared-hinge")
    value = reference.objective(weights[:, 0], A, 2.0 * y - 1, costs, "squared-hinge")
    assert value <= reference.objective(expected, A, 2.0 * y - 1, costs, "squared-hinge") * (1 + 1e-4)
    same = flat_weights(sp.csr_array(X[order]), y[order, None], C=0.01, max_iter=60, n_jobs=3)
    assert np.array_equal(weights, same)


def test_labels_without_positives_rank_last() -> None:
    X, Y = problem(15, labels=5)
    Y[:, 2] = 0
    model = carya.XRLinear(max_depth=1).fit(sp.csr_array(X), Y)
    assert (model.layers_[0].matrix().toarray()[:-1, 2] == 0).all()
    for transform in ("l3-hinge", "noop", "sigmoid", "log-l60-hinge"):
        model = carya.XRLinear(max_depth=1, transform=transform, bias=0.0).fit(sp.csr_array(X), Y)
        S = model.predict(X, top_k=5)
        assert np.isfinite(S.data).all()
        last = S.indices[S.indptr[1:][np.diff(S.indptr) > 0] - 1]
        assert (last == 2).all()
