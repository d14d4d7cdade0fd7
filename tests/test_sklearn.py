"""XRLinear among scikit-learn's tools."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

import carya
from carya.data import World


def test_clone_has_the_parameters_and_nothing_learned(model: carya.XRLinear) -> None:
    blank = clone(model)
    assert blank.get_params() == model.get_params()
    assert not hasattr(blank, "layers_")
    check_is_fitted(model)
    with pytest.raises(Exception, match="not fitted"):
        check_is_fitted(blank)


def test_pipeline(world: World) -> None:
    pipeline = make_pipeline(TfidfTransformer(sublinear_tf=True), carya.XRLinear(max_leaf=10))
    pipeline.fit(world.X, world.Y)
    assert pipeline.predict(world.X).shape == world.Y.shape
    assert pipeline.score(world.X, world.Y) > 0.6
    assert pipeline.set_params(xrlinear__max_leaf=20)["xrlinear"].max_leaf == 20


def test_grid_search_with_our_scorers(world: World) -> None:
    search = GridSearchCV(
        carya.XRLinear(max_leaf=10, n_jobs=1),
        {"cost": [1e-6, 1.0]},
        scoring={name: carya.metrics.scorer(name) for name in ("P@1", "nDCG@3")},
        refit="P@1",
        cv=KFold(2),
        error_score="raise",
    )
    search.fit(world.X, world.Y)
    assert search.best_params_ == {"cost": 1.0}
    assert search.best_estimator_.predict(world.X).shape == world.Y.shape
    assert np.all(search.cv_results_["mean_test_nDCG@3"] <= 1)


def test_cross_validation_by_default_score(world: World) -> None:
    assert cross_val_score(carya.XRLinear(max_leaf=10), world.X, world.Y.toarray(), cv=3).mean() > 0.5


def test_fitted_models_copy_and_travel(model: carya.XRLinear, world: World) -> None:
    """As scikit-learn's worker processes do; models are kept with save."""
    want = model.predict(world.X)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        got = twin.predict(world.X)
        assert np.array_equal(got.indices, want.indices)
        assert np.array_equal(got.data, want.data)
    done = cross_validate(carya.XRLinear(n_jobs=1), world.X, world.Y.toarray(), cv=2, return_estimator=True, n_jobs=2)
    assert all(one.tree_.n_labels == world.Y.shape[1] for one in done["estimator"])


def test_parameters_from_numpy(world: World, tmp_path: Path) -> None:
    model = carya.XRLinear(
        seed=np.int64(3),
        max_leaf=np.int64(5),
        cost=np.float32(1),
        balanced=np.True_,
        loss=np.str_("logistic"),
        n_jobs=np.int64(-1),
        negatives=[np.str_("teacher"), "both"],
    ).fit(world.X, world.Y)
    model.save(tmp_path / "model")
    assert carya.load(tmp_path / "model").max_leaf == 5
    assert "alpha" in repr(carya.XRLinear(alpha=np.full(4, 0.5)))


def test_propensity_scorer(model: carya.XRLinear, world: World) -> None:
    score = carya.metrics.scorer("PSP@3", propensity=carya.metrics.propensities(world.Y))
    assert 0.2 < score(model, world.X, world.Y) <= 1


def test_repr_shows_what_is_not_default() -> None:
    assert repr(carya.XRLinear()) == "XRLinear()"
    assert repr(carya.XRLinear(seed=3, negatives="both")) == "XRLinear(negatives='both', seed=3)"
