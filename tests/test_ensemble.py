"""Several models as one."""

from __future__ import annotations

import contextlib
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
from carya.data import World
from carya.errors import InputError, ModelFormatError, NotFittedError, ParameterError
from carya.models.ensemble.combine import COMBINATIONS, combine_rankings
from carya.models.presets import PRESETS, preset
from carya.models.xr_linear.training import train_together
from carya.ranking import LinearRanker, NeuralRanker

from forging import forge
from topics import corpus


def combined_slowly(
    rankings: list[list[tuple[int, float]]], how: str, weights: list[float], top_k: int
) -> list[tuple[int, float]]:
    """What native/ensemble.hpp says, in plain Python."""
    said: dict[int, float] = {}
    mean: dict[int, float] = {}
    for weight, ranking in zip(weights, rankings, strict=True):
        total = sum(math.exp(score - ranking[0][1]) for _, score in ranking)
        for place, (label, score) in enumerate(ranking):
            value = {
                "mean": score,
                "rank": (len(ranking) - place) / len(ranking),
                "count": 1.0,
                "softmax": math.exp(score - ranking[0][1]) / total,
                "sigmoid": 1 / (1 + math.exp(-score)),
            }[how]
            said[label] = said.get(label, 0) + weight * value
            mean[label] = mean.get(label, 0) + weight * score
    if how == "count":
        for label in said:
            said[label] += 0.5 * min(weights) / (1 + math.exp(-mean[label] / sum(weights)))
    best = [(label, value / sum(weights)) for label, value in said.items()]
    return sorted(best, key=lambda one: (-one[1], one[0]))[:top_k]


@pytest.mark.parametrize("how", COMBINATIONS)
@given(data=st.data())
def test_combining_is_what_it_says(how: str, data: st.DataObject) -> None:
    members = data.draw(st.integers(1, 3))
    score = st.floats(-3, 3, width=16)
    one = st.dictionaries(st.integers(0, 9), score, max_size=6)
    rows = data.draw(st.lists(st.lists(one, min_size=members, max_size=members), max_size=4))
    weights = data.draw(st.lists(st.sampled_from([0.25, 1.0, 2.0]), min_size=members, max_size=members))
    top_k = data.draw(st.integers(1, 8))
    rankings = [[sorted(found.items(), key=lambda x: (-x[1], x[0])) for found in row] for row in rows]
    native = []
    for member in range(members):
        mine = [row[member] for row in rankings]
        indptr = np.cumsum([0, *map(len, mine)]).astype(np.int64)
        labels = np.array([label for row in mine for label, _ in row], np.int32)
        scores = np.array([score for row in mine for _, score in row], np.float32)
        native.append(_core.Csr(indptr, labels, scores, 10, "ranking", False))
    indptr, labels, scores = combine_rankings(
        native, combine=how, weights=np.array(weights, np.float32), top_k=top_k, threads=2
    )
    for row, some in enumerate(rankings):
        want = combined_slowly(some, how, weights, top_k)
        at = slice(indptr[row], indptr[row + 1])
        assert scores[at] == pytest.approx([value for _, value in want], abs=1e-5)
        said = dict(combined_slowly(some, how, weights, 100))
        assert [said[label] for label in labels[at].tolist()] == pytest.approx(scores[at].tolist(), abs=1e-5)


@pytest.fixture(scope="module")
def three(world: World) -> carya.Ensemble:
    return carya.Ensemble(carya.XRLinear(branching=4, max_leaf=8), n_trees=3).fit(world.X, world.Y)


@pytest.mark.parametrize("trees", [3, 5])
def test_members_are_the_models_themselves(world: World, trees: int) -> None:
    """Training side by side and sharing what labels are clustered by change nothing."""
    small = {"branching": 2, "max_leaf": 4, "beam_width": 4}
    made = carya.Ensemble(carya.XRLinear(**small), n_trees=trees).fit(world.X, world.Y)
    assert len(made.members_) == trees
    for seed, member in enumerate(made.members_):
        alone = carya.XRLinear(**small, seed=seed, training_beam=3).fit(world.X, world.Y)
        assert alone.tree_ == member.tree_
        assert (alone.predict(world.X) != member.predict(world.X)).nnz == 0
    assert made.members_[0].tree_ != made.members_[1].tree_


