"""Slow twins of the native kernels, in plain NumPy: they are what the kernels mean."""

from __future__ import annotations

import math

import numpy as np
import scipy.optimize
import scipy.sparse as sp

from carya import XRLinear
from carya.trees.transforms import Transform


def unit_rows(Z: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(Z, axis=1, keepdims=True)
    return Z / np.where(length > 0, length, 1)


def pifa(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    return unit_rows(Y.T @ X)


def apply(transform: Transform, g: float | None, h: float) -> float:
    """σ(g, h); g is None at the root's children."""
    hinge = math.exp(-(max(0.0, 1.0 - h) ** transform.power))
    sigmoid = 1 / (1 + math.exp(-h))
    match transform.name.split("-")[0], transform.kind:
        case _, "noop":
            return h
        case _, "sigmoid":
            return sigmoid if g is None else g * sigmoid
        case _, "hinge":
            return hinge if g is None else g * hinge
        case _, "log_sigmoid":
            return math.log(sigmoid) + (g or 0.0)
        case _, "log_hinge":
            return -(max(0.0, 1.0 - h) ** transform.power) + (g or 0.0)
    raise AssertionError(transform)


def raw_scores(model: XRLinear, x: np.ndarray) -> list[np.ndarray]:
    """h of every node of every layer for one dense query with all features side by side."""
    return [np.append(x, 1.0) @ layer.matrix().toarray() for layer in model.layers_]


def beam_search(model: XRLinear, x: np.ndarray, top_k: int, beam_width: int) -> list[tuple[int, float]]:
    """Best labels first, ties to the lower label."""
    if not x.any():
        return []
    beam: dict[int, float | None] = {0: None}
    depth = model.tree_.depth
    for t, (layer, h) in enumerate(zip(model.layers_, raw_scores(model, x), strict=True)):
        parents = model.tree_.parents[t]
        scored = [
            (apply(layer.transform, beam[p], float(h[node])), node)
            for node, p in enumerate(parents.tolist())
            if p in beam
        ]
        scored.sort(key=lambda item: (-item[0], item[1]))
        beam = {node: score for score, node in scored[: top_k if t == depth - 1 else beam_width]}
    return [(node, float(score)) for node, score in beam.items() if score is not None]


def path_score(model: XRLinear, x: np.ndarray, label: int) -> float:
    score: float | None = None
    raw = raw_scores(model, x)
    for t, layer in enumerate(model.layers_):
        node = int(model.tree_.clusters(t + 1)[label])
        score = apply(layer.transform, score, float(raw[t][node]))
    assert score is not None
    return score


def objective(w: np.ndarray, X: np.ndarray, y: np.ndarray, cost: np.ndarray, loss: str) -> float:
    """|w|²/2 + Σ C loss; the last column of X is the bias."""
    margin = y * (X @ w)
    short = np.maximum(0, 1 - margin)
    terms = {"squared-hinge": short**2, "hinge": short, "logistic": np.logaddexp(0, -margin)}[loss]
    return float(0.5 * w @ w + (cost * terms).sum())


def minimise(X: np.ndarray, y: np.ndarray, cost: np.ndarray, loss: str) -> np.ndarray:
    """The weights that minimise the objective: by quasi-Newton, or for the hinge by many passes of dual ascent."""
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
        return w + X.T @ (cost * slope * y)

    found = scipy.optimize.minimize(
        objective,
        np.zeros(X.shape[1]),
        (X, y, cost, loss),
        jac=lambda w, *_: gradient(w),
        method="L-BFGS-B",
        options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9},
    )
    return found.x


def objective_l1(w: np.ndarray, X: np.ndarray, y: np.ndarray, cost: np.ndarray, loss: str) -> float:
    """|w|₁ + Σ C loss; the last column of X is the offset, whose weight is free."""
    margin = y * (X @ w)
    terms = {"squared-hinge": np.maximum(0, 1 - margin) ** 2, "logistic": np.logaddexp(0, -margin)}[loss]
    return float(np.abs(w[:-1]).sum() + (cost * terms).sum())


def minimise_l1(X: np.ndarray, y: np.ndarray, cost: np.ndarray, loss: str) -> np.ndarray:
    """The weights that minimise it: each but the offset is a difference of two that are not negative."""
    A = np.hstack([X[:, :-1], -X[:, :-1], X[:, -1:]])
    price = np.r_[np.ones(A.shape[1] - 1), 0.0]

    def value(v: np.ndarray) -> tuple[float, np.ndarray]:
        margin = y * (A @ v)
        short = np.maximum(0, 1 - margin)
        terms = short**2 if loss == "squared-hinge" else np.logaddexp(0, -margin)
        slope = -2 * short if loss == "squared-hinge" else -1 / (1 + np.exp(margin))
        return float(price @ v + (cost * terms).sum()), price + A.T @ (cost * slope * y)

    bounds = [(0, None)] * (A.shape[1] - 1) + [(None, None)]
    options = {"maxiter": 5000, "maxfun": 50_000, "ftol": 1e-14, "gtol": 1e-8}
    v = scipy.optimize.minimize(
        value, np.zeros(A.shape[1]), jac=True, method="L-BFGS-B", bounds=bounds, options=options
    ).x
    half = X.shape[1] - 1
    return np.r_[v[:half] - v[half:-1], v[-1:]]


def ranking(S: np.ndarray | sp.csr_array, row: int, k: int) -> list[int]:
    """The k best labels of a row: of a sparse matrix only stored ones."""
    if sp.issparse(S):
        entries = [(-float(v), int(c)) for c, v in zip(S[[row]].indices, S[[row]].data, strict=True)]
    else:
        entries = [(-float(v), c) for c, v in enumerate(S[row])]
    return [label for _, label in sorted(entries)[:k]]


def metrics(Y: np.ndarray, S: np.ndarray | sp.csr_array, k: int, propensity: np.ndarray) -> dict[str, float]:
    tops = [ranking(S, row, k) for row in range(Y.shape[0])]
    truths = [set(np.flatnonzero(row).tolist()) for row in Y]
    gain = [[float(label in truth) for label in top] for top, truth in zip(tops, truths, strict=True)]
    discount = [1 / math.log2(rank + 2) for rank in range(k)]

    def discounted(values: list[float]) -> float:
        return sum(v * d for v, d in zip(values, discount, strict=False))

    labelled = [i for i, truth in enumerate(truths) if truth]
    weighted = [
        [g / propensity[label] for g, label in zip(row, top, strict=True)] for row, top in zip(gain, tops, strict=True)
    ]
    best = [sorted((1 / propensity[label] for label in truth), reverse=True)[:k] for truth in truths]
    found = {label for top, truth in zip(tops, truths, strict=True) for label in top if label in truth}
    return {
        "P": float(np.mean([sum(row) / k for row in gain])),
        "R": float(np.mean([sum(gain[i]) / len(truths[i]) for i in labelled])),
        "nDCG": float(np.mean([discounted(gain[i]) / discounted([1.0] * min(k, len(truths[i]))) for i in labelled])),
        "coverage": len(found) / len(set().union(*truths)),
        "PSP": sum(map(sum, weighted)) / sum(map(sum, best)),
        "PSnDCG": sum(map(discounted, weighted)) / sum(map(discounted, best)),
    }


def lz4_frame(data: bytes, block: int = 1 << 16) -> bytes:
    """An LZ4 frame of linked blocks: at each place a match with where the next four bytes stood last, or a literal."""
    out = bytearray(bytes.fromhex("04224d184040c0"))
    seen: dict[bytes, int] = {}
    for start in range(0, len(data), block):
        end, at, literal, packed = min(start + block, len(data)), start, start, bytearray()
        while at < end:
            back = at - seen.get(data[at : at + 4], at)
            seen[data[at : at + 4]] = at
            length = 0
            while back and at + length < end and data[at + length] == data[at + length - back]:
                length += 1
            if 0 < back < 1 << 16 and length >= 4:
                packed += _lz4_run(data[literal:at], length - 4) + back.to_bytes(2, "little") + _lz4_more(length - 4)
                at += length
                literal = at
            else:
                at += 1
        packed += _lz4_run(data[literal:end], 0)
        out += len(packed).to_bytes(4, "little") + packed
    return bytes(out + bytes(4))


def _lz4_run(literals: bytes, match: int) -> bytes:
    return bytes([min(len(literals), 15) << 4 | min(match, 15)]) + _lz4_more(len(literals)) + literals


def _lz4_more(length: int) -> bytes:
    return b"" if length < 15 else b"\xff" * ((length - 15) // 255) + bytes([(length - 15) % 255])
