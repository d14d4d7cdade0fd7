from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import carya
from carya import LabelTree
from carya.core import validation
from carya.core.matrices import Csr
from carya.errors import ParameterError
from carya.trees.beam_search import Searcher
from carya.trees.layer import PRECISIONS, Layer, Weights
from carya.trees.layouts import LAYOUTS
from carya.trees.trained_tree import Learned
from carya.trees.transforms import Transform

import reference

TRANSFORMS = ["noop", "sigmoid", "log-sigmoid", "l1-hinge", "l3-hinge", "l2.5-hinge", "log-l2-hinge"]


def random_model(seed: int, sizes: tuple[int, ...], columns: int, dense: int, transforms: list[str]) -> carya.XRLinear:
    """A model of random weights, few of them different, so that ties happen."""
    rng = np.random.default_rng(seed)
    parents = []
    for above, here in zip((1, *sizes), sizes, strict=False):
        parents.append(rng.permutation(np.concatenate([np.arange(above), rng.integers(0, above, here - above)])))
    tree = LabelTree(parents)
    layers = []
    for level, (here, name) in enumerate(zip(sizes, transforms, strict=True), 1):
        order, chunks = tree.children(level)
        weights = rng.integers(-2, 3, (columns, here)) / 4 * (rng.random((columns, here)) < 0.4)
        layers.append(
            Layer(
                weights=Weights.pack(Csr.of_scipy(sp.csr_array(weights.astype(np.float32))), chunks, "float32"),
                dense=(rng.integers(-2, 3, (here, dense)) / 4).astype(np.float32),
                offsets=(rng.integers(-2, 2, here) / 4).astype(np.float32),
                chunks=chunks,
                order=order,
                transform=Transform.named(name),
            )
        )
    return carya.XRLinear.from_learned(Learned(tree, layers, (columns, dense)), n_jobs=2)


@st.composite
def models(draw: st.DrawFn) -> carya.XRLinear:
    sizes = tuple(sorted(draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))))
    transforms = [draw(st.sampled_from(TRANSFORMS)) for _ in sizes]
    dense = draw(st.integers(0, 3))
    columns = draw(st.integers(0 if dense else 1, 12))
    return random_model(draw(st.integers(0, 10_000)), sizes, columns, dense, transforms)


def queries(model: carya.XRLinear, seed: int, rows: int = 6):
    """Rows as the model takes them, and all their features side by side."""
    rng = np.random.default_rng(seed)
    sparse = (rng.integers(0, 3, (rows, model.widths_[0])) * (rng.random((rows, model.widths_[0])) < 0.6)).astype(
        np.float32
    )
    dense = rng.integers(-1, 2, (rows, model.widths_[1])).astype(np.float32)
    sparse[0], dense[0] = 0, 0
    X = (sp.csr_array(sparse), dense) if min(model.widths_) else sp.csr_array(sparse) if model.widths_[0] else dense
    return X, np.hstack([sparse, dense])


