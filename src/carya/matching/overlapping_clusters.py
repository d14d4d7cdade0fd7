"""Overlapping clusters (Liu et al. 2021): a label of several meanings lies in a cluster of each.

A tree puts a label where its rows are on average. Rows of another meaning are brought elsewhere by the matcher and
never find it. So once a matcher is trained, it says itself where labels belong: a label gets a leaf in the cluster too
that the matcher is surer of than of the label's own, summed over its rows. All is then trained anew on that tree, each
row for the leaf whose cluster it was brought to.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr
from carya.trees.label_tree import LabelTree

#: The gain for another leaf, a row of the label: below it, a leaf costs more time than it finds.
LEAST_GAIN = 0.05

_PAIRS_AT_ONCE = 1 << 20


def overlap(tree: LabelTree, labels: Csr, matched: Csr, *, copies: int) -> tuple[LabelTree, Csr]:
    """The tree with up to `copies` leaves for each label, and which leaf each row is to find its labels at.

    Parameters
    ----------
    tree : LabelTree
        With one leaf a label; of at least two levels.
    labels : Csr, rows x labels
    matched : Csr, rows x clusters of the level above the labels
        How sure the matcher is of each cluster that it brings a row to, from 0 to 1.
    copies : int
        The most leaves of a label.

    Returns
    -------
    tree : LabelTree
    assigned : Csr, rows x leaves
        With as many entries as `labels`, and their values.
    """
    own = tree.parents[-1]
    clusters = tree.level_sizes[-2]
    gains = sp.csr_array((tree.n_labels, clusters), dtype=np.float32)
    for pairs in _pieces(labels):
        label, (pair, cluster, sure) = labels.indices[pairs], _matches(labels, matched, pairs)
        gain = sure - _found(labels, matched, pairs, own[label])[pair]
        better = gain > 0
        entries = (gain[better], (label[pair[better]], cluster[better]))
        gains = gains + sp.csr_array(sp.coo_array(entries, shape=gains.shape))
    label, cluster = _choose(gains, labels.column_counts(), np.bincount(own), copies)
    leaf_labels = np.concatenate([np.arange(tree.n_labels, dtype=np.int32), label])
    order = np.argsort(leaf_labels, kind="stable")  # so that the first leaf of a label is in its own cluster
    parents = np.concatenate([own, cluster])[order]
    overlapping = LabelTree([*tree.parents[:-1], parents], leaf_labels[order])
    return overlapping, _assign(overlapping, labels, matched)


def _choose(
    gains: sp.csr_array, rows: NDArray[np.int64], sizes: NDArray[np.int64], copies: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The labels that get another leaf, and the clusters they get it in.

    Every cluster takes those that gain most a row, until it is `copies` times as large: one that most rows are brought
    to would otherwise take most labels, and be slow. Of those that take it, a label takes the best few.
    """
    label = np.repeat(np.arange(gains.shape[0], dtype=np.int32), np.diff(gains.indptr))
    cluster, gain = gains.indices.astype(np.int32), gains.data / rows[label]
    for by_label in (False, True):
        group = label if by_label else cluster
        room = np.full(rows.size, copies - 1) if by_label else (copies - 1) * sizes
        order = np.lexsort((label, cluster, -gain, group))
        sorted_group = group[order]
        place = np.arange(order.size) - np.searchsorted(sorted_group, sorted_group)
        kept = np.sort(order[(place < room[sorted_group]) & (gain[order] >= LEAST_GAIN)])
        label, cluster, gain = label[kept], cluster[kept], gain[kept]
    return label, cluster


def within(targets: Csr, parents: NDArray[np.int32], shortlist: Csr) -> Csr:
    """The targets, rows x leaves, whose clusters are in the shortlist of their row, rows x clusters."""
    inside = np.concatenate(
        [_found(targets, shortlist, pairs, parents[targets.indices[pairs]]) > 0 for pairs in _pieces(targets)]
    )
    kept = np.concatenate([[0], np.cumsum(inside)])
    return Csr.of(kept[targets.indptr], targets.indices[inside], targets.values[inside], targets.cols)


def _assign(tree: LabelTree, labels: Csr, matched: Csr) -> Csr:
    """Every label of every row at one of its leaves: the one whose cluster the row was brought to most surely."""
    assert tree.leaf_labels is not None  # it is the tree that was just made
    first = np.searchsorted(tree.leaf_labels, np.arange(tree.n_labels + 1)).astype(np.int32)  # leaf of each label
    leaves = []
    for pairs in _pieces(labels):
        label = labels.indices[pairs]
        best = first[label].copy()
        surest = _found(labels, matched, pairs, tree.parents[-1][best])
        for step in range(1, int(np.diff(first).max(initial=1))):
            leaf = np.minimum(first[label] + step, first[label + 1] - 1)
            sure = _found(labels, matched, pairs, tree.parents[-1][leaf])
            better = sure > surest
            best[better], surest[better] = leaf[better], sure[better]
        leaves.append(best)
    # Leaves are in the order of their labels, so columns ascend as they did.
    return Csr.of(labels.indptr, np.concatenate(leaves), labels.values, tree.parents[-1].size)


def _pieces(matrix: Csr) -> Iterator[slice]:
    """The entries of a matrix a million at a time."""
    for begin in range(0, max(matrix.indices.size, 1), _PAIRS_AT_ONCE):
        yield slice(begin, min(begin + _PAIRS_AT_ONCE, matrix.indices.size))


def _rows(matrix: Csr, pairs: slice) -> NDArray[np.int64]:
    """The row of each of some entries."""
    return np.searchsorted(matrix.indptr, np.arange(pairs.start, pairs.stop), side="right") - 1


def _matches(
    labels: Csr, matched: Csr, pairs: slice
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    """For some entries, all clusters that their rows are brought to: (which entry, cluster, how sure)."""
    row = _rows(labels, pairs)
    count = (matched.indptr[row + 1] - matched.indptr[row]).astype(np.int64)
    pair = np.repeat(np.arange(row.size), count)
    at = np.arange(pair.size) - np.repeat(np.cumsum(count) - count, count) + matched.indptr[row][pair]
    return pair, matched.indices[at], matched.values[at]


def _found(labels: Csr, matched: Csr, pairs: slice, cluster: NDArray[np.int32]) -> NDArray[np.float32]:
    """How sure the matcher is of a cluster for the row of each of some entries; 0 if it is not brought there."""
    key = _rows(labels, pairs) * matched.cols + cluster
    rows = np.repeat(np.arange(matched.rows, dtype=np.int64), np.diff(matched.indptr))
    known = rows * matched.cols + matched.indices
    at = np.minimum(np.searchsorted(known, key), max(known.size - 1, 0))
    if known.size == 0:
        return np.zeros(key.size, np.float32)
    return np.where(known[at] == key, matched.values[at], np.float32(0))
