from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import carya
from carya import _core, indexing
from carya.core import validation
from carya.data import World
from carya.errors import InputError, ParameterError

import reference
import reference_partition


def dense_of(representation) -> np.ndarray:
    return np.hstack([representation.sparse.to_scipy().toarray(), representation.dense])


@given(st.integers(0, 1000), st.integers(1, 30), st.integers(1, 12), st.integers(1, 15), st.integers(0, 4))
def test_pifa_is_the_normalised_sum_of_positives(seed: int, rows: int, labels: int, columns: int, dense: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, columns)) * (rng.random((rows, columns)) < 0.4)
    D = rng.standard_normal((rows, dense))
    Y = rng.integers(1, 4, (rows, labels)) * (rng.random((rows, labels)) < 0.4)
    got = indexing.pifa(validation.features((sp.csr_array(X), D)), validation.labels(Y), threads=3)
    assert np.allclose(dense_of(got), reference.pifa(np.hstack([X, D]), Y), atol=1e-5)


def test_pifa_keeps_the_largest_entries(world: World) -> None:
    x, y = validation.training_pair(world.X, world.Y)
    full, cut = dense_of(indexing.pifa(x, y)), dense_of(indexing.pifa(x, y, keep=7))
    assert ((cut != 0).sum(axis=1) <= 7).all()
    for label in range(y.cols):
        kept = np.flatnonzero(cut[label])
        part = full[label, kept]
        assert np.allclose(cut[label, kept], part / max(np.linalg.norm(part), 1e-12), atol=1e-6)
        rest = np.delete(full[label], kept)
        assert kept.size == 0 or np.abs(rest).max(initial=0) <= np.abs(full[label, kept]).min()


def test_pii_is_the_rows_of_a_label() -> None:
    Y = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0]])
    got = dense_of(indexing.pii(validation.labels(Y)))
    assert np.allclose(got, [[0.5**0.5, 0.5**0.5, 0], [0, 0.5**0.5, 0.5**0.5], [0, 0, 0]])


def test_pifa_with_label_features() -> None:
    a = validation.features((sp.csr_array([[1.0, 0, 0], [0, 1, 0]]), np.array([[1.0], [2]])))
    b = validation.features((sp.csr_array([[0.0, 0, 1], [0, 3, 0]]), np.array([[5.0], [6]])))
    own = reference.unit_rows(np.array([[0, 0, 1, 5.0], [0, 3, 0, 6]]))
    both = np.array([[1, 0, 0, 1.0], [0, 1, 0, 2]])
    assert np.allclose(dense_of(indexing.pifa_with_features(a, b, 0.25)), 0.25 * both + 0.75 * own)
    assert np.allclose(dense_of(indexing.pifa_with_features(a, b, [1, 0])), np.stack([both[0], own[1]]))
    assert dense_of(indexing.concatenate(a, b)).shape == (2, 8)
    with pytest.raises(ParameterError, match="alpha must be"):
        indexing.pifa_with_features(a, b, [0.5, 0.5, 0.5])
    with pytest.raises(ParameterError, match="alpha must be"):
        indexing.pifa_with_features(a, b, 1.5)
    with pytest.raises(
        InputError, match=r"label_features have 2 rows, 0 sparse and 3 dense columns; .* 2, 3 and 1, as X"
    ):
        indexing.pifa_with_features(a, validation.features(np.ones((2, 3))), 0.5)


def test_graph_follows_belkin_and_niyogi() -> None:
    # Two rings of labels with one weak link between them.
    links = np.zeros((12, 12))
    for first in (0, 6):
        for step in range(6):
            links[first + step, first + (step + 1) % 6] = 1
    links[0, 6] = 0.1
    A = links + links.T
    D = A.sum(axis=1)
    values, vectors = np.linalg.eigh(A / np.sqrt(np.outer(D, D)))
    second = vectors[:, -2] / np.sqrt(D) * values[-2]
    got = dense_of(indexing.graph(validation.labels(links, "label_graph"), dimensions=3))
    assert got.shape == (12, 3)
    assert np.allclose(np.abs(got[:, 0]), np.abs(second), atol=1e-5)
    assert len({*np.sign(got[:6, 0])}) == 1
    assert got[0, 0] * got[6, 0] < 0  # the rings lie apart
    lonely = np.zeros((13, 13))
    lonely[:12, :12] = links
    assert (dense_of(indexing.graph(validation.labels(lonely, "label_graph"), dimensions=3))[12] == 0).all()
    with pytest.raises(InputError, match="as many rows as columns"):
        indexing.graph(validation.labels(links[:5], "label_graph"))
    with pytest.raises(ParameterError, match="at least 3 labels"):
        indexing.graph(validation.labels(links[:2, :2] * 0, "label_graph"))