def test_trees_of_all_kinds_are_what_they_are_alone(world: World) -> None:
    """Side by side or one after the other: of other depths, costs, threads and label features, with costs in Y."""
    Y = sp.csr_array(world.Y).astype(np.float32)
    Y.data = np.random.default_rng(0).uniform(0.2, 3, Y.nnz).astype(np.float32)
    names = sp.csr_array(np.random.default_rng(1).random((Y.shape[1], world.X.shape[1]), np.float32))
    kinds: list[dict[str, Any]] = [
        {"branching": 2, "max_leaf": 4},
        {"branching": 8, "max_leaf": 12},
        {"branching": 2, "max_leaf": 4, "relevance": "induce"},
        {"cost": 3.0},
        {"n_jobs": 2},
        {"representation": "pifa+lf"},
        {"max_depth": 1},
    ]
    made = carya.Ensemble([carya.XRLinear(**kind) for kind in kinds]).fit(world.X, Y, label_features=names)
    for kind, member in zip(kinds, made.members_, strict=True):
        about = {"label_features": names} if "representation" in kind else {}
        alone = carya.XRLinear(**kind).fit(world.X, Y, **about)
        assert alone.tree_ == member.tree_
        assert (alone.predict(world.X) != member.predict(world.X)).nnz == 0


