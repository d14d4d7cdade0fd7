"""Tests that compare native beam search with the reference search on random trees with all transforms."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given
from hypothesis import strategies as st

import carya
from carya import LabelTree
from carya.core import validation
from carya.core.matrices import Csr
from carya.data import SyntheticData
from carya.errors import ParameterError
from carya.models.ensemble.combine import predict_combined
from carya.trees.beam_search import BeamSearcher
from carya.trees.layer import WEIGHT_DTYPES, Layer, Weights
from carya.trees.layout_choice import LAYOUTS
from carya.trees.trained_tree import TrainedTree
from carya.trees.transforms import Transform

from matrix_helpers import ranking_of, take_rows
from reference_search import AmbiguityError, ReferenceSearch

TRANSFORMS = ["noop", "sigmoid", "log-sigmoid", "l1-hinge", "l3-hinge", "l2.5-hinge", "log-l2-hinge"]


def random_model(seed: int, sizes: tuple[int, ...], columns: int, dense: int, transforms: list[str]) -> carya.XRLinear:
    """Return a model whose random weights are multiples of 1/4, so that ties occur."""
    rng = np.random.default_rng(seed)
    parents = []
    for above, size in zip((1, *sizes), sizes, strict=False):
        parents.append(rng.permutation(np.concatenate([np.arange(above), rng.integers(0, above, size - above)])))
    tree = LabelTree(parents)
    layers = []
    for level, (size, name) in enumerate(zip(sizes, transforms, strict=True), 1):
        order, chunks = tree.children(level)
        weights = rng.integers(-2, 3, (columns, size)) / 4 * (rng.random((columns, size)) < 0.4)
        layers.append(
            Layer(
                weights=Weights.pack(Csr.of_scipy(sp.csr_array(weights.astype(np.float32))), chunks, "float32"),
                dense=(rng.integers(-2, 3, (size, dense)) / 4).astype(np.float32),
                biases=(rng.integers(-2, 2, size) / 4).astype(np.float32),
                chunks=chunks,
                order=order,
                transform=Transform.from_name(name),
            )
        )
    return carya.XRLinear.from_trained_tree(TrainedTree(tree, layers, (columns, dense)), n_jobs=2)


@st.composite
def models(draw: st.DrawFn) -> carya.XRLinear:
    sizes = tuple(sorted(draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))))
    transforms = [draw(st.sampled_from(TRANSFORMS)) for _ in sizes]
    dense = draw(st.integers(0, 3))
    columns = draw(st.integers(0 if dense else 1, 12))
    return random_model(draw(st.integers(0, 10_000)), sizes, columns, dense, transforms)


def queries(model: carya.XRLinear, seed: int, rows: int = 6) -> tuple[Any, np.ndarray]:
    """Return queries both in the model's input format and as a dense matrix; the first query has no features."""
    rng = np.random.default_rng(seed)
    sparse = (rng.integers(0, 3, (rows, model.widths_[0])) * (rng.random((rows, model.widths_[0])) < 0.6)).astype(
        np.float32
    )
    dense = rng.integers(-1, 2, (rows, model.widths_[1])).astype(np.float32)
    sparse[0], dense[0] = 0, 0
    X = (sp.csr_array(sparse), dense) if min(model.widths_) else sp.csr_array(sparse) if model.widths_[0] else dense
    return X, np.hstack([sparse, dense])


def check(
    reference: ReferenceSearch, x: np.ndarray, ranking: list[tuple[int, float]], *, top_k: int, beam_width: int
) -> None:
    """Compare a ranking with the reference; discard the example if rounding errors allow too many beams."""
    try:
        reference.check(x, ranking, top_k=top_k, beam_width=beam_width)
    except AmbiguityError:
        assume(False)


@pytest.mark.parametrize("layout", LAYOUTS)
@given(
    model=models(),
    seed=st.integers(0, 100),
    weight_dtype=st.sampled_from(WEIGHT_DTYPES),
    beam_width=st.sampled_from([1, 3, 40]),
)
def test_every_layout_gives_the_reference_ranking(
    layout: str, model: carya.XRLinear, seed: int, weight_dtype: str, beam_width: int
) -> None:
    trained = model._state.trained.with_weight_dtype(weight_dtype)
    reference = ReferenceSearch(carya.XRLinear.from_trained_tree(trained))
    X, all_features = queries(model, seed)
    indptr, labels, scores = BeamSearcher(trained.layers, layout).predict(
        validation.check_features_like(X, model.widths_), top_k=40, beam_width=beam_width, threads=2
    )
    for row, x in enumerate(all_features):
        part = slice(indptr[row], indptr[row + 1])
        ranking = list(zip(labels[part].tolist(), scores[part].tolist(), strict=True))
        check(reference, x, ranking, top_k=40, beam_width=beam_width)


