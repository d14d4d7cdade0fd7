"""Tests for label subsets, prediction with a different transform, and ensembles that interleave rankings."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import carya
from carya.data import SyntheticData
from carya.errors import InputError, ParameterError
from carya.ranking import NeuralRanker

from matrix_helpers import ranking_of, same_matrix
from topics import corpus

_SMALL: dict[str, Any] = {"branching": 4, "max_leaf_size": 8, "n_jobs": 2}
_FULL: dict[str, Any] = {"beam_width": 10_000}
_LABELS = np.array([3, 4, 5, 17, 40, 41, 42, 90, 91, 149, 120])
_TREES: dict[str, dict[str, Any]] = {
    "int8": {},
    "float16": {"weight_dtype": "float16"},
    "float32": {"weight_dtype": "float32"},
    "one-versus-rest": {"max_depth": 1},
    "deep": {"branching": 2, "max_leaf_size": 3},
    "overlapping": {"clusters_per_label": 3, "beam_width": 2},
    "noop": {"transform": ("l3-hinge", "noop")},
}


def only(S: sp.csr_array, labels: np.ndarray) -> sp.csr_array:
    """Return only the columns of the given labels, renumbered; the order of entries within each row does not change."""
    kept = np.flatnonzero(np.isin(S.indices, labels))
    rows = np.repeat(np.arange(S.shape[0]), np.diff(S.indptr))[kept]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=S.shape[0]))])
    columns = np.searchsorted(np.sort(labels), S.indices[kept])
    return sp.csr_array((S.data[kept], columns, indptr), shape=(S.shape[0], labels.size))


def same_ranking(actual: sp.csr_array, expected: sp.csr_array) -> bool:
    """Return whether rankings are equal up to rounding, which depends on how nodes are grouped into SIMD vectors."""
    same = np.array_equal(actual.indptr, expected.indptr) and np.array_equal(actual.indices, expected.indices)
    return bool(same and np.allclose(actual.data, expected.data, rtol=1e-5, atol=1e-6))


@pytest.mark.parametrize("name", _TREES)
@pytest.mark.parametrize("form", ["sparse", "pair"])
def test_a_subset_ranks_like_the_complete_model(
    name: str, form: str, world: SyntheticData, pair: Any, tmp_path: Path
) -> None:
    X = world.X if form == "sparse" else pair
    queries = X[:200] if form == "sparse" else (X[0][:200], X[1][:200])
    model = carya.XRLinear(**{**_SMALL, **_TREES[name]}).fit(X, world.Y)
    small = model.subset(_LABELS)
    assert small.n_labels_ == _LABELS.size
    expected = only(model.predict(queries, top_k=150, **_FULL), _LABELS)
    actual = small.predict(queries, top_k=150, **_FULL)
    assert same_ranking(actual, expected)
    assert len(small.layers_) == len(model.layers_)
    small.save(tmp_path / "small")
    assert same_ranking(carya.load(tmp_path / "small").predict(queries, top_k=150, **_FULL), expected)
    assert sum(layer.weights.n_bytes for layer in small.layers_) < sum(layer.weights.n_bytes for layer in model.layers_)


def test_a_subset_of_all_labels_is_the_model(model: carya.XRLinear) -> None:
    saved, copied = model.to_saved(), model.subset(np.arange(model.n_labels_)).to_saved()
    assert saved.arrays.keys() == copied.arrays.keys()
    for name, array in saved.arrays.items():
        assert np.array_equal(array, copied.arrays[name]), name


@pytest.mark.parametrize("name", _TREES)
def test_labels_at_prediction(name: str, world: SyntheticData) -> None:
    model = carya.XRLinear(**{**_SMALL, **_TREES[name]}).fit(world.X, world.Y)
    X = sp.csr_array(sp.vstack([world.X[:50], sp.csr_array((1, world.X.shape[1]), dtype=np.float32)]))
    S = model.predict(X, top_k=5, labels=_LABELS.tolist())
    assert set(S.indices) <= set(_LABELS.tolist())
    assert np.diff(S.indptr).tolist() == [5] * 50 + [0]
    expected = only(model.predict(X, top_k=150, **_FULL), _LABELS)
    for row in range(50):
        scores = [score for _, score in ranking_of(S, row)]
        assert scores == pytest.approx([score for _, score in ranking_of(expected, row)][:5])
        labels, single = model.rank(X[[row]], top_k=5, labels=_LABELS)
        assert list(zip(labels.tolist(), single.tolist(), strict=True)) == ranking_of(S, row)
    high = model.predict(X, top_k=5, labels=_LABELS, min_score=0.5)
    assert high.nnz < S.nnz
    assert (high.data >= 0.5).all()


_OTHERS: dict[str, Any] = {
    "neighbors": carya.NearestNeighbors(n_neighbors=20, n_jobs=2),
    "neighbors over rows": carya.NearestNeighbors(over="rows", n_neighbors=20, max_candidates=5, n_jobs=2),
    "ensemble": carya.Ensemble(carya.XRLinear(**_SMALL), n_trees=2, n_jobs=2),
    "mixed ensemble": carya.Ensemble([carya.XRLinear(**_SMALL), carya.NearestNeighbors(n_neighbors=20)]),
    "reranked": carya.Reranked(carya.XRLinear(**_SMALL), NeuralRanker(epochs=3), n_jobs=2),
}


@pytest.mark.parametrize("name", _OTHERS)
def test_labels_at_prediction_in_other_models(name: str, world: SyntheticData) -> None:
    model, X = _OTHERS[name].clone().fit(world.X[:600], world.Y[:600]), world.X[:40]
    S = model.predict(X, top_k=4, labels=_LABELS)
    assert S.shape == (40, 150)
    assert S.nnz
    assert set(S.indices) <= set(_LABELS.tolist())
    if name != "neighbors over rows":  # this model scores only labels that receive votes
        assert (np.diff(S.indptr) == 4).all()
    for row in range(5):
        labels, scores = model.rank(X[[row]], top_k=4, labels=_LABELS)
        assert list(zip(labels.tolist(), scores.tolist(), strict=True)) == ranking_of(S, row)
        query = X[[row]].indices.astype(np.int32), X[[row]].data.astype(np.float32)
        labels, scores = model.rank_sparse(*query, top_k=4, labels=_LABELS)
        assert list(zip(labels.tolist(), scores.tolist(), strict=True)) == ranking_of(S, row)
    rows = model.rank_rows(
        X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data.astype(np.float32), top_k=4, labels=_LABELS
    )
    assert np.array_equal(rows[1], S.indices)
    if name not in ("neighbors over rows", "reranked"):  # these models also retrieve candidates in other ways
        assert same_matrix(model.predict(X, top_k=4, labels=np.arange(150)), model.predict(X, top_k=4, **_FULL))


@pytest.mark.parametrize("name", ["neighbors", "neighbors over rows", "ensemble", "mixed ensemble"])
def test_subsets_of_other_models(name: str, world: SyntheticData, tmp_path: Path) -> None:
    model, X = _OTHERS[name].clone().fit(world.X[:600], world.Y[:600]), world.X[:40]
    small = model.subset(_LABELS)
    options = {"top_k": 150} if name == "neighbors over rows" else {"top_k": 150, **_FULL}
    expected = only(model.predict(X, labels=_LABELS, **options), _LABELS)
    assert same_ranking(small.predict(X, **options), expected)
    small.save(tmp_path / "small")
    assert same_ranking(carya.load(tmp_path / "small").predict(X, **options), expected)


def test_labels_by_name_in_any_form(world: SyntheticData) -> None:
    names = [f"label {number:03d}" for number in range(150)]
    model, X = carya.XRLinear(**_SMALL).fit(world.X, world.Y, label_names=names), world.X[:20]
    expected = model.predict(X, labels=_LABELS)
    chosen = [names[number] for number in _LABELS]
    mixed = [*chosen[:3], *_LABELS[3:]]
    forms: list[Any] = [chosen, tuple(chosen), set(chosen), np.array(chosen), iter(chosen), mixed]
    for labels in forms:
        assert same_matrix(model.predict(X, labels=labels), expected)
    assert list(model.subset(np.array(chosen)).labels_) == sorted(chosen)
    assert same_matrix(
        model.predict(X, labels=chosen, transform="noop"), model.with_transform("noop").predict(X, labels=_LABELS)
    )
    with pytest.raises(InputError, match=r"Unknown label 'label 01'\. Did you mean"):
        model.predict(X, labels=["label 01"])
    with pytest.raises(InputError, match="labels must be a non-empty list"):
        model.predict(X, labels="label 001")


def test_a_subset_keeps_the_options_for_reading_data(model: carya.XRLinear, tmp_path: Path) -> None:
    model = model.subset(np.arange(150))
    model.data_options_ = {"format": "svmlight"}
    model.subset([1, 2]).save(tmp_path / "small")
    assert carya.load(tmp_path / "small").data_options_ == {"format": "svmlight"}


def test_another_transform_is_not_calibrated() -> None:
    texts, labels = corpus(120)
    ranker = carya.TextRanker(carya.Tfidf(min_df=1)).fit(texts, labels, calibrate=True)
    ensemble = carya.TextEnsemble.from_members([ranker, ranker]).calibrate(*corpus(100, seed=5))
    for model in (ranker, ensemble):
        assert "probability" in model.suggest_all(texts[:2], as_frame=True)
        assert "probability" not in model.suggest_all(texts[:2], as_frame=True, transform="noop")
        assert "probability" not in model.predict(texts[:2], as_frame=True, transform="noop")
        smaller = model.subset(model.labels_[:3]).calibration_
        assert smaller is not None
        assert smaller.table is None, "other labels take the ranks of the removed labels"
        assert model.calibration_ is not None
        assert smaller([0.5]) == model.calibration_([0.5])


def test_invalid_labels(model: carya.XRLinear, world: SyntheticData) -> None:
    for labels, message in (
        ([], "labels must be a non-empty list of label indices"),
        ([0.5], "labels must be a non-empty list of label indices"),
        ([[1, 2]], "labels must be a non-empty list of label indices"),
        ([1, 150], "labels must be between 0 and 149, got 150"),
        ([-1], "labels must be between 0 and 149, got -1"),
    ):
        for call in (model.subset, lambda labels: model.predict(world.X[:2], labels=labels)):
            with pytest.raises(InputError, match=message):
                call(labels)
    reranked = _OTHERS["reranked"].clone().fit(world.X[:200], world.Y[:200])
    with pytest.raises(InputError, match="Reranked models do not support subset"):
        reranked.subset([1])
    with pytest.raises(InputError, match="The transform of Reranked models cannot be changed"):
        reranked.predict(world.X[:2], transform="noop")


@pytest.mark.parametrize(
    "transform", ["noop", "sigmoid", ("l2-hinge", "noop"), ["l2-hinge", "l3-hinge", "l4-hinge", "l5-hinge"]]
)
def test_transform_at_prediction(transform: Any, world: SyntheticData) -> None:
    """With teacher negatives, weights do not depend on the transform."""
    settings = {**_SMALL, "negatives": "teacher"}
    model = carya.XRLinear(**settings).fit(world.X, world.Y)
    assert len(model.layers_) == 4
    other = carya.XRLinear(**settings, transform=transform).fit(world.X, world.Y)
    X = world.X[:100]
    for _ in range(2):  # the second result comes from the cache
        assert same_matrix(model.predict(X, transform=transform, **_FULL), other.predict(X, **_FULL))
    for beam_width in (2, 5):
        actual = model.predict(X, transform=transform, beam_width=beam_width)
        assert same_matrix(actual, other.predict(X, beam_width=beam_width))
    first, second = model.rank(X[[0]], transform=transform), other.rank(X[[0]])
    assert np.array_equal(first[1], second[1])
    assert model.with_transform(transform).transform_ == other.transform_
    assert model.transform_ != other.transform_
    assert pickle.loads(pickle.dumps(model)).transform_ == model.transform_
    model.fit(world.X[:300], world.Y[:300])  # values cached before this fit must not be used
    other.fit(world.X[:300], world.Y[:300])
    assert same_matrix(model.predict(X, transform=transform), other.predict(X))


def test_transform_of_ensembles_and_neighbors(world: SyntheticData) -> None:
    X, Y = world.X[:600], world.Y[:600]
    settings = {**_SMALL, "negatives": "teacher"}
    ensemble = carya.Ensemble(carya.XRLinear(**settings), n_trees=2).fit(X, Y)
    other = carya.Ensemble(carya.XRLinear(**settings, transform="sigmoid"), n_trees=2).fit(X, Y)
    assert same_matrix(ensemble.predict(X, transform="sigmoid"), other.predict(X))
    assert np.array_equal(ensemble.rank(X[[1]], transform="sigmoid")[1], other.rank(X[[1]])[1])
    neighbors = carya.NearestNeighbors(n_neighbors=20, similarity_weight=1.0).fit(X, Y)
    expected = carya.NearestNeighbors(n_neighbors=20, similarity_weight=1.0, transform="sigmoid").fit(X, Y)
    assert same_matrix(neighbors.predict(X, transform="sigmoid"), expected.predict(X))
    unranked = carya.NearestNeighbors(n_neighbors=20, ranker=None).fit(X, Y)
    with pytest.raises(InputError, match="ranker=None does not use one"):
        unranked.predict(X, transform="sigmoid")


def test_invalid_transforms(model: carya.XRLinear, world: SyntheticData) -> None:
    with pytest.raises(ParameterError, match="transform must be 'auto' or 'noop'"):
        model.predict(world.X[:2], transform="cubic")
    with pytest.raises(ParameterError, match="transform has 5 values, but the tree has"):
        model.predict(world.X[:2], transform=["noop"] * 5)


def test_round_robin(world: SyntheticData, tmp_path: Path) -> None:
    members = [carya.XRLinear(**_SMALL), carya.XRLinear(**_SMALL, max_depth=1), carya.NearestNeighbors(n_neighbors=20)]
    for weights, turns in ((None, (0, 1, 2)), ([1, 3, 0], (1, 0))):
        model = carya.Ensemble(members, combine="round_robin", weights=weights).fit(world.X[:500], world.Y[:500])
        model.save(tmp_path / "model")
        X = world.X[500:520]
        S = carya.load(tmp_path / "model").predict(X, top_k=6)
        assert same_matrix(S, model.predict(X, top_k=6))
        rankings = [model.members_[turn].predict(X, top_k=20) for turn in turns]
        for row in range(20):
            order: dict[int, int] = {}
            for place in range(20):
                for turn, ranking in enumerate(rankings):
                    best = ranking_of(ranking, row)
                    if place < len(best):
                        order.setdefault(best[place][0], place * 3 + turn)
            expected = list(order.items())[:6]
            assert [label for label, _ in ranking_of(S, row)] == [label for label, _ in expected]
            assert [score for _, score in ranking_of(S, row)] == pytest.approx(
                [1 / (1 + place) for _, place in expected]
            )
    trees = carya.Ensemble(carya.XRLinear(**_SMALL), n_trees=2, combine="round_robin").fit(world.X[:500], world.Y[:500])
    first = trees.predict(X, top_k=1)
    assert np.array_equal(first.indices, trees.members_[0].predict(X, top_k=1).indices)
    assert (first.data == 1).all()
