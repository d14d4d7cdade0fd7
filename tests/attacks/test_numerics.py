"""Tests for numerical accuracy: comparison with liblinear, float32 and float64 input, and degenerate problems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.errors import InputError

import reference

EXACT: dict[str, Any] = {"max_depth": 1, "tol": 0.0, "max_iter": 1000, "threshold": 0.0, "weight_dtype": "float32"}
#: liblinear solver types that optimize the same objectives (L2-regularized, dual).
LIBLINEAR = {"squared-hinge": 1, "hinge": 3, "logistic": 7}


def random_problem(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(10, 80), rng.integers(1, 40)
    X = rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < 0.4)
    Y = (rng.random((rows, 2)) < 0.3).astype(np.float32)
    Y[0], Y[1] = 1, 0
    return X.astype(np.float32), Y


def weights(X: np.ndarray, Y: np.ndarray, **parameters: Any) -> np.ndarray:
    """Return the weights of a one-versus-rest model as float64; the last row contains the biases."""
    model = carya.XRLinear(**{**EXACT, **parameters}).fit(sp.csr_array(X), Y)
    return np.asarray(model.layers_[0].matrix().toarray(), np.float64)


@pytest.mark.parametrize("loss", LIBLINEAR)
def test_weights_agree_with_liblinear(loss: str) -> None:
    linear = pytest.importorskip("liblinear.liblinearutil", reason="requires the package liblinear-official")
    for seed in range(10):
        X, Y = random_problem(seed)
        ours = weights(X, Y, loss=loss, C=1.0)
        A = np.hstack([X, np.ones((X.shape[0], 1))]).astype(np.float64)
        for label in range(Y.shape[1]):
            y = 2.0 * Y[:, label] - 1
            options = f"-s {LIBLINEAR[loss]} -c 1 -B 1 -e 1e-10 -q"
            model = linear.train(y, sp.csr_matrix(X.astype(np.float64)), options)
            sign = 1 if model.get_labels()[0] == 1 else -1
            theirs = sign * np.array([*model.get_decfun()[0], model.get_decfun()[1]])
            costs = np.ones(len(y))
            mine, best = (reference.objective(w, A, y, costs, loss) for w in (ours[:, label], theirs))
            assert mine <= best * (1 + 1e-5), (seed, label)
            if loss != "hinge":  # with the hinge loss, nearly optimal solutions can differ more
                assert np.allclose(ours[:, label], theirs, atol=2e-3), (seed, label)


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e-10, 1.0, 1e10, 1e14])
def test_extreme_values_give_finite_scores(scale: float) -> None:
    X, Y = random_problem(0)
    model = carya.XRLinear(max_leaf_size=2).fit(sp.csr_array((X * np.float32(scale)).astype(np.float32)), Y)
    scores = model.predict(sp.csr_array((X * np.float32(scale)).astype(np.float32))).data
    assert np.isfinite(scores).all()
    assert scores.size


@pytest.mark.parametrize("value", [1e38, 3e38, -1e38, np.inf, -np.inf, np.nan, 1e300])
def test_values_that_would_overflow_are_rejected(value: float) -> None:
    X = np.eye(4)
    X[0, 0] = value
    with pytest.raises(InputError, match="X"):
        carya.XRLinear().fit(sp.csr_array(X), np.eye(4))


def test_float64_input_is_ranked_like_float32(world: Any) -> None:
    narrow, wide = (carya.XRLinear(n_jobs=2).fit(world.X.astype(dtype), world.Y) for dtype in (np.float32, np.float64))
    a, b = (model.predict(world.X) for model in (narrow, wide))
    assert np.array_equal(a.indices, b.indices)
    assert np.array_equal(a.data, b.data)


@pytest.mark.parametrize(
    ("X", "Y"),
    [
        (np.ones((5, 1)), np.ones((5, 1))),  # one label, assigned to all rows
        (np.ones((1, 3)), np.ones((1, 4))),  # one row
        (np.zeros((4, 3)), np.eye(4)),  # rows without features
        (np.eye(4), np.vstack([np.eye(2), np.zeros((2, 2))])),  # rows without labels
        (np.ones((6, 2)), np.eye(6)),  # identical rows with different labels
        (np.eye(3), np.hstack([np.eye(3), np.zeros((3, 5))])),  # labels without rows
    ],
    ids=["one label", "one row", "empty rows", "unlabeled rows", "identical rows", "unused labels"],
)
def test_degenerate_problems(X: np.ndarray, Y: np.ndarray) -> None:
    model = carya.XRLinear(max_leaf_size=2, branching=2).fit(sp.csr_array(X), Y)
    predictions = model.predict(sp.csr_array(X), top_k=3)
    assert predictions.shape == (X.shape[0], Y.shape[1])
    assert np.isfinite(predictions.data).all()
    dense = carya.XRLinear(max_leaf_size=2, branching=2).fit(X, Y).predict(X, top_k=3)
    assert np.isfinite(dense.data).all()
