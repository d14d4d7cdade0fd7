"""A trained label tree: the tree, one layer per level, and the width of its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from carya.trees.label_tree import LabelTree
from carya.trees.layer import Layer
from carya.trees.layouts import TYPICAL_FEATURES


@dataclass(frozen=True, eq=False)
class Learned:
    """All that training an XR-Linear model finds out.

    Attributes
    ----------
    tree : LabelTree
    layers : list of Layer
    widths : tuple of int
        How many features are sparse, how many dense.
    row_features : float
        How many sparse features a training row had on average.
    """

    tree: LabelTree
    layers: Sequence[Layer]
    widths: tuple[int, int]
    row_features: float = TYPICAL_FEATURES

    def with_precision(self, precision: str, *, threads: int = 1) -> Learned:
        """The same with weights kept otherwise."""
        return replace(self, layers=[layer.with_precision(precision, threads=threads) for layer in self.layers])
