"""Tests for label trees: levels, clusters, validation and construction."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from carya import LabelTree
from carya.errors import InputError
from carya.indexing import random_tree
from carya.indexing.clustering import plan


def test_level_sizes_children_and_clusters() -> None:
    tree = LabelTree([[0, 0], [1, 0, 1], [2, 0, 1, 1, 0]])
    assert tree.level_sizes == (1, 2, 3, 5)
    assert tree.depth == 3
    order, chunks = tree.children(3)
    assert [order[a:b].tolist() for a, b in itertools.pairwise(chunks)] == [[1, 4], [2, 3], [0]]
    assert tree.clusters(0).tolist() == [0] * 5
    assert tree.clusters(1).tolist() == [1, 1, 0, 0, 1]
    assert tree.clusters(2).tolist() == [2, 0, 1, 1, 0]
    assert tree.clusters(3).tolist() == [0, 1, 2, 3, 4]


def test_a_tree_is_immutable() -> None:
    parents = np.array([0, 1, 0], np.int32)
    tree = LabelTree([[0, 0], parents])
    parents[0] = 1
    assert tree.clusters(1).tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="read-only"):
        tree.parents[1][0] = 1


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        ([], "at least one level"),
        ([[]], "The parents of the nodes at level 1 must be a non-empty list of integers"),
        ([[0, 1]], "The parents of the nodes at level 1 must be between 0 and 0, got values from 0 to 1"),
        ([[0, 0], [0, 2]], "level 2 must be between 0 and 1"),
        ([[0, 0], [0, -1]], "level 2 must be between 0 and 1"),
        ([[0, 0], [0, 0]], "Node 1 of level 1 has no children"),
        ([[0.0, 0.0]], "integer"),
        ([[[0]]], "The parents of the nodes at level 1 must be a non-empty list of integers"),
    ],
)
def test_invalid_parents_are_rejected(parents: list[ArrayLike], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LabelTree(parents)


def test_from_paths() -> None:
    tree = LabelTree.from_paths(["b/x", "a", "b/x", "b/y", "a"])
    assert tree.level_sizes == (1, 2, 3, 5)
    assert tree.clusters(1).tolist() == [1, 0, 1, 1, 0]
    clusters = tree.clusters(2)
    assert clusters[0] == clusters[2]
    assert clusters[1] == clusters[4]
    assert len(set(clusters.tolist())) == 3
    assert LabelTree.from_paths(["", ""]) == LabelTree.flat(2)
    assert LabelTree.from_paths(["a|b", "a|c"], separator="|").level_sizes == (1, 1, 2, 2)
    with pytest.raises(InputError, match="The path of label 1 must be a string, got 3"):
        LabelTree.from_paths(["a", 3])  # type: ignore[list-item]
    with pytest.raises(InputError, match="paths is empty"):
        LabelTree.from_paths([])


def test_from_chain() -> None:
    chain = [np.ones((2, 1)), sp.csc_array(np.array([[1, 0], [0, 1], [1, 0]]))]
    assert LabelTree.from_chain(chain) == LabelTree([[0, 0], [0, 1, 0]])
    with pytest.raises(InputError, match="Row 1 of indexing matrix 1 must have exactly one entry"):
        LabelTree.from_chain([[[1], [0]]])
    with pytest.raises(InputError, match="Indexing matrix 2 has 3 columns, but level 1 has 2 nodes"):
        LabelTree.from_chain([[[1], [1]], np.eye(3)])


def test_from_clusters_rejects_inconsistent_clusters() -> None:
    with pytest.raises(InputError, match="Cluster 1 of level 2 has two parents"):
        LabelTree.from_clusters([[0, 1, 0], [0, 1, 1]], 3)
    with pytest.raises(InputError, match="Cluster 1 of level 1 has no labels"):
        LabelTree.from_clusters([[0, 2, 2]], 3)
    with pytest.raises(InputError, match="must be 3 non-negative integers"):
        LabelTree.from_clusters([[0, 1]], 3)


@given(
    labels=st.integers(1, 400),
    branching=st.integers(2, 9),
    max_leaf_size=st.integers(1, 50),
    max_depth=st.none() | st.integers(1, 5),
)
def test_random_trees_have_the_requested_sizes(
    labels: int, branching: int, max_leaf_size: int, max_depth: int | None
) -> None:
    tree = random_tree(labels, branching=branching, max_leaf_size=max_leaf_size, max_depth=max_depth, seed=1)
    assert tree.n_labels == labels
    if max_depth is not None:
        assert tree.depth <= max_depth
    sizes = np.bincount(tree.parents[-1])
    assert sizes.max() - sizes.min() <= 1
    if max_depth is None:
        assert sizes.max() <= max(max_leaf_size, 1)
    for parent in tree.parents[:-1]:
        assert np.bincount(parent).max() <= branching
    assert len(plan(labels, branching, max_leaf_size, max_depth)) == tree.depth - 1
