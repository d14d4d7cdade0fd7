"""Tests for rerankers, which score (query, label) pairs: training, scoring, saving, and candidates."""

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
from carya.errors import InputError, MissingExtraError, ModelFormatError, NotFittedError, ParameterError
from carya.ranking import AveragedRanker, BoostedRanker, NeuralRanker, Pairs, Ranker, register
from carya.ranking.candidates import Candidates, LabelVotes
from carya.ranking.forest import MAX_LEAVES, Forest
from carya.ranking.ranker import ranker_class

RANKERS = {
    "listwise": lambda **changes: BoostedRanker(n_estimators=40, objective="listwise", max_features=0.7, **changes),
    "pairwise": lambda **changes: BoostedRanker(n_estimators=40, max_features=0.7, **changes),
    "sampled": lambda **changes: BoostedRanker(n_estimators=40, max_features=0.7, negative_fraction=0.5, **changes),
    "neural": lambda **changes: NeuralRanker(epochs=30, **changes),
    "averaged": lambda **changes: AveragedRanker([NeuralRanker(epochs=30, **changes), NeuralRanker(epochs=20)]),
}


@pytest.fixture(params=RANKERS)
def create(request: pytest.FixtureRequest) -> Any:
    """A function that creates an unfitted ranker."""
    if request.param in ("listwise", "pairwise", "sampled"):
        pytest.importorskip("lightgbm")
    return RANKERS[request.param]


def diagonal_pairs(queries: int, seed: int) -> tuple[Pairs, np.ndarray]:
    """Return candidates that are relevant if two features are nearly equal; no linear model can learn this rule."""
    values = np.random.default_rng(seed).uniform(-1, 1, (queries * 8, 3))
    pairs = Pairs.of(values, ["a", "b", "noise"], np.arange(0, queries * 8 + 1, 8))
    return pairs, (np.abs(pairs.column("a") - pairs.column("b")) < 0.3).astype(np.float32)


def precision_at_1(pairs: Pairs, relevance: np.ndarray, scores: np.ndarray) -> float:
    """Return the fraction of queries for which the top-ranked candidate is relevant."""
    begins = pairs.offsets[:-1]
    best = [begin + scores[begin:end].argmax() for begin, end in zip(begins, pairs.offsets[1:], strict=True)]
    return float(relevance[best].mean())


def test_rankers_learn_nonlinear_relevance(create: Any) -> None:
    ranker = create().fit(*diagonal_pairs(400, seed=0))
    pairs, relevance = diagonal_pairs(100, seed=1)
    linear = np.linalg.lstsq(pairs.values, relevance, rcond=None)[0]
    maximum = precision_at_1(pairs, relevance, relevance)
    assert precision_at_1(pairs, relevance, pairs.values @ linear) < 0.6 * maximum
    assert precision_at_1(pairs, relevance, ranker.score(pairs)) > 0.9 * maximum


def test_the_same_seed_gives_the_same_bytes(create: Any) -> None:
    pairs, relevance = diagonal_pairs(100, seed=0)
    first, second = (create(seed=3).fit(pairs, relevance) for _ in range(2))
    other = create(seed=4).fit(pairs, relevance)
    arrays, expected = first.to_saved()[1], second.to_saved()[1]
    assert arrays.keys() == expected.keys()
    assert all(arrays[name].tobytes() == array.tobytes() for name, array in expected.items())
    assert not np.array_equal(first.score(pairs), other.score(pairs))


@pytest.mark.parametrize("objective", ["pairwise", "listwise"])
def test_any_number_of_threads_gives_the_same_bytes(objective: str) -> None:
    pytest.importorskip("lightgbm")
    pairs, relevance = diagonal_pairs(1000, seed=0)
    arrays, expected = (
        BoostedRanker(n_estimators=30, objective=objective, n_jobs=jobs).fit(pairs, relevance).to_saved()[1]
        for jobs in (1, 2)
    )
    assert arrays.keys() == expected.keys()
    assert all(arrays[name].tobytes() == array.tobytes() for name, array in expected.items())


def test_loaded_rankers_score_the_same(create: Any, tmp_path: Path) -> None:
    pairs, relevance = diagonal_pairs(100, seed=0)
    ranker = create(seed=1).fit(pairs, relevance)
    parameters, arrays = ranker.to_saved()
    storage.save(tmp_path / "ranker", storage.SavedModel("ranker", parameters, {}, arrays))
    saved = storage.load(tmp_path / "ranker")
    opened = ranker_class(ranker.name).from_saved(saved.parameters, saved.arrays)
    assert repr(opened) == repr(ranker)
    assert np.array_equal(opened.score(pairs), ranker.score(pairs))


