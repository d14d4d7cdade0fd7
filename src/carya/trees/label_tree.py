"""The label tree: all that indexing hands on to matching and ranking.

Level 0 is the root, level D the labels; every node of level t has one parent in level t - 1. It is the chain
C¹ … Cᴰ of indexing matrices in the paper, kept as arrays of parents. Where clusters overlap, level D are leaves, and
each leaf stands for a label that may have others in other clusters.
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
    """An immutable, checked tree over labels.

    Parameters
    ----------
    parents : sequence of array_like of int
        ``parents[t][k]`` is the parent, in level t, of node k of level t + 1. The first array is all zeros (the root
        is node 0); the last has one entry a label. Every node above the labels must have a child.
    leaf_labels : array_like of int, optional
        The label that each node of the last level stands for, ascending without gaps from 0: a label may lie in
        several clusters. Without it, the nodes of the last level are the labels.

    Examples
    --------
    >>> tree = LabelTree([[0, 0], [0, 1, 0]])      # clusters 0 and 1; labels 0 and 2 in the first, 1 in the second
    >>> tree
    LabelTree(1 → 2 → 3 labels)
    >>> tree.clusters(1)
    array([0, 1, 0], dtype=int32)
    >>> LabelTree([[0, 0], [0, 1, 1]], leaf_labels=[0, 0, 1])      # label 0 in both clusters
    LabelTree(1 → 2 → 3 leaves of 2 labels)
    """

    def __init__(self, parents: Sequence[ArrayLike], leaf_labels: ArrayLike | None = None) -> None:
        if not isinstance(parents, Sequence) or len(parents) == 0:
            raise InputError(f"a label tree needs a list of at least one level, got {parents!r}")
        above = 1
        checked = []
        for level, given in enumerate(parents, 1):
            try:
                array = np.asarray(given)
            except ValueError:  # a ragged list
                array = np.zeros(0)
            if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
                raise InputError(f"the parents of level {level} must be a list of at least one integer")
            if array.min() < 0 or array.max() >= above:
                raise InputError(
                    f"the parents of level {level} must be between 0 and {above - 1}, "
                    f"they range from {array.min()} to {array.max()}"
                )
            childless = np.flatnonzero(np.bincount(array, minlength=above) == 0)
            if childless.size:
                raise InputError(f"node {childless[0]} of level {level - 1} has no children")
            array = array.astype(np.int32)
            array.setflags(write=False)
            checked.append(array)
            above = array.size
        self._parents = tuple(checked)
        self._leaf_labels = None if leaf_labels is None else _checked_leaf_labels(leaf_labels, checked[-1])

    @classmethod
    def flat(cls, n_labels: int) -> Self:
        """The tree without clusters: every label under the root, plain one-versus-rest.

        >>> LabelTree.flat(5)
        LabelTree(1 → 5 labels)
        """
        if not isinstance(n_labels, (int, np.integer)) or n_labels < 1:
            raise InputError(f"n_labels must be an integer of at least 1, got {n_labels!r}")
        return cls([np.zeros(n_labels, np.int32)])

    @classmethod
    def from_clusters(cls, clusters: Sequence[ArrayLike], n_labels: int) -> Self:
        """The tree in which ``clusters[t][l]`` is the cluster of label l at level t + 1, coarsest level first.

        >>> LabelTree.from_clusters([[0, 1, 0], [0, 2, 1]], 3).level_sizes
        (1, 2, 3, 3)
        """
        parents: list[NDArray[Any]] = []
        above = np.zeros(n_labels, np.int32)
        for level, given in enumerate(clusters, 1):
            below = np.asarray(given)
            if below.shape != (n_labels,) or below.dtype.kind not in "iu" or below.min() < 0:
                raise InputError(f"the clusters of level {level} must be {n_labels} integers of at least 0")
            parent = np.full(int(below.max()) + 1, -1, np.int32)
            parent[below] = above
            if (parent[below] != above).any():
                label = int(np.flatnonzero(parent[below] != above)[0])
                raise InputError(f"cluster {below[label]} of level {level} lies in two clusters of the level above")
            if (parent < 0).any():
                raise InputError(f"cluster {int(np.flatnonzero(parent < 0)[0])} of level {level} has no labels")
            parents.append(parent)
            above = below
        return cls([*parents, above])

    @classmethod
    def from_chain(cls, chain: Sequence[Any]) -> Self:
        """The tree of a chain of indexing matrices C¹ … Cᴰ; each has a row a node and a column a parent.

        >>> import scipy.sparse as sp
        >>> LabelTree.from_chain([[[1], [1]], sp.csr_array([[1, 0], [0, 1], [1, 0]])])
        LabelTree(1 → 2 → 3 labels)
        """
        if sp.issparse(chain):
            raise InputError("chain is one matrix, it must be a list of them, one for each level")
        parents = []
        above = 1
        for level, given in enumerate(chain, 1):
            matrix = sp.csr_array(given)
            matrix.sum_duplicates()
            matrix.eliminate_zeros()
            if matrix.shape[1] != above:
                raise InputError(
                    f"indexing matrix {level} has {matrix.shape[1]} columns, level {level - 1} {above} nodes"
                )
            if (np.diff(matrix.indptr) != 1).any():
                row = int(np.flatnonzero(np.diff(matrix.indptr) != 1)[0])
                raise InputError(f"row {row} of indexing matrix {level} must have exactly one entry")
            parents.append(matrix.indices)
            above = matrix.shape[0]
        return cls(parents)

    @classmethod
    def from_paths(cls, paths: Sequence[str], separator: str = "/") -> Self:
        """The tree of a taxonomy: for each label the path of the clusters that hold it, outermost first.

        Labels may lie at different depths; a shorter path is continued by a cluster for the labels that stay behind.

        >>> LabelTree.from_paths(["animal/cat", "animal/dog", "animal/dog", "plant"])
        LabelTree(1 → 2 → 3 → 4 labels)
        """
        if isinstance(paths, str):
            raise InputError("paths is one string, it must be a list of them, one for each label")
        if not isinstance(separator, str) or not separator:
            raise InputError(f"separator must be a string of at least one character, got {separator!r}")
        split = []
        for label, path in enumerate(paths):
            if not isinstance(path, str):
                raise InputError(f"the path of label {label} must be a string, got {path!r}")
            parts = [part for part in path.split(separator) if part]
            split.append(parts)
        depth = max((len(parts) for parts in split), default=0)
        clusters = []
        for level in range(1, depth + 1):
            keys = [tuple((parts + [""] * depth)[:level]) for parts in split]
            numbers = {key: number for number, key in enumerate(sorted(set(keys)))}
            clusters.append(np.array([numbers[key] for key in keys], np.int32))
        if not split:
            raise InputError("paths is empty: a tree needs at least one label")
        return cls.from_clusters(clusters, len(split))

    @property
    def parents(self) -> tuple[NDArray[np.int32], ...]:
        """The parent of every node, level by level; read-only."""
        return self._parents

    @property
    def depth(self) -> int:
        """D, the number of layers of a model over this tree."""
        return len(self._parents)

    @property
    def leaf_labels(self) -> NDArray[np.int32] | None:
        """The label of each node of the last level; None if they are the labels themselves."""
        return self._leaf_labels

    @property
    def n_labels(self) -> int:
        """L, the number of labels."""
        return self._parents[-1].size if self._leaf_labels is None else int(self._leaf_labels[-1]) + 1

    def leaves(self, label: int) -> range:
        """The nodes of the last level that stand for a label.

        >>> LabelTree([[0, 0], [0, 1, 1]], leaf_labels=[0, 0, 1]).leaves(0)
        range(0, 2)
        """
        if self._leaf_labels is None:
            return range(label, label + 1)
        return range(*(int(np.searchsorted(self._leaf_labels, label, side)) for side in ("left", "right")))

    @property
    def level_sizes(self) -> tuple[int, ...]:
        """K_0 = 1, K_1, …, K_D = L, or the number of leaves where clusters overlap."""
        return (1, *(array.size for array in self._parents))

    def children(self, level: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The nodes of a level (1 … D) grouped by parent, and where each parent's group begins.

        >>> order, chunks = LabelTree([[0, 0], [0, 1, 0]]).children(2)
        >>> order.tolist(), chunks.tolist()
        ([0, 2, 1], [0, 2, 3])
        """
        self._check_level(level, least=1)
        parent = self._parents[level - 1]
        return _core.group_by_parent(parent, self.level_sizes[level - 1])

    def clusters(self, level: int) -> NDArray[np.int32]:
        """The node of a level (0 … D) that each label lies under, or each leaf where clusters overlap."""
        self._check_level(level, least=0)
        node = np.arange(self._parents[-1].size, dtype=np.int32)
        for parent in self._parents[: level - self.depth - 1 : -1] if level < self.depth else ():
            node = parent[node]
        return node

    def _check_level(self, level: int, *, least: int) -> None:
        if not least <= level <= self.depth:
            raise InputError(f"level must be between {least} and {self.depth}, got {level!r}")

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


def _checked_leaf_labels(given: ArrayLike, parents: NDArray[np.int32]) -> NDArray[np.int32]:
    array = np.asarray(given)
    if array.shape != parents.shape or array.dtype.kind not in "iu":
        raise InputError(f"leaf_labels must be {parents.size} integers, one for each node of the last level")
    if array[0] != 0 or not np.isin(np.diff(array.astype(np.int64)), (0, 1)).all():
        raise InputError("leaf_labels must ascend without gaps, from 0")
    array = array.astype(np.int32)
    if np.unique(np.stack([array, parents]), axis=1).shape[1] != array.size:
        raise InputError("leaf_labels must not name a label twice in one cluster")
    array.setflags(write=False)
    return array
