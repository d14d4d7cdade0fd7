"""Trained label trees: the tree, one layer per level, and the numbers of sparse and dense features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from carya.trees.label_tree import LabelTree
from carya.trees.layer import AddedNodes, Layer
from carya.trees.layout_choice import TYPICAL_FEATURES
from carya.trees.transforms import Transform


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

    def with_transform(self, transforms: Sequence[str]) -> TrainedTree:
        """Return a copy of the tree with the given transforms, one name per layer; the copy shares the weights."""
        layers = [
            replace(layer, transform=Transform.from_name(name))
            for layer, name in zip(self.layers, transforms, strict=True)
        ]
        return replace(self, layers=layers)

    def subset(self, labels: NDArray[np.int32], *, threads: int = 1) -> TrainedTree:
        """Return the tree restricted to the given labels (in ascending order) and to the clusters that contain them."""
        tree, nodes = self.tree.subset(labels)
        layers = []
        for level, (layer, kept) in enumerate(zip(self.layers, nodes, strict=True), 1):
            order, chunks = tree.children(level)
            parents = np.zeros(1, np.int32) if level == 1 else nodes[level - 2]
            layers.append(layer.take(layer.positions[kept[order]], parents, chunks, order, threads=threads))
        return replace(self, tree=tree, layers=layers)

    def with_labels(self, clusters: Sequence[NDArray[np.int32]], added: AddedNodes, *, threads: int = 1) -> TrainedTree:
        """Return the tree with additional labels; all other weights stay exactly the same.

        Parameters
        ----------
        clusters : sequence of ndarray of int32
            For each new label, its clusters; see :meth:`LabelTree.with_labels`.
        added : AddedNodes
            The rankers of the new leaves, grouped by cluster.
        """
        tree = self.tree.with_labels(clusters)
        order, chunks = tree.children(tree.depth)
        last = self.layers[-1].insert(added, chunks, order, threads=threads)
        return replace(self, tree=tree, layers=[*self.layers[:-1], last])