def test_the_scores_of_a_query_do_not_depend_on_the_batch(create: Any) -> None:
    pairs, relevance = diagonal_pairs(50, seed=0)
    ranker = create().fit(pairs, relevance)
    offsets = np.array([0, 8])
    alone = [ranker.score(Pairs(pairs.values[begin : begin + 8], pairs.names, offsets)) for begin in range(0, 80, 8)]
    assert np.array_equal(np.concatenate(alone), ranker.score(pairs)[:80])


def test_invalid_input_and_parameters_are_rejected(create: Any) -> None:
    pairs, relevance = diagonal_pairs(20, seed=0)
    ranker = create()
    assert isinstance(ranker, Ranker)
    assert repr(clone(ranker)) == repr(ranker)
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        ranker.score(pairs)
    with pytest.raises(InputError, match=r"relevance must have one value per pair \(160\), got shape \(3,\)"):
        ranker.fit(pairs, np.ones(3, np.float32))
    with pytest.raises(InputError, match="relevance is 0 for every pair"):
        ranker.fit(pairs, relevance * 0)
    with pytest.raises(InputError, match="relevance must be finite and >= 0"):
        ranker.fit(pairs, relevance - 2)
    with pytest.raises(ParameterError, match="seed must be an integer >= 0, got -1"):
        create(seed=-1).fit(pairs, relevance)
    with pytest.raises(InputError, match="The ranker was trained on the features a, b, noise, but the pairs have a, b"):
        ranker.fit(pairs, relevance).score(Pairs.of(pairs.values[:, :2], ["a", "b"], pairs.offsets))


def test_a_fraction_of_the_negatives_is_used_for_training(monkeypatch: pytest.MonkeyPatch) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    pairs, relevance = diagonal_pairs(200, seed=0)
    seen = []

    def dataset(values: np.ndarray, label: np.ndarray, group: np.ndarray, **options: Any) -> Any:
        seen.append((values, label, group))
        return original(values, label=label, group=group, **options)

    original = lightgbm.Dataset
    monkeypatch.setattr(lightgbm, "Dataset", dataset)
    for fraction in (1.0, 0.25):
        BoostedRanker(n_estimators=2, negative_fraction=fraction, n_jobs=1).fit(pairs, relevance)
    (everything, _, all_groups), (values, label, group) = seen
    assert np.array_equal(everything, pairs.values)
    assert all_groups.sum() == len(pairs)
    assert label.sum() == relevance.sum()
    assert 0.2 < (label == 0).sum() / (relevance == 0).sum() < 0.3
    assert group.sum() == len(label) == len(values)
    kept = {tuple(row) for row in values[label > 0].tolist()}
    assert kept == {tuple(row) for row in pairs.values[relevance > 0].tolist()}


def test_trained_rankers_do_not_need_lightgbm(monkeypatch: pytest.MonkeyPatch) -> None:
    """LightGBM is required only for training; if it is missing, the error contains the install command."""
    pytest.importorskip("lightgbm")
    pairs, relevance = diagonal_pairs(100, seed=0)
    saved = BoostedRanker(n_estimators=5).fit(pairs, relevance).to_saved()
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(MissingExtraError, match=r"requires lightgbm\. Install it with: pip install 'carya\[gbdt\]'"):
        BoostedRanker().fit(pairs, relevance)
    assert precision_at_1(pairs, relevance, BoostedRanker.from_saved(*saved).score(pairs)) > 0.6


def test_forests_score_like_lightgbm() -> None:
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
    """Generate a tree with two features and a given number of leaves, in the format of LightGBM's dump_model."""
    if leaves == 1:
        return {"leaf_value": draw(st.floats(-1, 1))}
    left = draw(st.integers(1, leaves - 1))
    return {
        "split_feature": draw(st.integers(0, 1)),
        "threshold": draw(st.integers(-3, 3)) + draw(st.sampled_from([0.0, 0.1, 0.5])),
        "left_child": draw(trees(left)),
        "right_child": draw(trees(leaves - left)),
    }


def evaluate_tree(node: dict[str, Any], x: np.ndarray) -> float:
    """Return the value of the leaf that `x` reaches."""
    while "split_feature" in node:
        node = node["left_child" if float(x[node["split_feature"]]) <= node["threshold"] else "right_child"]
    return float(node["leaf_value"])


