"""Convert the label ids in training inputs (trees, graphs and shortlists) to label indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from carya.core import lazy_sparse as sp
from carya.errors import InputError
from carya.text.labels import label_matrix
from carya.trees.label_tree import LabelTree

#: A tree: a LabelTree over the labels in sorted order, or a mapping from labels to paths, as in
#: {"cat": "animals/mammals"}.
TreeLike = LabelTree | Mapping[str, str]
#: A graph: (label, label) or (label, label, weight) tuples, as in [("cat", "dog"), ("cat", "lion", 2.0)].
GraphLike = Iterable[tuple[Any, ...]]


def to_tree(tree: TreeLike | None, ids: Sequence[str]) -> LabelTree | None:
    """Return the label tree over the given labels; labels without a path become children of the root.

    >>> to_tree({"cat": "animals", "dog": "animals", "oak": "plants"}, ["cat", "dog", "oak"])
    LabelTree(1 → 2 → 3 labels)
    """
    if tree is None or isinstance(tree, LabelTree):
        return tree
    if not isinstance(tree, Mapping):
        raise InputError(f"tree must be a LabelTree or a mapping from labels to paths, got {type(tree).__name__}.")
    if not any(label in tree for label in ids):
        raise InputError(f"tree contains none of the labels; the first label is {ids[0]!r}. Use the label ids as keys.")
    return LabelTree.from_paths([tree.get(label, "") for label in ids])


def to_graph(graph: GraphLike | None, ids: Sequence[str]) -> sp.csr_array | None:
    """Return the edge weights of a label graph as a symmetric matrix; edges with unknown labels are ignored.

    >>> to_graph([("a", "b"), ("b", "c", 0.5), ("c", "?")], ["a", "b", "c"]).toarray().tolist()
    [[0.0, 1.0, 0.0], [1.0, 0.0, 0.5], [0.0, 0.5, 0.0]]
    """
    if graph is None:
        return None
    if sp.issparse(graph) or isinstance(graph, (str, bytes, np.ndarray, Mapping)):
        raise InputError(
            "label_graph must be a list of (label, label) or (label, label, weight) tuples, got "
            f"{type(graph).__name__}."
        )
    numbers = {label: number for number, label in enumerate(ids)}
    rows, columns, weights = [], [], []
    for edge in graph:
        if (
            not isinstance(edge, (tuple, list))
            or len(edge) not in (2, 3)
            or not all(isinstance(e, str) for e in edge[:2])
        ):
            raise InputError(f"label_graph must contain (label, label) or (label, label, weight) tuples, got {edge!r}.")
        weight = edge[2] if len(edge) == 3 else 1.0
        if (
            isinstance(weight, (bool, str))
            or not isinstance(weight, (int, float, np.number))
            or not 0 <= weight < np.inf
        ):
            raise InputError(f"The weights in label_graph must be finite numbers >= 0, got {weight!r}.")
        first, second = (numbers.get(label) for label in edge[:2])
        if first is not None and second is not None:
            rows += [first, second]
            columns += [second, first]
            weights += [weight, weight]
    if not rows:
        raise InputError("label_graph contains no edges between known labels. Use the label ids.")
    return sp.csr_array(
        sp.coo_array((np.array(weights, np.float32), (rows, columns)), shape=(len(ids), len(ids)), dtype=np.float32)
    )


def to_shortlist(shortlist: Iterable[Iterable[str]] | None, ids: Sequence[str], rows: int) -> sp.csr_array | None:
    """Return the shortlisted labels for each text as a matrix; unknown labels are ignored."""
    if shortlist is None:
        return None
    matrix = label_matrix(shortlist, ids)[0]
    if matrix.shape[0] != rows:
        raise InputError(f"shortlist must contain one list per text ({rows}), got {matrix.shape[0]}.")
    return matrix
