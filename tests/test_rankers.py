"""Rankers of pairs, alone: what they learn, how they are kept, and the arithmetic under them."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from carya.core import storage
from carya.core.matrices import Csr
from carya.errors import InputError, ModelFormatError, NotFittedError, ParameterError
from carya.ranking import AveragedRanker, BoostedRanker, NeuralRanker, Pairs, Ranker, register
from carya.ranking.candidates import Pool, Votes
from carya.ranking.forest import MOST_LEAVES, Forest
from carya.ranking.ranker import ranker_of

RANKERS = {
    "listwise": lambda **changes: BoostedRanker(n_trees=40, objective="listwise", feature_share=0.7, **changes),
    "pairwise": lambda **changes: BoostedRanker(n_trees=40, feature_share=0.7, **changes),
    "neural": lambda **changes: NeuralRanker(passes=30, **changes),
    "averaged": lambda **changes: AveragedRanker([NeuralRanker(passes=30, **changes), NeuralRanker(passes=20)]),
}


@pytest.fixture(params=RANKERS)
def make(request: pytest.FixtureRequest) -> Any:
    if request.param in ("listwise", "pairwise"):
        pytest.importorskip("lightgbm")
    return RANKERS[request.param]


def crossed(queries: int, seed: int) -> tuple[Pairs, np.ndarray]:
    """Candidates that are right if two features are of the same size: a diagonal, which no line parts from the rest."""
    values = np.random.default_rng(seed).uniform(-1, 1, (queries * 8, 3))
    pairs = Pairs.of(values, ["a", "b", "noise"], np.arange(0, queries * 8 + 1, 8))
    return pairs, (np.abs(pairs.column("a") - pairs.column("b")) < 0.3).astype(np.float32)


def hits(pairs: Pairs, relevance: np.ndarray, scores: np.ndarray) -> float:
    """P@1."""
    begins = pairs.offsets[:-1]
    best = [begin + scores[begin:end].argmax() for begin, end in zip(begins, pairs.offsets[1:], strict=True)]
    return float(relevance[best].mean())


def test_they_learn_what_no_line_parts(make: Any) -> None:
    ranker = make().fit(*crossed(400, seed=0))
    pairs, relevance = crossed(100, seed=1)
    linear = np.linalg.lstsq(pairs.values, relevance, rcond=None)[0]
    possible = hits(pairs, relevance, relevance)
    assert hits(pairs, relevance, pairs.values @ linear) < 0.6 * possible
    assert hits(pairs, relevance, ranker.score(pairs)) > 0.9 * possible


def test_same_seed_same_bytes(make: Any) -> None:
    pairs, relevance = crossed(100, seed=0)
    one, two = (make(seed=3).fit(pairs, relevance) for _ in range(2))
    other = make(seed=4).fit(pairs, relevance)
    kept = one.to_saved()[1]
    assert all(np.array_equal(kept[name], array) for name, array in two.to_saved()[1].items())
    assert not np.array_equal(one.score(pairs), other.score(pairs))


@pytest.mark.parametrize("objective", ["pairwise", "listwise"])
def test_threads_change_nothing(objective: str) -> None:
    pytest.importorskip("lightgbm")
    pairs, relevance = crossed(1000, seed=0)
    one, two = (
        BoostedRanker(n_trees=30, objective=objective, n_jobs=jobs).fit(pairs, relevance).to_saved()[1]
        for jobs in (1, 2)
    )
    assert all(one[name].tobytes() == two[name].tobytes() for name in one)


def test_saved_and_opened_it_scores_the_same(make: Any, tmp_path: Path) -> None:
    pairs, relevance = crossed(100, seed=0)
    ranker = make(seed=1).fit(pairs, relevance)
    parameters, arrays = ranker.to_saved()
    storage.save(tmp_path / "kept", storage.Saved("ranker", parameters, {}, arrays))
    saved = storage.load(tmp_path / "kept")
    opened = ranker_of(ranker.name).from_saved(saved.parameters, saved.arrays)
    assert repr(opened) == repr(ranker)
    assert np.array_equal(opened.score(pairs), ranker.score(pairs))


def test_a_query_has_its_scores_whatever_stands_beside_it(make: Any) -> None:
    pairs, relevance = crossed(50, seed=0)
    ranker = make().fit(pairs, relevance)
    ends = np.array([0, 8])
    alone = [ranker.score(Pairs(pairs.values[at : at + 8], pairs.names, ends)) for at in range(0, 80, 8)]
    assert np.array_equal(np.concatenate(alone), ranker.score(pairs)[:80])


def test_they_say_what_is_wrong(make: Any) -> None:
    pairs, relevance = crossed(20, seed=0)
    ranker = make()
    assert isinstance(ranker, Ranker)
    assert repr(clone(ranker)) == repr(ranker)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        ranker.score(pairs)
    with pytest.raises(InputError, match=r"relevance has the shape \(3,\), there are 160 pairs"):
        ranker.fit(pairs, np.ones(3))
    with pytest.raises(InputError, match="no pair is relevant"):
        ranker.fit(pairs, relevance * 0)
    with pytest.raises(InputError, match="relevance must be"):
        ranker.fit(pairs, relevance - 2)
    with pytest.raises(ParameterError, match="'seed'"):
        make(seed=-1).fit(pairs, relevance)
    with pytest.raises(InputError, match="trained on a, b, noise; got a, b"):
        ranker.fit(pairs, relevance).score(Pairs.of(pairs.values[:, :2], ["a", "b"], pairs.offsets))


def test_without_lightgbm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training names what to install; a trained ranker does without."""
    pytest.importorskip("lightgbm")
    pairs, relevance = crossed(100, seed=0)
    kept = BoostedRanker(n_trees=5).fit(pairs, relevance).to_saved()
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(InputError, match=r"needs lightgbm; pip install 'carya\[gbdt\]'"):
        BoostedRanker().fit(pairs, relevance)
    assert hits(pairs, relevance, BoostedRanker.from_saved(*kept).score(pairs)) > 0.6