def test_a_graph_of_labels_decides_the_tree() -> None:
    """Links that say otherwise than the rows: clusters follow the links."""
    X, Y = carya.data.make_world(400, 24, seed=3)
    group = np.arange(24) % 2
    links = (group[:, None] == group).astype(np.float32)
    settings = {"branching": 2, "max_leaf": 12, "clustering": "kmeans"}
    tree = carya.XRLinear(representation="graph", **settings).fit(X, Y, label_graph=links).tree_
    assert len({*zip(tree.clusters(1).tolist(), group.tolist(), strict=True)}) == 2
    own = carya.XRLinear(representation="graph", **settings).fit(X, Y).tree_
    assert own == carya.XRLinear(representation="graph", n_jobs=1, **settings).fit(X, Y).tree_
    both = carya.XRLinear(representation="pifa-concat-graph", **settings).fit(X, Y, label_graph=links)
    assert both.score(X, Y) > 0.5
    with pytest.raises(InputError, match="does not use it"):
        carya.XRLinear().fit(X, Y, label_graph=links)
    with pytest.raises(InputError, match="label_graph has 5 rows, Y has 24 labels"):
        carya.XRLinear(representation="graph").fit(X, Y, label_graph=links[:5, :5])


def test_spectral_follows_dhillon() -> None:
    rng = np.random.default_rng(0)
    Y = (rng.random((40, 12)) < 0.3).astype(float)
    Y[:, 0] = 1
    got = dense_of(indexing.spectral(validation.labels(Y), dimensions=3))
    d1, d2 = Y.sum(axis=1), Y.sum(axis=0)
    _, _, v = np.linalg.svd(Y / np.sqrt(d1)[:, None] / np.sqrt(d2))
    want = (v[1:4] / np.sqrt(d2)).T
    sign = np.sign((got * want).sum(axis=0))
    assert np.allclose(got, want * sign, atol=1e-5)
    assert dense_of(indexing.spectral(validation.labels(Y))).shape == (12, 10)
    with pytest.raises(ParameterError, match="need at least 3 rows and labels, there are 40 and 2"):
        indexing.spectral(validation.labels(Y[:, :2]))


def test_lengths_do_not_matter_to_spherical_clustering() -> None:
    Z, group = blobs(4, 15, dense=True)
    long = Z.dense * np.random.default_rng(0).uniform(0.01, 100, (60, 1)).astype(np.float32)
    Y = np.eye(60)
    for seed in range(3):
        model = carya.XRLinear(representation="lf", branching=4, max_leaf=15, max_depth=2, seed=seed)
        tree = model.fit(np.eye(60), Y, label_features=long).tree_
        assert len(set(zip(tree.clusters(1), group, strict=True))) <= 6


