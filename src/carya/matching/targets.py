"""What each level of the tree is trained to find: the labels, and above them the clusters they lie in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr
from carya.trees.label_tree import LabelTree


@dataclass(frozen=True)
class Costs:
    """What the values of Y mean, and how the costs of a row are scaled.

    Attributes
    ----------
    kind : {"none", "induce", "leaf"}
        Nothing (all become 1); the cost of missing a label, summed up along the tree; or that cost for the labels only.
    norm : {"none", "l1", "l2", "max"}
        By what the costs of a row are divided, at every level that has costs.
    """

    kind: str = "none"
    norm: str = "none"

    def scaled(self, targets: Csr) -> Csr:
        """The targets with their rows scaled."""
        if self.norm == "none":
            return targets
        rows = np.repeat(np.arange(targets.rows), np.diff(targets.indptr))
        values = targets.values.astype(np.float64)
        if self.norm == "max":
            size: NDArray[np.float64] = np.zeros(targets.rows)
            np.maximum.at(size, rows, values)
        else:
            power = 1 if self.norm == "l1" else 2
            size = np.power(np.bincount(rows, values**power, minlength=targets.rows), 1 / power)
        return Csr.of(targets.indptr, targets.indices, (values / size[rows]).astype(np.float32), targets.cols)


def level_targets(
    labels: Csr, tree: LabelTree, *, costs: Costs | None = None, assigned: Csr | None = None
) -> list[Csr]:
    """Y⁽¹⁾ … Y⁽ᴰ⁾, each rows x nodes: Y⁽ᴰ⁾ is Y, and Y⁽ᵗ⁾ says which nodes of level t hold a label of the row.

    Where clusters overlap, Y⁽ᴰ⁾ has every leaf of a label. The clusters are those of the leaves that rows were assigned
    to, or of all leaves if they were not.

    Parameters
    ----------
    labels : Csr, rows x labels
    tree : LabelTree
    costs : Costs
        What the values mean; they are 1 where they mean nothing.
    """
    costs = costs or Costs()
    if tree.leaf_labels is not None:
        labels = Csr.of_scipy(sp.csr_array(labels.to_scipy()[:, tree.leaf_labels]))
    below = labels if assigned is None else assigned
    targets = [costs.scaled(labels) if costs.kind != "none" else labels.with_values(1)]
    for level in range(tree.depth - 1, 0, -1):
        below = below.merge_columns(tree.parents[level], tree.level_sizes[level])
        targets.insert(0, costs.scaled(below) if costs.kind == "induce" else below.with_values(1))
    return targets
