"""Tests for label representations and clustering: comparison with NumPy implementations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import carya
from carya import _core, indexing
from carya.core import validation
from carya.core.matrices import Features
from carya.data import SyntheticData
from carya.errors import InputError, ParameterError

import reference
import reference_partition


def to_dense(representation: Features) -> np.ndarray:
    """Return the sparse and dense columns of a representation as one array."""
    return np.hstack([representation.sparse.to_scipy().toarray(), representation.dense])


@given(st.integers(0, 1000), st.integers(1, 30), st.integers(1, 12), st.integers(1, 15), st.integers(0, 4))
def test_pifa_is_the_normalized_sum_of_the_rows_with_a_label(
    seed: int, rows: int, labels: int, columns: int, dense: int
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < 0.4)
    D = rng.standard_normal((rows, dense))
    Y = rng.integers(1, 4, (rows, labels)) * (rng.random((rows, labels)) < 0.4)
    vectors = indexing.pifa(validation.check_features((sp.csr_array(X), D)), validation.check_labels(Y), threads=3)
    assert np.allclose(to_dense(vectors), reference.pifa(np.hstack([X, D]), Y), atol=1e-5)


def test_pifa_keeps_the_largest_features_of_a_label(world: SyntheticData) -> None:
    x, y = validation.check_training_data(world.X, world.Y)
    full, limited = to_dense(indexing.pifa(x, y)), to_dense(indexing.pifa(x, y, keep=7))
    assert ((limited != 0).sum(axis=1) <= 7).all()
    for label in range(y.cols):
        kept = np.flatnonzero(limited[label])
        part = full[label, kept]
        assert np.allclose(limited[label, kept], part / max(np.linalg.norm(part), 1e-12), atol=1e-6)
        rest = np.delete(full[label], kept)
        assert kept.size == 0 or np.abs(rest).max(initial=0) <= np.abs(full[label, kept]).min()


def test_pii_marks_the_rows_of_a_label() -> None:
    Y = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0]])
    vectors = to_dense(indexing.pii(validation.check_labels(Y)))
    assert np.allclose(vectors, [[0.5**0.5, 0.5**0.5, 0], [0, 0.5**0.5, 0.5**0.5], [0, 0, 0]])


def test_pifa_and_label_features_are_combined_by_alpha() -> None:
    a = validation.check_features((sp.csr_array([[1.0, 0, 0], [0, 1, 0]]), np.array([[1.0], [2]])))
    b = validation.check_features((sp.csr_array([[0.0, 0, 1], [0, 3, 0]]), np.array([[5.0], [6]])))
    pifa = np.array([[1, 0, 0, 1.0], [0, 1, 0, 2]])
    label_features = reference.unit_rows(np.array([[0, 0, 1, 5.0], [0, 3, 0, 6]]))
    expected = 0.25 * pifa + 0.75 * label_features
    assert np.allclose(to_dense(indexing.pifa_with_features(a, b, 0.25)), expected)
    assert np.allclose(to_dense(indexing.pifa_with_features(a, b, [1, 0])), np.stack([pifa[0], label_features[1]]))
    assert to_dense(indexing.concatenate(a, b)).shape == (2, 8)
    with pytest.raises(ParameterError, match="alpha must be"):
        indexing.pifa_with_features(a, b, [0.5, 0.5, 0.5])
    with pytest.raises(ParameterError, match="alpha must be"):
        indexing.pifa_with_features(a, b, 1.5)
    message = "must have 2 rows and, like X, 3 sparse and 1 dense columns, got 2 rows, 0 sparse and 3 dense columns"
    with pytest.raises(InputError, match=message):
        indexing.pifa_with_features(a, validation.check_features(np.ones((2, 3))), 0.5)


def test_graph_embedding_equals_laplacian_eigenmaps() -> None:
    # The label graph has two rings, connected by one weak edge. Laplacian eigenmaps: Belkin and Niyogi (2003).
    edges = np.zeros((12, 12))
    for first in (0, 6):
        for step in range(6):
            edges[first + step, first + (step + 1) % 6] = 1
    edges[0, 6] = 0.1
    A = edges + edges.T
    D = A.sum(axis=1)
    values, vectors = np.linalg.eigh(A / np.sqrt(np.outer(D, D)))
    second = vectors[:, -2] / np.sqrt(D) * values[-2]
    vectors_of_labels = to_dense(indexing.graph(validation.check_labels(edges, "label_graph"), dimensions=3))
    assert vectors_of_labels.shape == (12, 3)
    assert np.allclose(np.abs(vectors_of_labels[:, 0]), np.abs(second), atol=1e-5)
    assert len({*np.sign(vectors_of_labels[:6, 0])}) == 1
    assert vectors_of_labels[0, 0] * vectors_of_labels[6, 0] < 0  # the rings are separated
    isolated = np.zeros((13, 13))
    isolated[:12, :12] = edges
    assert (to_dense(indexing.graph(validation.check_labels(isolated, "label_graph"), dimensions=3))[12] == 0).all()
    with pytest.raises(
        InputError, match=r"label_graph must be a square matrix with one row per label, got shape \(5, 12\)"
    ):
        indexing.graph(validation.check_labels(edges[:5], "label_graph"))
    with pytest.raises(ParameterError, match="require at least 3 labels, got 2"):
        indexing.graph(validation.check_labels(edges[:2, :2] * 0, "label_graph"))


def test_clusters_follow_the_label_graph() -> None:
    """Clusters follow the label graph even if it contradicts the co-occurrence of labels in the rows."""
    X, Y = carya.data.make_world(400, 24, seed=3)
    group = np.arange(24) % 2
    edges = (group[:, None] == group).astype(np.float32)
    settings: dict[str, Any] = {"branching": 2, "max_leaf_size": 12, "clustering": "kmeans"}
    tree = carya.XRLinear(representation="graph", **settings).fit(X, Y, label_graph=edges).tree_
    assert len({*zip(tree.clusters(1).tolist(), group.tolist(), strict=True)}) == 2
    by_cooccurrence = carya.XRLinear(representation="graph", **settings).fit(X, Y).tree_
    assert by_cooccurrence == carya.XRLinear(representation="graph", n_jobs=1, **settings).fit(X, Y).tree_
    concatenated = carya.XRLinear(representation="pifa-concat-graph", **settings).fit(X, Y, label_graph=edges)
    assert concatenated.score(X, Y) > 0.5
    with pytest.raises(InputError, match="label_graph is not used by representation='pifa'"):
        carya.XRLinear().fit(X, Y, label_graph=edges)
    with pytest.raises(InputError, match=r"label_graph must have one row per label \(24\), got 5 rows"):
        carya.XRLinear(representation="graph").fit(X, Y, label_graph=edges[:5, :5])


def test_spectral_embedding_equals_co_clustering() -> None:
    """The embedding is computed from the singular vectors of the normalized label matrix (Dhillon 2001)."""
    rng = np.random.default_rng(0)
    Y = (rng.random((40, 12)) < 0.3).astype(float)
    Y[:, 0] = 1
    vectors = to_dense(indexing.spectral(validation.check_labels(Y), dimensions=3))
    d1, d2 = Y.sum(axis=1), Y.sum(axis=0)
    _, _, v = np.linalg.svd(Y / np.sqrt(d1)[:, None] / np.sqrt(d2))
    expected = (v[1:4] / np.sqrt(d2)).T
    sign = np.sign((vectors * expected).sum(axis=0))
    assert np.allclose(vectors, expected * sign, atol=1e-5)
    assert to_dense(indexing.spectral(validation.check_labels(Y))).shape == (12, 10)
    with pytest.raises(ParameterError, match="requires at least 3 rows and 3 labels, got 40 and 2"):
        indexing.spectral(validation.check_labels(Y[:, :2]))


def test_spherical_clustering_ignores_norms() -> None:
    Z, group = blobs(4, 15, dense=True)
    scaled = Z.dense * np.random.default_rng(0).uniform(0.01, 100, (60, 1)).astype(np.float32)
    Y = np.eye(60)
    for seed in range(3):
        model = carya.XRLinear(representation="lf", branching=4, max_leaf_size=15, max_depth=2, seed=seed)
        tree = model.fit(np.eye(60), Y, label_features=scaled).tree_
        assert len(set(zip(tree.clusters(1), group, strict=True))) <= 6


def blobs(groups: int, size: int, dense: bool, seed: int = 0) -> tuple[Features, np.ndarray]:
    """Return label vectors in well-separated groups, in random order, and the group of each label."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(groups), size))
    Z = np.zeros((groups * size, groups * 5))
    for label, g in enumerate(group):
        Z[label, 5 * g : 5 * g + 5] = 1 + 0.3 * rng.random(5)
        Z[label, rng.integers(0, Z.shape[1])] += 0.2
    Z = reference.unit_rows(Z)
    return validation.check_features(Z if dense else sp.csr_array(Z)), group


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
@pytest.mark.parametrize("bisect", [True, False], ids=["bisect", "direct"])
@pytest.mark.parametrize("balanced", [True, False], ids=["balanced", "unbalanced"])
@pytest.mark.parametrize("spherical", [True, False], ids=["spherical", "kmeans"])
def test_clustering_finds_separated_groups(dense: bool, bisect: bool, balanced: bool, spherical: bool) -> None:
    Z, group = blobs(4, 25, dense)
    purities = []
    for seed in range(10):  # k-means can fail with a bad initialization, but most seeds must succeed
        tree = indexing.cluster(
            Z,
            branching=4,
            max_leaf_size=25,
            max_depth=2,
            bisect=bisect,
            balanced=balanced,
            spherical=spherical,
            seed=seed,
        )
        cluster = tree.clusters(1)
        majority = sum(np.bincount(group[cluster == c]).max() for c in np.unique(cluster))
        purities.append(majority / group.size)
    assert np.median(purities) > 0.7
    assert max(purities) == 1.0


