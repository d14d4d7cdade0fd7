"""Trained label trees: the tree, one layer per level, and the numbers of sparse and dense features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from carya.trees.label_tree import LabelTree
from carya.trees.layer import Layer
from carya.trees.layouts import TYPICAL_FEATURES


@dataclass(frozen=True, eq=False)
class TrainedTree:
    """Result of training an XR-Linear model.

    Attributes
    ----------
    tree : LabelTree
    layers : list of Layer
    widths : tuple of int
        The numbers of sparse and dense features.
    row_features : float
        The mean number of sparse features per training row.
    """

    tree: LabelTree
    layers: Sequence[Layer]
    widths: tuple[int, int]
    row_features: float = TYPICAL_FEATURES

    def with_weight_dtype(self, weight_dtype: str, *, threads: int = 1) -> TrainedTree:
        """Return a copy of the tree that stores its weights in a different data type."""
        return replace(self, layers=[layer.with_weight_dtype(weight_dtype, threads=threads) for layer in self.layers])