@given(models(), st.integers(0, 100), st.integers(1, 12), st.integers(1, 8))
def test_beam_search_prunes_like_the_reference(model: carya.XRLinear, seed: int, top_k: int, beam_width: int) -> None:
    reference = ReferenceSearch(model)
    X, all_features = queries(model, seed)
    S = model.predict(X, top_k=top_k, beam_width=beam_width)
    for row, x in enumerate(all_features):
        check(reference, x, ranking_of(S, row), top_k=top_k, beam_width=beam_width)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_wide_beams_prune_like_the_reference(transform: str) -> None:
    """If more than 32 nodes must be selected, the native search uses a different algorithm."""
    model = random_model(1, (50, 120, 400), 12, 2, [transform] * 3)
    reference = ReferenceSearch(model)
    X, all_features = queries(model, 1, rows=12)
    S = model.predict(X, top_k=60, beam_width=40)
    checked = 0
    for row, x in enumerate(all_features):
        with contextlib.suppress(AmbiguityError):
            reference.check(x, ranking_of(S, row), top_k=60, beam_width=40)
            checked += 1
    assert checked >= 10


@pytest.mark.parametrize("transforms", [["l3-hinge"] * 3, ["sigmoid"] * 3, ["log-sigmoid"] * 3, ["noop"] * 3])
def test_the_reference_rejects_a_wrong_beam(transforms: list[str]) -> None:
    """The reference rejects rankings from a beam one node too narrow or too wide, and rankings with a missing label."""
    rejected = dict.fromkeys(("narrower", "wider", "incomplete"), 0)
    for seed in range(40):
        model = random_model(seed, (6, 12, 90), 12, 2, transforms)
        reference = ReferenceSearch(model)
        X, all_features = queries(model, seed)
        rankings = {
            "narrower": model.predict(X, top_k=8, beam_width=2),
            "wider": model.predict(X, top_k=8, beam_width=4),
            "incomplete": model.predict(X, top_k=7, beam_width=3),
        }
        for mutation, S in rankings.items():
            for row, x in enumerate(all_features):
                try:
                    check(reference, x, ranking_of(S, row), top_k=8, beam_width=3)
                except AssertionError:
                    rejected[mutation] += 1
    assert rejected["narrower"] > 60
    assert rejected["wider"] > 60
    assert rejected["incomplete"] > 150  # 200 queries have features, and most have at least 8 candidates


@given(models(), st.integers(0, 100), st.floats(-2, 1.5))
def test_min_score_drops_exactly_the_labels_below_it(model: carya.XRLinear, seed: int, min_score: float) -> None:
    X, _ = queries(model, seed)
    complete, limited = model.predict(X, top_k=12), model.predict(X, top_k=12, min_score=min_score)
    for row in range(complete.shape[0]):
        kept = [(label, score) for label, score in ranking_of(complete, row) if score >= np.float32(min_score)]
        assert ranking_of(limited, row) == kept


@given(models(), st.integers(0, 100))
def test_ranking_one_by_one_equals_the_batch(model: carya.XRLinear, seed: int) -> None:
    X, _ = queries(model, seed)
    S = model.predict(X, top_k=5, beam_width=3)
    for row in range(S.shape[0]):
        labels, scores = model.rank(take_rows(X, [row]), top_k=5, beam_width=3)
        assert np.array_equal(labels, S[[row]].indices)
        assert np.array_equal(scores, S[[row]].data)


@given(models(), st.integers(0, 100))
def test_scores_of_selected_pairs_equal_the_reference(model: carya.XRLinear, seed: int) -> None:
    reference = ReferenceSearch(model)
    X, all_features = queries(model, seed)
    rng = np.random.default_rng(seed)
    candidates = sp.csr_array((rng.random((len(all_features), model.tree_.n_labels)) < 0.4).astype(np.float32))
    scores = model.predict_selected(X, candidates)
    assert np.array_equal(scores.indices, candidates.indices)
    for row, x in enumerate(all_features):
        for label, score in ranking_of(scores, row):
            assert score == pytest.approx(reference.score(x, label), abs=2e-5)


