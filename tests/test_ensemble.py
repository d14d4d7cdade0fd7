"""Tests for ensembles: combining rankings, joint training of members, and presets."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import carya
from carya import _core
from carya.core import storage
from carya.data import SyntheticData
from carya.errors import InputError, ModelFormatError, NotFittedError, ParameterError
from carya.models.ensemble.combine import COMBINATIONS, combine_rankings
from carya.models.presets import PRESETS, preset
from carya.ranking import LinearSolver, NeuralRanker

from forging import use_forged
from matrix_helpers import ranking_of
from topics import corpus


def combine_reference(
    rankings: list[list[tuple[int, float]]], combine: str, weights: list[float], top_k: int
) -> list[tuple[int, float]]:
    """Combine rankings in plain Python, as specified in native/search/ensemble.hpp."""
    if combine == "round_robin":
        places: dict[int, int] = {}
        turns = sorted(range(len(weights)), key=lambda member: -weights[member])
        for turn, member in enumerate(turns):
            for rank, (label, _) in enumerate(rankings[member]):
                places[label] = min(places.get(label, 10**6), rank * len(weights) + turn)
        return [(label, 1 / (1 + place)) for label, place in sorted(places.items(), key=lambda pair: pair[1])][:top_k]
    combined: dict[int, float] = {}
    mean: dict[int, float] = {}
    for weight, ranking in zip(weights, rankings, strict=True):
        total = sum(math.exp(score - ranking[0][1]) for _, score in ranking)
        for rank, (label, score) in enumerate(ranking):
            value = {
                "mean": score,
                "rank": (len(ranking) - rank) / len(ranking),
                "count": 1.0,
                "softmax": math.exp(score - ranking[0][1]) / total,
                "sigmoid": 1 / (1 + math.exp(-score)),
            }[combine]
            combined[label] = combined.get(label, 0) + weight * value
            mean[label] = mean.get(label, 0) + weight * score
    if combine == "count":
        for label in combined:
            combined[label] += 0.5 * min(weights) / (1 + math.exp(-mean[label] / sum(weights)))
    best = [(label, value / sum(weights)) for label, value in combined.items()]
    return sorted(best, key=lambda pair: (-pair[1], pair[0]))[:top_k]


@pytest.mark.parametrize("combine", COMBINATIONS)
@given(data=st.data())
def test_combined_rankings_equal_the_reference(combine: str, data: st.DataObject) -> None:
    members = data.draw(st.integers(1, 3))
    score = st.floats(-3, 3, width=16)
    ranking = st.dictionaries(st.integers(0, 9), score, max_size=6)
    rows = data.draw(st.lists(st.lists(ranking, min_size=members, max_size=members), max_size=4))
    weights = data.draw(st.lists(st.sampled_from([0.25, 1.0, 2.0]), min_size=members, max_size=members))
    top_k = data.draw(st.integers(1, 8))
    rankings = [[sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])) for scores in row] for row in rows]
    native = []
    for member in range(members):
        of_member = [row[member] for row in rankings]
        indptr = np.cumsum([0, *map(len, of_member)]).astype(np.int64)
        labels = np.array([label for row in of_member for label, _ in row], np.int32)
        scores = np.array([score for row in of_member for _, score in row], np.float32)
        native.append(_core.Csr(indptr, labels, scores, 10, "ranking", _core.Validation.structure))
    indptr, labels, scores = combine_rankings(
        native, combine=combine, weights=np.array(weights, np.float32), top_k=top_k, threads=2
    )
    for row, of_row in enumerate(rankings):
        expected = combine_reference(of_row, combine, weights, top_k)
        part = slice(indptr[row], indptr[row + 1])
        assert scores[part] == pytest.approx([value for _, value in expected], abs=1e-5)
        complete = dict(combine_reference(of_row, combine, weights, 100))
        assert [complete[label] for label in labels[part].tolist()] == pytest.approx(scores[part].tolist(), abs=1e-5)


@pytest.fixture(scope="module")
def three(world: SyntheticData) -> carya.Ensemble:
    """An ensemble of three trees."""
    return carya.Ensemble(carya.XRLinear(branching=4, max_leaf_size=8), n_trees=3).fit(world.X, world.Y)


@pytest.mark.parametrize("trees", [3, 5])
def test_members_equal_separately_trained_trees(world: SyntheticData, trees: int) -> None:
    """Trees that are trained together, with shared label representations, equal separately trained trees."""
    small: dict[str, Any] = {"branching": 2, "max_leaf_size": 4, "beam_width": 4}
    ensemble = carya.Ensemble(carya.XRLinear(**small), n_trees=trees).fit(world.X, world.Y)
    assert len(ensemble.members_) == trees
    for seed, member in enumerate(ensemble.members_):
        alone = carya.XRLinear(**small, seed=seed, training_beam_width=3).fit(world.X, world.Y)
        assert alone.tree_ == member.tree_
        assert (alone.predict(world.X) != member.predict(world.X)).nnz == 0
    assert ensemble.members_[0].tree_ != ensemble.members_[1].tree_


def test_members_with_different_parameters_equal_separately_trained_trees(world: SyntheticData) -> None:
    """Train trees with different depths, C values, thread counts and label representations, on weighted labels."""
    Y = sp.csr_array(world.Y).astype(np.float32)
    Y.data = np.random.default_rng(0).uniform(0.2, 3, Y.nnz).astype(np.float32)
    names = sp.csr_array(np.random.default_rng(1).random((Y.shape[1], world.X.shape[1]), np.float32))
    settings: list[dict[str, Any]] = [
        {"branching": 2, "max_leaf_size": 4},
        {"branching": 8, "max_leaf_size": 12},
        {"branching": 2, "max_leaf_size": 4, "relevance": "induce"},
        {"C": 3.0},
        {"n_jobs": 2},
        {"representation": "pifa+lf"},
        {"max_depth": 1},
    ]
    ensemble = carya.Ensemble([carya.XRLinear(**own) for own in settings]).fit(world.X, Y, label_features=names)
    for own, member in zip(settings, ensemble.members_, strict=True):
        label_features = names if "representation" in own else None
        alone = carya.XRLinear(**own).fit(world.X, Y, label_features=label_features)
        assert alone.tree_ == member.tree_
        assert (alone.predict(world.X) != member.predict(world.X)).nnz == 0


def test_an_error_during_training_leaves_the_ensemble_unfitted(
    world: SyntheticData, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensemble = carya.Ensemble(carya.XRLinear(branching=2, max_leaf_size=4, beam_width=4), n_trees=2)
    train, calls = LinearSolver.train, []

    def fail(self: LinearSolver, *args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise MemoryError
        return train(self, *args, **options)

    monkeypatch.setattr(LinearSolver, "train", fail)
    with pytest.raises(MemoryError):
        ensemble.fit(world.X, world.Y)
    with pytest.raises(NotFittedError):
        ensemble.predict(world.X)


def test_problems_that_are_ready_together_are_solved_together(
    world: SyntheticData, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, levels = LinearSolver.train, []

    def record(self: LinearSolver, features: Any, problems: list[Any], **options: Any) -> Any:
        levels.append([problem.level for problem in problems])
        return train(self, features, problems, **options)

    monkeypatch.setattr(LinearSolver, "train", record)
    trees = [carya.XRLinear(branching=2, max_leaf_size=4, max_depth=depth, negatives="matcher") for depth in (3, 1, 2)]
    ensemble = carya.Ensemble(trees).fit(world.X, world.Y)  # matcher negatives require the layers above
    assert levels == [[1, 1, 1], [2, 2], [3]]
    assert [len(member.layers_) for member in ensemble.members_] == [3, 1, 2]


def test_trees_train_with_three_quarters_of_their_beam_width_by_default(world: SyntheticData) -> None:
    small: dict[str, Any] = {"branching": 2, "max_leaf_size": 4, "beam_width": 4}
    for training_beam_width, beams in ((None, [3, 3]), (4, [4, 4])):
        tree = carya.XRLinear(**small, training_beam_width=training_beam_width)
        ensemble = carya.Ensemble(tree, n_trees=2).fit(world.X, world.Y)
        assert [member.training_beam_width for member in ensemble.members_] == beams
    assert (
        carya.Ensemble(carya.XRLinear(**small), n_trees=1).fit(world.X, world.Y).members_[0].training_beam_width is None
    )


@pytest.mark.parametrize("combine", COMBINATIONS)
def test_every_combination_gives_the_same_ranking_row_by_row_and_after_loading(
    world: SyntheticData, three: carya.Ensemble, combine: str, tmp_path: Path
) -> None:
    ensemble = carya.Ensemble(three.members_, combine=combine)
    ensemble.set_fitted(three.members_, np.ones(3, np.float32))
    S = ensemble.predict(world.X[:20], top_k=4)
    for row in range(20):
        labels, scores = ensemble.rank(world.X[[row]], top_k=4)
        part = slice(S.indptr[row], S.indptr[row + 1])
        assert scores == pytest.approx(S.data[part], abs=1e-6)
        assert labels.tolist() == S.indices[part].tolist()
    ensemble.save(tmp_path / "model")
    opened = carya.load(tmp_path / "model")
    assert isinstance(opened, carya.Ensemble)
    assert opened.combine == combine
    assert (opened.predict(world.X[:20], top_k=4) != S).nnz == 0


def test_three_trees_are_as_precise_as_one(world: SyntheticData, three: carya.Ensemble) -> None:
    precision_of_one = carya.metrics.precision(world.Y, three.members_[0].predict(world.X, top_k=5), k=5)
    precision = carya.metrics.precision(world.Y, three.predict(world.X, top_k=5), k=5)
    assert precision >= precision_of_one - 0.005


@pytest.mark.parametrize("combine", ["rank", "count", "softmax", "sigmoid"])
def test_combinations_other_than_mean_search_with_the_full_beam(world: SyntheticData, combine: str) -> None:
    tree = carya.XRLinear(branching=2, max_leaf_size=4, beam_width=4)
    two = carya.Ensemble(tree, n_trees=2, combine=combine).fit(world.X, world.Y)
    S = two.predict(world.X)
    assert (two.predict(world.X, beam_width=4) != S).nnz == 0
    assert (two.predict(world.X, beam_width=2) != S).nnz > 0
    assert np.array_equal(two.rank(world.X[[5]])[0], S[[5]].indices)


def test_averaged_trees_search_with_half_of_their_beam_width(world: SyntheticData) -> None:
    tree = carya.XRLinear(branching=2, max_leaf_size=4, beam_width=4)
    two = carya.Ensemble(tree, n_trees=2).fit(world.X, world.Y)
    S = two.predict(world.X)
    assert (two.predict(world.X, beam_width=2) != S).nnz == 0
    assert (two.predict(world.X, beam_width=4) != S).nnz > 0
    assert np.array_equal(two.rank(world.X[[5]])[0], S[[5]].indices)
    single = carya.Ensemble(tree, n_trees=1).fit(world.X, world.Y)
    assert (single.predict(world.X) != single.members_[0].predict(world.X)).nnz == 0


def test_members_can_have_different_parameters_and_features(world: SyntheticData, pair: Any) -> None:
    members = [
        carya.XRLinear(branching=2, max_leaf_size=20),
        carya.XRLinear(max_depth=1, loss="logistic", transform="sigmoid"),
        carya.XRLinear(representation="pii", beam_width=5),
    ]
    mixed = carya.Ensemble(members, weights=[1, 0.5, 2]).fit(world.X, world.Y)
    assert mixed.score(world.X, world.Y) > 0.8
    separate = carya.Ensemble(members[:2]).fit([world.X, pair], world.Y)  # each member has its own features
    assert separate.score([world.X, pair], world.Y) > 0.8
    labels, _ = separate.rank([world.X[[3]], (pair[0][[3]], pair[1][[3]])], top_k=2)
    assert labels.size == 2


def test_learned_weights_prefer_the_better_member(world: SyntheticData) -> None:
    good = carya.XRLinear(max_depth=1)
    bad = carya.XRLinear(branching=2, max_leaf_size=2, clustering="random", C=1e-4, beam_width=1)
    ensemble = carya.Ensemble([bad, good], weights="learned").fit(world.X, world.Y)
    assert ensemble.weights_[1] > ensemble.weights_[0]
    assert ensemble.weights_.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (carya.Ensemble, "members must be a model such as XRLinear, or a non-empty list of models, got None."),
        (lambda: carya.Ensemble([]), "members must be a model"),
        (lambda: carya.Ensemble([1]), "members must be a model"),
        (lambda: carya.Ensemble(carya.XRLinear(), combine="median"), "combine must be 'mean', 'rank'"),
        (
            lambda: carya.Ensemble(carya.XRLinear(beam_width="10"), n_trees=3),  # type: ignore[arg-type]
            "beam_width must be an integer >= 1, got '10'",
        ),
        (lambda: carya.Ensemble([carya.XRLinear()], n_trees=2), "n_trees requires a single model"),
        (lambda: carya.Ensemble([carya.XRLinear()] * 2, weights=[1]), "weights must be 2 non-negative numbers"),
        (lambda: carya.Ensemble([carya.XRLinear()] * 2, weights=[0, 0]), "that are not all 0"),
        (lambda: carya.Ensemble([carya.XRLinear()] * 2, weights=[1, -1]), "weights must be a list of numbers >= 0"),
    ],
)
def test_invalid_parameters_are_rejected(create: Any, message: str, world: SyntheticData) -> None:
    with pytest.raises(ParameterError) as caught:
        create().fit(world.X, world.Y)
    assert message in str(caught.value)


def test_invalid_input_is_rejected(world: SyntheticData, three: carya.Ensemble) -> None:
    with pytest.raises(NotFittedError):
        carya.Ensemble(carya.XRLinear()).predict(world.X)
    with pytest.raises(InputError, match="X is a list of 2 inputs, but the ensemble has 3 members"):
        three.predict([world.X, world.X])
    with pytest.raises(InputError, match="X has 3 columns, but must have"):
        three.predict(sp.csr_array((2, 3), dtype=np.float32))
    assert clone(carya.Ensemble(carya.XRLinear(C=2), n_trees=2)).members.C == 2


def test_forged_ensembles_are_rejected_or_remain_usable(
    three: carya.Ensemble, world: SyntheticData, tmp_path: Path
) -> None:
    three.save(tmp_path / "model")
    outcomes = use_forged(tmp_path / "model", tmp_path, range(60), lambda model: model.predict(world.X[:5]))
    assert outcomes.rejected >= 10
    assert outcomes.accepted >= 5


@pytest.mark.parametrize("name", PRESETS)
def test_presets_can_be_trained(name: str, world: SyntheticData) -> None:
    if PRESETS[name].kind == "reranked":
        pytest.importorskip("lightgbm")
    changes = {} if PRESETS[name].kind == "neighbors" else {"max_leaf_size": 10}
    model = carya.preset(name, n_jobs=1, **changes).fit(world.X, world.Y)
    assert model.score(world.X, world.Y) > 0.8
    trees = getattr(model, "members_", [model])
    assert len(trees) == PRESETS[name].trees
    for parameter, value in PRESETS[name].settings.items():
        assert getattr(trees[0], parameter) == changes.get(parameter, value)


def test_members_of_every_kind_are_combined(world: SyntheticData, tmp_path: Path) -> None:
    """An ensemble of a tree, a nearest-neighbor model and a reranked model combines its members' rankings."""
    members = [
        carya.XRLinear(branching=4, max_leaf_size=8),
        carya.NearestNeighbors(over="rows"),
        carya.Reranked(carya.XRLinear(max_leaf_size=10), NeuralRanker(epochs=3)),
    ]
    ensemble = carya.Ensemble(members, combine="rank", weights=[2, 1, 1], pool_size=20).fit(world.X, world.Y)
    S = ensemble.predict(world.X[:30], top_k=5)
    predictions = [member.predict(world.X[:30], top_k=20) for member in ensemble.members_]
    for row in range(30):
        rankings = [ranking_of(prediction, row) for prediction in predictions]
        expected = combine_reference(rankings, "rank", [2, 1, 1], 5)
        # If terms are added in a different order, their sum can be rounded differently.
        assert [score for _, score in ranking_of(S, row)] == pytest.approx([score for _, score in expected], abs=1e-6)
    labels, _ = ensemble.rank(world.X[[3]], top_k=5)
    assert labels.tolist() == S.indices[S.indptr[3] : S.indptr[4]].tolist()
    ensemble.save(tmp_path / "model")
    opened = carya.load(tmp_path / "model")
    assert [type(member) for member in opened.members_] == [type(member) for member in members]
    assert (opened.predict(world.X[:30], top_k=5) != S).nnz == 0
    limited = ensemble.predict(world.X[:30], top_k=5, min_score=0.9)
    assert 0 < limited.nnz < S.nnz
    assert limited.data.min() >= np.float32(0.9)


