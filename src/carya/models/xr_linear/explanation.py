"""Why a label has its score: what every feature adds at every level of the tree, exactly.

At a level the raw score is h = bias + Σ x·w, so each feature adds x·w. The transform then bends h into the level's own
score s(h), and scores are multiplied along the path. In logarithms they are added, and the bend is shared out by the
mean slope of log s between the bias and h, which is what averaging over every order of adding features gives in the
limit (Aumann–Shapley, also known as integrated gradients). So the shares of all features at all levels, and the score
of a query without features, add up to the score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carya.errors import ModelFormatError
from carya.trees.layer import Layer
from carya.trees.trained_tree import Learned
from carya.trees.transforms import Transform

_MULTIPLIED = ("sigmoid", "hinge")
_ADDED = ("log_sigmoid", "log_hinge")


@dataclass(frozen=True, eq=False)
class Level:
    """One level of the tree on the way to a label.

    Attributes
    ----------
    node : int
        The node of the level that the label lies under.
    bias : float
    raw : float
        The bias and all that features add: ``bias + added.sum()``.
    score : float
        The level's own score, what the transform makes of `raw`.
    added : ndarray of float64
        What each sparse feature of the query adds to `raw`, and behind them each dense one.
    shares : ndarray of float64
        What each adds to the label's score, or to its logarithm (see :attr:`Explanation.in_logs`).
    base : float
        What is left without features, in the same unit.
    """

    node: int
    bias: float
    raw: float
    score: float
    added: NDArray[np.float64]
    shares: NDArray[np.float64]
    base: float


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a label has its score for a query.

    Attributes
    ----------
    label : int
    score : float
    levels : list of Level
        From the root down.
    features : ndarray of int32
        The sparse features of the query, in the order of the levels' arrays.
    in_logs : bool
        Whether bases and shares add up to the logarithm of the score; otherwise to the score.
    adds_up : bool
        False only for a model whose transforms are of different kinds: no one unit is added along its paths, so all
        shares are 0 and only `added` says what features do.
    """

    label: int
    score: float
    levels: list[Level]
    features: NDArray[np.int32]
    in_logs: bool
    adds_up: bool

    @property
    def base(self) -> float:
        """The score of a query without features, or its logarithm."""
        return math.fsum(level.base for level in self.levels)

    @property
    def shares(self) -> NDArray[np.float64]:
        """What each feature adds over all levels."""
        total: NDArray[np.float64] = np.sum([level.shares for level in self.levels], axis=0)
        return total


def explain(
    learned: Learned,
    features: NDArray[np.int32],
    values: NDArray[np.float32],
    dense: NDArray[np.float32],
    label: int,
) -> Explanation:
    """Follow the path to a label, of several to the best. Features are ascending, dense values all there."""
    paths = [_explain_leaf(learned, features, values, dense, label, leaf) for leaf in learned.tree.leaves(label)]
    return max(paths, key=lambda path: path.score)


def adds_up(layers: Sequence[Layer]) -> bool:
    """Whether shares of features add up to the scores of a model, or to their logarithms."""
    kinds = {layer.transform.kind for layer in layers}
    return kinds <= set(_MULTIPLIED) or kinds <= set(_ADDED) or kinds == {"noop"}


def _explain_leaf(
    learned: Learned,
    features: NDArray[np.int32],
    values: NDArray[np.float32],
    dense: NDArray[np.float32],
    label: int,
    leaf: int,
) -> Explanation:
    node, path = leaf, []
    for parents in reversed(learned.tree.parents):
        path.append(node)
        node = int(parents[node])
    in_logs = {layer.transform.kind for layer in learned.layers} <= set(_MULTIPLIED)
    one_space = adds_up(learned.layers)
    levels = []
    for at, (layer, here) in enumerate(zip(learned.layers, reversed(path), strict=True)):
        counts = layer.transform.kind != "noop" or at == len(learned.layers) - 1
        levels.append(_level(layer, here, features, values, dense, shared=one_space and counts))
    score = _joined(levels, learned.layers)
    return Explanation(label, score, levels, features, in_logs, one_space)


def _level(
    layer: Layer,
    node: int,
    features: NDArray[np.int32],
    values: NDArray[np.float32],
    dense: NDArray[np.float32],
    *,
    shared: bool,
) -> Level:
    layer.verify()
    position = int(np.flatnonzero(layer.order == node)[0])
    weights = layer.weights_at(features, position)
    added = np.concatenate([values.astype(np.float64) * weights, dense.astype(np.float64) * layer.dense[position]])
    if not np.isfinite(added).all():
        raise ModelFormatError("the weights are damaged: some are not finite")
    bias = float(layer.offsets[position])
    raw = math.fsum([bias, *added])
    slope, base = 0.0, 0.0
    if shared:
        base, top = _bent(layer.transform, bias), _bent(layer.transform, raw)
        slope = (top - base) / (raw - bias) if raw != bias else 0.0
    return Level(node, bias, raw, _own(layer.transform, raw), added, added * slope, base)


def _bent(transform: Transform, h: float) -> float:
    """The logarithm of the level's own score, or h itself where nothing is bent."""
    if transform.kind == "noop":
        return h
    if transform.kind in ("sigmoid", "log_sigmoid"):
        return min(h, 0.0) - math.log1p(math.exp(-abs(h)))
    return -math.pow(max(0.0, 1.0 - h), transform.power)


def _own(transform: Transform, h: float) -> float:
    return math.exp(_bent(transform, h)) if transform.kind in _MULTIPLIED else _bent(transform, h)


def _joined(levels: Sequence[Level], layers: Sequence[Layer]) -> float:
    """The label's score, joined level by level as the search does."""
    score: float | None = None
    for level, layer in zip(levels, layers, strict=True):
        kind = layer.transform.kind
        if kind == "noop" or score is None:
            score = level.score
        elif kind in _MULTIPLIED:
            score *= level.score
        else:
            score += level.score
    assert score is not None  # a tree has a level
    return score