@pytest.mark.parametrize("bisect", [True, False], ids=["bisect", "direct"])
@pytest.mark.parametrize("balanced", [True, False], ids=["balanced", "unbalanced"])
@pytest.mark.parametrize("spherical", [True, False], ids=["spherical", "kmeans"])
@pytest.mark.parametrize("seed", range(6))
def test_partition_equals_the_reference(seed: int, spherical: bool, balanced: bool, bisect: bool) -> None:
    rng = np.random.default_rng(seed)
    labels, columns, dense = int(rng.integers(20, 200)), int(rng.integers(25, 60)), int(rng.integers(0, 4))
    Z = rng.standard_normal((labels, columns)) * (rng.random((labels, columns)) < 0.3)
    D = rng.standard_normal((labels, dense))
    Z, D = Z.astype(np.float32), D.astype(np.float32)
    options = reference_partition.KMeansOptions(
        spherical=spherical, balanced=balanced, max_iter=15, min_moved=0.01, sample_size=[20, 3][seed % 2]
    )
    branching, stop_size = [5, 3, 4], 0 if balanced else 6
    levels = _core.partition(
        _core.LabelGroup(validation.check_features((sp.csr_array(Z), D)).native, threads=2),
        branching=branching,
        bisect=bisect,
        stop_size=stop_size,
        seed=seed,
        threads=2,
        report=None,
        **options,
    )
    expected = reference_partition.partition(
        Z.astype(float), D.astype(float), branching, bisect=bisect, stop_size=stop_size, seed=seed, **options
    )
    assert len(levels) == len(expected) == 3
    for clusters, expected_clusters in zip(levels, expected, strict=True):
        assert clusters.tolist() == expected_clusters.tolist()


