"""Models in two steps: candidates from trees and neighbours, put in order by a ranker of pairs."""

from __future__ import annotations

import contextlib
import copy
import pickle
import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import carya
from carya.data import World
from carya.errors import InputError, ModelFormatError, NotFittedError, ParameterError
from carya.models.reranked.similarity_model import similarity
from carya.ranking import BoostedRanker, NeuralRanker, Pairs, register

from forging import forge

TREE = carya.XRLinear(branching=4, max_leaf=8)


@register
class ByOneFeature:
    """Orders candidates by one feature; remembers what it was trained on."""

    name: ClassVar[str] = "by one feature"
    seen: ClassVar[list[tuple[Pairs, np.ndarray]]] = []

    def __init__(self, feature: str) -> None:
        self.feature = feature

    def fit(self, pairs: Pairs, relevance: np.ndarray) -> ByOneFeature:
        self.seen.append((pairs, relevance))
        return self

    def score(self, pairs: Pairs) -> np.ndarray:
        return pairs.column(self.feature)

    def to_saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"feature": self.feature}, {}

    @classmethod
    def from_saved(cls, parameters: dict[str, Any], arrays: dict[str, Any]) -> ByOneFeature:
        return cls(**parameters)


@pytest.fixture(scope="module")
def reranked(world: World) -> carya.Reranked:
    return carya.Reranked(TREE, NeuralRanker(passes=5), n_jobs=2).fit(world.X, world.Y)


def same(a: sp.csr_array, b: sp.csr_array) -> bool:
    return all(np.array_equal(getattr(a, part), getattr(b, part)) for part in ("indptr", "indices", "data"))


def latin_square(size: int, times: int, seed: int) -> tuple[sp.csr_array, sp.csr_array]:
    """Rows of two features, a and b, whose label is a + b modulo the size: each feature alone says nothing at all."""
    a, b = np.divmod(np.tile(np.arange(size**2), times), size)
    order = np.random.default_rng(seed).permutation(a.size)
    a, b = a[order], b[order]
    ends = np.arange(a.size + 1)
    X = sp.csr_array((np.ones(2 * a.size, np.float32), np.column_stack([a, size + b]).ravel(), 2 * ends))
    return X, sp.csr_array((np.ones(a.size, np.float32), (a + b) % size, ends))


@pytest.mark.parametrize("ranker", [NeuralRanker(), BoostedRanker(n_trees=30, least_pairs=10)])
def test_it_sees_what_linear_rankers_cannot(ranker: Any) -> None:
    if isinstance(ranker, BoostedRanker):
        pytest.importorskip("lightgbm")
    X, Y = latin_square(12, times=10, seed=0)
    model = carya.Reranked(carya.XRLinear(max_depth=1), ranker, neighbours=5).fit(X, Y)
    queries, truth = latin_square(12, times=1, seed=1)
    assert carya.metrics.precision(truth, model.members_[0].predict(queries, top_k=1), k=1) < 0.5
    assert model.score(queries, truth) > 0.95


def test_the_ranker_is_trained_on_rows_the_models_have_not_seen(world: World) -> None:
    once = sp.csr_array(world.X[np.unique(world.X.toarray(), axis=0, return_index=True)[1]])
    rows = once.shape[0]
    Y = world.Y[:rows]
    ByOneFeature.seen.clear()
    carya.Reranked(TREE, ByOneFeature("trees.score"), held_out=0.2, rounds=2).fit(once, Y)
    (pairs, relevance), *more = ByOneFeature.seen
    assert not more
    assert 2 * int(rows * 0.2) <= pairs.offsets.size - 1 < 2 * int(rows * 0.2) + 80  # whole runs of up to 20 rows
    assert pairs.column("neighbours.nearest").max() < 0.999  # no row is its own neighbour
    assert 0 < relevance.mean() < 1


def test_groups_are_held_out_together(world: World) -> None:
    X, Y = sp.vstack([world.X] * 2, format="csr"), sp.vstack([world.Y] * 2, format="csr")
    groups = np.tile(np.arange(world.X.shape[0]), 2)
    nearest = []
    for given_groups in (None, groups):
        ByOneFeature.seen.clear()
        carya.Reranked(TREE, ByOneFeature("trees.score")).fit(X, Y, groups=given_groups)
        nearest.append(ByOneFeature.seen[0][0].column("neighbours.nearest"))
    assert (nearest[0] > 0.999).mean() > 0.7  # its copy is nearly always among the rows that are left
    assert (nearest[1] > 0.999).mean() < 0.1


