"""Training targets for each tree level: the labels and, at the levels above, the clusters that contain them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr
from carya.trees.label_tree import LabelTree


@dataclass(frozen=True)
class RelevanceCosts:
    """Settings for converting the values of Y to misclassification costs.

    Attributes
    ----------
    mode : {"none", "induce", "leaf"}
        "none" ignores the values (all costs are 1), "induce" uses them as label costs and their sums as cluster costs,
        and "leaf" uses them only as label costs.
    norm : {"none", "l1", "l2", "max"}
        The norm by which the costs of each row are divided at every level that uses costs.
    """

    mode: str = "none"
    norm: str = "none"

    def normalize(self, targets: Csr) -> Csr:
        """Divide the costs of each row by their norm."""
        if self.norm == "none":
            return targets
        rows = np.repeat(np.arange(targets.rows), np.diff(targets.indptr))
        values = targets.values.astype(np.float64)
        if self.norm == "max":
            norms: NDArray[np.float64] = np.zeros(targets.rows)
            np.maximum.at(norms, rows, values)
        else:
            power = 1 if self.norm == "l1" else 2
            norms = np.power(np.bincount(rows, values**power, minlength=targets.rows), 1 / power)
        return Csr.of(targets.indptr, targets.indices, (values / norms[rows]).astype(np.float32), targets.cols)


def level_targets(
    labels: Csr,
    tree: LabelTree,
    *,
    costs: RelevanceCosts | None = None,
    assigned: Csr | None = None,
    threads: int = 1,
) -> list[Csr]:
    """Return the targets Y⁽¹⁾ … Y⁽ᴰ⁾, each of shape (rows, nodes).

    Y⁽ᴰ⁾ is Y, and Y⁽ᵗ⁾ marks the nodes at level t that contain a label of the row. If clusters overlap, Y⁽ᴰ⁾ contains
    every leaf of a label.

    Parameters
    ----------
    labels : Csr of shape (rows, labels)
    tree : LabelTree
    costs : RelevanceCosts, optional
        How values are converted to costs; by default, all costs are 1.
    assigned : Csr of shape (rows, leaves), optional
        The leaves whose clusters are the targets at the levels above; by default, all leaves of the row's labels.
    """
    costs = costs or RelevanceCosts()
    if tree.leaf_labels is not None:
        of_leaves = sp.csr_array(labels.to_scipy()[:, tree.leaf_labels])
        of_leaves.sort_indices()  # SciPy 1.13 returns them unsorted if columns are repeated
        labels = Csr.of_scipy(of_leaves)
    below = labels if assigned is None else assigned
    targets = [costs.normalize(labels) if costs.mode != "none" else labels.with_values(1)]
    for level in range(tree.depth - 1, 0, -1):
        below = below.merge_columns(tree.parents[level], tree.level_sizes[level], threads)
        targets.insert(0, costs.normalize(below) if costs.mode == "induce" else below.with_values(1))
    return targets
