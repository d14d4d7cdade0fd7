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
from sklearn.utils.validation import check_is_fitted

import carya
from carya.data import SyntheticData


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
    """scikit-learn's worker processes require pickling; to store models, use `save`."""
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
