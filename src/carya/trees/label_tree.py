"""Label trees, which are the result of indexing.

Level 0 is the root, level D contains the labels, and every node at level t has one parent at level t - 1. The tree
represents the chain C¹ … Cᴰ of indexing matrices in the paper, stored as arrays of parents. If clusters overlap, level
D contains leaves, and a label can have leaves in several clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.errors import InputError


class LabelTree:
    """Immutable, validated tree of labels.

    Parameters
    ----------
    parents : sequence of array_like of int
        ``parents[t][k]`` is the parent, at level t, of node k at level t + 1. The first array contains only zeros (the
        root is node 0); the last array has one entry per label. Every node above the labels must have a child.
    leaf_labels : array_like of int, optional
        The label of each node at the last level, if labels can belong to several clusters. The labels must be in
        ascending order, starting at 0, without gaps. By default, the nodes at the last level are the labels.

    Examples
    --------
    >>> tree = LabelTree([[0, 0], [0, 1, 0]])      # labels 0 and 2 are in cluster 0, label 1 is in cluster 1
    >>> tree
    LabelTree(1 → 2 → 3 labels)
    >>> tree.clusters(1)
    array([0, 1, 0], dtype=int32)
    >>> LabelTree([[0, 0], [0, 1, 1]], leaf_labels=[0, 0, 1])      # label 0 is in both clusters
    LabelTree(1 → 2 → 3 leaves of 2 labels)
    """

    def __init__(self, parents: Sequence[ArrayLike], leaf_labels: ArrayLike | None = None) -> None:
        if not isinstance(parents, Sequence) or len(parents) == 0:
            raise InputError(f"parents must be a list with at least one level, got {parents!r}.")
        above = 1
        checked = []
        for level, level_parents in enumerate(parents, 1):
            try:
                array = np.asarray(level_parents)
            except ValueError:  # a ragged list
                array = np.zeros(0)
            if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
                raise InputError(f"The parents of the nodes at level {level} must be a non-empty list of integers.")
            if array.min() < 0 or array.max() >= above:
                raise InputError(
                    f"The parents of the nodes at level {level} must be between 0 and {above - 1}, got values from "
                    f"{array.min()} to {array.max()}."
                )
            childless = np.flatnonzero(np.bincount(array, minlength=above) == 0)
            if childless.size:
                raise InputError(
                    f"Node {childless[0]} of level {level - 1} has no children. Every node above the labels must have "
                    "a child."
                )
            array = array.astype(np.int32)
            array.setflags(write=False)
            checked.append(array)
            above = array.size
        self._parents = tuple(checked)
        self._leaf_labels = None if leaf_labels is None else _check_leaf_labels(leaf_labels, checked[-1])

    @classmethod
    def flat(cls, n_labels: int) -> Self:
        """Return a tree without clusters, in which every label is a child of the root (one-versus-rest).

        >>> LabelTree.flat(5)
        LabelTree(1 → 5 labels)
        """
        if not isinstance(n_labels, (int, np.integer)) or n_labels < 1:
            raise InputError(f"n_labels must be an integer >= 1, got {n_labels!r}.")
        return cls([np.zeros(n_labels, np.int32)])

    @classmethod
    def from_clusters(cls, clusters: Sequence[ArrayLike], n_labels: int) -> Self:
        """Build a tree from cluster assignments, coarsest first; ``clusters[t][l]`` is the cluster of label l.

        >>> LabelTree.from_clusters([[0, 1, 0], [0, 2, 1]], 3).level_sizes
        (1, 2, 3, 3)
        """
        parents: list[NDArray[Any]] = []
        above = np.zeros(n_labels, np.int32)
        for level, level_clusters in enumerate(clusters, 1):
            below = np.asarray(level_clusters)
            if below.shape != (n_labels,) or below.dtype.kind not in "iu" or below.min() < 0:
                raise InputError(f"The clusters at level {level} must be {n_labels} non-negative integers.")
            parent = np.full(int(below.max()) + 1, -1, np.int32)
            parent[below] = above
            if (parent[below] != above).any():
                label = int(np.flatnonzero(parent[below] != above)[0])
                raise InputError(f"Cluster {below[label]} of level {level} has two parents at the level above.")
            if (parent < 0).any():
                raise InputError(f"Cluster {int(np.flatnonzero(parent < 0)[0])} of level {level} has no labels.")
            parents.append(parent)
            above = below
        return cls([*parents, above])

    @classmethod
    def from_chain(cls, chain: Sequence[Any]) -> Self:
        """Build a tree from indexing matrices C¹ … Cᴰ, each with one row per node and one column per parent.

        >>> import scipy.sparse as sp
        >>> LabelTree.from_chain([[[1], [1]], sp.csr_array([[1, 0], [0, 1], [1, 0]])])
        LabelTree(1 → 2 → 3 labels)
        """
        if sp.issparse(chain):
            raise InputError("chain is a single matrix. Pass a list with one matrix per level.")
        parents = []
        above = 1
        for level, indexing_matrix in enumerate(chain, 1):
            matrix = sp.csr_array(indexing_matrix)
            matrix.sum_duplicates()
            matrix.eliminate_zeros()
            if matrix.shape[1] != above:
                raise InputError(
                    f"Indexing matrix {level} has {matrix.shape[1]} columns, but level {level - 1} has {above} nodes."
                )
            if (np.diff(matrix.indptr) != 1).any():
                row = int(np.flatnonzero(np.diff(matrix.indptr) != 1)[0])
                raise InputError(f"Row {row} of indexing matrix {level} must have exactly one entry.")
            parents.append(matrix.indices)
            above = matrix.shape[0]
        return cls(parents)

    @classmethod
    def from_paths(cls, paths: Sequence[str], separator: str = "/") -> Self:
        """Build a tree from a taxonomy; the path of a label lists the clusters that contain it, outermost first.

        Labels may have different depths. Shorter paths are padded: at each deeper level, the labels whose paths end in
        the same cluster share one extra cluster.

        >>> LabelTree.from_paths(["animal/cat", "animal/dog", "animal/dog", "plant"])
        LabelTree(1 → 2 → 3 → 4 labels)
        """
        if isinstance(paths, str):
            raise InputError("paths is a single string. Pass a list with one path per label.")
        if not isinstance(separator, str) or not separator:
            raise InputError(f"separator must be a non-empty string, got {separator!r}.")
        split = []
        for label, path in enumerate(paths):
            if not isinstance(path, str):
                raise InputError(f"The path of label {label} must be a string, got {path!r}.")
            parts = [part for part in path.split(separator) if part]
            split.append(parts)
        depth = max((len(parts) for parts in split), default=0)
        clusters = []
        for level in range(1, depth + 1):
            keys = [tuple((parts + [""] * depth)[:level]) for parts in split]
            numbers = {key: number for number, key in enumerate(sorted(set(keys)))}
            clusters.append(np.array([numbers[key] for key in keys], np.int32))
        if not split:
            raise InputError("paths is empty. A tree requires at least one label.")
        return cls.from_clusters(clusters, len(split))

    @property
    def parents(self) -> tuple[NDArray[np.int32], ...]:
        """The parent of every node, as one read-only array per level."""
        return self._parents

    @property
    def depth(self) -> int:
        """D, the number of layers in a model with this tree."""
        return len(self._parents)

    @property
    def leaf_labels(self) -> NDArray[np.int32] | None:
        """The label of each node at the last level, or None if the nodes are the labels."""
        return self._leaf_labels

    @property
    def n_labels(self) -> int:
        """L, the number of labels."""
        return self._parents[-1].size if self._leaf_labels is None else int(self._leaf_labels[-1]) + 1

    def leaves(self, label: int) -> range:
        """Return the nodes at the last level that represent a label.

        >>> LabelTree([[0, 0], [0, 1, 1]], leaf_labels=[0, 0, 1]).leaves(0)
        range(0, 2)
        """
        if self._leaf_labels is None:
            return range(label, label + 1)
        return range(*(int(np.searchsorted(self._leaf_labels, label, side)) for side in ("left", "right")))

    @property
    def level_sizes(self) -> tuple[int, ...]:
        """The numbers of nodes K_0 = 1, K_1, …, K_D; K_D is L, or the number of leaves if clusters overlap."""
        return (1, *(array.size for array in self._parents))

    def children(self, level: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return the nodes of a level (1 … D) grouped by parent, and the start and end offsets of the groups.

        >>> order, chunks = LabelTree([[0, 0], [0, 1, 0]]).children(2)
        >>> order.tolist(), chunks.tolist()
        ([0, 2, 1], [0, 2, 3])
        """
        self._check_level(level, lowest=1)
        parent = self._parents[level - 1]
        return _core.group_by_parent(parent, self.level_sizes[level - 1])

    def clusters(self, level: int) -> NDArray[np.int32]:
        """Return the ancestor of each label at a level (0 … D), or of each leaf if clusters overlap."""
        self._check_level(level, lowest=0)
        node = np.arange(self._parents[-1].size, dtype=np.int32)
        for parent in self._parents[: level - self.depth - 1 : -1] if level < self.depth else ():
            node = parent[node]
        return node

    def subset(self, labels: NDArray[np.int32]) -> tuple[Self, list[NDArray[np.int32]]]:
        """Return the tree restricted to some labels, and the nodes kept at each level 1 … D.

        Nodes are renumbered in their original order; clusters with a single remaining child are kept.

        Parameters
        ----------
        labels : ndarray of int32
            At least one label; labels must be distinct and in ascending order.

        Examples
        --------
        >>> tree, nodes = LabelTree([[0, 0], [0, 1, 0]]).subset(np.array([0, 2]))
        >>> tree, [kept.tolist() for kept in nodes]
        (LabelTree(1 → 1 → 2 labels), [[0], [0, 2]])
        """
        leaf_labels = self._leaf_labels
        kept = labels if leaf_labels is None else np.flatnonzero(np.isin(leaf_labels, labels)).astype(np.int32)
        nodes, parents = [kept], list[NDArray[np.int32]]()
        for parent in reversed(self._parents):
            above, below = np.unique(parent[kept], return_inverse=True)
            parents.insert(0, below.astype(np.int32))
            nodes.insert(0, above)
            kept = above
        new_labels = None if leaf_labels is None else np.searchsorted(labels, leaf_labels[nodes[-1]])
        return type(self)(parents, new_labels), nodes[1:]

    def with_labels(self, clusters: Sequence[NDArray[np.int32]]) -> Self:
        """Return the tree with additional labels, whose indices follow those of the existing labels.

        Parameters
        ----------
        clusters : sequence of ndarray of int32
            For each new label, its clusters, which are distinct nodes at level D - 1. If a label has several clusters,
            the tree has a leaf of the label in each of them.

        Examples
        --------
        >>> tree = LabelTree([[0, 0], [0, 1, 0]])
        >>> tree.with_labels([np.array([1]), np.array([1])]).clusters(1)
        array([0, 1, 0, 1, 1], dtype=int32)
        >>> tree.with_labels([np.array([0, 1])])
        LabelTree(1 → 2 → 5 leaves of 4 labels)
        """
        parents = [*self._parents[:-1], np.concatenate([self._parents[-1], *clusters])]
        counts = np.array([own.size for own in clusters])
        leaf_labels = self._leaf_labels
        if leaf_labels is not None or (counts > 1).any():
            known = np.arange(self._parents[-1].size) if leaf_labels is None else leaf_labels
            leaf_labels = np.concatenate([known, np.repeat(np.arange(counts.size), counts) + self.n_labels])
        return type(self)(parents, leaf_labels)

    def _check_level(self, level: int, *, lowest: int) -> None:
        if not lowest <= level <= self.depth:
            raise InputError(f"level must be between {lowest} and {self.depth}, got {level!r}.")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LabelTree)
            and self.level_sizes == other.level_sizes
            and all(np.array_equal(a, b) for a, b in zip(self._parents, other._parents, strict=True))
            and np.array_equal(_or_empty(self._leaf_labels), _or_empty(other._leaf_labels))
        )

    def __hash__(self) -> int:
        return hash((self.level_sizes, self._parents[-1].tobytes()))

    def __repr__(self) -> str:
        labels = "labels" if self._leaf_labels is None else f"leaves of {self.n_labels} labels"
        return f"LabelTree({' → '.join(map(str, self.level_sizes))} {labels})"


def _or_empty(array: NDArray[np.int32] | None) -> NDArray[np.int32]:
    return np.zeros(0, np.int32) if array is None else array


def _check_leaf_labels(leaf_labels: ArrayLike, parents: NDArray[np.int32]) -> NDArray[np.int32]:
    array = np.asarray(leaf_labels)
    if array.shape != parents.shape or array.dtype.kind not in "iu":
        raise InputError(f"leaf_labels must contain {parents.size} integers, one per node at the last level.")
    if array[0] != 0 or not np.isin(np.diff(array.astype(np.int64)), (0, 1)).all():
        raise InputError("leaf_labels must be in ascending order, starting at 0, without gaps.")
    array = array.astype(np.int32)
    repeats = np.flatnonzero(np.diff(array) == 0)
    several = np.union1d(repeats, repeats + 1)  # the leaves of labels with more than one leaf
    if np.unique(np.stack([array[several], parents[several]]), axis=1).shape[1] != several.size:
        raise InputError("leaf_labels must not contain a label more than once per cluster.")
    array.setflags(write=False)
    return array