@given(st.data())
def test_forests_are_sums_of_trees(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    dumped = [data.draw(trees(size)) for size in sizes]
    forest = Forest.of_trees([{"tree_structure": tree} for tree in dumped], 2)
    grid = np.array([-4, -3, -0.9, -0.1, 0, 0.1, 0.5, 1, 1.1, 2.5, 3, 9], np.float32)
    X = np.array([(a, b) for a in grid for b in grid], np.float32)
    expected = [sum(evaluate_tree(tree, x) for tree in dumped) for x in X]
    assert forest.score(X) == pytest.approx(expected, abs=1e-5)


def test_trees_with_too_many_leaves_are_rejected() -> None:
    tree: dict[str, Any] = {"leaf_value": 1.0}
    for _ in range(MAX_LEAVES):
        tree = {"split_feature": 0, "threshold": 0.0, "left_child": {"leaf_value": 0.0}, "right_child": tree}
    with pytest.raises(InputError, match="Trees must have at most 32 leaves, got a tree with more"):
        Forest.of_trees([{"tree_structure": tree}], 1)


@pytest.mark.parametrize(
    ("values", "names", "offsets", "message"),
    [
        ([[1.0]], ["a", "b"], [0, 1], r"values must have one column per feature name \(2\), got shape \(1, 1\)"),
        ([[1.0], [2.0]], ["a"], [0, 1], r"offsets must be in ascending order from 0 to the number of pairs \(2\)"),
        ([[1.0], [2.0]], ["a"], [0, 3, 2], r"offsets must be in ascending order from 0 to the number of pairs \(2\)"),
        ([[math.nan]], ["a"], [0, 1], "values must be finite"),
    ],
)
def test_inconsistent_pairs_are_rejected(values: Any, names: Any, offsets: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Pairs.of(values, names, offsets)


def test_unknown_and_incomplete_rankers_are_rejected() -> None:
    with pytest.raises(
        ModelFormatError, match=r"'bosted', which is not registered\. Did you mean 'boosted'\?.*register"
    ):
        ranker_class("bosted")
    with pytest.raises(ParameterError, match=r"is not a ranker\. It lacks score, to_saved, from_saved"):
        register(type("Half", (), {"name": "half", "fit": lambda *_: None}))
    with pytest.raises(ParameterError, match="The name 'neural' is reserved for a built-in ranker"):
        register(type("Mine", (NeuralRanker,), {}))


SCORES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.floats(-2, 2, width=16)), max_size=20)


@given(SCORES, st.integers(1, 4))
def test_ranks_gaps_and_best_candidates(triples: list[tuple[int, int, float]], top_k: int) -> None:
    score_of = {(query, label): score for query, label, score in triples}
    keys = np.array([query * 6 + label for query, label in score_of], np.int64)
    candidates = Candidates.of(keys, 4, 6)
    pairs = sorted(score_of)
    scores = np.array([score_of[pair] for pair in pairs], np.float32)
    ranked = {
        query: sorted((pair for pair in pairs if pair[0] == query), key=lambda pair: (-score_of[pair], pair))
        for query in range(4)
    }
    assert candidates.ranks(scores).tolist() == [ranked[pair[0]].index(pair) for pair in pairs]
    best_scores = [score_of[ranked[pair[0]][0]] for pair in pairs]
    assert candidates.gaps(scores).tolist() == [
        np.float32(score_of[pair]) - np.float32(best) for pair, best in zip(pairs, best_scores, strict=True)
    ]
    selected, best = candidates.best(scores, top_k, -1.0)
    expected = [[pair for pair in ranked[query][:top_k] if score_of[pair] >= -1] for query in range(4)]
    assert np.diff(best.offsets).tolist() == [len(of_query) for of_query in expected]
    assert [pairs[number] for number in selected] == [pair for of_query in expected for pair in of_query]


@given(
    st.lists(st.lists(st.integers(0, 5), unique=True, max_size=4), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.sampled_from([0.25, 0.5, 1.0])), max_size=8),
)
def test_votes_are_summed_per_label(rows: list[list[int]], voters: list[tuple[int, int, float]]) -> None:
    voters = sorted((query, row % len(rows), weight) for query, row, weight in voters)
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    indices = np.array([label for row in rows for label in sorted(row)], np.int32)
    labels = Csr.of(indptr, indices, np.ones(indices.size, np.float32), 6)
    queries, numbers, weights = (np.array([voter[part] for voter in voters]) for part in range(3))
    votes = LabelVotes.of(queries.astype(np.int64), numbers.astype(np.int32), weights.astype(np.float32), labels)
    expected = defaultdict(list)
    for query, row, weight in voters:
        for label in rows[row]:
            expected[query * 6 + label].append(weight)
    assert votes.keys.tolist() == sorted(expected)
    for number, key in enumerate(sorted(expected)):
        assert votes.count[number] == len(expected[key])
        assert votes.sum[number] == sum(expected[key])
        assert votes.cubes[number] == sum(weight**3 for weight in expected[key])
        assert votes.largest[number] == max(expected[key])
    candidates = Candidates.of(np.arange(18), 3, 6)
    assert candidates.lookup(votes.keys, votes.sum).tolist() == [sum(expected.get(key, [])) for key in range(18)]
    best = votes.best(3, 6, 1)
    for query in {key // 6 for key in expected}:
        cubes = {key: sum(weight**3 for weight in expected[key]) for key in expected if key // 6 == query}
        assert min(cubes, key=lambda key: (-cubes[key], key)) in best


def test_unfitted_rankers_cannot_be_saved(create: Any) -> None:
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        create().to_saved()
    assert not create().__sklearn_is_fitted__()
