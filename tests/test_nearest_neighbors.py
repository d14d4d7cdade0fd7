"""Tests for nearest neighbors: exact search, HNSW graphs, voting, and models that search labels or rows."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import carya
from carya.core import validation
from carya.core.matrices import Csr
from carya.data import SyntheticData
from carya.errors import InputError, MissingExtraError, ModelFormatError, ParameterError
from carya.indexing.representations import normalize
from carya.matching.hnsw import HnswGraph, check_bytes
from carya.matching.nearest_neighbors import NeighborSearcher, exclude_self, index_layer
from carya.matching.voting import keep_largest, vote
from carya.trees.beam_search import BeamSearcher

from forging import use_forged
from matrix_helpers import FORMS, in_form, same_arrays, same_matrix, scale, take_rows

GRAPHS = pytest.mark.skipif(importlib.util.find_spec("usearch") is None, reason="requires carya[ann]")

MODELS: dict[str, dict[str, Any]] = {
    "labels": {"n_neighbors": 30},
    "labels, exactly": {"n_neighbors": 30, "search": "exact", "weight_dtype": "float32", "similarity_weight": 0.01},
    "labels, similar": {"n_neighbors": 30, "similarity_weight": 3.0, "transform": "sigmoid", "loss": "logistic"},
    "labels, unranked": {"n_neighbors": 30, "ranker": None},
    "rows": {"over": "rows", "n_neighbors": 20, "max_candidates": 40},
    "rows, unranked": {"over": "rows", "n_neighbors": 20, "ranker": None},
    "labels in a graph": {"n_neighbors": 30, "search": "graph", "similarity_weight": 1.0},
    "rows in a graph": {"over": "rows", "n_neighbors": 20, "search": "graph", "connectivity": 8},
}


def cases() -> list[Any]:
    """Return one case per model and supported feature format; graph search requires dense features."""
    params = []
    for name, parameters in MODELS.items():
        graph = parameters.get("search") == "graph"
        for form in ["dense"] if graph else FORMS:
            params.append(pytest.param((parameters, form), id=f"{name}, {form}", marks=[GRAPHS] if graph else []))
    return params


@pytest.fixture(scope="module", params=cases())
def fitted(request: pytest.FixtureRequest, world: SyntheticData, pair: Any) -> Any:
    """A fitted model, its features and its parameters."""
    parameters, form = request.param
    X = in_form(pair, form)
    return carya.NearestNeighbors(n_jobs=2, **parameters).fit(X, world.Y), X, parameters


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    """Random unit vectors."""
    vectors = np.random.default_rng(5).standard_normal((3000, 24)).astype(np.float32)
    unit_vectors: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit_vectors


# Exact search and voting


@pytest.mark.parametrize("form", FORMS)
def test_exact_search_equals_brute_force(pair: Any, form: str) -> None:
    X = in_form(pair, form)
    features = normalize(validation.check_features(X))
    all_features = np.hstack([features.sparse.to_scipy().toarray(), features.dense])
    queries = normalize(validation.check_features(take_rows(X, slice(0, 40))))
    searcher = NeighborSearcher(BeamSearcher([index_layer(features, weight_dtype="float32")]))
    indptr, items, cosines = searcher.search(queries, count=7, threads=2)
    assert indptr.tolist() == list(range(0, 281, 7))
    all_cosines = all_features[:40] @ all_features.T
    assert cosines == pytest.approx(-np.sort(-all_cosines, axis=1)[:, :7].ravel(), abs=1e-5)
    assert all_cosines[np.repeat(np.arange(40), 7), items] == pytest.approx(cosines, abs=1e-5)


def test_similarity_weight_is_the_rate_of_an_exponential_function(world: SyntheticData) -> None:
    features = normalize(validation.check_features(world.X))
    queries = normalize(validation.check_features(world.X[:20]))
    cosines, weighted = (
        BeamSearcher([index_layer(features, weight_dtype="float32", similarity_weight=similarity_weight)]).predict(
            queries, top_k=5, beam_width=5, threads=1
        )
        for similarity_weight in (None, 2.5)
    )
    assert np.array_equal(cosines[1], weighted[1])
    assert weighted[2] == pytest.approx(np.exp(-2.5 * (1 - cosines[2])), rel=1e-4)


@given(st.lists(st.lists(st.integers(0, 9), max_size=5, unique=True), max_size=6), st.integers(0, 9), st.integers(1, 4))
def test_rows_are_excluded_from_their_own_neighbors(neighbors: list[list[int]], first: int, count: int) -> None:
    indptr = np.cumsum([0, *map(len, neighbors)]).astype(np.int64)
    items = np.array([item for row in neighbors for item in row], np.int32)
    similarities = np.linspace(1, 0, items.size, dtype=np.float32)
    ends, kept, _ = exclude_self((indptr, items, similarities), first, count)
    expected = [[item for item in row if item != first + query][:count] for query, row in enumerate(neighbors)]
    assert [kept[a:b].tolist() for a, b in itertools.pairwise(ends)] == expected


def test_votes_are_weighted_by_similarity() -> None:
    labels = Csr.of_scipy(sp.csr_array(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]], np.float32)))
    neighbors = (
        np.array([0, 3, 3, 5]),
        np.array([0, 1, 2, 2, 1], np.int32),
        np.array([0.5, 0.25, 0.25, 1.0, -1.0], np.float32),
    )
    shares = vote(neighbors, labels)
    assert shares.to_scipy().toarray() == pytest.approx(np.array([[0.5, 0.75, 0.25], [0, 0, 0], [0, 0, 1]]))
    assert keep_largest(shares, 1).to_scipy().toarray() == pytest.approx(np.array([[0, 0.75, 0], [0, 0, 0], [0, 0, 1]]))
    weights = np.exp(4 * np.array([0.5, 0.25, 0.25, 1.0, -1.0]))
    first, third = weights[:3] / weights[:3].sum(), weights[3:] / weights[3:].sum()
    expected = np.array([[first[0], first[0] + first[1], first[2]], [0, 0, 0], [0, third[1], third[0]]])
    assert vote(neighbors, labels, sharpness=4.0).to_scipy().toarray() == pytest.approx(expected, rel=1e-5)
    tied = Csr.of_scipy(sp.csr_array(np.array([[1, 1, 1]], np.float32)))
    assert keep_largest(tied, 2).indices.tolist() == [0, 1]


# HNSW graphs


@GRAPHS
def test_graph_search_has_a_recall_above_95_percent(points: np.ndarray) -> None:
    graph = HnswGraph.build(points)
    queries = points[:200] + 0.1 * np.random.default_rng(1).standard_normal((200, 24)).astype(np.float32)
    items, products = graph.search(queries, count=10, ef_search=100, threads=2)
    all_products = queries @ points.T
    truth = np.argsort(-all_products, axis=1)[:, :10]
    assert np.mean([len(set(a) & set(b)) for a, b in zip(items.tolist(), truth.tolist(), strict=True)]) > 9.5
    assert products == pytest.approx(np.take_along_axis(all_products, items.astype(int), axis=1), abs=0.01)
    assert (np.diff(products, axis=1) <= 0).all()
    assert np.array_equal(graph.search(queries, count=10, ef_search=100, threads=1)[0], items)
    narrow, _ = graph.search(queries, count=10, ef_search=10)
    assert np.mean(np.any(narrow != truth, axis=1)) >= np.mean(np.any(items != truth, axis=1))


@GRAPHS
def test_the_same_vectors_give_the_same_graph(points: np.ndarray) -> None:
    first, second = (HnswGraph.build(points[:500], connectivity=6) for _ in range(2))
    assert np.array_equal(first.data, second.data)
    opened = HnswGraph.of_bytes(first.data, items=500, dimensions=24)
    results = [graph.search(points[:20], count=5, ef_search=50) for graph in (opened, first)]
    for array, expected in zip(*results, strict=True):
        assert np.array_equal(array, expected)


@GRAPHS
def test_graphs_with_few_items_and_searches_without_queries(points: np.ndarray) -> None:
    graph = HnswGraph.build(points[:3])
    assert graph.search(points[:2], count=10, ef_search=10)[0].shape == (2, 3)
    assert graph.search(points[:0], count=2, ef_search=10)[0].shape == (0, 2)


@GRAPHS
def test_forged_graphs_are_rejected_or_can_be_searched(points: np.ndarray) -> None:
    """Searching a graph that passes validation never accesses memory out of bounds."""
    graph = HnswGraph.build(points[:60, :4], connectivity=4).data
    vectors_end = 8 + 60 * 4 * 2
    rejected = accepted = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        data = graph.copy()
        while np.array_equal(data, graph):
            for position in rng.integers(0 if seed % 3 == 0 else vectors_end, data.size, size=1 + seed % 4):
                data[position] = rng.choice([0, 1, 59, 60, 127, 255])
        try:
            opened = HnswGraph.of_bytes(data, items=60, dimensions=4)
            items, _ = opened.search(points[:5, :4], count=5, ef_search=20)
        except ModelFormatError:
            rejected += 1
            continue
        assert items.max() < 60
        accepted += 1
    assert rejected >= 100
    assert accepted >= 30


@GRAPHS
def test_errors_for_damaged_graphs_describe_the_damage(points: np.ndarray) -> None:
    graph = HnswGraph.build(points[:60], connectivity=4).data
    check_bytes(graph, items=60, dimensions=24)
    for items, dimensions, data in ((59, 24, graph), (60, 23, graph), (60, 24, graph[:-1]), (60, 24, graph[:50])):
        with pytest.raises(ModelFormatError, match="The graph is damaged"):
            check_bytes(data, items=items, dimensions=dimensions)
    forged = graph.copy()
    forged[-4 * 8 :] = 255  # the links of the last node, and the link count if the node is only on the lowest level
    first_node = 8 + 60 * 24 * 2 + 64 + 40 + 2 * 60
    forged[first_node + 10 : first_node + 14] = [8, 0, 0, 0]
    forged[first_node + 14 : first_node + 14 + 32] = 200
    with pytest.raises(ModelFormatError, match="a link points to an invalid node"):
        check_bytes(forged, items=60, dimensions=24)


# Models (tests/test_contract.py contains the tests that apply to all model kinds)


def test_held_out_rows_are_ranked_well(fitted: Any, world: SyntheticData) -> None:
    model, X, parameters = fitted
    most_common = np.bincount(world.Y.indices).max() / world.Y.shape[0]
    dense = not isinstance(X, tuple) and not sp.issparse(X)  # 16 random projections carry less information
    assert model.score(X, world.Y) > (most_common if dense else 0.8)
    other = carya.NearestNeighbors(**parameters).fit(take_rows(X, slice(300, None)), world.Y[300:])
    assert other.score(take_rows(X, slice(0, 300)), world.Y[:300]) > (most_common if dense else 0.55)


def test_the_norm_of_a_query_does_not_change_its_ranking(fitted: Any) -> None:
    model, X, _ = fitted
    queries = take_rows(X, slice(0, 20))
    assert np.array_equal(model.predict(scale(queries, 4)).indices, model.predict(queries).indices)


def test_predict_arguments(fitted: Any) -> None:
    model, X, _ = fitted
    queries = take_rows(X, slice(0, 30))
    S = model.predict(queries, top_k=8)
    median = float(np.median(S.data))
    limited = model.predict(queries, top_k=8, min_score=median)
    assert 0 < limited.nnz == (S.data >= median).sum()
    single = model.predict(queries, top_k=8, beam_width=1)  # one neighbor; a flat label index ignores the beam width
    assert 0 < single.nnz <= S.nnz
    assert (single.nnz < S.nnz) == (model.over == "rows" or model.ranker is not None)
    for invalid in ({"top_k": 0}, {"beam_width": 0}, {"min_score": "high"}, {"min_score": float("nan")}):
        with pytest.raises(InputError, match=f"{next(iter(invalid))} must be"):
            model.predict(queries, **invalid)


def test_scores_of_selected_pairs_equal_the_ranking(fitted: Any) -> None:
    model, X, _ = fitted
    queries = take_rows(X, slice(0, 30))
    S = model.predict(queries, top_k=5)
    if model.over == "rows":
        with pytest.raises(InputError, match="predict_selected requires over='labels'"):
            model.predict_selected(queries, S)
        return
    assert abs(model.predict_selected(queries, S) - S).max() < 1e-5
    with pytest.raises(InputError, match=r"candidates must have shape \(30, 150\), got \(30, 149\)"):
        model.predict_selected(queries, S[:, 1:])


def test_rank_rows_and_rank_sparse_accept_arrays(world: SyntheticData) -> None:
    model = carya.NearestNeighbors(n_neighbors=30).fit(world.X, world.Y)
    queries = sp.csr_array(world.X[:10])
    S = model.predict(queries, top_k=4)
    arrays = (queries.indptr.astype(np.int64), queries.indices.astype(np.int32), queries.data.astype(np.float32))
    assert same_arrays(model.rank_rows(*arrays, top_k=4), (S.indptr, S.indices, S.data))
    labels, _ = model.rank_sparse(arrays[1][: arrays[0][1]], arrays[2][: arrays[0][1]], top_k=4)
    assert np.array_equal(labels, S[[0]].indices)
    with pytest.raises(InputError):
        model.rank_sparse(np.array([5, 5], np.int32), np.ones(2, np.float32))


def test_label_features_are_used_as_label_vectors(world: SyntheticData) -> None:
    """A label with the same features as a row is the nearest label of that row."""
    label_features = world.X[:150]
    model = carya.NearestNeighbors(representation="lf", ranker=None).fit(
        world.X, world.Y, label_features=label_features
    )
    assert np.array_equal(model.predict(label_features, top_k=1).indices, np.arange(150))
    with pytest.raises(InputError, match=r"representation='lf' requires label features. Pass label_features to fit"):
        carya.NearestNeighbors(representation="lf").fit(world.X, world.Y)
    with pytest.raises(InputError, match=r"label_features must have one row per label \(150\), got 149 rows"):
        carya.NearestNeighbors(representation="lf").fit(world.X, world.Y, label_features=label_features[1:])
    with pytest.raises(InputError, match="label_features is not used by representation='pifa'"):
        carya.NearestNeighbors().fit(world.X, world.Y, label_features=label_features)


@pytest.mark.parametrize("over", ["labels", "rows"])
def test_similarity_weight_is_learned(over: str) -> None:
    """A ranker trained almost only on negatives favors distant labels, so `similarity_weight` must be high."""
    X, Y = carya.data.make_world(600, 40, seed=2)
    harmful: dict[str, Any] = {"positive_weight": 1e-9, "threshold": 0.0, "n_neighbors": 20}
    learned = carya.NearestNeighbors(over=over, similarity_weight="learned", **harmful).fit(X, Y)
    assert learned.similarity_weight_ > 0.01
    fixed = carya.NearestNeighbors(over=over, similarity_weight=learned.similarity_weight_, **harmful).fit(X, Y)
    assert same_matrix(learned.predict(X), fixed.predict(X))
    from_few_rows = carya.NearestNeighbors(similarity_weight="learned").fit(X[:30], Y[:30])
    assert from_few_rows.similarity_weight_ == 1


def test_the_block_size_does_not_change_rankings(world: SyntheticData, monkeypatch: pytest.MonkeyPatch) -> None:
    model = carya.NearestNeighbors(over="rows", n_neighbors=10)
    S = model.fit(world.X, world.Y).predict(world.X, top_k=4)
    monkeypatch.setattr("carya.models.neighbors.search._BLOCK", 211)
    assert same_matrix(model.fit(world.X, world.Y).predict(world.X, top_k=4), S)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"over": "columns"}, "over must be 'labels' or 'rows', got 'columns'"),
        ({"n_neighbors": 0}, "n_neighbors must be an integer >= 1 or None, got 0"),
        ({"similarity_weight": 0.0}, "similarity_weight must be a number > 0 or 'learned' or None, got 0.0"),
        ({"connectivity": 1}, "connectivity must be an integer between 2 and 512, got 1"),
        ({"transform": "l9"}, "transform must be 'auto' or 'noop', 'sigmoid'"),
        ({"search": "graph"}, "search='graph' requires dense features"),
        ({"over": "rows", "representation": "lf"}, "representation='lf' requires over='labels'"),
    ],
)
def test_invalid_parameters_are_rejected(parameters: dict[str, Any], message: str, world: SyntheticData) -> None:
    with pytest.raises(ParameterError) as caught:
        carya.NearestNeighbors(**parameters).fit(world.X, world.Y)
    assert message in str(caught.value)


def test_invalid_use_is_rejected(world: SyntheticData) -> None:
    with pytest.raises(ParameterError, match=r"NearestNeighbors has no parameter 'k'\. Use n_neighbors\."):
        carya.NearestNeighbors(k=3)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="X has 1500 rows, but Y has 1499"):
        carya.NearestNeighbors().fit(world.X, world.Y[1:])
    assert clone(carya.NearestNeighbors(over="rows", C=2)).get_params()["C"] == 2


def test_the_error_for_a_missing_extra_contains_the_install_command(
    world: SyntheticData, pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    message = r"search='graph' requires usearch\. Install it with: pip install 'carya\[ann\]', or use search='exact'"
    with pytest.raises(MissingExtraError, match=message):
        carya.NearestNeighbors(search="graph").fit(pair[1], world.Y)
    # With few items, the default search does not build a graph.
    assert carya.NearestNeighbors(n_neighbors=5).fit(pair[1], world.Y).predict(pair[1]).nnz


@pytest.fixture(scope="module", params=["labels", "rows", pytest.param("graph", marks=GRAPHS)])
def saved(
    request: pytest.FixtureRequest, pair: Any, world: SyntheticData, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """The folder of a saved model and the features on which it was trained."""
    X = pair[1] if request.param == "graph" else pair[0]
    parameters = {"search": "graph"} if request.param == "graph" else {"over": request.param}
    folder = tmp_path_factory.mktemp("neighbors") / request.param
    carya.NearestNeighbors(n_neighbors=10, **parameters).fit(X, world.Y).save(folder)
    return folder, X


def test_forged_models_are_rejected_or_remain_usable(saved: Any, tmp_path: Path) -> None:
    folder, X = saved
    outcomes = use_forged(folder, tmp_path, range(60), lambda model: model.predict(X[:5]))
    assert outcomes.rejected >= 10
    assert outcomes.accepted >= 5


def test_flipped_bits_are_rejected_or_do_not_change_rankings(saved: Any) -> None:
    """Flipped bits in padding or in unused weights are not detected, but do not change any ranking."""
    folder, X = saved
    expected = carya.load(folder).predict(X[:60])
    file = folder / "arrays.bin"
    content = file.read_bytes()
    rejected = 0
    for position in range(100, len(content), len(content) // 9):
        file.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        try:
            assert same_matrix(carya.load(folder).predict(X[:60]), expected)
        except ModelFormatError:
            rejected += 1
    file.write_bytes(content)
    assert rejected >= 3


def test_labels_without_rows_rank_last(world: SyntheticData) -> None:
    Y = sp.hstack([sp.csr_array((1500, 3)), world.Y]).tocsr()
    model = carya.NearestNeighbors(n_neighbors=153).fit(world.X, Y)
    assert model.predict(world.X[:50], top_k=5).indices.min() >= 3


@pytest.mark.parametrize("over", ["labels", "rows"])
def test_text_rankers_accept_nearest_neighbors(over: str, tmp_path: Path) -> None:
    texts = ["a fast web server", "a mail server", "an image editor", "a photo editor", "a fast mail client"]
    labels = [["net", "web"], ["net", "mail"], ["graphics"], ["graphics"], ["mail"]]
    model = carya.NearestNeighbors(over=over, n_neighbors=3)
    ranker = carya.TextRanker(carya.Tfidf(min_df=1), model).fit(texts, labels)
    queries = ["another photo editor", "the mail client"]
    assert [suggestions[0].label for suggestions in ranker.suggest_all(queries, top_k=1)] == ["graphics", "mail"]
    ranker.save(tmp_path / "ranker")
    opened = carya.load(tmp_path / "ranker")
    assert isinstance(opened.model_, carya.NearestNeighbors)
    for text in queries:
        assert opened.suggest(text) == ranker.suggest(text)
    with pytest.raises(
        InputError,
        match="Scores of this NearestNeighbors model cannot be explained, because it has no label tree",
    ):
        opened.explain(queries[0], "graphics")


def test_weights_can_be_saved_with_a_different_dtype(world: SyntheticData, tmp_path: Path) -> None:
    model = carya.NearestNeighbors(n_neighbors=20, similarity_weight=1.0, weight_dtype="float32").fit(world.X, world.Y)
    sizes = {}
    for weight_dtype in ("float32", "int8"):
        model.save(tmp_path / weight_dtype, weight_dtype=weight_dtype)
        sizes[weight_dtype] = (tmp_path / weight_dtype / "arrays.bin").stat().st_size
        opened = carya.load(tmp_path / weight_dtype)
        assert opened.weight_dtype == weight_dtype
        assert abs(opened.score(world.X, world.Y) - model.score(world.X, world.Y)) < 0.02
    assert sizes["int8"] < sizes["float32"]
    with pytest.raises(ParameterError, match="weight_dtype must be 'float32', 'float16' or 'int8', got 'int4'"):
        model.save(tmp_path / "other", weight_dtype="int4")


_BOTH_LIBRARIES = """
import numpy as np, carya
from carya.ranking import BoostedRanker, Pairs
rng = np.random.default_rng(0)
X, Y = rng.random((60, 8), dtype=np.float32), np.eye(3)[np.arange(60) % 3]
carya.NearestNeighbors(search="graph", n_neighbors=5).fit(X, Y)
pairs = Pairs.of(rng.random((600, 2)), ["a", "b"], np.arange(0, 601, 6))
BoostedRanker(n_estimators=2, max_features=1).fit(pairs, (pairs.column("a") < 0.3).astype(np.float32))
"""


@GRAPHS
@pytest.mark.skipif(importlib.util.find_spec("lightgbm") is None, reason="requires carya[gbdt]")
def test_lightgbm_works_after_usearch() -> None:
    """In a new process, LightGBM works even if usearch is loaded first."""
    subprocess.run([sys.executable, "-c", _BOTH_LIBRARIES], check=True, timeout=120)


@GRAPHS
def test_opening_a_graph_without_usearch_names_the_package(
    points: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = carya.NearestNeighbors(search="graph", n_neighbors=5, ranker=None)
    model.fit(points, np.eye(len(points), dtype=np.float32)).save(tmp_path / "model")
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    message = r"model: The model requires usearch\. Install it with: pip install 'carya\[ann\]'$"
    with pytest.raises(MissingExtraError, match=message):
        carya.load(tmp_path / "model")
    with pytest.raises(MissingExtraError, match="search='graph' requires usearch"):
        model.check_dependencies()


def test_changed_parameters_do_not_change_what_a_fitted_model_can_score(world: SyntheticData) -> None:
    model = carya.NearestNeighbors(over="rows", n_neighbors=10).fit(world.X, world.Y)
    model.set_params(over="labels")
    assert not model.scores_any_label
    with pytest.raises(InputError, match="predict_selected requires over='labels'"):
        model.predict_selected(world.X[:2], np.ones((2, model.n_labels_)))
    assert carya.NearestNeighbors().scores_any_label
