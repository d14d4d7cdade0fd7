"""Nearest neighbours: what is near, the graph that finds it, and the models built on both."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import itertools
import subprocess
import sys
import threading
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
from carya.data import World
from carya.errors import InputError, ModelFormatError, NotFittedError, ParameterError
from carya.indexing.representations import unit
from carya.matching.hnsw import Graph, check_bytes
from carya.matching.nearest_neighbors import Neighbours, index_layer, without_themselves
from carya.matching.voting import largest, votes
from carya.trees.beam_search import Searcher

from forging import forge

GRAPHS = pytest.mark.skipif(importlib.util.find_spec("usearch") is None, reason="needs carya[ann]")

MODELS = {
    "labels": {"neighbours": 30},
    "labels, exactly": {"neighbours": 30, "search": "exact", "precision": "float32", "similarity": 0.01},
    "labels, similar": {"neighbours": 30, "similarity": 3.0, "transform": "sigmoid", "loss": "logistic"},
    "labels, unranked": {"neighbours": 30, "ranker": None},
    "rows": {"over": "rows", "neighbours": 20, "candidates": 40},
    "rows, unranked": {"over": "rows", "neighbours": 20, "ranker": None},
    "labels in a graph": {"neighbours": 30, "search": "graph", "similarity": 1.0},
    "rows in a graph": {"over": "rows", "neighbours": 20, "search": "graph", "connectivity": 8},
}


def same(a: sp.csr_array, b: sp.csr_array) -> bool:
    return all(np.array_equal(getattr(a, part), getattr(b, part)) for part in ("indptr", "indices", "data"))


def rows(X: Any, at: Any) -> Any:
    return tuple(block[at] for block in X) if isinstance(X, tuple) else X[at]


def cases() -> list[Any]:
    found = []
    for name, parameters in MODELS.items():
        for form in ("sparse", "dense", "pair"):
            graph = parameters.get("search") == "graph"
            if form == "dense" or not graph:
                found.append(pytest.param((parameters, form), id=f"{name}, {form}", marks=[GRAPHS] if graph else []))
    return found


@pytest.fixture(scope="module", params=cases())
def fitted(request: pytest.FixtureRequest, world: World, pair: Any) -> Any:
    parameters, form = request.param
    X = {"sparse": world.X, "dense": pair[1], "pair": pair}[form]
    return carya.NearestNeighbours(n_jobs=2, **parameters).fit(X, world.Y), X, parameters


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    made = np.random.default_rng(5).standard_normal((3000, 24)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


# What is near.


@pytest.mark.parametrize("form", ["sparse", "dense", "pair"])
def test_the_index_finds_what_comparing_all_finds(world: World, pair: Any, form: str) -> None:
    X = {"sparse": world.X, "dense": pair[1], "pair": pair}[form]
    features = unit(validation.features(X))
    whole = np.hstack([features.sparse.to_scipy().toarray(), features.dense])
    queries = unit(validation.features(rows(X, slice(0, 40))))
    near = Neighbours(Searcher([index_layer(features, precision="float32")]))
    indptr, items, cosines = near.search(queries, count=7, threads=2)
    assert indptr.tolist() == list(range(0, 281, 7))
    want = whole[:40] @ whole.T
    assert cosines == pytest.approx(-np.sort(-want, axis=1)[:, :7].ravel(), abs=1e-5)
    assert want[np.repeat(np.arange(40), 7), items] == pytest.approx(cosines, abs=1e-5)


def test_the_strength_of_similarity_is_what_it_says(world: World) -> None:
    features = unit(validation.features(world.X))
    queries = unit(validation.features(world.X[:20]))
    cosines, joined = (
        Searcher([index_layer(features, precision="float32", strength=strength)]).predict(
            queries, top_k=5, beam_width=5, threads=1
        )
        for strength in (None, 2.5)
    )
    assert np.array_equal(cosines[1], joined[1])
    assert joined[2] == pytest.approx(np.exp(-2.5 * (1 - cosines[2])), rel=1e-4)


@given(st.lists(st.lists(st.integers(0, 9), max_size=5, unique=True), max_size=6), st.integers(0, 9), st.integers(1, 4))
def test_rows_are_left_out_of_their_own_neighbours(found: list[list[int]], first: int, count: int) -> None:
    indptr = np.cumsum([0, *map(len, found)]).astype(np.int64)
    items = np.array([item for row in found for item in row], np.int32)
    near = np.linspace(1, 0, items.size, dtype=np.float32)
    ends, kept, _ = without_themselves((indptr, items, near), first, count)
    want = [[item for item in row if item != first + at][:count] for at, row in enumerate(found)]
    assert [kept[a:b].tolist() for a, b in itertools.pairwise(ends)] == want


def test_votes_are_shares_of_what_neighbours_say() -> None:
    labels = Csr.of_scipy(sp.csr_array(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]], np.float32)))
    found = (
        np.array([0, 3, 3, 5]),
        np.array([0, 1, 2, 2, 1], np.int32),
        np.array([0.5, 0.25, 0.25, 1.0, -1.0], np.float32),
    )
    shares = votes(found, labels)
    assert shares.to_scipy().toarray() == pytest.approx(np.array([[0.5, 0.75, 0.25], [0, 0, 0], [0, 0, 1]]))
    assert largest(shares, 1).to_scipy().toarray() == pytest.approx(np.array([[0, 0.75, 0], [0, 0, 0], [0, 0, 1]]))
    sharp = np.exp(4 * np.array([0.5, 0.25, 0.25, 1.0, -1.0]))
    first, third = sharp[:3] / sharp[:3].sum(), sharp[3:] / sharp[3:].sum()
    wanted = np.array([[first[0], first[0] + first[1], first[2]], [0, 0, 0], [0, third[1], third[0]]])
    assert votes(found, labels, sharpness=4.0).to_scipy().toarray() == pytest.approx(wanted, rel=1e-5)
    tied = Csr.of_scipy(sp.csr_array(np.array([[1, 1, 1]], np.float32)))
    assert largest(tied, 2).indices.tolist() == [0, 1]


# The graph.


@GRAPHS
def test_the_graph_finds_nearly_all_that_comparing_all_finds(points: np.ndarray) -> None:
    graph = Graph.build(points)
    queries = points[:200] + 0.1 * np.random.default_rng(1).standard_normal((200, 24)).astype(np.float32)
    items, products = graph.search(queries, count=10, width=100, threads=2)
    want = queries @ points.T
    truth = np.argsort(-want, axis=1)[:, :10]
    assert np.mean([len(set(a) & set(b)) for a, b in zip(items.tolist(), truth.tolist(), strict=True)]) > 9.5
    assert products == pytest.approx(np.take_along_axis(want, items.astype(int), axis=1), abs=0.01)
    assert (np.diff(products, axis=1) <= 0).all()
    assert np.array_equal(graph.search(queries, count=10, width=100, threads=1)[0], items)
    narrow, _ = graph.search(queries, count=10, width=10)
    assert np.mean(np.any(narrow != truth, axis=1)) >= np.mean(np.any(items != truth, axis=1))


@GRAPHS
def test_the_same_vectors_give_the_same_graph(points: np.ndarray) -> None:
    first, second = (Graph.build(points[:500], connectivity=6) for _ in range(2))
    assert np.array_equal(first.data, second.data)
    opened = Graph.of_bytes(first.data, items=500, dimensions=24)
    for one, other in zip(
        opened.search(points[:20], count=5, width=50), first.search(points[:20], count=5, width=50), strict=True
    ):
        assert np.array_equal(one, other)


@GRAPHS
def test_few_points_and_no_queries(points: np.ndarray) -> None:
    graph = Graph.build(points[:3])
    assert graph.search(points[:2], count=10, width=10)[0].shape == (2, 3)
    assert graph.search(points[:0], count=2, width=10)[0].shape == (0, 2)


@GRAPHS
@given(st.integers(0, 10_000))
def test_a_graph_with_wrong_bytes_is_an_error_or_can_be_walked(points: np.ndarray, seed: int) -> None:
    """Whatever passes the check, usearch can use without leaving its memory."""
    rng = np.random.default_rng(seed)
    data = Graph.build(points[:60, :4], connectivity=4).data.copy()
    vectors = 8 + 60 * 4 * 2
    for at in rng.integers(0 if seed % 3 == 0 else vectors, data.size, size=1 + seed % 4):
        data[at] = rng.choice([0, 1, 59, 60, 127, 255])
    with contextlib.suppress(ModelFormatError):
        found, _ = Graph.of_bytes(data, items=60, dimensions=4).search(points[:5, :4], count=5, width=20)
        assert found.max() < 60


@GRAPHS
def test_damaged_graphs_say_what_is_wrong(points: np.ndarray) -> None:
    whole = Graph.build(points[:60], connectivity=4).data
    check_bytes(whole, items=60, dimensions=24)
    for items, dimensions, data in ((59, 24, whole), (60, 23, whole), (60, 24, whole[:-1]), (60, 24, whole[:50])):
        with pytest.raises(ModelFormatError, match="the graph is damaged"):
            check_bytes(data, items=items, dimensions=dimensions)
    far = whole.copy()
    far[-4 * 8 :] = 255  # the links of the last node, and how many there are if it is on one level only
    about = 8 + 60 * 24 * 2 + 64 + 40 + 2 * 60
    far[about + 10 : about + 14] = [8, 0, 0, 0]
    far[about + 14 : about + 14 + 32] = 200
    with pytest.raises(ModelFormatError, match="a link that leads nowhere"):
        check_bytes(far, items=60, dimensions=24)


# The models.


def test_it_learns(fitted: Any, world: World) -> None:
    model, X, parameters = fitted
    common = np.bincount(world.Y.indices).max() / world.Y.shape[0]
    dense = not isinstance(X, tuple) and not sp.issparse(X)  # sixteen random directions tell less
    assert model.score(X, world.Y) > (common if dense else 0.8)
    fresh = carya.NearestNeighbours(**parameters).fit(rows(X, slice(300, None)), world.Y[300:])
    assert fresh.score(rows(X, slice(0, 300)), world.Y[:300]) > (common if dense else 0.55)


def test_rows_are_sorted_and_batch_is_one_by_one(fitted: Any) -> None:
    model, X, _ = fitted
    S = model.predict(rows(X, slice(0, 40)), top_k=5)
    for row in range(40):
        labels, scores = model.rank(rows(X, [row]), top_k=5)
        assert np.array_equal(labels, S[[row]].indices)
        assert np.array_equal(scores, S[[row]].data)
        assert all((-a, i) < (-b, j) for a, b, i, j in zip(scores, scores[1:], labels, labels[1:], strict=False))


def test_threads_change_no_byte_and_saving_no_answer(fitted: Any, world: World, tmp_path: Path) -> None:
    model, X, parameters = fitted
    model.save(tmp_path / "two")
    carya.NearestNeighbours(n_jobs=1, **parameters).fit(X, world.Y).set_params(n_jobs=2).save(tmp_path / "one")
    for file in ("manifest.json", "arrays.bin"):
        assert (tmp_path / "two" / file).read_bytes() == (tmp_path / "one" / file).read_bytes()
    opened = carya.load(tmp_path / "two")
    assert isinstance(opened, carya.NearestNeighbours)
    assert opened.get_params() == model.get_params()
    assert same(opened.predict(X, top_k=6), model.predict(X, top_k=6))
    opened.save(tmp_path / "again")
    assert (tmp_path / "again" / "arrays.bin").read_bytes() == (tmp_path / "two" / "arrays.bin").read_bytes()


def test_the_length_of_a_row_changes_nothing(fitted: Any) -> None:
    model, X, _ = fitted
    some = rows(X, slice(0, 20))
    longer = tuple(block * 4 for block in some) if isinstance(some, tuple) else some * 4
    assert np.array_equal(model.predict(longer).indices, model.predict(some).indices)


def test_empty_rows_and_no_rows(fitted: Any) -> None:
    model, X, _ = fitted
    some = rows(X, slice(0, 3))
    empty = tuple(block * 0 for block in some) if isinstance(some, tuple) else some * 0
    assert model.predict(empty).nnz == 0
    assert model.rank(rows(empty, [0]))[0].size == 0
    assert model.predict(rows(X, slice(0, 0))).shape == (0, 150)


def test_arguments_of_a_question(fitted: Any) -> None:
    model, X, _ = fitted
    some = rows(X, slice(0, 30))
    S = model.predict(some, top_k=8)
    least = float(np.median(S.data))
    above = model.predict(some, top_k=8, min_score=least)
    assert above.nnz == (S.data >= least).sum()
    assert model.predict(some, top_k=8, beam_width=1).nnz <= S.nnz
    for wrong in ({"top_k": 0}, {"beam_width": 0}, {"min_score": "high"}, {"min_score": float("nan")}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            model.predict(some, **wrong)


def test_selected_pairs_have_the_scores_of_the_ranking(fitted: Any) -> None:
    model, X, _ = fitted
    some = rows(X, slice(0, 30))
    S = model.predict(some, top_k=5)
    if model.over == "rows":
        with pytest.raises(InputError, match="needs over='labels'"):
            model.predict_selected(some, S)
        return
    again = model.predict_selected(some, S)
    assert abs(again - S).max() < 1e-5
    with pytest.raises(InputError, match="candidates is 30 x 149"):
        model.predict_selected(some, S[:, 1:])


def test_arrays_in_arrays_out(world: World) -> None:
    model = carya.NearestNeighbours(neighbours=30).fit(world.X, world.Y)
    some = sp.csr_array(world.X[:10])
    S = model.predict(some, top_k=4)
    arrays = (some.indptr.astype(np.int64), some.indices.astype(np.int32), some.data.astype(np.float32))
    assert all(
        np.array_equal(a, b)
        for a, b in zip(model.rank_rows(*arrays, top_k=4), (S.indptr, S.indices, S.data), strict=True)
    )
    labels, _ = model.rank_sparse(arrays[1][: arrays[0][1]], arrays[2][: arrays[0][1]], top_k=4)
    assert np.array_equal(labels, S[[0]].indices)
    with pytest.raises(InputError):
        model.rank_sparse(np.array([5, 5], np.int32), np.ones(2, np.float32))


def test_a_label_lies_where_its_features_say(world: World) -> None:
    """With the features of a row for each label, the nearest label of that row is it."""
    places = world.X[:150]
    model = carya.NearestNeighbours(representation="lf", ranker=None).fit(world.X, world.Y, label_features=places)
    assert np.array_equal(model.predict(places, top_k=1).indices, np.arange(150))
    with pytest.raises(InputError, match="needs label_features"):
        carya.NearestNeighbours(representation="lf").fit(world.X, world.Y)
    with pytest.raises(InputError, match="label_features has 149 rows, there are 150 labels"):
        carya.NearestNeighbours(representation="lf").fit(world.X, world.Y, label_features=places[1:])
    with pytest.raises(InputError, match="would not be used"):
        carya.NearestNeighbours().fit(world.X, world.Y, label_features=places)


@pytest.mark.parametrize("over", ["labels", "rows"])
def test_the_weight_of_similarity_is_learned(over: str) -> None:
    """Rankers that learn from negatives only like best what is far off: similarity must make up for them."""
    X, Y = carya.data.make_world(600, 40, seed=2)
    harmful = {"positive_cost": 1e-9, "threshold": 0.0, "neighbours": 20}
    made = carya.NearestNeighbours(over=over, similarity="learned", **harmful).fit(X, Y)
    assert made.similarity_ > 0.01
    told = carya.NearestNeighbours(over=over, similarity=made.similarity_, **harmful).fit(X, Y)
    assert same(made.predict(X), told.predict(X))
    few = carya.NearestNeighbours(similarity="learned").fit(X[:30], Y[:30])
    assert few.similarity_ == 1


def test_large_batches_are_the_same_in_blocks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    make = carya.NearestNeighbours(over="rows", neighbours=10)
    whole = make.fit(world.X, world.Y).predict(world.X, top_k=4)
    monkeypatch.setattr("carya.models.neighbors.search._BLOCK", 211)
    assert same(make.fit(world.X, world.Y).predict(world.X, top_k=4), whole)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"over": "columns"}, "'over' of NearestNeighbours must be 'labels' or 'rows'"),
        ({"neighbours": 0}, "'neighbours'"),
        ({"similarity": 0.0}, "'similarity'"),
        ({"connectivity": 1}, "'connectivity'"),
        ({"transform": "l9"}, "'transform'"),
        ({"search": "graph"}, "search='graph' is for dense features"),
        ({"over": "rows", "representation": "lf"}, "representation='lf' is for over='labels'"),
    ],
)
def test_wrong_parameters(parameters: dict[str, Any], message: str, world: World) -> None:
    with pytest.raises(ParameterError) as caught:
        carya.NearestNeighbours(**parameters).fit(world.X, world.Y)
    assert message in str(caught.value)


def test_wrong_use(world: World) -> None:
    model = carya.NearestNeighbours()
    for ask in (model.predict, model.rank, model.save, lambda x: model.predict_selected(x, x)):
        with pytest.raises(NotFittedError, match="not fitted yet: call fit first"):
            ask(np.ones((1, 1)))
    with pytest.raises(ParameterError, match="it is called neighbours here"):
        carya.NearestNeighbours(n_neighbors=3)
    with pytest.raises(InputError, match="X has 1500 rows, Y has 1499"):
        model.fit(world.X, world.Y[1:])
    assert clone(carya.NearestNeighbours(over="rows", cost=2)).get_params()["cost"] == 2


def test_without_the_extra_the_message_says_how_to_get_it(
    world: World, pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    with pytest.raises(ParameterError, match=r"pip install 'carya\[ann\]', or search='exact'"):
        carya.NearestNeighbours(search="graph").fit(pair[1], world.Y)
    assert carya.NearestNeighbours(neighbours=5).fit(pair[1], world.Y).predict(pair[1]).nnz  # few need no graph


def test_many_threads_may_ask_at_once(fitted: Any) -> None:
    model, X, _ = fitted
    want = [model.rank(rows(X, [row])) for row in range(10)]
    wrong = []

    def ask() -> None:
        wrong.extend(row for row in range(10) if not np.array_equal(model.rank(rows(X, [row]))[0], want[row][0]))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.fixture(scope="module")
def saved(world: World, pair: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("neighbours")
    places = [(folder / "labels", world.X), (folder / "rows", world.X)]
    carya.NearestNeighbours(neighbours=10).fit(world.X, world.Y).save(places[0][0])
    carya.NearestNeighbours(neighbours=10, over="rows").fit(world.X, world.Y).save(places[1][0])
    with contextlib.suppress(ParameterError):
        carya.NearestNeighbours(neighbours=10, search="graph").fit(pair[1], world.Y).save(folder / "graph")
        places.append((folder / "graph", pair[1]))
    return places


@given(st.integers(0, 10_000))
def test_a_forged_model_is_an_error_or_answers(saved: Any, tmp_path_factory: Any, seed: int) -> None:
    source, X = saved[seed % len(saved)]
    folder = tmp_path_factory.mktemp("forged")
    forge(source, folder / "forged", seed)
    with contextlib.suppress(ModelFormatError):
        carya.load(folder / "forged").predict(X[:5])


def test_a_damaged_file_is_an_error_or_changes_nothing(saved: Any) -> None:
    """Padding may be wrong, and weights that no query asks for; a wrong answer there is none."""
    refused = 0
    for source, X in saved:
        want = carya.load(source).predict(X[:60])
        file = source / "arrays.bin"
        whole = file.read_bytes()
        for at in range(100, len(whole), len(whole) // 9):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            try:
                assert same(carya.load(source).predict(X[:60]), want)
            except ModelFormatError:
                refused += 1
        file.write_bytes(whole)
    assert refused > len(saved)


def test_copies_answer_the_same(world: World) -> None:
    model = carya.NearestNeighbours(over="rows", neighbours=10).fit(world.X, world.Y)
    assert same(copy.deepcopy(model).predict(world.X[:9]), model.predict(world.X[:9]))


def test_labels_without_rows_rank_behind(world: World) -> None:
    Y = sp.hstack([sp.csr_array((1500, 3)), world.Y]).tocsr()
    model = carya.NearestNeighbours(neighbours=153).fit(world.X, Y)
    assert model.predict(world.X[:50], top_k=5).indices.min() >= 3


@pytest.mark.parametrize("over", ["labels", "rows"])
def test_texts_can_be_ranked_by_neighbours(over: str, tmp_path: Path) -> None:
    texts = ["a fast web server", "a mail server", "an image editor", "a photo editor", "a fast mail client"]
    labels = [["net", "web"], ["net", "mail"], ["graphics"], ["graphics"], ["mail"]]
    model = carya.NearestNeighbours(over=over, neighbours=3)
    ranker = carya.TextRanker(carya.Tfidf(min_df=1), model).fit(texts, labels)
    asked = ["another photo editor", "the mail client"]
    assert [found[0].label for found in ranker.suggest_all(asked, top_k=1)] == ["graphics", "mail"]
    ranker.save(tmp_path / "ranker")
    opened = carya.load(tmp_path / "ranker")
    assert isinstance(opened.model_, carya.NearestNeighbours)
    for text in asked:
        assert opened.suggest(text) == ranker.suggest(text)
    with pytest.raises(InputError, match="NearestNeighbours, which has no label tree"):
        opened.explain(asked[0], "graphics")


def test_weights_can_be_saved_otherwise(world: World, tmp_path: Path) -> None:
    model = carya.NearestNeighbours(neighbours=20, similarity=1.0, precision="float32").fit(world.X, world.Y)
    sizes = {}
    for precision in ("float32", "int8"):
        model.save(tmp_path / precision, precision=precision)
        sizes[precision] = (tmp_path / precision / "arrays.bin").stat().st_size
        opened = carya.load(tmp_path / precision)
        assert opened.precision == precision
        assert abs(opened.score(world.X, world.Y) - model.score(world.X, world.Y)) < 0.02
    assert sizes["int8"] < sizes["float32"]
    with pytest.raises(ParameterError, match="precision must be one of"):
        model.save(tmp_path / "other", precision="int4")


_BOTH_LIBRARIES = """
import numpy as np, carya
from carya.ranking import BoostedRanker, Pairs
rng = np.random.default_rng(0)
X, Y = rng.random((60, 8), dtype=np.float32), np.eye(3)[np.arange(60) % 3]
carya.NearestNeighbours(search="graph", neighbours=5).fit(X, Y)
pairs = Pairs.of(rng.random((600, 2)), ["a", "b"], np.arange(0, 601, 6))
BoostedRanker(n_trees=2, feature_share=1).fit(pairs, (pairs.column("a") < 0.3).astype(np.float32))
"""


@GRAPHS
@pytest.mark.skipif(importlib.util.find_spec("lightgbm") is None, reason="needs carya[gbdt]")
def test_boosted_trees_can_be_trained_after_a_graph() -> None:
    """The library of one must not spoil that of the other, in a process where neither is loaded yet."""
    subprocess.run([sys.executable, "-c", _BOTH_LIBRARIES], check=True, timeout=120)
