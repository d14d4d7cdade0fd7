"""Overlapping clusters (Liu et al. 2021): a label with several meanings belongs to one cluster per meaning.

Clustering assigns each label to a single cluster, based on the mean of its rows; the matcher assigns rows with a
different meaning to other clusters, which do not contain the label. Therefore, after the matcher is trained, each label
receives additional leaves in the clusters with the largest gains: the amounts by which their matcher scores exceed the
score of the label's own cluster, summed over the rows of the label. The model is then retrained on the extended tree,
in which each row is assigned to the leaf whose cluster has the highest score.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr
from carya.trees.label_tree import LabelTree

#: The minimum gain from an additional leaf, per row with its label; smaller gains do not justify the additional time.
MIN_GAIN = 0.05

_BLOCK = 1 << 20  # number of entries processed at a time


def add_leaves(
    tree: LabelTree,
    labels: Csr,
    matched: Csr,
    *,
    clusters_per_label: int,
    sample_weight: NDArray[np.float32] | None = None,
) -> tuple[LabelTree, Csr]:
    """Give labels additional leaves in the clusters to which the matcher assigns their rows.

    Parameters
    ----------
    tree : LabelTree
        A tree with at least two levels and one leaf per label.
    labels : Csr of shape (rows, labels)
    matched : Csr of shape (rows, clusters at the level above the labels)
        The matcher's scores for the clusters in each row's beam, between 0 and 1.
    clusters_per_label : int
        The maximum number of leaves per label.
    sample_weight : ndarray of float32, shape (rows,), optional
        Positive weights of the rows, by which their gains are multiplied.

    Returns
    -------
    tree : LabelTree
    assigned : Csr of shape (rows, leaves)
        The leaf assigned to each (row, label) entry; has the same number of entries and the same values as `labels`.
    """
    home = tree.parents[-1]
    n_clusters = tree.level_sizes[-2]
    gains = sp.csr_array((tree.n_labels, n_clusters), dtype=np.float32)
    for entries in _blocks(labels):
        label, (entry, cluster, score) = labels.indices[entries], _clusters_of(labels, matched, entries)
        gain = score - _score_of(labels, matched, entries, home[label])[entry]
        better = gain > 0
        coordinates = (label[entry[better]], cluster[better])
        if sample_weight is not None:
            gain = gain * sample_weight[_rows_of(labels, entries)[entry]]
        gains = gains + sp.csr_array(sp.coo_array((gain[better], coordinates), shape=gains.shape))
    counts = labels.column_counts() if sample_weight is None else _weighted_counts(labels, sample_weight)
    label, cluster = _select(gains, counts, np.bincount(home), clusters_per_label)
    leaf_labels = np.concatenate([np.arange(tree.n_labels, dtype=np.int32), label])
    order = np.argsort(leaf_labels, kind="stable")  # the first leaf of a label remains in its home cluster
    parents = np.concatenate([home, cluster])[order]
    extended = LabelTree([*tree.parents[:-1], parents], leaf_labels[order])
    return extended, _assign(extended, labels, matched)


def restrict_targets(targets: Csr, parents: NDArray[np.int32], shortlist: Csr) -> Csr:
    """Return the targets, of shape (rows, leaves), restricted to leaves whose clusters are in the row's shortlist."""
    inside = np.concatenate(
        [_score_of(targets, shortlist, entries, parents[targets.indices[entries]]) > 0 for entries in _blocks(targets)]
    )
    kept = np.concatenate([[0], np.cumsum(inside)])
    return Csr.of(kept[targets.indptr], targets.indices[inside], targets.values[inside], targets.cols)