@pytest.mark.parametrize("bisect", [True, False], ids=["bisect", "direct"])
def test_partition_ignores_rare_features_of_large_groups(bisect: bool) -> None:
    rng = np.random.default_rng(0)
    labels, columns = 3100, 200  # features are rare if they occur in fewer than four labels
    Z = np.zeros((labels, columns), np.float32)
    Z[:, :20] = rng.random((labels, 20)) * (rng.random((labels, 20)) < 0.3)
    for column in range(20, columns):
        Z[rng.integers(0, labels, size=3), column] = 5
    options = reference_partition.KMeansOptions(
        spherical=True, balanced=True, max_iter=15, min_moved=0.01, sample_size=1024
    )
    group = _core.LabelGroup(validation.check_features(sp.csr_array(Z)).native, threads=2)
    branching = [9, 3]
    levels = _core.partition(
        group, branching=branching, bisect=bisect, stop_size=0, seed=1, threads=2, report=None, **options
    )
    expected = reference_partition.partition(
        Z.astype(float), np.zeros((labels, 0)), branching, bisect=bisect, stop_size=0, seed=1, **options
    )
    for clusters, expected_clusters in zip(levels, expected, strict=True):
        # Rounding errors can swap labels with nearly equal scores.
        assert np.mean(clusters == expected_clusters) > 0.999


