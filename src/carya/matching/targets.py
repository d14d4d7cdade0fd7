"""What each level of the tree is trained to find: the labels, and above them the clusters they lie in."""

from __future__ import annotations

from carya import sparse as sp
from carya.matrices import Csr
from carya.tree import LabelTree


def level_targets(labels: Csr, tree: LabelTree, *, costs: str = "none", assigned: Csr | None = None) -> list[Csr]:
    """Y⁽¹⁾ … Y⁽ᴰ⁾, each rows x nodes: Y⁽ᴰ⁾ is Y, and Y⁽ᵗ⁾ says which nodes of level t hold a label of the row.

    Where clusters overlap, Y⁽ᴰ⁾ has every leaf of a label. The clusters are those of the leaves that rows were assigned
    to, or of all leaves if they were not.

    Parameters
    ----------
    labels : Csr, rows x labels
    tree : LabelTree
    costs : {"none", "induce", "leaf"}
        What the values mean: nothing (all become 1); the cost of missing a label, summed up along the tree; or that
        cost for the labels only.
    """
    if tree.leaf_labels is not None:
        labels = Csr.of_scipy(sp.csr_array(labels.to_scipy()[:, tree.leaf_labels]))
    targets = [labels if costs != "none" else labels.with_values(1)]
    below = targets[0] if assigned is None else assigned if costs != "none" else assigned.with_values(1)
    for level in range(tree.depth - 1, 0, -1):
        below = below.merge_columns(tree.parents[level], tree.level_sizes[level])
        below = below if costs == "induce" else below.with_values(1)
        targets.insert(0, below)
    return targets