def test_an_exhaustive_beam_equals_brute_force(model: carya.XRLinear, world: SyntheticData) -> None:
    X = world.X[:50]
    S = model.predict(X, top_k=5, beam_width=10_000)
    all_scores = model.predict_selected(X, np.ones((50, world.Y.shape[1])))
    for row in range(50):
        scores = all_scores[[row]].toarray()[0]
        best = np.lexsort((np.arange(scores.size), -scores))[:5]
        assert np.array_equal(S[[row]].indices, best)
        assert np.array_equal(S[[row]].data, scores[best])


def test_ties_go_to_the_lower_label() -> None:
    tree = LabelTree.flat(6)
    order, chunks = tree.children(1)
    weights = Weights.pack(Csr.of_scipy(sp.csr_array(np.array([[1, 0, 1, 1, 0, 1]], np.float32))), chunks, "float32")
    layer = Layer(
        weights, np.zeros((6, 0), np.float32), np.zeros(6, np.float32), chunks, order, Transform.from_name("noop")
    )
    model = carya.XRLinear.from_trained_tree(TrainedTree(tree, [layer], (1, 0)))
    labels, scores = model.rank(np.array([2.0]), top_k=5)
    assert labels.tolist() == [0, 2, 3, 5, 1]
    assert scores.tolist() == [2, 2, 2, 2, 0]


def test_top_k_above_the_number_of_labels_returns_all_labels(model: carya.XRLinear, world: SyntheticData) -> None:
    S = model.predict(world.X[:3], top_k=10_000, beam_width=10_000)
    assert np.diff(S.indptr).tolist() == [150] * 3


@pytest.mark.parametrize("name", ["l-hinge", "l0-hinge", "hinge", "l3hinge", "L3-hinge", "", "sigmoid "])
def test_unknown_transforms_are_rejected(name: str) -> None:
    with pytest.raises(ParameterError, match=r"Unknown transform .* Use 'noop', 'sigmoid'"):
        Transform.from_name(name)


@pytest.mark.parametrize("transform", ["noop", "sigmoid", "log-sigmoid", "l3-hinge", "log-l3-hinge"])
def test_nan_scores_rank_last(transform: str) -> None:
    """NaN scores can result from infinite weights or forged files."""
    chunks = np.array([0, 3])
    matrix = np.array([[1, 1, 0.5]], np.float32)
    layer = Layer(
        weights=Weights.pack(Csr.of_scipy(sp.csr_array(matrix)), chunks, "float32"),
        dense=np.zeros((3, 0), np.float32),
        biases=np.array([0, np.nan, 0], np.float32),
        chunks=chunks,
        order=np.arange(3, dtype=np.int32),
        transform=Transform.from_name(transform),
    )
    query = validation.check_features(sp.csr_array(np.ones((1, 1), np.float32)))
    for layout in LAYOUTS:
        _, labels, scores = BeamSearcher([layer], layout).predict(query, top_k=3, beam_width=3, threads=1)
        assert labels.tolist() == [0, 2, 1]
        assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    "limits", [{"top_k": 0, "beam_width": 3}, {"top_k": -1, "beam_width": 3}, {"top_k": 3, "beam_width": 0}]
)
def test_searches_without_labels_or_beam_are_rejected(world: SyntheticData, limits: dict[str, Any]) -> None:
    model = carya.XRLinear(branching=4, max_leaf_size=8).fit(world.X, world.Y)
    queries = validation.check_features(world.X[:5])
    row = validation.check_query(world.X[[0]], model.widths_)
    (name,) = (name for name, value in limits.items() if value < 1)
    calls: list[Callable[[], Any]] = [
        lambda: model.searcher.predict(queries, **limits, threads=1),
        lambda: model.searcher.rank(*row, **limits),
        lambda: predict_combined(
            [model.searcher], queries, **limits, pool_size=5, combine="mean", weights=np.ones(1, np.float32), threads=1
        ),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=rf"{name} must be >= 1, got {limits[name]}\."):
            call()