def blobs(groups: int, each: int, dense: bool, seed: int = 0):
    """Labels in well separated groups, shuffled; and the group of each."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(groups), each))
    Z = np.zeros((groups * each, groups * 5))
    for label, g in enumerate(group):
        Z[label, 5 * g : 5 * g + 5] = 1 + 0.3 * rng.random(5)
        Z[label, rng.integers(0, Z.shape[1])] += 0.2
    Z = reference.unit_rows(Z)
    return validation.features(Z if dense else sp.csr_array(Z)), group


@pytest.mark.parametrize("dense", [False, True], ids=["sparse", "dense"])
@pytest.mark.parametrize("bisect", [True, False], ids=["bisect", "direct"])
@pytest.mark.parametrize("balanced", [True, False], ids=["balanced", "unbalanced"])
@pytest.mark.parametrize("spherical", [True, False], ids=["spherical", "kmeans"])
def test_clustering_finds_groups(dense: bool, bisect: bool, balanced: bool, spherical: bool) -> None:
    Z, group = blobs(4, 25, dense)
    pure = []
    for seed in range(10):  # k-means may start badly: most starts must do
        tree = indexing.cluster(
            Z, branching=4, max_leaf=25, max_depth=2, bisect=bisect, balanced=balanced, spherical=spherical, seed=seed
        )
        cluster = tree.clusters(1)
        together = sum(np.bincount(group[cluster == c]).max() for c in np.unique(cluster))
        pure.append(together / group.size)
    assert np.median(pure) > 0.7
    assert max(pure) == 1.0


@pytest.mark.parametrize("bisect", [True, False], ids=["bisect", "direct"])
@pytest.mark.parametrize("balanced", [True, False], ids=["balanced", "unbalanced"])
@pytest.mark.parametrize("spherical", [True, False], ids=["spherical", "kmeans"])
@pytest.mark.parametrize("seed", range(6))
def test_partitioning_is_that_of_the_slow_twin(seed: int, spherical: bool, balanced: bool, bisect: bool) -> None:
    rng = np.random.default_rng(seed)
    labels, columns, dense = int(rng.integers(20, 200)), int(rng.integers(25, 60)), int(rng.integers(0, 4))
    Z = rng.standard_normal((labels, columns)) * (rng.random((labels, columns)) < 0.3)
    D = rng.standard_normal((labels, dense))
    Z, D = Z.astype(np.float32), D.astype(np.float32)
    options = {"spherical": spherical, "balanced": balanced, "bisect": bisect, "max_iter": 15, "min_moved": 0.01}
    branching, stop_size = [5, 3, 4], 0 if balanced else 6
    got = _core.partition(
        validation.features((sp.csr_array(Z), D)).native,
        branching=branching,
        stop_size=stop_size,
        seed=seed,
        threads=2,
        report=None,
        **options,
    )
    want = reference_partition.partition(
        Z.astype(float), D.astype(float), branching, stop_size=stop_size, seed=seed, **options
    )
    assert len(got) == len(want) == 3
    for a, b in zip(got, want, strict=True):
        assert a.tolist() == b.tolist()


@pytest.mark.parametrize("bisect", [True, False])
@given(labels=st.integers(2, 120), branching=st.integers(2, 7), max_leaf=st.integers(1, 30), seed=st.integers(0, 5))
def test_balanced_trees_are_balanced(bisect: bool, labels: int, branching: int, max_leaf: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    Z = validation.features(sp.random_array((labels, 20), density=0.3, rng=rng, dtype=np.float32))
    tree = indexing.cluster(Z, branching=branching, max_leaf=max_leaf, bisect=bisect, seed=seed)
    assert tree.n_labels == labels
    for parent in tree.parents[:-1]:
        assert np.bincount(parent).max() <= branching
    sizes = np.bincount(tree.parents[-1])
    slack = tree.depth if bisect else 2  # cutting in odd shares rounds at every cut
    assert sizes.max() - sizes.min() <= slack
    if tree.depth > 1:
        assert sizes.max() <= max_leaf + slack


def test_unbalanced_trees_end_where_leaves_are_small(world: World) -> None:
    x, y = validation.training_pair(world.X, world.Y)
    Z = indexing.pifa(x, y)
    tree = indexing.cluster(Z, branching=5, max_leaf=9, balanced=False, bisect=False)
    assert np.bincount(tree.parents[-1]).max() <= 9
    shallow = indexing.cluster(Z, branching=5, max_leaf=9, max_depth=3, balanced=False, bisect=False)
    assert shallow.depth == 3
    same = validation.features(sp.csr_array(np.ones((40, 3))))  # nothing to tell apart, and yet it ends
    for bisect in (True, False):
        leaves = indexing.cluster(same, branching=2, max_leaf=4, balanced=False, bisect=bisect).parents[-1]
        assert np.bincount(leaves).max() <= 4


@pytest.mark.parametrize("bisect", [True, False])
def test_threads_do_not_change_the_tree(world: World, bisect: bool) -> None:
    x, y = validation.training_pair(world.X, world.Y)
    trees = [
        indexing.cluster(indexing.pifa(x, y, threads=n), branching=3, max_leaf=5, bisect=bisect, seed=4, threads=n)
        for n in (1, 2, 8)
    ]
    assert trees[0] == trees[1] == trees[2]
    assert trees[0] != indexing.cluster(indexing.pifa(x, y), branching=3, max_leaf=5, bisect=bisect, seed=5)


def test_the_tree_of_a_world_is_its_topics(world: World) -> None:
    x, y = validation.training_pair(world.X, world.Y)
    tree = indexing.cluster(indexing.pifa(x, y), branching=6, max_leaf=25, seed=0)
    cluster = tree.parents[-1]
    agree = np.mean([np.bincount(world.topics[cluster == c]).max() / (cluster == c).sum() for c in np.unique(cluster)])
    chance = np.bincount(world.topics).max() / world.topics.size
    assert agree > 2 * chance