def test_a_ranker_of_your_own(world: World, tmp_path: Path) -> None:
    mine = ByOneFeature("trees.score")
    model = carya.Reranked(TREE, mine, pool=150, extra=0).fit(world.X, world.Y)
    tree = carya.XRLinear(branching=4, max_leaf=8).fit(world.X, world.Y)
    assert model.ranker_ is not mine
    found, want = model.predict(world.X, top_k=3), tree.predict(world.X, top_k=3)
    assert carya.metrics.precision(world.Y, found, k=3) == pytest.approx(carya.metrics.precision(world.Y, want, k=3))
    model.save(tmp_path / "model")
    assert same(carya.load(tmp_path / "model").predict(world.X, top_k=3), found)


def test_features_are_what_they_say(world: World, reranked: carya.Reranked) -> None:
    X, Y = world.X[:40], world.Y
    pairs, labels = reranked.pairs(X)
    rows = pairs.queries
    (tree,) = reranked.members_
    candidates = sp.csr_array((np.ones(labels.size), (rows, labels)), shape=(40, 150))
    assert np.exp(pairs.column("tree0.score")) == pytest.approx(tree.predict_selected(X, candidates).data, rel=1e-4)
    assert np.array_equal(
        pairs.column("frequency"), np.log1p(np.bincount(Y.indices, minlength=150))[labels].astype("f4")
    )
    unit = sp.csr_array(world.X / sp.linalg.norm(world.X, axis=1)[:, None])
    cosines = (unit[:40] @ unit.T).toarray()
    top = np.sort(cosines, axis=1)[:, ::-1]
    assert pairs.column("neighbours.nearest") == pytest.approx(top[:, 0][rows], abs=2e-3)
    assert pairs.column("neighbours.sum") == pytest.approx(top[:, :50].sum(axis=1)[rows], rel=5e-3)
    first = np.argsort(-cosines, axis=1)[:, :50]
    votes = [Y[first[row]][:, [label]].nnz for row, label in zip(rows, labels, strict=True)]
    assert (np.abs(pairs.column("votes") - votes) <= 1).mean() > 0.99  # the fiftieth may be another, by rounding
    centres = Y.T @ unit
    centres = sp.csr_array(centres / np.maximum(sp.linalg.norm(centres, axis=1), 1e-9)[:, None])
    near = (unit[:40] @ centres.T).toarray()[rows, labels]
    assert np.corrcoef(pairs.column("centre"), near)[0, 1] > 0.99


