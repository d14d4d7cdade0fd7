"""Boosted trees as tables: scored without walking, and safe to open from any file.

The leaves of a tree are numbered from left to right. A pair that does not pass a node cannot reach the leaves on the
left of it, whatever else it is; so a tree's answer is the first leaf that no failed node rules out (QuickScorer,
Lucchese et al. 2015). For every feature and every interval between two cuts, the leaves that are left are one bit mask
a tree, all trees side by side: scoring is one look-up and one AND a feature, for all trees at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from carya.errors import InputError

#: The bits of a mask.
MOST_LEAVES = 32
_BLOCK = 4096  # pairs scored at a time, so that their masks stay in cache


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees over float32 features; the score of a pair is the sum of one leaf of each.

    Attributes
    ----------
    cuts : ndarray of float32
        Where each feature is cut, ascending, feature by feature.
    ends : ndarray of int64, shape (features + 1,)
        Where the cuts of each feature begin.
    masks : ndarray of uint32, shape (cuts + features, trees)
        For each interval of each feature, the leaves of each tree that a value in it leaves over.
    leaves : ndarray of float32, shape (trees, MOST_LEAVES)
    """

    cuts: NDArray[np.float32]
    ends: NDArray[np.int64]
    masks: NDArray[np.uint32]
    leaves: NDArray[np.float32]

    @classmethod
    def of_trees(cls, trees: Sequence[dict[str, Any]], n_features: int) -> Self:
        """From trees as LightGBM dumps them: a node passes, and goes left, with a value up to its threshold."""
        nodes: list[tuple[int, np.float32, int, int]] = []  # feature, cut, tree, mask
        leaves = np.zeros((len(trees), MOST_LEAVES), np.float32)
        for number, tree in enumerate(trees):
            _read(tree["tree_structure"], number, 0, nodes, leaves[number])
        by_feature = [sorted({cut for feature, cut, *_ in nodes if feature == one}) for one in range(n_features)]
        ends = np.cumsum([0, *map(len, by_feature)]).astype(np.int64)
        masks = np.full((ends[-1] + n_features, len(trees)), 2**MOST_LEAVES - 1, np.uint32)
        for feature, cut, number, mask in nodes:
            begin, end = ends[feature] + feature, ends[feature + 1] + feature + 1
            first = by_feature[feature].index(cut) + 1  # the first interval above the cut
            masks[begin + first : end, number] &= np.uint32(mask)
        cuts = np.array([cut for some in by_feature for cut in some], np.float32)
        return cls(cuts, ends, masks, leaves)

    def __post_init__(self) -> None:
        cuts, ends, masks, leaves = self.cuts, self.ends, self.masks, self.leaves
        if ends.ndim != 1 or ends.size < 2 or ends[0] != 0 or ends[-1] != cuts.size or (np.diff(ends) < 0).any():
            raise InputError("the cuts of the trees do not belong to features")
        if masks.shape != (cuts.size + ends.size - 1, len(leaves)) or leaves.shape[1:] != (MOST_LEAVES,):
            raise InputError("the parts of the trees do not fit together")
        if not np.isfinite(leaves).all() or np.isnan(cuts).any():
            raise InputError("the trees have leaves or cuts that are not finite")

    @property
    def n_features(self) -> int:
        """How many features it takes."""
        return self.ends.size - 1

    def score(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """The sum of the trees for each row."""
        out = np.empty(len(values), np.float32)
        for begin in range(0, len(values), _BLOCK):
            out[begin : begin + _BLOCK] = self._score(values[begin : begin + _BLOCK])
        return out

    def _score(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        left = np.full((len(values), len(self.leaves)), 2**MOST_LEAVES - 1, np.uint32)
        for feature in range(self.n_features):
            begin, end = self.ends[feature], self.ends[feature + 1]
            if begin == end:
                continue
            interval = np.searchsorted(self.cuts[begin:end], values[:, feature], side="left")
            left &= self.masks[begin + feature + interval]
        leaf = np.bitwise_count(left ^ (left - np.uint32(1))) - 1  # the number of the lowest bit
        found = np.take(self.leaves.reshape(-1), leaf + np.arange(len(self.leaves)) * MOST_LEAVES)
        return np.asarray(found.sum(axis=1, dtype=np.float64), np.float32)


def _read(
    node: dict[str, Any], tree: int, leaf: int, nodes: list[tuple[int, np.float32, int, int]], leaves: Any
) -> int:
    """Note the cuts and leaves below a node whose first leaf has that number; gives the number behind its last."""
    if "split_feature" not in node:
        if leaf >= MOST_LEAVES:
            raise InputError(f"a tree has more than {MOST_LEAVES} leaves")
        leaves[leaf] = node["leaf_value"]
        return leaf + 1
    middle = _read(node["left_child"], tree, leaf, nodes, leaves)
    ruled_out = (1 << middle) - (1 << leaf)
    nodes.append((int(node["split_feature"]), _down(node["threshold"]), tree, (2**MOST_LEAVES - 1) & ~ruled_out))
    return _read(node["right_child"], tree, middle, nodes, leaves)


def _down(threshold: float) -> np.float32:
    """The largest float32 up to a number: what is a float32 passes the one exactly if it passes the other.

    >>> float(_down(0.1)) <= 0.1, float(_down(0.5))
    (True, 0.5)
    """
    near = np.float32(threshold)
    return near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf))
