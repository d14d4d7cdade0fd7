"""Decision trees stored as lookup tables, which are scored without traversal and are safe to load from untrusted files.

The leaves of a tree are numbered from left to right. A pair that fails the test at a node cannot reach the leaves in
the left subtree of the node, so the exit leaf of a tree is the first leaf that no failed test excludes (QuickScorer,
Lucchese et al. 2015). For each interval between two cuts of a feature, the remaining leaves are stored as one bit mask
per tree. The masks of all trees are adjacent, so one lookup and one bitwise AND per feature are sufficient to score all
trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from carya.errors import InputError

#: The number of bits in a mask.
MAX_LEAVES = 32
_BLOCK = 4096  # number of pairs scored at a time; their masks fit in the cache


@dataclass(frozen=True, eq=False)
class Forest:
    """Sum of decision trees over float32 features.

    Attributes
    ----------
    cuts : ndarray of float32
        The thresholds of each feature in ascending order, concatenated.
    ends : ndarray of int64, shape (features + 1,)
        The start and end offsets of each feature's cuts.
    masks : ndarray of uint32, shape (cuts + features, trees)
        For each interval of each feature, the leaves of each tree that are reachable with a value in the interval.
    leaves : ndarray of float32, shape (trees, MAX_LEAVES)
    """

    cuts: NDArray[np.float32]
    ends: NDArray[np.int64]
    masks: NDArray[np.uint32]
    leaves: NDArray[np.float32]

    @classmethod
    def of_trees(cls, trees: Sequence[dict[str, Any]], n_features: int) -> Self:
        """Convert trees dumped by LightGBM, in which values less than or equal to the threshold go left."""
        nodes: list[tuple[int, np.float32, int, int]] = []  # feature, cut, tree, mask
        leaves = np.zeros((len(trees), MAX_LEAVES), np.float32)
        for number, tree in enumerate(trees):
            _read(tree["tree_structure"], number, 0, nodes, leaves[number])
        by_feature = [sorted({cut for feature, cut, *_ in nodes if feature == number}) for number in range(n_features)]
        ends = np.cumsum([0, *map(len, by_feature)]).astype(np.int64)
        masks = np.full((ends[-1] + n_features, len(trees)), 2**MAX_LEAVES - 1, np.uint32)
        for feature, cut, number, mask in nodes:
            begin, end = ends[feature] + feature, ends[feature + 1] + feature + 1
            first = by_feature[feature].index(cut) + 1  # the first interval above the cut
            masks[begin + first : end, number] &= np.uint32(mask)
        cuts = np.array([cut for cuts in by_feature for cut in cuts], np.float32)
        return cls(cuts, ends, masks, leaves)

    def __post_init__(self) -> None:
        cuts, ends, masks, leaves = self.cuts, self.ends, self.masks, self.leaves
        if ends.ndim != 1 or ends.size < 2 or ends[0] != 0 or ends[-1] != cuts.size or (np.diff(ends) < 0).any():
            raise InputError("The cuts of the forest do not match its features.")
        if masks.shape != (cuts.size + ends.size - 1, len(leaves)) or leaves.shape[1:] != (MAX_LEAVES,):
            raise InputError("The masks and leaves of the forest do not match its cuts.")
        if not np.isfinite(leaves).all() or np.isnan(cuts).any():
            raise InputError("The leaves of the forest must be finite, and its cuts must not be NaN.")

    @property
    def n_features(self) -> int:
        """The number of features."""
        return self.ends.size - 1

    def score(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the sum of the tree outputs for each row."""
        out = np.empty(len(values), np.float32)
        for begin in range(0, len(values), _BLOCK):
            out[begin : begin + _BLOCK] = self._score(values[begin : begin + _BLOCK])
        return out

    def _score(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        reachable = np.full((len(values), len(self.leaves)), 2**MAX_LEAVES - 1, np.uint32)
        for feature in range(self.n_features):
            begin, end = self.ends[feature], self.ends[feature + 1]
            if begin == end:
                continue
            interval = np.searchsorted(self.cuts[begin:end], values[:, feature], side="left")
            reachable &= self.masks[begin + feature + interval]
        leaf = np.bitwise_count(reachable ^ (reachable - np.uint32(1))) - 1  # the index of the lowest set bit
        values_of_trees = np.take(self.leaves.reshape(-1), leaf + np.arange(len(self.leaves)) * MAX_LEAVES)
        return np.asarray(values_of_trees.sum(axis=1, dtype=np.float64), np.float32)


def _read(
    node: dict[str, Any], tree: int, leaf: int, nodes: list[tuple[int, np.float32, int, int]], leaves: Any
) -> int:
    """Collect the cuts and leaves of a subtree; return the index of the leaf that follows its last leaf."""
    if "split_feature" not in node:
        if leaf >= MAX_LEAVES:
            raise InputError(f"Trees must have at most {MAX_LEAVES} leaves, got a tree with more.")
        leaves[leaf] = node["leaf_value"]
        return leaf + 1
    middle = _read(node["left_child"], tree, leaf, nodes, leaves)
    excluded = (1 << middle) - (1 << leaf)
    nodes.append((int(node["split_feature"]), _round_down(node["threshold"]), tree, (2**MAX_LEAVES - 1) & ~excluded))
    return _read(node["right_child"], tree, middle, nodes, leaves)


def _round_down(threshold: float) -> np.float32:
    """Return the largest float32 <= threshold, which splits float32 values exactly as the threshold does.

    >>> float(_round_down(0.1)) <= 0.1, float(_round_down(0.5))
    (True, 0.5)
    """
    nearest = np.float32(threshold)
    return nearest if float(nearest) <= threshold else np.nextafter(nearest, np.float32(-np.inf))
