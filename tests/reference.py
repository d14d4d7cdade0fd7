"""Slow NumPy versions of the native kernels, used as reference implementations in tests."""

from __future__ import annotations

import math

import numpy as np
import scipy.optimize
import scipy.sparse as sp


def unit_rows(Z: np.ndarray) -> np.ndarray:
    """Scale rows to unit length; all-zero rows remain unchanged."""
    length = np.linalg.norm(Z, axis=1, keepdims=True)
    return Z / np.where(length > 0, length, 1)


def pifa(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Return the normalized sum of each label's rows."""
    return unit_rows(Y.T @ X)


def objective(w: np.ndarray, X: np.ndarray, y: np.ndarray, cost: np.ndarray, loss: str) -> float:
    """Return |w|²/2 + Σ C loss; the last column of X is the bias feature."""
    margin = y * (X @ w)
    short = np.maximum(0, 1 - margin)
    terms = {"squared-hinge": short**2, "hinge": short, "logistic": np.logaddexp(0, -margin)}[loss]
    return float(0.5 * w @ w + (cost * terms).sum())


def minimize(X: np.ndarray, y: np.ndarray, cost: np.ndarray, loss: str) -> np.ndarray:
    """Minimize the objective with L-BFGS or, for the hinge loss, with many passes of dual coordinate ascent."""
    if loss == "hinge":
        alpha, w = np.zeros(len(y)), np.zeros(X.shape[1])
        rng = np.random.default_rng(0)
        for _ in range(3000):
            for i in rng.permutation(len(y)):
                q = X[i] @ X[i]
                new = min(max(alpha[i] - (y[i] * (X[i] @ w) - 1) / q, 0.0), cost[i])
                w += (new - alpha[i]) * y[i] * X[i]
                alpha[i] = new
        return w

    def gradient(w: np.ndarray) -> np.ndarray:
        margin = y * (X @ w)
        slope = -2 * np.maximum(0, 1 - margin) if loss == "squared-hinge" else -1 / (1 + np.exp(margin))
        slopes: np.ndarray = w + X.T @ (cost * slope * y)
        return slopes

    minimum: np.ndarray = scipy.optimize.minimize(
        objective,
        np.zeros(X.shape[1]),
        (X, y, cost, loss),
        jac=lambda w, *_: gradient(w),
        method="L-BFGS-B",
        options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9},
    ).x
    return minimum


def objective_l1(w: np.ndarray, X: np.ndarray, y: np.ndarray, cost: np.ndarray, loss: str) -> float:
    """Return |w|₁ + Σ C loss; the last column of X is the bias feature, whose weight is not penalized."""
    margin = y * (X @ w)
    terms = {"squared-hinge": np.maximum(0, 1 - margin) ** 2, "logistic": np.logaddexp(0, -margin)}[loss]
    return float(np.abs(w[:-1]).sum() + (cost * terms).sum())


def minimize_l1(X: np.ndarray, y: np.ndarray, cost: np.ndarray, loss: str) -> np.ndarray:
    """Minimize the L1-regularized objective; each weight except the bias is the difference of two variables >= 0."""
    A = np.hstack([X[:, :-1], -X[:, :-1], X[:, -1:]])
    penalty = np.r_[np.ones(A.shape[1] - 1), 0.0]

    def value(v: np.ndarray) -> tuple[float, np.ndarray]:
        margin = y * (A @ v)
        short = np.maximum(0, 1 - margin)
        terms = short**2 if loss == "squared-hinge" else np.logaddexp(0, -margin)
        slope = -2 * short if loss == "squared-hinge" else -1 / (1 + np.exp(margin))
        return float(penalty @ v + (cost * terms).sum()), penalty + A.T @ (cost * slope * y)

    bounds = [(0, None)] * (A.shape[1] - 1) + [(None, None)]
    options = {"maxiter": 5000, "maxfun": 50_000, "ftol": 1e-14, "gtol": 1e-8}
    v = scipy.optimize.minimize(
        value, np.zeros(A.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds, options=options
    ).x
    half = X.shape[1] - 1
    weights: np.ndarray = np.r_[v[:half] - v[half:-1], v[-1:]]
    return weights


def ranking(S: np.ndarray | sp.csr_array, row: int, k: int) -> list[int]:
    """Return the k labels with the highest scores in a row; in a sparse matrix, only stored entries are ranked."""
    if not isinstance(S, np.ndarray):
        entries = [(-float(v), int(c)) for c, v in zip(S[[row]].indices, S[[row]].data, strict=True)]
    else:
        entries = [(-float(v), c) for c, v in enumerate(S[row])]
    return [label for _, label in sorted(entries)[:k]]


def metrics(Y: np.ndarray, S: np.ndarray | sp.csr_array, k: int, propensity: np.ndarray) -> dict[str, float]:
    """Compute all ranking metrics at k, row by row."""
    tops = [ranking(S, row, k) for row in range(Y.shape[0])]
    truths = [set(np.flatnonzero(row).tolist()) for row in Y]
    gain = [[float(label in truth) for label in top] for top, truth in zip(tops, truths, strict=True)]
    discount = [1 / math.log2(rank + 2) for rank in range(k)]

    def discounted(values: list[float]) -> float:
        return sum(v * d for v, d in zip(values, discount, strict=False))

    labeled = [i for i, truth in enumerate(truths) if truth]
    weighted = [
        [g / propensity[label] for g, label in zip(row, top, strict=True)] for row, top in zip(gain, tops, strict=True)
    ]
    best = [sorted((1 / propensity[label] for label in truth), reverse=True)[:k] for truth in truths]
    hits = {label for top, truth in zip(tops, truths, strict=True) for label in top if label in truth}
    return {
        "P": float(np.mean([sum(row) / k for row in gain])),
        "R": float(np.mean([sum(gain[i]) / len(truths[i]) for i in labeled])),
        "nDCG": float(np.mean([discounted(gain[i]) / discounted([1.0] * min(k, len(truths[i]))) for i in labeled])),
        "coverage": len(hits) / len(set().union(*truths)),
        "PSP": sum(map(sum, weighted)) / sum(map(sum, best)),
        "PSnDCG": sum(map(discounted, weighted)) / sum(map(discounted, best)),
    }