def test_an_error_while_trees_train_leaves_the_ensemble_as_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = carya.Ensemble(carya.XRLinear(branching=2, max_leaf=4, beam_width=4), n_trees=2)
    train, calls = LinearRanker.train, []

    def fail(self: LinearRanker, *args: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise MemoryError
        return train(self, *args, **more)

    monkeypatch.setattr(LinearRanker, "train", fail)
    with pytest.raises(MemoryError):
        made.fit(world.X, world.Y)
    with pytest.raises(NotFittedError):
        made.predict(world.X)


def test_trainings_go_on_together_until_each_ends() -> None:
    def training(rounds: int) -> Any:
        found = []
        for at in range(rounds):
            found += yield [(rounds, at)]
        return found

    asked = []

    def solve(problems: list[Any]) -> list[Any]:
        asked.append(problems)
        return [f"{rounds}.{at}" for rounds, at in problems]

    assert train_together([training(2), training(0), training(1)], solve) == [["2.0", "2.1"], [], ["1.0"]]
    assert asked == [[(2, 0), (1, 0)], [(2, 1)]]


def test_trees_train_with_three_quarters_of_their_beams_unless_told_otherwise(world: World) -> None:
    small = {"branching": 2, "max_leaf": 4, "beam_width": 4}
    for settings, beams in (({}, [3, 3]), ({"training_beam": 4}, [4, 4])):
        made = carya.Ensemble(carya.XRLinear(**small, **settings), n_trees=2).fit(world.X, world.Y)
        assert [member.training_beam for member in made.members_] == beams
    assert carya.Ensemble(carya.XRLinear(**small), n_trees=1).fit(world.X, world.Y).members_[0].training_beam is None


@pytest.mark.parametrize("how", COMBINATIONS)
def test_batch_one_by_one_and_saved(world: World, three: carya.Ensemble, how: str, tmp_path: Path) -> None:
    made = carya.Ensemble(three.members_, combine=how)
    made._set_learned(three.members_, np.ones(3, np.float32))
    S = made.predict(world.X[:20], top_k=4)
    for row in range(20):
        labels, scores = made.rank(world.X[[row]], top_k=4)
        at = slice(S.indptr[row], S.indptr[row + 1])
        assert scores == pytest.approx(S.data[at], abs=1e-6)
        assert labels.tolist() == S.indices[at].tolist()
    made.save(tmp_path / "model")
    opened = carya.load(tmp_path / "model")
    assert isinstance(opened, carya.Ensemble)
    assert opened.combine == how
    assert (opened.predict(world.X[:20], top_k=4) != S).nnz == 0


def test_three_trees_are_no_worse_than_one(world: World, three: carya.Ensemble) -> None:
    one = carya.metrics.precision(world.Y, three.members_[0].predict(world.X, top_k=5), k=5)
    assert carya.metrics.precision(world.Y, three.predict(world.X, top_k=5), k=5) >= one - 0.005


@pytest.mark.parametrize("combine", ["rank", "count", "softmax", "sigmoid"])
def test_trees_that_vote_search_with_their_whole_beams(world: World, combine: str) -> None:
    tree = carya.XRLinear(branching=2, max_leaf=4, beam_width=4)
    two = carya.Ensemble(tree, n_trees=2, combine=combine).fit(world.X, world.Y)
    S = two.predict(world.X)
    assert (two.predict(world.X, beam_width=4) != S).nnz == 0
    assert (two.predict(world.X, beam_width=2) != S).nnz > 0
    assert np.array_equal(two.rank(world.X[[5]])[0], S[[5]].indices)


def test_trees_search_with_half_of_their_beams(world: World) -> None:
    tree = carya.XRLinear(branching=2, max_leaf=4, beam_width=4)
    two = carya.Ensemble(tree, n_trees=2).fit(world.X, world.Y)
    S = two.predict(world.X)
    assert (two.predict(world.X, beam_width=2) != S).nnz == 0
    assert (two.predict(world.X, beam_width=4) != S).nnz > 0
    assert np.array_equal(two.rank(world.X[[5]])[0], S[[5]].indices)
    one = carya.Ensemble(tree, n_trees=1).fit(world.X, world.Y)
    assert (one.predict(world.X) != one.members_[0].predict(world.X)).nnz == 0


def test_members_may_differ(world: World, pair: Any) -> None:
    members = [
        carya.XRLinear(branching=2, max_leaf=20),
        carya.XRLinear(max_depth=1, loss="logistic", transform="sigmoid"),
        carya.XRLinear(representation="pii", beam_width=5),
    ]
    mixed = carya.Ensemble(members, weights=[1, 0.5, 2]).fit(world.X, world.Y)
    assert mixed.score(world.X, world.Y) > 0.8
    own = carya.Ensemble(members[:2]).fit([world.X, pair], world.Y)  # features of their own
    assert own.score([world.X, pair], world.Y) > 0.8
    labels, _ = own.rank([world.X[[3]], (pair[0][[3]], pair[1][[3]])], top_k=2)
    assert labels.size == 2


def test_weights_are_learned(world: World) -> None:
    good = carya.XRLinear(max_depth=1)
    bad = carya.XRLinear(branching=2, max_leaf=2, clustering="random", cost=1e-4, beam_width=1)
    made = carya.Ensemble([bad, good], weights="learned").fit(world.X, world.Y)
    assert made.weights_[1] > made.weights_[0]
    assert made.weights_.sum() == pytest.approx(1)


def test_threads_change_nothing(world: World) -> None:
    base = carya.XRLinear(branching=4, max_leaf=8)
    one, two = (
        carya.Ensemble(base.set_params(n_jobs=jobs), n_trees=2, n_jobs=jobs).fit(world.X, world.Y) for jobs in (1, 2)
    )
    assert (one.predict(world.X) != two.predict(world.X)).nnz == 0


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (carya.Ensemble, "'members' of Ensemble must be a model such as XRLinear"),
        (lambda: carya.Ensemble([]), "'members'"),
        (lambda: carya.Ensemble([1]), "'members'"),
        (lambda: carya.Ensemble(carya.XRLinear(), combine="median"), "'combine'"),
        (lambda: carya.Ensemble(carya.XRLinear(beam_width="10"), n_trees=3), "'beam_width'"),
        (lambda: carya.Ensemble([carya.XRLinear()], n_trees=2), "n_trees is for one model"),
        (lambda: carya.Ensemble([carya.XRLinear()] * 2, weights=[1]), "weights must be 2 numbers"),
        (lambda: carya.Ensemble([carya.XRLinear()] * 2, weights=[0, 0]), "not all 0"),
        (lambda: carya.Ensemble([carya.XRLinear()] * 2, weights=[1, -1]), "'weights'"),
    ],
)
def test_wrong_parameters(made: Any, message: str, world: World) -> None:
    with pytest.raises(ParameterError) as caught:
        made().fit(world.X, world.Y)
    assert message in str(caught.value)


