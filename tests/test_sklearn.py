"""Tests for XRLinear with scikit-learn's tools: clone, pipelines, grid search, cross-validation and pickling."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

import carya
from carya.data import SyntheticData
from carya.errors import InputError
from carya.ranking import NeuralRanker

from model_kinds import encoder_folder
from topics import corpus

_TREE = carya.XRLinear(branching=4, max_leaf_size=8, n_jobs=1)


def test_clone_is_unfitted_with_the_same_parameters(model: carya.XRLinear) -> None:
    cloned = clone(model)
    assert cloned.get_params() == model.get_params()
    assert not hasattr(cloned, "layers_")
    check_is_fitted(model)
    with pytest.raises(Exception, match="not fitted"):
        check_is_fitted(cloned)


def test_pipeline(world: SyntheticData) -> None:
    pipeline = make_pipeline(TfidfTransformer(sublinear_tf=True), carya.XRLinear(max_leaf_size=10))
    pipeline.fit(world.X, world.Y)
    assert pipeline.predict(world.X).shape == world.Y.shape
    assert pipeline.score(world.X, world.Y) > 0.6
    assert pipeline.set_params(xrlinear__max_leaf_size=20)["xrlinear"].max_leaf_size == 20


def test_grid_search_with_scorers(world: SyntheticData) -> None:
    search = GridSearchCV(
        carya.XRLinear(max_leaf_size=10, n_jobs=1),
        {"C": [1e-6, 1.0]},
        scoring={name: carya.metrics.scorer(name) for name in ("P@1", "nDCG@3")},
        refit="P@1",
        cv=KFold(2),
        error_score="raise",
    )
    search.fit(world.X, world.Y)
    assert search.best_params_ == {"C": 1.0}
    assert search.best_estimator_.predict(world.X).shape == world.Y.shape
    assert np.all(search.cv_results_["mean_test_nDCG@3"] <= 1)


def test_cross_validation_with_the_default_score(world: SyntheticData) -> None:
    assert cross_val_score(carya.XRLinear(max_leaf_size=10), world.X, world.Y.toarray(), cv=3).mean() > 0.5


def test_fitted_models_can_be_copied_and_pickled(model: carya.XRLinear, world: SyntheticData) -> None:
    """Pickling is required by scikit-learn's worker processes; to store a model permanently, use `save`."""
    expected = model.predict(world.X)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        actual = copied.predict(world.X)
        assert np.array_equal(actual.indices, expected.indices)
        assert np.array_equal(actual.data, expected.data)
    results = cross_validate(
        carya.XRLinear(n_jobs=1), world.X, world.Y.toarray(), cv=2, return_estimator=True, n_jobs=2
    )
    assert all(estimator.tree_.n_labels == world.Y.shape[1] for estimator in results["estimator"])


def test_numpy_parameters(world: SyntheticData, tmp_path: Path) -> None:
    parameters: dict[str, Any] = {
        "seed": np.int64(3),
        "max_leaf_size": np.int64(5),
        "C": np.float32(1),
        "balanced": np.True_,
        "loss": np.str_("logistic"),
        "n_jobs": np.int64(-1),
        "negatives": [np.str_("teacher"), "both"],
    }
    model = carya.XRLinear(**parameters).fit(world.X, world.Y)
    model.save(tmp_path / "model")
    assert carya.load(tmp_path / "model").max_leaf_size == 5
    assert "alpha" in repr(carya.XRLinear(alpha=np.full(4, 0.5)))


def test_propensity_scorer(model: carya.XRLinear, world: SyntheticData) -> None:
    score = carya.metrics.scorer("PSP@3", propensity=carya.metrics.propensities(world.Y))
    assert 0.2 < score(model, world.X, world.Y) <= 1


def test_repr_shows_changed_parameters() -> None:
    assert repr(carya.XRLinear()) == "XRLinear()"
    assert repr(carya.XRLinear(seed=3, negatives="both")) == "XRLinear(negatives='both', seed=3)"


