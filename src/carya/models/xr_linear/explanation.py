"""Explain the score of a label: the exact contribution of every feature at every level of the tree.

At a level, the raw score is h = bias + Σ x·w, so each feature contributes x·w to it. The transform maps h to the
level's score s(h), and the scores of the levels are multiplied along the path. In log space, they are added. Each raw
contribution x·w is multiplied by the mean slope of log s between the bias and h; the products are the limit of
averaging over all orders in which small increments of the features can be added (Aumann–Shapley values, also known as
integrated gradients). In log space, the contributions of all features at all levels and the score of a query without
features therefore add up exactly to the score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carya.trees.layer import Layer
from carya.trees.trained_tree import TrainedTree
from carya.trees.transforms import Transform

_ADDED = ("log_sigmoid", "log_hinge")


@dataclass(frozen=True, eq=False)
class LevelExplanation:
    """The explanation of one level of the path to a label.

    Attributes
    ----------
    node : int
        The ancestor of the label at this level.
    bias : float
    raw_score : float
        The bias plus all raw contributions.
    score : float
        The level's own score, the transformed raw score.
    raw_contributions : ndarray of float64
        The contribution of each sparse feature of the query, then of each dense feature, to `raw_score`.
    contributions : ndarray of float64
        The contribution of each feature to the label's score, or to its logarithm (see :attr:`Explanation.log_scale`).
    base : float
        The level's score without features, on the same scale as `contributions`.
    """

    node: int
    bias: float
    raw_score: float
    score: float
    raw_contributions: NDArray[np.float64]
    contributions: NDArray[np.float64]
    base: float


@dataclass(frozen=True, eq=False)
class Explanation:
    """The explanation of a label's score for a query.

    Attributes
    ----------
    label : int
    score : float
    levels : list of LevelExplanation
        The levels, from the root down.
    features : ndarray of int32
        The indices of the query's sparse features, in the order of the contributions.
    log_scale : bool
        Whether `base` and `contributions` add up to the logarithm of the score instead of the score itself.
    is_additive : bool
        False only if multiplicative, logarithmic and untransformed scores are mixed. In this case, no scale is additive
        along a path, all contributions are 0, and only `raw_contributions` are meaningful.
    """

    label: int
    score: float
    levels: list[LevelExplanation]
    features: NDArray[np.int32]
    log_scale: bool
    is_additive: bool

    @property
    def base(self) -> float:
        """The score of a query without features, or its logarithm."""
        return math.fsum(level.base for level in self.levels)

    @property
    def contributions(self) -> NDArray[np.float64]:
        """The contribution of each feature, summed over all levels."""
        total: NDArray[np.float64] = np.sum([level.contributions for level in self.levels], axis=0)
        return total


def explain(
    trained: TrainedTree,
    features: NDArray[np.int32],
    values: NDArray[np.float32],
    dense: NDArray[np.float32],
    label: int,
) -> Explanation:
    """Explain the score of the highest-scoring path to a label; `features` must be in ascending order."""
    paths = [_explain_leaf(trained, features, values, dense, label, leaf) for leaf in trained.tree.leaves(label)]
    return max(paths, key=lambda path: path.score)


def is_additive(layers: Sequence[Layer]) -> bool:
    """Return whether contributions add up to the scores of a model with these layers, or to their logarithms."""
    kinds = {layer.transform.kind for layer in layers}
    return _is_multiplicative(layers) or kinds <= set(_ADDED) or kinds == {"noop"}


def _is_multiplicative(layers: Sequence[Layer]) -> bool:
    return all(layer.transform.is_multiplicative for layer in layers)


def _explain_leaf(
    trained: TrainedTree,
    features: NDArray[np.int32],
    values: NDArray[np.float32],
    dense: NDArray[np.float32],
    label: int,
    leaf: int,
) -> Explanation:
    node, path = leaf, []
    for parents in reversed(trained.tree.parents):
        path.append(node)
        node = int(parents[node])
    log_scale = _is_multiplicative(trained.layers)
    additive = is_additive(trained.layers)
    levels = []
    for number, (layer, path_node) in enumerate(zip(trained.layers, reversed(path), strict=True)):
        counts = layer.transform.kind != "noop" or number == len(trained.layers) - 1
        levels.append(_explain_level(layer, path_node, features, values, dense, distribute=additive and counts))
    return Explanation(label, _combine(levels, trained.layers), levels, features, log_scale, additive)


def _explain_level(
    layer: Layer,
    node: int,
    features: NDArray[np.int32],
    values: NDArray[np.float32],
    dense: NDArray[np.float32],
    *,
    distribute: bool,
) -> LevelExplanation:
    layer.verify()
    position = int(np.flatnonzero(layer.order == node)[0])
    weights = layer.weights_at(features, position)
    raw = np.concatenate([values.astype(np.float64) * weights, dense.astype(np.float64) * layer.dense[position]])
    if not np.isfinite(raw).all():
        raise layer.damaged("some are not finite.")
    bias = float(layer.biases[position])
    raw_score = math.fsum([bias, *raw])
    slope, base = 0.0, 0.0
    if distribute:
        base, top = _log_score(layer.transform, bias), _log_score(layer.transform, raw_score)
        slope = (top - base) / (raw_score - bias) if raw_score != bias else 0.0
    return LevelExplanation(node, bias, raw_score, _score(layer.transform, raw_score), raw, raw * slope, base)


def _log_score(transform: Transform, h: float) -> float:
    """Return the level's score in log space, or h itself if there is no transform."""
    if transform.kind == "noop":
        return h
    if transform.kind in ("sigmoid", "log_sigmoid"):
        return min(h, 0.0) - math.log1p(math.exp(-abs(h)))
    return -math.pow(max(0.0, 1.0 - h), transform.power)


def _score(transform: Transform, h: float) -> float:
    log_score = _log_score(transform, h)
    return math.exp(log_score) if transform.is_multiplicative else log_score


def _combine(levels: Sequence[LevelExplanation], layers: Sequence[Layer]) -> float:
    """Combine the level scores along the path, as the search does."""
    score: float | None = None
    for level, layer in zip(levels, layers, strict=True):
        if layer.transform.kind == "noop" or score is None:
            score = level.score
        elif layer.transform.is_multiplicative:
            score *= level.score
        else:
            score += level.score
    assert score is not None  # a tree has at least one level
    return score