def test_trees_score_as_lightgbm_does() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 5)).astype(np.float32)
    X[:, 2] = np.round(X[:, 2])
    y = (np.abs(X[:, 0]) + X[:, 2] > 1).astype(np.float32)
    settings = {"objective": "rank_xendcg", "use_missing": False, "verbosity": -1, "max_bin": 63, "num_threads": 1}
    booster = lightgbm.train(settings, lightgbm.Dataset(X, y, group=[10] * 200), 40)
    forest = Forest.of_trees(booster.dump_model()["tree_info"], 5)
    assert np.abs(forest.score(X) - booster.predict(X)).max() < 1e-5


@st.composite
def trees(draw: st.DrawFn, leaves: int) -> dict[str, Any]:
    """A tree of so many leaves over two features, as LightGBM dumps it."""
    if leaves == 1:
        return {"leaf_value": draw(st.floats(-1, 1))}
    left = draw(st.integers(1, leaves - 1))
    return {
        "split_feature": draw(st.integers(0, 1)),
        "threshold": draw(st.integers(-3, 3)) + draw(st.sampled_from([0.0, 0.1, 0.5])),
        "left_child": draw(trees(left)),
        "right_child": draw(trees(leaves - left)),
    }


def walked(node: dict[str, Any], x: np.ndarray) -> float:
    while "split_feature" in node:
        node = node["left_child" if float(x[node["split_feature"]]) <= node["threshold"] else "right_child"]
    return node["leaf_value"]


