"""The choice of a layout, from sizes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.core.matrices import Csr
from carya.data import World
from carya.trees.beam_search import Searcher
from carya.trees.layer import Layer, Weights
from carya.trees.layouts import LAYOUTS, choose
from carya.trees.trained_tree import Learned
from carya.trees.transforms import Transform


def layer(features: int, clusters: int, each: int, per_node: int) -> Layer:
    """`clusters` clusters of `each` nodes with `per_node` weights."""
    rng = np.random.default_rng(0)
    nodes = clusters * each
    matrix = sp.csr_array(
        (
            np.ones(nodes * per_node, np.float32),
            (rng.integers(0, features, nodes * per_node), np.repeat(np.arange(nodes), per_node)),
        ),
        shape=(features, nodes),
    )
    matrix.sum_duplicates()
    chunks = np.arange(0, nodes + 1, each)
    return Layer(
        weights=Weights.pack(Csr.of_scipy(matrix), chunks, "int8"),
        dense=np.zeros((nodes, 0), np.float32),
        offsets=np.zeros(nodes, np.float32),
        chunks=chunks,
        order=np.arange(nodes, dtype=np.int32),
        transform=Transform.named("l3-hinge"),
    )


def test_texts_are_searched_packed() -> None:
    choice = choose(layer(2000, 30, 20, 40), beam_width=10, query_features=60)
    assert choice.layout == "packed"
    assert "mapped from the file" in choice.reason
    assert "10 of 30 clusters" in choice.reason
    assert set(choice.costs) == set(LAYOUTS)


def test_long_queries_over_tiny_labels_are_searched_by_label() -> None:
    choice = choose(layer(5000, 100, 20, 10), beam_width=1, query_features=4000)
    assert choice.layout == "by-label"
    assert "times as fast as packed" in choice.reason


def test_models_search_with_what_was_chosen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(
        "carya.models.xr_linear.model.Searcher",
        lambda layers, layouts, leaves: built.append(layouts) or Searcher(layers, layouts, leaves),
    )
    model = carya.XRLinear(max_leaf=10, branching=4).fit(world.X, world.Y)
    want = model.predict(world.X[:50])
    learned, _ = model._fitted
    other = carya.XRLinear.from_learned(
        Learned(learned.tree, learned.layers, learned.widths, row_features=1e7), **model._parameters_to_keep()
    )
    assert [choice.layout for choice in model.layouts_] == ["packed"] * len(model.layers_)
    assert [choice.layout for choice in other.layouts_] == ["by-label"] * len(model.layers_)
    assert built == [["packed"] * len(model.layers_), ["by-label"] * len(model.layers_)]
    got = other.predict(world.X[:50])
    assert (got.indices == want.indices).all()
    assert np.allclose(got.data, want.data, rtol=1e-3)
    assert learned.row_features == pytest.approx(world.X.nnz / world.X.shape[0])