def _select(
    gains: sp.csr_array, rows: NDArray[Any], sizes: NDArray[np.int64], clusters_per_label: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the labels that receive additional leaves, and the clusters of these leaves.

    First, each cluster accepts the labels with the highest gains per row until it has `clusters_per_label` times its
    original size; otherwise, the most popular cluster would contain most labels and become slow to search. Then, each
    label keeps the clusters with the highest gains among those that accepted it.
    """
    label = np.repeat(np.arange(gains.shape[0], dtype=np.int32), np.diff(gains.indptr))
    cluster, gain = gains.indices.astype(np.int32), gains.data / rows[label]
    for by_label in (False, True):
        group = label if by_label else cluster
        capacity = np.full(rows.size, clusters_per_label - 1) if by_label else (clusters_per_label - 1) * sizes
        order = np.lexsort((label, cluster, -gain, group))
        sorted_group = group[order]
        rank = np.arange(order.size) - np.searchsorted(sorted_group, sorted_group)
        kept = np.sort(order[(rank < capacity[sorted_group]) & (gain[order] >= MIN_GAIN)])
        label, cluster, gain = label[kept], cluster[kept], gain[kept]
    return label, cluster


def _assign(tree: LabelTree, labels: Csr, matched: Csr) -> Csr:
    """Assign every (row, label) entry to the leaf whose cluster has the highest score for the row."""
    assert tree.leaf_labels is not None  # created by add_leaves
    # The index of the first leaf of each label, followed by the number of leaves.
    first = np.searchsorted(tree.leaf_labels, np.arange(tree.n_labels + 1)).astype(np.int32)
    leaves = []
    for entries in _blocks(labels):
        label = labels.indices[entries]
        best = first[label].copy()
        best_score = _score_of(labels, matched, entries, tree.parents[-1][best])
        for step in range(1, int(np.diff(first).max(initial=1))):
            leaf = np.minimum(first[label] + step, first[label + 1] - 1)
            score = _score_of(labels, matched, entries, tree.parents[-1][leaf])
            better = score > best_score
            best[better], best_score[better] = leaf[better], score[better]
        leaves.append(best)
    # Leaves are sorted by label, so the columns of each row remain in ascending order.
    return Csr.of(labels.indptr, np.concatenate(leaves), labels.values, tree.parents[-1].size)


def _weighted_counts(labels: Csr, sample_weight: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the sum of the row weights for each label."""
    weights = np.repeat(sample_weight.astype(np.float64), np.diff(labels.indptr))
    counts: NDArray[np.float64] = np.bincount(labels.indices, weights, minlength=labels.cols).astype(np.float64)
    return counts


def _blocks(matrix: Csr) -> Iterator[slice]:
    """Yield slices that divide the entries of a matrix into blocks."""
    for begin in range(0, max(matrix.indices.size, 1), _BLOCK):
        yield slice(begin, min(begin + _BLOCK, matrix.indices.size))


def _rows_of(matrix: Csr, entries: slice) -> NDArray[np.int64]:
    return np.searchsorted(matrix.indptr, np.arange(entries.start, entries.stop), side="right") - 1


def _clusters_of(
    labels: Csr, matched: Csr, entries: slice
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """Return the clusters matched for the row of each given entry, as arrays (entry, cluster, score)."""
    row = _rows_of(labels, entries)
    count = (matched.indptr[row + 1] - matched.indptr[row]).astype(np.int64)
    entry = np.repeat(np.arange(row.size), count)
    match = np.arange(entry.size) - np.repeat(np.cumsum(count) - count, count) + matched.indptr[row][entry]
    return entry, matched.indices[match], matched.values[match]


def _score_of(labels: Csr, matched: Csr, entries: slice, cluster: NDArray[np.int32]) -> NDArray[np.float32]:
    """Return the score of the given cluster for each entry's row, or 0 if the cluster is not in the row's beam."""
    key = _rows_of(labels, entries) * matched.cols + cluster
    rows = np.repeat(np.arange(matched.rows, dtype=np.int64), np.diff(matched.indptr))
    keys = rows * matched.cols + matched.indices
    if keys.size == 0:
        return np.zeros(key.size, np.float32)
    nearest = np.minimum(np.searchsorted(keys, key), keys.size - 1)
    return np.where(keys[nearest] == key, matched.values[nearest], np.float32(0))
