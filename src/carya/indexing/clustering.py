"""Label trees by recursive partitioning (paper, algorithm 1)."""

from __future__ import annotations

import numpy as np

from carya import _core
from carya.core.matrices import Features
from carya.core.progress import Report
from carya.errors import ParameterError
from carya.trees.label_tree import LabelTree

#: More levels than any tree needs: unbalanced trees stop by themselves.
_MANY = 64


def plan(n_labels: int, branching: int, max_leaf: int, max_depth: int | None) -> list[int]:
    """Into how many clusters each level of a balanced tree cuts those of the level above.

    Full levels have `branching` children; what does not divide is left to the root, which has fewer. With `max_depth`
    layers at most, the last clusters may be larger than `max_leaf`.

    >>> plan(22_367, 32, 100, None)          # 7 clusters, then 7 x 32 = 224 of at most 100 labels
    [7, 32]
    >>> plan(80, 32, 100, None)
    []
    """
    for value, name, least in (
        (branching, "branching", 2),
        (max_leaf, "max_leaf", 1),
        (max_depth or 1, "max_depth", 1),
    ):
        if value < least:
            raise ParameterError(f"{name} must be an integer of at least {least}, got {value!r}")
    needed = -(-n_labels // max_leaf)
    levels = 0
    while branching**levels < needed:
        levels += 1
    if max_depth is not None and levels > max_depth - 1:
        levels = max_depth - 1
        return [branching] * levels
    if levels == 0:
        return []
    return [-(-needed // branching ** (levels - 1))] + [branching] * (levels - 1)


def cluster(
    representation: Features,
    *,
    branching: int = 32,
    max_leaf: int = 100,
    max_depth: int | None = None,
    spherical: bool = True,
    balanced: bool = True,
    bisect: bool = True,
    max_iter: int = 20,
    seed: int = 0,
    threads: int = 1,
    report: Report = None,
) -> LabelTree:
    """A label tree by (spherical) k-means, level by level.

    Parameters
    ----------
    representation : Features, one row a label
    branching : int
        B, the most children of a cluster.
    max_leaf : int
        The most labels in a last cluster.
    max_depth : int, optional
        The most layers; 1 gives no clusters at all.
    spherical : bool
        Compare by angle; otherwise by distance.
    balanced : bool
        Clusters of equal size; otherwise whatever k-means finds.
    bisect : bool
        Reach B clusters by splits in two; otherwise with B centres at once.
    """
    shape = plan(representation.rows, branching, max_leaf, max_depth)
    if not balanced:
        shape = [branching] * (_MANY if max_depth is None else max_depth - 1)
    levels = _core.partition(
        representation.native,
        shape,
        0 if balanced else max_leaf,
        spherical,
        balanced,
        bisect,
        max_iter,
        0.01,
        seed,
        max(threads, 1),
        report,
    )
    return LabelTree.from_clusters(levels, representation.rows)


def random_tree(
    n_labels: int, *, branching: int = 32, max_leaf: int = 100, max_depth: int | None = None, seed: int = 0
) -> LabelTree:
    """A balanced tree with the labels in random order: what clustering has to beat.

    >>> random_tree(1000, branching=4, max_leaf=100).level_sizes
    (1, 3, 12, 1000)
    """
    place = np.random.default_rng(seed).permutation(n_labels)
    clusters = []
    size = 1
    for parts in plan(n_labels, branching, max_leaf, max_depth):
        size *= parts
        clusters.append((place * min(size, n_labels) // n_labels).astype(np.int32))
    return LabelTree.from_clusters(clusters, n_labels)