@given(st.data())
def test_a_forest_is_the_sum_of_walks(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    some = [data.draw(trees(size)) for size in sizes]
    forest = Forest.of_trees([{"tree_structure": tree} for tree in some], 2)
    grid = np.array([-4, -3, -0.9, -0.1, 0, 0.1, 0.5, 1, 1.1, 2.5, 3, 9], np.float32)
    X = np.array([(a, b) for a in grid for b in grid], np.float32)
    want = [sum(walked(tree, x) for tree in some) for x in X]
    assert forest.score(X) == pytest.approx(want, abs=1e-5)


def test_a_tree_of_too_many_leaves() -> None:
    tree: dict[str, Any] = {"leaf_value": 1.0}
    for _ in range(MOST_LEAVES):
        tree = {"split_feature": 0, "threshold": 0.0, "left_child": {"leaf_value": 0.0}, "right_child": tree}
    with pytest.raises(InputError, match="more than 32 leaves"):
        Forest.of_trees([{"tree_structure": tree}], 1)


@pytest.mark.parametrize(
    ("values", "names", "offsets", "message"),
    [
        ([[1.0]], ["a", "b"], [0, 1], "2 names of features"),
        ([[1.0], [2.0]], ["a"], [0, 1], "offsets must ascend from 0 to 2"),
        ([[1.0], [2.0]], ["a"], [0, 3, 2], "offsets must ascend"),
        ([[math.nan]], ["a"], [0, 1], "must be finite"),
    ],
)
def test_pairs_that_do_not_fit(values: Any, names: Any, offsets: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Pairs.of(values, names, offsets)


def test_unknown_rankers_are_named() -> None:
    with pytest.raises(ModelFormatError, match=r"'bosted', which is not known; did you mean 'boosted'\?.*register"):
        ranker_of("bosted")
    with pytest.raises(ParameterError, match="it needs score, to_saved, from_saved"):
        register(type("Half", (), {"name": "half", "fit": lambda *_: None}))
    with pytest.raises(ParameterError, match="'neural' is taken"):
        register(type("Mine", (NeuralRanker,), {}))


SCORES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.floats(-2, 2, width=16)), max_size=20)


@given(SCORES, st.integers(1, 4))
def test_places_gaps_and_the_best(some: list[tuple[int, int, float]], top_k: int) -> None:
    said = {(query, label): score for query, label, score in some}
    keys = np.array([query * 6 + label for query, label in said], np.int64)
    pool = Pool.of(keys, 4, 6)
    order = sorted(said)
    scores = np.array([said[pair] for pair in order], np.float32)
    ranked = {query: sorted((p for p in order if p[0] == query), key=lambda p: (-said[p], p)) for query in range(4)}
    assert pool.ranks(scores).tolist() == [ranked[pair[0]].index(pair) for pair in order]
    assert pool.gaps(scores).tolist() == [np.float32(said[p]) - np.float32(said[ranked[p[0]][0]]) for p in order]
    chosen, best = pool.best(scores, top_k, -1.0)
    want = [[pair for pair in ranked[query][:top_k] if said[pair] >= -1] for query in range(4)]
    assert np.diff(best.offsets).tolist() == [len(one) for one in want]
    assert [order[at] for at in chosen] == [pair for one in want for pair in one]


@given(
    st.lists(st.lists(st.integers(0, 5), unique=True, max_size=4), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.sampled_from([0.25, 0.5, 1.0])), max_size=8),
)
def test_votes_are_counted(rows: list[list[int]], voters: list[tuple[int, int, float]]) -> None:
    voters = sorted((query, row % len(rows), weight) for query, row, weight in voters)
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    indices = np.array([label for row in rows for label in sorted(row)], np.int32)
    labels = Csr.of(indptr, indices, np.ones(indices.size, np.float32), 6)
    queries, numbers, weights = (np.array([one[part] for one in voters]) for part in range(3))
    votes = Votes.of(queries.astype(np.int64), numbers.astype(np.int32), weights.astype(np.float32), labels)
    want = defaultdict(list)
    for query, row, weight in voters:
        for label in rows[row]:
            want[query * 6 + label].append(weight)
    assert votes.keys.tolist() == sorted(want)
    for at, key in enumerate(sorted(want)):
        assert votes.count[at] == len(want[key])
        assert votes.sum[at] == sum(want[key])
        assert votes.cubes[at] == sum(weight**3 for weight in want[key])
        assert votes.largest[at] == max(want[key])
    pool = Pool.of(np.arange(18), 3, 6)
    assert pool.lookup(votes.keys, votes.sum).tolist() == [sum(want.get(key, [])) for key in range(18)]
    first = votes.best(3, 6, 1)
    for query in {key // 6 for key in want}:
        mine = {key: sum(weight**3 for weight in want[key]) for key in want if key // 6 == query}
        assert min(mine, key=lambda key: (-mine[key], key)) in first
