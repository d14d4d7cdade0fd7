"""Build label trees by recursive partitioning (algorithm 1 in the paper)."""

from __future__ import annotations

import numpy as np

from carya import _core
from carya.core.matrices import Features
from carya.core.progress import Report
from carya.core.rules import Choice, Either, Integer, check
from carya.trees.label_tree import LabelTree

#: Depth limit of unbalanced trees; in practice, they stop growing earlier, when clusters reach `max_leaf_size`.
_MAX_LEVELS = 64
#: A bisection has converged when less than this fraction of the labels change sides in an iteration.
_MIN_MOVED = 0.01
#: Groups with at least twice this many labels are first bisected on a sample of this size or of 1/16 of the labels,
#: whichever is larger.
_SAMPLE_SIZE = 1024


def plan(n_labels: int, branching: int, max_leaf_size: int, max_depth: int | None) -> list[int]:
    """Return the number of children per cluster at each level of a balanced tree.

    Every cluster has `branching` children, except for the root, which has as many as necessary. If `max_depth` limits
    the number of layers, leaf clusters can be larger than `max_leaf_size`.

    >>> plan(22_367, 32, 100, None)          # 7 clusters, then 7 x 32 = 224 clusters with at most 100 labels each
    [7, 32]
    >>> plan(80, 32, 100, None)
    []
    """
    check("branching", branching, Integer(2))
    check("max_leaf_size", max_leaf_size, Integer(1))
    check("max_depth", max_depth, Either(Integer(1), Choice(None)))
    n_leaves = -(-n_labels // max_leaf_size)
    levels = 0
    while branching**levels < n_leaves:
        levels += 1
    if max_depth is not None and levels > max_depth - 1:
        levels = max_depth - 1
        return [branching] * levels
    if levels == 0:
        return []
    return [-(-n_leaves // branching ** (levels - 1))] + [branching] * (levels - 1)


def cluster(
    representation: Features | _core.LabelGroup,
    *,
    branching: int = 32,
    max_leaf_size: int = 100,
    max_depth: int | None = None,
    spherical: bool = True,
    balanced: bool = True,
    bisect: bool = True,
    max_iter: int = 20,
    seed: int = 0,
    threads: int = 1,
    report: Report = None,
) -> LabelTree:
    """Build a label tree level by level with (spherical) k-means.

    Parameters
    ----------
    representation : Features or LabelGroup
        One row per label.
    branching : int
        B, the maximum number of children per cluster.
    max_leaf_size : int
        The maximum number of labels per leaf cluster.
    max_depth : int, optional
        The maximum number of layers; 1 means no clusters.
    spherical : bool
        Whether to compare labels by cosine similarity instead of Euclidean distance.
    balanced : bool
        Whether to create clusters of equal size.
    bisect : bool
        Whether to create the B clusters by repeated bisection instead of k-means with k = B.
    """
    threads = max(threads, 1)
    group = _core.LabelGroup(representation.native, threads) if isinstance(representation, Features) else representation
    shape = plan(group.size, branching, max_leaf_size, max_depth)
    if not balanced:
        shape = [branching] * (_MAX_LEVELS if max_depth is None else max_depth - 1)
    levels = _core.partition(
        group,
        shape,
        0 if balanced else max_leaf_size,
        spherical,
        balanced,
        bisect,
        max_iter,
        _MIN_MOVED,
        _SAMPLE_SIZE,
        seed,
        threads,
        report,
    )
    return LabelTree.from_clusters(levels, group.size)


def random_tree(
    n_labels: int, *, branching: int = 32, max_leaf_size: int = 100, max_depth: int | None = None, seed: int = 0
) -> LabelTree:
    """Build a balanced tree with randomly assigned labels, as a baseline for clustering.

    >>> random_tree(1000, branching=4, max_leaf_size=100).level_sizes
    (1, 3, 12, 1000)
    """
    place = np.random.default_rng(seed).permutation(n_labels)
    clusters = []
    size = 1
    for children in plan(n_labels, branching, max_leaf_size, max_depth):
        size *= children
        clusters.append((place * min(size, n_labels) // n_labels).astype(np.int32))
    return LabelTree.from_clusters(clusters, n_labels)