def same_ranking(got: list[tuple[int, float]], want: list[tuple[int, float]]) -> None:
    assert [score for _, score in got] == pytest.approx([score for _, score in want], abs=2e-5)
    labels, expected = dict(got), dict(want)
    for label in labels.keys() ^ expected.keys():  # float32 and float64 may part equals differently
        cut = min(score for _, score in want)
        assert labels.get(label, expected.get(label)) == pytest.approx(cut, abs=2e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
@given(model=models(), seed=st.integers(0, 100), precision=st.sampled_from(PRECISIONS))
def test_all_layouts_rank_alike(layout: str, model: carya.XRLinear, seed: int, precision: str) -> None:
    learned = model._fitted[0].with_precision(precision)
    plain = carya.XRLinear.from_learned(learned)
    X, everything = queries(model, seed)
    question = {"top_k": 40, "beam_width": 40}
    got = Searcher(learned.layers, layout).predict(validation.features_like(X, model.widths_), **question, threads=2)
    for row in range(everything.shape[0]):
        part = slice(got[0][row], got[0][row + 1])
        found = list(zip(got[1][part].tolist(), got[2][part].tolist(), strict=True))
        same_ranking(found, reference.beam_search(plain, everything[row], 40, 40))


@given(models(), st.integers(0, 100), st.floats(-2, 1.5))
def test_a_least_score_only_leaves_out(model: carya.XRLinear, seed: int, least: float) -> None:
    X, _ = queries(model, seed)
    whole, cut = model.predict(X, top_k=12), model.predict(X, top_k=12, min_score=least)
    for row in range(whole.shape[0]):
        a, b = whole[[row]], cut[[row]]
        kept = a.data >= np.float32(least)
        assert np.array_equal(a.indices[kept], b.indices)
        assert np.array_equal(a.data[kept], b.data)


@given(models(), st.integers(0, 100), st.integers(1, 12), st.integers(1, 8))
def test_beam_search_is_that_of_the_twin(model: carya.XRLinear, seed: int, top_k: int, beam_width: int) -> None:
    if any(layer.transform.kind in ("sigmoid", "hinge") for layer in model.layers_):
        beam_width = 40  # near-equal products in float32 may choose another beam; exact sums may not
    X, all_features = queries(model, seed)
    S = model.predict(X, top_k=top_k, beam_width=beam_width)
    for row in range(S.shape[0]):
        got = list(zip(S[[row]].indices.tolist(), S[[row]].data.tolist(), strict=True))
        same_ranking(got, reference.beam_search(model, all_features[row], top_k, beam_width))


@given(models(), st.integers(0, 100))
def test_one_by_one_is_batch(model: carya.XRLinear, seed: int) -> None:
    X, _ = queries(model, seed)
    S = model.predict(X, top_k=5, beam_width=3)
    for row in range(S.shape[0]):
        x = (X[0][[row]], X[1][[row]]) if isinstance(X, tuple) else X[[row]]
        labels, scores = model.rank(x, top_k=5, beam_width=3)
        assert np.array_equal(labels, S[[row]].indices)
        assert np.array_equal(scores, S[[row]].data)


@given(models(), st.integers(0, 100))
def test_selected_pairs(model: carya.XRLinear, seed: int) -> None:
    X, all_features = queries(model, seed)
    rng = np.random.default_rng(seed)
    wanted = sp.csr_array((rng.random((len(all_features), model.tree_.n_labels)) < 0.4).astype(np.float32))
    got = model.predict_selected(X, wanted)
    assert np.array_equal(got.indices, wanted.indices)
    for row in range(got.shape[0]):
        for label, score in zip(got[[row]].indices, got[[row]].data, strict=True):
            assert score == pytest.approx(reference.path_score(model, all_features[row], int(label)), abs=2e-5)


def test_a_wide_beam_is_brute_force(model: carya.XRLinear, world) -> None:
    X = world.X[:50]
    S = model.predict(X, top_k=5, beam_width=10_000)
    everything = model.predict_selected(X, np.ones((50, world.Y.shape[1])))
    for row in range(50):
        scores = everything[[row]].toarray()[0]
        best = np.lexsort((np.arange(scores.size), -scores))[:5]
        assert np.array_equal(S[[row]].indices, best)
        assert np.array_equal(S[[row]].data, scores[best])


def test_ties_go_to_the_lower_label() -> None:
    tree = LabelTree.flat(6)
    order, chunks = tree.children(1)
    weights = Weights.pack(Csr.of_scipy(sp.csr_array(np.array([[1, 0, 1, 1, 0, 1]], np.float32))), chunks, "float32")
    layer = Layer(
        weights, np.zeros((6, 0), np.float32), np.zeros(6, np.float32), chunks, order, Transform.named("noop")
    )
    model = carya.XRLinear.from_learned(Learned(tree, [layer], (1, 0)))
    labels, scores = model.rank(np.array([2.0]), top_k=5)
    assert labels.tolist() == [0, 2, 3, 5, 1]
    assert scores.tolist() == [2, 2, 2, 2, 0]


def test_more_labels_asked_for_than_there_are(model: carya.XRLinear, world) -> None:
    S = model.predict(world.X[:3], top_k=10_000, beam_width=10_000)
    assert np.diff(S.indptr).tolist() == [150] * 3


@pytest.mark.parametrize("name", ["l-hinge", "l0-hinge", "hinge", "l3hinge", "L3-hinge", "", "sigmoid "])
def test_unknown_transforms(name: str) -> None:
    with pytest.raises(ParameterError, match="there is no transform"):
        Transform.named(name)


@pytest.mark.parametrize("transform", ["noop", "sigmoid", "log-sigmoid", "l3-hinge", "log-l3-hinge"])
def test_what_is_no_number_ranks_last(transform: str) -> None:
    """Whatever made it so: infinity less infinity, or a forged file."""
    chunks = np.array([0, 3])
    matrix = np.array([[1, 1, 0.5]], np.float32)
    layer = Layer(
        weights=Weights.pack(Csr.of_scipy(sp.csr_array(matrix)), chunks, "float32"),
        dense=np.zeros((3, 0), np.float32),
        offsets=np.array([0, np.nan, 0], np.float32),
        chunks=chunks,
        order=np.arange(3, dtype=np.int32),
        transform=Transform.named(transform),
    )
    query = validation.features(sp.csr_array(np.ones((1, 1), np.float32)))
    for layout in LAYOUTS:
        _, labels, scores = Searcher([layer], layout).predict(query, top_k=3, beam_width=3, threads=1)
        assert labels.tolist() == [0, 2, 1]
        assert np.isfinite(scores).all()
