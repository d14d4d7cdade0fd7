"""What each level of the tree is trained to find: the labels, and above them the clusters they lie in."""

from __future__ import annotations

from carya.matrices import Csr
from carya.tree import LabelTree


def level_targets(labels: Csr, tree: LabelTree, *, costs: str = "none") -> list[Csr]:
    """Y⁽¹⁾ … Y⁽ᴰ⁾, each rows x nodes: Y⁽ᴰ⁾ is Y, and Y⁽ᵗ⁾ says which nodes of level t hold a label of the row.

    Parameters
    ----------
    labels : Csr, rows x labels
    tree : LabelTree
    costs : {"none", "induce", "leaf"}
        What the values mean: nothing (all become 1); the cost of missing a label, summed up along the tree; or that
        cost for the labels only.
    """
    targets = [labels if costs != "none" else labels.with_values(1)]
    for level in range(tree.depth - 1, 0, -1):
        above = targets[0].merge_columns(tree.parents[level], tree.level_sizes[level])
        targets.insert(0, above if costs == "induce" else above.with_values(1))
    return targets
