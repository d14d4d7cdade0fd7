"""Tests for reranked models, in which a reranker ranks the candidates from trees and neighbors."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import carya
from carya.data import SyntheticData
from carya.errors import InputError, NotFittedError, ParameterError
from carya.models.reranked.similarity_model import similarity_model
from carya.ranking import BoostedRanker, NeuralRanker, Pairs, register

from forging import use_forged
from matrix_helpers import same_arrays, same_matrix
from topics import corpus

TREE = carya.XRLinear(branching=4, max_leaf_size=8)


@register
class SingleFeatureRanker:
    """Ranker that orders candidates by one feature and records its training data."""

    name: ClassVar[str] = "single feature"
    seen: ClassVar[list[tuple[Pairs, np.ndarray]]] = []

    def __init__(self, feature: str) -> None:
        self.feature = feature

    def fit(self, pairs: Pairs, relevance: np.ndarray) -> SingleFeatureRanker:
        self.seen.append((pairs, relevance))
        return self

    def score(self, pairs: Pairs) -> np.ndarray:
        return pairs.column(self.feature)

    def to_saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"feature": self.feature}, {}

    @classmethod
    def from_saved(cls, parameters: dict[str, Any], arrays: dict[str, Any]) -> SingleFeatureRanker:
        return cls(**parameters)


@pytest.fixture(scope="module")
def reranked(world: SyntheticData) -> carya.Reranked:
    """A fitted model; tests must not modify it."""
    return carya.Reranked(TREE, NeuralRanker(epochs=5), n_jobs=2).fit(world.X, world.Y)


def latin_square(size: int, times: int, seed: int) -> tuple[sp.csr_array, sp.csr_array]:
    """Return rows with two features, a and b, and the label (a + b) mod size; neither feature alone is informative."""
    a, b = np.divmod(np.tile(np.arange(size**2), times), size)
    order = np.random.default_rng(seed).permutation(a.size)
    a, b = a[order], b[order]
    ends = np.arange(a.size + 1)
    X = sp.csr_array((np.ones(2 * a.size, np.float32), np.column_stack([a, size + b]).ravel(), 2 * ends))
    return X, sp.csr_array((np.ones(a.size, np.float32), (a + b) % size, ends))


@pytest.mark.parametrize("ranker", [NeuralRanker(), BoostedRanker(n_estimators=30, min_samples_leaf=10)])
def test_rerankers_learn_interactions_that_linear_rankers_cannot(ranker: Any) -> None:
    if isinstance(ranker, BoostedRanker):
        pytest.importorskip("lightgbm")
    X, Y = latin_square(12, times=10, seed=0)
    model = carya.Reranked(carya.XRLinear(max_depth=1), ranker, n_neighbors=5).fit(X, Y)
    queries, truth = latin_square(12, times=1, seed=1)
    assert carya.metrics.precision(truth, model.members_[0].predict(queries, top_k=1), k=1) < 0.5
    assert model.score(queries, truth) > 0.95


def test_the_reranker_is_trained_on_held_out_rows(world: SyntheticData) -> None:
    distinct = sp.csr_array(world.X[np.unique(world.X.toarray(), axis=0, return_index=True)[1]])
    rows = distinct.shape[0]
    Y = world.Y[:rows]
    SingleFeatureRanker.seen.clear()
    carya.Reranked(TREE, SingleFeatureRanker("trees.score"), validation_fraction=0.2, n_rounds=2).fit(distinct, Y)
    ((pairs, relevance),) = SingleFeatureRanker.seen
    # Up to 20 consecutive rows are held out together, so the held-out fraction can be slightly larger than requested.
    assert 2 * int(rows * 0.2) <= pairs.offsets.size - 1 < 2 * int(rows * 0.2) + 80
    assert pairs.column("neighbors.nearest").max() < 0.999  # no row is its own neighbor
    assert 0 < relevance.mean() < 1


def test_groups_are_held_out_together(world: SyntheticData) -> None:
    X, Y = sp.vstack([world.X] * 2, format="csr"), sp.vstack([world.Y] * 2, format="csr")
    groups = np.tile(np.arange(world.X.shape[0]), 2)
    nearest = []
    for given_groups in (None, groups):
        SingleFeatureRanker.seen.clear()
        carya.Reranked(TREE, SingleFeatureRanker("trees.score")).fit(X, Y, groups=given_groups)
        nearest.append(SingleFeatureRanker.seen[0][0].column("neighbors.nearest"))
    assert (nearest[0] > 0.999).mean() > 0.7  # the duplicate of a held-out row is usually a training row
    assert (nearest[1] > 0.999).mean() < 0.1


def test_custom_rerankers_are_trained_and_saved(world: SyntheticData, tmp_path: Path) -> None:
    ranker = SingleFeatureRanker("trees.score")
    model = carya.Reranked(TREE, ranker, pool_size=150, extra_candidates=0).fit(world.X, world.Y)
    tree = carya.XRLinear(branching=4, max_leaf_size=8).fit(world.X, world.Y)
    assert model.ranker_ is not ranker
    S, expected = model.predict(world.X, top_k=3), tree.predict(world.X, top_k=3)
    assert carya.metrics.precision(world.Y, S, k=3) == pytest.approx(carya.metrics.precision(world.Y, expected, k=3))
    model.save(tmp_path / "model")
    assert same_matrix(carya.load(tmp_path / "model").predict(world.X, top_k=3), S)


def test_candidate_features_equal_brute_force(world: SyntheticData, reranked: carya.Reranked) -> None:
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
    assert pairs.column("neighbors.nearest") == pytest.approx(top[:, 0][rows], abs=2e-3)
    assert pairs.column("neighbors.sum") == pytest.approx(top[:, :50].sum(axis=1)[rows], rel=5e-3)
    first = np.argsort(-cosines, axis=1)[:, :50]
    votes = [Y[first[row]][:, [label]].nnz for row, label in zip(rows, labels, strict=True)]
    assert (np.abs(pairs.column("votes") - votes) <= 1).mean() > 0.99  # the 50th neighbor can differ due to rounding
    centroids = Y.T @ unit
    centroids = sp.csr_array(centroids / np.maximum(sp.linalg.norm(centroids, axis=1), 1e-9)[:, None])
    similarities = (unit[:40] @ centroids.T).toarray()[rows, labels]
    assert np.corrcoef(pairs.column("centroid"), similarities)[0, 1] > 0.99


def test_label_features_find_labels_without_training_rows() -> None:
    """A tree cannot retrieve labels without training rows, but they can be retrieved by their label features."""
    labels = 300
    noise = sp.csr_array((np.random.default_rng(0).random((labels, 40)) < 0.1).astype(np.float32))
    own = sp.eye_array(labels, dtype=np.float32, format="csr")
    X = sp.csr_array(sp.hstack([noise, own], format="csr"))
    label_features = sp.csr_array(sp.hstack([noise * 0, own], format="csr"))
    unseen = slice(labels // 2, labels)  # every row has a different label
    model = carya.Reranked(carya.XRLinear(max_leaf_size=20), NeuralRanker(), validation_fraction=0.4)
    assert (
        model.fit(X[: labels // 2], own[: labels // 2], label_features=label_features).score(X[unseen], own[unseen])
        > 0.9
    )
    with pytest.raises(InputError, match="relevance is 0 for every pair"):
        model.fit(X[: labels // 2], own[: labels // 2])


def test_name_columns_are_used_only_for_label_names(world: SyntheticData, tmp_path: Path) -> None:
    """Trees and neighbors ignore the name columns, and only these columns are compared with label names."""
    letters = sp.csr_array((np.random.default_rng(0).random((1500, 30)) < 0.2).astype(np.float32))
    names = sp.csr_array((np.random.default_rng(1).random((150, 30)) < 0.2).astype(np.float32))
    words = sp.csr_array(world.X / sp.linalg.norm(world.X, axis=1)[:, None])
    X = sp.csr_array(sp.hstack([words, letters], format="csr"))
    ones = sp.csr_array(np.ones((150, world.X.shape[1]), np.float32))
    label_features = sp.csr_array(sp.hstack([ones, names], format="csr"))
    model = carya.Reranked(TREE, SingleFeatureRanker("name"))
    model.fit(X, world.Y, label_features=label_features, name_columns=30)
    plain = carya.Reranked(TREE, SingleFeatureRanker("votes")).fit(words, world.Y)
    assert model.members_[0].widths_ == (world.X.shape[1], 0)
    assert model.widths_ == (X.shape[1], 0)
    (pairs, labels), (plain_pairs, plain_labels) = model.pairs(X[:40]), plain.pairs(words[:40])
    numbers = {key: number for number, key in enumerate(zip(pairs.queries, labels, strict=True))}
    # The candidates include all candidates of the plain model; label names add more.
    shared = [numbers[key] for key in zip(plain_pairs.queries, plain_labels, strict=True)]
    for name in ("tree0.score", "votes", "centroid", "query_features"):
        assert pairs.column(name)[shared] == pytest.approx(plain_pairs.column(name), rel=1e-3, abs=1e-3), name
    cosines = (letters[:40] / sp.linalg.norm(letters[:40], axis=1)[:, None]) @ names.T
    cosines = cosines.toarray() / np.maximum(sp.linalg.norm(names, axis=1), 1e-9)
    assert pairs.column("name") == pytest.approx(cosines[pairs.queries, labels], abs=2e-3)
    model.save(tmp_path / "model")
    opened = carya.load(tmp_path / "model")
    assert same_matrix(opened.predict(X), model.predict(X))
    assert np.array_equal(opened.rank(X[[3]])[0], model.predict(X[[3]]).indices)


def test_the_base_can_be_an_ensemble_a_list_or_the_default(world: SyntheticData, reranked: carya.Reranked) -> None:
    two = carya.Ensemble(TREE, n_trees=2)
    model = carya.Reranked(two, NeuralRanker(epochs=3)).fit(world.X, world.Y)
    assert [member.seed for member in model.members_] == [0, 1]
    mixed = carya.Reranked([TREE, carya.XRLinear(max_depth=1, transform="noop")], NeuralRanker(epochs=3))
    assert mixed.fit(world.X, world.Y).score(world.X, world.Y) > 0.8
    assert len(carya.Reranked(None, NeuralRanker(epochs=1)).fit(world.X, world.Y).members_) == 2
    names = model.pairs(world.X[:2])[0].names
    assert "tree1.score" in names
    assert "tree1.score" not in reranked.pairs(world.X[:2])[0].names


def test_rank_rows_rank_sparse_and_min_score(world: SyntheticData, reranked: carya.Reranked) -> None:
    X = world.X[:20].astype(np.float32)
    S = reranked.predict(X, top_k=6)
    arrays = X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data
    rankings = reranked.rank_rows(*arrays, top_k=6)
    assert same_arrays(rankings, (S.indptr, S.indices, S.data))
    x = X[[4]]
    labels, _ = reranked.rank_sparse(x.indices.astype(np.int32), x.data, top_k=6)
    assert np.array_equal(labels, S.indices[S.indptr[4] : S.indptr[5]])
    median = float(np.median(S.data))
    limited = reranked.predict(X, top_k=6, min_score=median)
    assert limited.data.min() >= median
    assert limited.nnz == (S.data >= median).sum()


def test_scikit_learn_can_clone_reranked_models() -> None:
    model = carya.Reranked(carya.XRLinear(C=2), NeuralRanker(hidden_units=7), pool_size=9)
    copied = clone(model)
    assert (copied.base.C, copied.ranker.hidden_units, copied.pool_size) == (2, 7, 9)
    assert copied.base is not model.base
    assert copied.set_params(ranker__hidden_units=3).ranker.hidden_units == 3
    assert clone(carya.Reranked(TREE, SingleFeatureRanker("votes"))).ranker.feature == "votes"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"base": 3},
            "base must be an XRLinear model, an Ensemble of XRLinear models, a non-empty list of XRLinear models",
        ),
        ({"base": []}, r"base must be an XRLinear.*, got \[\]"),
        ({"ranker": NeuralRanker}, "ranker must be a Ranker"),
        ({"ranker": object()}, "ranker must be a Ranker"),
        ({"pool_size": 0}, "pool_size must be an integer >= 1, got 0"),
        ({"validation_fraction": 1.5}, r"validation_fraction must be a number > 0 and <= 0\.9, got 1\.5"),
    ],
)
def test_invalid_parameters_are_rejected(world: SyntheticData, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        carya.Reranked(**changes).fit(world.X, world.Y)


def test_invalid_input_is_rejected(world: SyntheticData, reranked: carya.Reranked) -> None:
    with pytest.raises(NotFittedError, match="This Reranked is not fitted yet"):
        carya.Reranked().predict(world.X)
    with pytest.raises(InputError, match="columns, but must have"):
        reranked.predict(world.X[:, 1:])
    with pytest.raises(InputError, match="x has 2 rows, but rank accepts a single row"):
        reranked.rank(world.X[:2])
    with pytest.raises(InputError, match=r"groups must have shape \(1500,\), one entry per row of X, got \(3,\)"):
        carya.Reranked(TREE, NeuralRanker()).fit(world.X, world.Y, groups=[1, 2, 3])
    with pytest.raises(InputError, match="groups has a single distinct value"):
        carya.Reranked(TREE, NeuralRanker()).fit(world.X, world.Y, groups=np.zeros(1500))
    with pytest.raises(InputError, match=r"label_features must have one row per label \(150\), got 3 rows"):
        carya.Reranked(TREE, NeuralRanker()).fit(world.X, world.Y, label_features=world.X[:3])
    label_features, n_columns = world.X[:150], world.X.shape[1]
    reranked = carya.Reranked(TREE, NeuralRanker())
    with pytest.raises(InputError, match="name_columns must be an integer >= 1, got 0"):
        reranked.fit(world.X, world.Y, label_features=label_features, name_columns=0)
    for name_columns in (n_columns, n_columns + 1):
        with pytest.raises(
            InputError, match=rf"name_columns must be less than the number of sparse columns of X \({n_columns}\), got"
        ):
            reranked.fit(world.X, world.Y, label_features=label_features, name_columns=name_columns)
    with pytest.raises(InputError, match="name_columns requires label_features"):
        reranked.fit(world.X, world.Y, name_columns=5)
    broken = carya.Reranked(TREE, SingleFeatureRanker("votes")).fit(world.X, world.Y)
    broken.ranker_.score = lambda pairs: np.full(len(pairs), np.nan)  # type: ignore[method-assign]
    with pytest.raises(InputError, match="The ranker 'single feature' must return one finite score for each of the"):
        broken.predict(world.X[:2])


def test_forged_models_are_rejected_or_remain_usable(
    reranked: carya.Reranked, world: SyntheticData, tmp_path: Path
) -> None:
    def use(model: carya.Reranked) -> None:
        with contextlib.suppress(InputError):  # forged values can make a score infinite
            model.predict(world.X[:5])

    reranked.save(tmp_path / "model")
    outcomes = use_forged(tmp_path / "model", tmp_path, range(60), use)
    assert outcomes.rejected >= 10
    assert outcomes.accepted >= 5


def test_scores_of_similarity_models_are_inner_products(world: SyntheticData, pair: Any) -> None:
    for X in (world.X, pair[1], pair):
        features = carya.core.validation.check_features(X)
        model = similarity_model(features)
        rows = features.sparse.to_scipy().toarray() if features.widths[0] else np.zeros((features.rows, 0))
        all_features = np.hstack([rows, features.dense])
        S = model.predict(X, top_k=3)
        expected = np.sort(all_features @ all_features.T, axis=1)[:, ::-1][:, :3]
        assert S.data.reshape(-1, 3) == pytest.approx(expected, rel=2e-3)


def test_accurate_models_work_without_lightgbm(tmp_path: Path) -> None:
    """Only training requires LightGBM; without it, models can be loaded, used and saved."""
    pytest.importorskip("lightgbm")
    texts, labels = corpus(200)
    ranker = carya.TextRanker(model=carya.preset("accurate", n_jobs=2)).fit(texts, labels)
    ranker.save(tmp_path / "model")
    expected = [suggestion.label for suggestion in ranker.suggest(texts[0], top_k=5)]
    code = f"""
import importlib.abc, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "lightgbm":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
import carya
from carya.errors import MissingExtraError

ranker = carya.load({str(tmp_path / "model")!r})
ranker.save({str(tmp_path / "copy")!r})
text = {texts[0]!r}
print(*[suggestion.label for suggestion in ranker.suggest(text, top_k=5)])
copy = carya.load({str(tmp_path / "copy")!r})
print(*[suggestion.label for suggestion in copy.suggest_all([text] * 20, top_k=5)[-1]])
ranker.explain(text, ranker.labels_[0], tree=0)
try:
    carya.TextRanker(model=carya.preset("accurate")).fit([text] * 40, [["a"], ["b"]] * 20)
except MissingExtraError as error:
    print(error)
assert "lightgbm" not in sys.modules
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    first, second, message = run.stdout.splitlines()
    assert first.split() == second.split() == expected
    assert "requires lightgbm. Install it with: pip install 'carya[gbdt]'" in message