@pytest.mark.parametrize("bisect", [True, False])
@given(
    labels=st.integers(2, 120), branching=st.integers(2, 7), max_leaf_size=st.integers(1, 30), seed=st.integers(0, 5)
)
def test_balanced_trees_have_clusters_of_equal_size(
    bisect: bool, labels: int, branching: int, max_leaf_size: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    Z = validation.check_features(sp.random_array((labels, 20), density=0.3, random_state=rng, dtype=np.float32))
    tree = indexing.cluster(Z, branching=branching, max_leaf_size=max_leaf_size, bisect=bisect, seed=seed)
    assert tree.n_labels == labels
    for parent in tree.parents[:-1]:
        assert np.bincount(parent).max() <= branching
    sizes = np.bincount(tree.parents[-1])
    slack = tree.depth if bisect else 2  # each bisection into unequal parts rounds their sizes
    assert sizes.max() - sizes.min() <= slack
    if tree.depth > 1:
        assert sizes.max() <= max_leaf_size + slack


def test_unbalanced_trees_split_until_leaves_are_small(world: SyntheticData) -> None:
    x, y = validation.check_training_data(world.X, world.Y)
    Z = indexing.pifa(x, y)
    tree = indexing.cluster(Z, branching=5, max_leaf_size=9, balanced=False, bisect=False)
    assert np.bincount(tree.parents[-1]).max() <= 9
    shallow = indexing.cluster(Z, branching=5, max_leaf_size=9, max_depth=3, balanced=False, bisect=False)
    assert shallow.depth == 3
    identical = validation.check_features(sp.csr_array(np.ones((40, 3))))  # identical labels must also be split
    for bisect in (True, False):
        leaves = indexing.cluster(identical, branching=2, max_leaf_size=4, balanced=False, bisect=bisect).parents[-1]
        assert np.bincount(leaves).max() <= 4


@pytest.mark.parametrize("bisect", [True, False])
def test_any_number_of_threads_gives_the_same_tree(world: SyntheticData, bisect: bool) -> None:
    x, y = validation.check_training_data(world.X, world.Y)
    trees = [
        indexing.cluster(indexing.pifa(x, y, threads=n), branching=3, max_leaf_size=5, bisect=bisect, seed=4, threads=n)
        for n in (1, 2, 8)
    ]
    assert trees[0] == trees[1] == trees[2]
    assert trees[0] != indexing.cluster(indexing.pifa(x, y), branching=3, max_leaf_size=5, bisect=bisect, seed=5)


def test_clusters_of_generated_data_agree_with_its_topics(world: SyntheticData) -> None:
    x, y = validation.check_training_data(world.X, world.Y)
    tree = indexing.cluster(indexing.pifa(x, y), branching=6, max_leaf_size=25, seed=0)
    cluster = tree.parents[-1]
    purity = np.mean([np.bincount(world.topics[cluster == c]).max() / (cluster == c).sum() for c in np.unique(cluster)])
    largest_topic = np.bincount(world.topics).max() / world.topics.size
    assert purity > 2 * largest_topic


def test_a_depth_of_zero_is_rejected() -> None:
    with pytest.raises(ParameterError, match="max_depth must be an integer >= 1 or None, got 0"):
        indexing.random_tree(10, max_depth=0)