def test_wrong_input(world: World, three: carya.Ensemble) -> None:
    with pytest.raises(NotFittedError):
        carya.Ensemble(carya.XRLinear()).predict(world.X)
    with pytest.raises(InputError, match="X is a list of 2, there are 3 members"):
        three.predict([world.X, world.X])
    with pytest.raises(InputError, match="columns"):
        three.predict(sp.csr_array((2, 3), dtype=np.float32))
    assert clone(carya.Ensemble(carya.XRLinear(cost=2), n_trees=2)).members.cost == 2


@given(st.integers(0, 10_000))
def test_a_forged_ensemble_is_an_error_or_answers(
    three: carya.Ensemble, world: World, tmp_path_factory: Any, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("forged")
    three.save(folder / "model")
    forge(folder / "model", folder / "forged", seed)
    with contextlib.suppress(ModelFormatError):
        carya.load(folder / "forged").predict(world.X[:5])


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name: str, world: World) -> None:
    about = {} if PRESETS[name].kind == "neighbours" else {"max_leaf": 10}
    made = carya.preset(name, n_jobs=1, **about).fit(world.X, world.Y)
    assert made.score(world.X, world.Y) > 0.8
    assert len(PRESETS[name].about) > 20


def test_members_of_any_kind(world: World, tmp_path: Path) -> None:
    """Trees, neighbours and a reranked model together: the slow path gives what each of them says, combined."""
    members = [
        carya.XRLinear(branching=4, max_leaf=8),
        carya.NearestNeighbours(over="rows"),
        carya.Reranked(carya.XRLinear(max_leaf=10), NeuralRanker(passes=3)),
    ]
    made = carya.Ensemble(members, combine="rank", weights=[2, 1, 1], pool=20).fit(world.X, world.Y)
    S = made.predict(world.X[:30], top_k=5)
    rankings = [one.predict(world.X[:30], top_k=20) for one in made.members_]
    for row in range(30):
        listed = [
            list(zip(T.indices[a:b].tolist(), T.data[a:b].tolist(), strict=True))
            for T in rankings
            for a, b in [(T.indptr[row], T.indptr[row + 1])]
        ]
        want = combined_slowly(listed, "rank", [2, 1, 1], 5)
        # Equal ranks are summed in another order, and may round apart.
        assert S.data[S.indptr[row] : S.indptr[row + 1]] == pytest.approx([score for _, score in want], abs=1e-6)
    labels, _ = made.rank(world.X[[3]], top_k=5)
    assert labels.tolist() == S.indices[S.indptr[3] : S.indptr[4]].tolist()
    made.save(tmp_path / "model")
    opened = carya.load(tmp_path / "model")
    assert [type(one) for one in opened.members_] == [type(one) for one in members]
    assert (opened.predict(world.X[:30], top_k=5) != S).nnz == 0
    some = made.predict(world.X[:30], top_k=5, min_score=0.9)
    assert 0 < some.nnz < S.nnz
    assert some.data.min() >= np.float32(0.9)


def test_texts_are_ranked_by_several_models(tmp_path: Path) -> None:
    texts, labels = corpus(300)
    for model in (
        carya.Ensemble(carya.XRLinear(max_leaf=8), n_trees=2),
        carya.Reranked(carya.XRLinear(max_leaf=8), NeuralRanker()),
    ):
        ranker = carya.TextRanker(carya.Tfidf(min_df=1), model).fit(texts, labels)
        assert ranker.score(texts, labels) > 0.8
        best = ranker.suggest(texts[0], top_k=4)
        assert best == ranker.suggest_all(texts[:1], top_k=4)[0]
        ranker.save(tmp_path / "model")
        assert carya.load(tmp_path / "model").suggest(texts[0], top_k=4) == best
        with pytest.raises(InputError, match="each of its trees_ explains its own"):
            ranker.explain(texts[0], labels[0][0])


def test_unknown_presets() -> None:
    with pytest.raises(ParameterError, match="there is no preset 'parable'; did you mean 'parabel'"):
        preset("parable")