@pytest.mark.parametrize(
    ("model", "grid"),
    [
        (_TREE, {"C": [1e-6, 1.0]}),
        (carya.NearestNeighbors(n_neighbors=20, n_jobs=1), {"ranker": ["linear", None]}),
        (carya.Ensemble(_TREE, n_trees=2, n_jobs=1), {"members__C": [1e-6, 1.0]}),
        (carya.Reranked(_TREE, NeuralRanker(epochs=2), n_jobs=1), {"base__C": [1e-6, 1.0], "n_neighbors": [5]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_grid_search_over_every_kind_of_model(model: Any, grid: dict[str, Any], world: SyntheticData) -> None:
    X, Y = world.X[:400], world.Y[:400]
    search = GridSearchCV(model, grid, scoring=carya.metrics.scorer("R@5"), cv=KFold(2), error_score="raise")
    search.fit(X, Y)
    assert 0.2 < search.best_score_ <= 1
    dense = Y.toarray()  # cross_val_score, unlike GridSearchCV, rejects sparse labels
    scores = cross_val_score(model, X, dense, scoring=carya.metrics.scorer("nDCG@3"), cv=2, error_score="raise")
    assert np.isfinite(scores).all()


def test_grid_search_over_text_rankers() -> None:
    texts, labels = corpus(240)
    ranker = carya.TextRanker(carya.Tfidf(min_df=1, n_jobs=1), carya.XRLinear(max_leaf_size=8, n_jobs=1))
    search = GridSearchCV(
        ranker,
        {"model__C": [1e-6, 1.0], "vectorizer__sublinear_tf": [True]},
        scoring={name: carya.metrics.scorer(name) for name in ("P@1", "R@5", "nDCG@3", "coverage@5")},
        refit="R@5",
        cv=KFold(2),
        error_score="raise",
    )
    search.fit(texts, labels)
    assert search.best_params_["model__C"] == 1.0
    assert search.best_score_ > 0.5
    assert search.best_estimator_.suggest(texts[0])
    pipeline = make_pipeline(FunctionTransformer(lambda rows: [row.upper() for row in rows]), ranker)
    scores = cross_val_score(pipeline, texts, labels, scoring=carya.metrics.scorer("P@1"), cv=2, error_score="raise")
    assert scores.min() > 0.5


@pytest.mark.parametrize("model", [carya.Ensemble(_TREE, n_trees=2), carya.Reranked(_TREE, NeuralRanker(epochs=20))])
def test_cross_validation_of_text_rankers_with_other_models(model: Any) -> None:
    texts, labels = corpus(120)
    ranker = carya.TextRanker(carya.Tfidf(min_df=1, n_jobs=1), model)
    scores = cross_val_score(ranker, texts, labels, scoring=carya.metrics.scorer("P@1"), cv=2, error_score="raise")
    assert scores.min() > 0.2


def test_labels_that_a_text_ranker_does_not_know_count_as_missed() -> None:
    texts, labels = ["mail server", "photo editor"] * 4, [["mail"], ["graphics"]] * 4
    ranker = carya.TextRanker(carya.Tfidf(min_df=1)).fit(texts, labels)
    assert carya.metrics.scorer("R@5")(ranker, texts, labels) == 1
    with_unknown = [[*row, "new"] for row in labels]
    assert carya.metrics.scorer("R@5")(ranker, texts, with_unknown) == 0.5
    matrix = ranker.label_matrix(labels)
    assert carya.metrics.scorer("P@1")(ranker, texts, matrix) == carya.metrics.scorer("P@1")(ranker, texts, labels)


@pytest.mark.filterwarnings("ignore::carya.errors.UnknownTextWarning")
def test_propensities_of_label_lists() -> None:
    texts, labels = corpus(120)
    ranker = carya.TextRanker(carya.Tfidf(min_df=1)).fit(texts, labels)
    propensity = carya.metrics.propensities(labels)
    matrix = ranker.label_matrix(labels)
    expected = dict(zip(ranker.labels_, carya.metrics.propensities(matrix), strict=True))
    assert propensity == pytest.approx(expected)
    score = carya.metrics.scorer("PSP@3", propensity=propensity)(ranker, texts, labels)
    by_column = carya.metrics.psp(
        matrix, ranker.predict(texts, top_k=3), k=3, propensity=[expected[label] for label in ranker.labels_]
    )
    assert score == pytest.approx(by_column)
    with pytest.raises(InputError, match="propensity has no entry for the label 'new'"):
        carya.metrics.scorer("PSP@1", propensity=propensity)(ranker, ["a"], [["new"]])
    with pytest.raises(InputError, match="propensity must be a mapping from labels"):
        carya.metrics.scorer("PSP@1", propensity=[0.5] * len(expected))(ranker, texts, labels)
    X, Y = carya.data.make_world(60, 5, seed=0)
    with pytest.raises(InputError, match="one number per column of Y, got a mapping"):
        carya.metrics.scorer("PSP@1", propensity={"a": 0.5})(carya.XRLinear().fit(X, Y), X, Y)


@pytest.mark.transformer
def test_cross_validation_of_transformers() -> None:
    pytest.importorskip("torch")
    texts, labels = corpus(80)
    model = carya.XRTransformer(
        encoder=encoder_folder(),
        pooling="mean",
        max_length=32,
        batch_tokens=256,
        vectorizer=carya.Tfidf(min_df=1, n_jobs=1),
        ranker=carya.XRLinear(n_jobs=1),
        refit=False,
        device="cpu",
    )
    scores = cross_val_score(model, texts, labels, scoring=carya.metrics.scorer("P@1"), cv=2, error_score="raise")
    assert scores.min() > 0.3