def test_text_rankers_accept_ensembles_and_reranked_models(tmp_path: Path) -> None:
    texts, labels = corpus(300)
    for model in (
        carya.Ensemble(carya.XRLinear(max_leaf_size=8), n_trees=2),
        carya.Reranked(carya.XRLinear(max_leaf_size=8), NeuralRanker()),
    ):
        ranker = carya.TextRanker(carya.Tfidf(min_df=1), model).fit(texts, labels)
        assert ranker.score(texts, labels) > 0.8
        suggestions = ranker.suggest(texts[0], top_k=4)
        assert suggestions == ranker.suggest_all(texts[:1], top_k=4)[0]
        ranker.save(tmp_path / "model")
        assert carya.load(tmp_path / "model").suggest(texts[0], top_k=4) == suggestions
        with pytest.raises(
            InputError, match=r"models cannot be explained\. Pass (a value of tree from 0 to 1|tree=0) to "
        ):
            ranker.explain(texts[0], labels[0][0])


def test_unknown_presets_are_rejected_with_a_hint() -> None:
    with pytest.raises(ParameterError, match=r"Unknown preset 'parable'\. Did you mean 'parabel'\?"):
        preset("parable")


def test_the_seeds_of_all_trees_are_checked(world: SyntheticData) -> None:
    ensemble = carya.Ensemble(carya.XRLinear(seed=2**63 - 1), n_trees=2)
    with pytest.raises(ParameterError, match="seed must be an integer between 0 and 9223372036854775807, got 9223"):
        ensemble.fit(world.X, world.Y)


def test_saved_ensembles_have_exactly_their_own_parameters(three: carya.Ensemble, tmp_path: Path) -> None:
    three.save(tmp_path / "model")
    for changes in ({"weights": None}, {"n_trees": 3}):
        saved = storage.load(tmp_path / "model")
        saved.parameters.update(changes)
        if changes == {"weights": None}:
            del saved.parameters["weights"]
        storage.save(tmp_path / "forged", saved)
        with pytest.raises(ModelFormatError, match="The ensemble has the parameters combine, "):
            carya.load(tmp_path / "forged")


def test_ensembles_can_be_members_of_text_rankers(tmp_path: Path) -> None:
    texts, labels = corpus()
    model = carya.Ensemble([carya.XRLinear(), carya.NearestNeighbors(n_neighbors=5)])
    ranker = carya.TextRanker(carya.Tfidf(), model).fit(texts, labels)
    ranker.save(tmp_path / "model")
    assert carya.load(tmp_path / "model").suggest_all(texts[:5]) == ranker.suggest_all(texts[:5])
