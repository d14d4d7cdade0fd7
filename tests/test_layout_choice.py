"""Tests for choosing the memory layout of a layer, which depends on its size and on the queries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.core.matrices import Csr
from carya.data import SyntheticData
from carya.trees.beam_search import BeamSearcher
from carya.trees.layer import Layer, Weights
from carya.trees.layout_choice import LAYOUTS, choose_layout
from carya.trees.trained_tree import TrainedTree
from carya.trees.transforms import Transform


def make_layer(features: int, clusters: int, cluster_size: int, weights_per_node: int) -> Layer:
    """Return a layer with clusters of equal size and about `weights_per_node` random weights per node."""
    rng = np.random.default_rng(0)
    nodes = clusters * cluster_size
    matrix = sp.csr_array(
        (
            np.ones(nodes * weights_per_node, np.float32),
            (rng.integers(0, features, nodes * weights_per_node), np.repeat(np.arange(nodes), weights_per_node)),
        ),
        shape=(features, nodes),
    )
    matrix.sum_duplicates()
    chunks = np.arange(0, nodes + 1, cluster_size)
    return Layer(
        weights=Weights.pack(Csr.of_scipy(matrix), chunks, "int8"),
        dense=np.zeros((nodes, 0), np.float32),
        biases=np.zeros(nodes, np.float32),
        chunks=chunks,
        order=np.arange(nodes, dtype=np.int32),
        transform=Transform.from_name("l3-hinge"),
    )


def test_layers_of_text_models_remain_packed() -> None:
    choice = choose_layout(make_layer(2000, 30, 20, 40), beam_width=10, query_features=60)
    assert choice.layout == "packed"
    assert choice.reason.startswith("fastest; by-label would take ")
    assert "10 of 30 clusters" in choice.reason
    assert set(choice.costs) == set(LAYOUTS)


def test_a_layout_that_is_slightly_faster_is_not_built() -> None:
    choice = choose_layout(make_layer(5000, 100, 20, 10), beam_width=1, query_features=10)
    assert choice.layout == "packed"
    assert 1 < choice.costs["packed"] / choice.costs["by-label"] < 2
    assert "times as fast, but must be 2 times as fast to pay off" in choice.reason


def test_long_queries_with_few_weights_use_the_by_label_layout() -> None:
    choice = choose_layout(make_layer(5000, 100, 20, 10), beam_width=1, query_features=4000)
    assert choice.layout == "by-label"
    assert "times as fast as packed" in choice.reason


def test_large_layers_remain_packed() -> None:
    layer = make_layer(5000, 100, 20, 10)
    large = replace(layer, weights=replace(layer.weights, n_weights=200_000_000))
    choice = choose_layout(large, beam_width=1, query_features=1e9)
    assert choice.layout == "packed"
    assert "too much memory" in choice.reason


def test_scanning_many_clusters_is_not_assumed_if_the_beam_is_narrow() -> None:
    layer = make_layer(100, 7000, 98, 1)
    weights = replace(layer.weights, n_features=14_000, n_used=14_000, n_weights=90_000_000)  # 6,400 per feature
    choice = choose_layout(replace(layer, weights=weights), beam_width=10, query_features=50)
    assert choice.layout == "packed"
    assert choice.reason.startswith("fastest")


def test_models_use_the_chosen_layout(world: SyntheticData, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[list[str]] = []

    def build(layers: list[Layer], layouts: list[str], leaf_labels: np.ndarray | None) -> BeamSearcher:
        built.append(layouts)
        return BeamSearcher(layers, layouts, leaf_labels)

    monkeypatch.setattr("carya.models.xr_linear.model.BeamSearcher", build)
    model = carya.XRLinear(max_leaf_size=10, branching=4).fit(world.X, world.Y)
    expected = model.predict(world.X[:50])
    trained = model._state.trained
    other = carya.XRLinear.from_trained_tree(
        TrainedTree(trained.tree, trained.layers, trained.widths, row_features=1e7), max_leaf_size=10, branching=4
    )
    assert [choice.layout for choice in model.layouts_] == ["packed"] * len(model.layers_)
    assert [choice.layout for choice in other.layouts_] == ["by-label"] * len(model.layers_)
    assert built == [["packed"] * len(model.layers_), ["by-label"] * len(model.layers_)]
    S = other.predict(world.X[:50])
    assert (S.indices == expected.indices).all()
    assert np.allclose(S.data, expected.data, rtol=1e-3)
    assert trained.row_features == pytest.approx(world.X.nnz / world.X.shape[0])