def test_label_texts_bring_labels_that_nothing_else_finds() -> None:
    """A tree knows nothing of labels that it has not seen; their texts do."""
    labels = 300
    noise = sp.csr_array((np.random.default_rng(0).random((labels, 40)) < 0.1).astype(np.float32))
    own = sp.eye_array(labels, dtype=np.float32, format="csr")
    X = sp.csr_array(sp.hstack([noise, own], format="csr"))
    about = sp.csr_array(sp.hstack([noise * 0, own], format="csr"))
    new = slice(labels // 2, labels)  # each row has a label of its own
    model = carya.Reranked(carya.XRLinear(max_leaf=20), NeuralRanker(), held_out=0.4)
    assert model.fit(X[: labels // 2], own[: labels // 2], label_features=about).score(X[new], own[new]) > 0.9
    with pytest.raises(InputError, match="no pair is relevant"):
        model.fit(X[: labels // 2], own[: labels // 2])


def test_columns_behind_are_only_for_the_texts_of_labels(world: World, tmp_path: Path) -> None:
    """Trees and neighbours do as without them, and names are looked for in nothing else."""
    letters = sp.csr_array((np.random.default_rng(0).random((1500, 30)) < 0.2).astype(np.float32))
    names = sp.csr_array((np.random.default_rng(1).random((150, 30)) < 0.2).astype(np.float32))
    words = sp.csr_array(world.X / sp.linalg.norm(world.X, axis=1)[:, None])
    X = sp.csr_array(sp.hstack([words, letters], format="csr"))
    about = sp.csr_array(sp.hstack([sp.csr_array(np.ones((150, world.X.shape[1]), np.float32)), names], format="csr"))
    model = carya.Reranked(TREE, ByOneFeature("text"))
    model.fit(X, world.Y, label_features=about, columns=world.X.shape[1])
    plain = carya.Reranked(TREE, ByOneFeature("votes")).fit(words, world.Y)
    assert model.members_[0].widths_ == (world.X.shape[1], 0)
    assert model.widths_ == (X.shape[1], 0)
    (pairs, labels), (alone, found) = model.pairs(X[:40]), plain.pairs(words[:40])
    at = {key: number for number, key in enumerate(zip(pairs.queries, labels, strict=True))}
    same_pair = [at[key] for key in zip(alone.queries, found, strict=True)]  # there are more, which names add
    for name in ("tree0.score", "votes", "centre", "features"):
        assert pairs.column(name)[same_pair] == pytest.approx(alone.column(name), rel=1e-3, abs=1e-3), name
    cosines = (letters[:40] / sp.linalg.norm(letters[:40], axis=1)[:, None]) @ names.T
    cosines = cosines.toarray() / np.maximum(sp.linalg.norm(names, axis=1), 1e-9)
    assert pairs.column("text") == pytest.approx(cosines[pairs.queries, labels], abs=2e-3)
    model.save(tmp_path / "model")
    again = carya.load(tmp_path / "model")
    assert same(again.predict(X), model.predict(X))
    assert np.array_equal(again.rank(X[[3]])[0], model.predict(X[[3]]).indices)


@pytest.mark.parametrize("form", ["sparse", "dense", "pair"])
def test_what_models_promise(world: World, pair: Any, form: str, tmp_path: Path) -> None:
    X = {"sparse": world.X, "dense": pair[1], "pair": pair}[form]

    def some(at: Any) -> Any:
        return (X[0][at], X[1][at]) if isinstance(X, tuple) else X[at]

    model = carya.Reranked(TREE, NeuralRanker(passes=3), n_jobs=2).fit(X, world.Y)
    S = model.predict(some(slice(0, 30)), top_k=5)
    for row in range(30):
        labels, scores = model.rank(some([row]), top_k=5)
        at = slice(S.indptr[row], S.indptr[row + 1])
        assert np.array_equal(labels, S.indices[at])
        assert np.array_equal(scores, S.data[at])
        assert labels.size == 5
        assert (np.diff(scores) <= 0).all()
    model.save(tmp_path / "model")
    opened = carya.load(tmp_path / "model")
    assert same(opened.predict(some(slice(0, 30)), top_k=5), S)
    opened.save(tmp_path / "again")
    for file in ("manifest.json", "arrays.bin"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "model" / file).read_bytes()
    empty = tuple(block * 0 for block in some(slice(0, 3))) if isinstance(X, tuple) else some(slice(0, 3)) * 0
    assert model.predict(empty).nnz == 0
    assert model.predict(some(slice(0, 0))).shape == (0, 150)
    assert model.score(X, world.Y) > 0.3


@pytest.mark.parametrize("ranker", [NeuralRanker(passes=3), BoostedRanker(n_trees=10)])
def test_threads_change_nothing(world: World, ranker: Any, tmp_path: Path) -> None:
    if isinstance(ranker, BoostedRanker):
        pytest.importorskip("lightgbm")
    for jobs in (1, 2):
        base = carya.XRLinear(branching=4, max_leaf=8, n_jobs=jobs)
        model = carya.Reranked([base], clone(ranker), n_jobs=jobs).fit(world.X, world.Y)
        model.members_[0].set_params(n_jobs=1)
        model.save(tmp_path / str(jobs))
    assert (tmp_path / "1" / "arrays.bin").read_bytes() == (tmp_path / "2" / "arrays.bin").read_bytes()


def test_bases_of_every_kind(world: World, reranked: carya.Reranked) -> None:
    two = carya.Ensemble(TREE, n_trees=2)
    model = carya.Reranked(two, NeuralRanker(passes=3)).fit(world.X, world.Y)
    assert [one.seed for one in model.members_] == [0, 1]
    mixed = carya.Reranked([TREE, carya.XRLinear(max_depth=1, transform="noop")], NeuralRanker(passes=3))
    assert mixed.fit(world.X, world.Y).score(world.X, world.Y) > 0.8
    assert len(carya.Reranked(None, NeuralRanker(passes=1)).fit(world.X, world.Y).members_) == 2
    names = model.pairs(world.X[:2])[0].names
    assert "tree1.score" in names
    assert "tree1.score" not in reranked.pairs(world.X[:2])[0].names


def test_raw_rows_and_least_scores(world: World, reranked: carya.Reranked) -> None:
    X = world.X[:20].astype(np.float32)
    S = reranked.predict(X, top_k=6)
    rows = X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data
    again = reranked.rank_rows(*rows, top_k=6)
    assert all(np.array_equal(a, b) for a, b in zip(again, (S.indptr, S.indices, S.data), strict=True))
    x = X[[4]]
    labels, _ = reranked.rank_sparse(x.indices.astype(np.int32), x.data, top_k=6)
    assert np.array_equal(labels, S.indices[S.indptr[4] : S.indptr[5]])
    middle = float(np.median(S.data))
    cut = reranked.predict(X, top_k=6, min_score=middle)
    assert cut.data.min() >= middle
    assert cut.nnz == (S.data >= middle).sum()


def test_many_threads_may_ask_at_once(world: World, reranked: carya.Reranked) -> None:
    want = reranked.predict(world.X[:50])
    wrong = []

    def ask() -> None:
        if not same(reranked.predict(world.X[:50]), want):
            wrong.append(1)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_scikit_learn_can_copy_it() -> None:
    model = carya.Reranked(carya.XRLinear(cost=2), NeuralRanker(width=7), pool=9)
    twin = clone(model)
    assert (twin.base.cost, twin.ranker.width, twin.pool) == (2, 7, 9)
    assert twin.base is not model.base
    assert twin.set_params(ranker__width=3).ranker.width == 3
    assert clone(carya.Reranked(TREE, ByOneFeature("votes"))).ranker.feature == "votes"


def test_fitted_models_copy_and_travel(world: World, reranked: carya.Reranked) -> None:
    want = reranked.predict(world.X[:9])
    for twin in (copy.deepcopy(reranked), pickle.loads(pickle.dumps(reranked))):
        assert same(twin.predict(world.X[:9]), want)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base": 3}, "'base' of Reranked must be an XRLinear, an Ensemble"),
        ({"base": []}, "'base'"),
        ({"ranker": NeuralRanker}, "'ranker' of Reranked must be a Ranker"),
        ({"ranker": object()}, "'ranker'"),
        ({"pool": 0}, "'pool'"),
        ({"held_out": 1.5}, "'held_out'"),
    ],
)
def test_wrong_parameters(world: World, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        carya.Reranked(**changes).fit(world.X, world.Y)


def test_wrong_input(world: World, reranked: carya.Reranked) -> None:
    with pytest.raises(NotFittedError, match="this Reranked is not fitted yet"):
        carya.Reranked().predict(world.X)
    with pytest.raises(InputError, match="columns, the model was trained on"):
        reranked.predict(world.X[:, 1:])
    with pytest.raises(InputError, match="x has 2 rows"):
        reranked.rank(world.X[:2])
    with pytest.raises(InputError, match=r"groups has the shape \(3,\), X has 1500 rows"):
        carya.Reranked(TREE, NeuralRanker()).fit(world.X, world.Y, groups=[1, 2, 3])
    with pytest.raises(InputError, match="too few to hold out"):
        carya.Reranked(TREE, NeuralRanker()).fit(world.X, world.Y, groups=np.zeros(1500))
    with pytest.raises(InputError, match="label_features have 3 rows, there are 150 labels"):
        carya.Reranked(TREE, NeuralRanker()).fit(world.X, world.Y, label_features=world.X[:3])
    about = {"label_features": world.X[:150]}
    with pytest.raises(InputError, match=r"columns must be .*, got 0"):
        carya.Reranked(TREE, NeuralRanker()).fit(world.X, world.Y, **about, columns=0)
    with pytest.raises(InputError, match=r"columns is \d+, X has \d+ sparse columns"):
        carya.Reranked(TREE, NeuralRanker()).fit(world.X, world.Y, **about, columns=world.X.shape[1] + 1)
    with pytest.raises(InputError, match="columns needs label_features"):
        carya.Reranked(TREE, NeuralRanker()).fit(world.X, world.Y, columns=5)
    broken = carya.Reranked(TREE, ByOneFeature("votes")).fit(world.X, world.Y)
    broken.ranker_.score = lambda pairs: np.full(len(pairs), np.nan)  # type: ignore[method-assign]
    with pytest.raises(InputError, match="'by one feature' must give a finite score"):
        broken.predict(world.X[:2])


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_a_forged_model_is_an_error_or_answers(
    reranked: carya.Reranked, world: World, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("forged")
    reranked.save(folder / "model")
    forge(folder / "model", folder / "forged", seed)
    with contextlib.suppress(ModelFormatError, InputError):
        carya.load(folder / "forged").predict(world.X[:5])


def test_similarity_is_an_inner_product(world: World, pair: Any) -> None:
    for X in (world.X, pair[1], pair):
        features = carya.core.validation.features(X)
        model = similarity(features)
        rows = features.sparse.to_scipy().toarray() if features.widths[0] else np.zeros((features.rows, 0))
        whole = np.hstack([rows, features.dense])
        found = model.predict(X, top_k=3)
        want = np.sort(whole @ whole.T, axis=1)[:, ::-1][:, :3]
        assert found.data.reshape(-1, 3) == pytest.approx(want, rel=2e-3)
