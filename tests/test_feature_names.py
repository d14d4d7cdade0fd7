"""Tests for `feature_names_in_`: `fit` stores the column names of data frames, and `predict` checks them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

import carya
from carya.core import storage
from carya.errors import InputError, ModelFormatError
from carya.ranking import NeuralRanker

from matrix_helpers import same_matrix

_TREE = carya.XRLinear(max_leaf_size=5, branching=2, n_jobs=1)
_MODELS: dict[str, Any] = {
    "XRLinear": _TREE,
    "NearestNeighbors": carya.NearestNeighbors(n_neighbors=5, search="exact", n_jobs=1),
    "Ensemble": carya.Ensemble(_TREE, n_trees=2, n_jobs=1),
    "mixed Ensemble": carya.Ensemble([_TREE, carya.NearestNeighbors(over="rows", search="exact")], combine="rank"),
    "Reranked": carya.Reranked(_TREE, NeuralRanker(epochs=2), n_jobs=1),
}


def data(rows: int = 120) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return dense features, labels, and feature names."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 8)).astype(np.float32)
    Y = (X @ rng.standard_normal((8, 12)) > 1.5).astype(np.float32)
    return X, Y, [f"feature {letter}" for letter in "abcdefgh"]


def frame(library: str, X: np.ndarray, names: list[Any]) -> Any:
    """Return a data frame from the given library."""
    package = pytest.importorskip(library)
    return package.DataFrame(X, columns=names) if library == "pandas" else package.DataFrame(X, schema=names)


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("name", _MODELS)
def test_columns_are_stored_and_checked(name: str, library: str, tmp_path: Path) -> None:
    X, Y, names = data()
    model = _MODELS[name].clone().fit(frame(library, X, names), Y)
    expected = _MODELS[name].clone().fit(X, Y).predict(X[:20])
    model.save(tmp_path / "model")
    for fitted in (model, carya.load(tmp_path / "model"), copy.deepcopy(model)):
        assert fitted.feature_names_in_.tolist() == names
        assert fitted.feature_names_in_.dtype == object
        assert fitted.n_features_in_ == 8
        assert same_matrix(fitted.predict(frame(library, X[:20], names)), expected)
        assert same_matrix(fitted.predict(X[:20]), expected)
        assert fitted.rank(frame(library, X[:1], names))[0].size
        swapped, renamed = [names[1], names[0], *names[2:]], [*names[:7], "other"]
        for method in (fitted.predict, fitted.rank):
            with pytest.raises(
                InputError, match=r"but in a different order: column 0 is 'feature b', but was 'feature a' in training"
            ):
                method(frame(library, X[:1, [1, 0, *range(2, 8)]], swapped))
            with pytest.raises(InputError, match="has the column 'other', which the model was not trained on"):
                method(frame(library, X[:1], renamed))
            with pytest.raises(InputError, match="lacks the column 'feature h', which the model was trained on"):
                method(frame(library, X[:1, :7], names[:7]))


def test_models_without_names_accept_frames() -> None:
    pandas = pytest.importorskip("pandas")
    X, Y, names = data()
    model = _TREE.clone().fit(pandas.DataFrame(X), Y)
    assert not hasattr(model, "feature_names_in_")
    assert same_matrix(model.predict(pandas.DataFrame(X, columns=names)), model.predict(X))
    model.fit(pandas.DataFrame(X, columns=names), Y)
    assert hasattr(model, "feature_names_in_")
    model.fit(X, Y)  # fitting without feature names removes the stored names
    assert not hasattr(model, "feature_names_in_")
    with pytest.raises(InputError, match="has both string column names and non-string ones, such as 3"):
        model.fit(pandas.DataFrame(X, columns=[*names[:3], 3, *names[4:]]), Y)


def test_members_with_frames_of_their_own(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    X, Y, names = data()
    frames = [pandas.DataFrame(X, columns=names), pandas.DataFrame(X[:, ::-1], columns=names[::-1])]
    ensemble = carya.Ensemble([_TREE, _TREE]).fit(frames, Y)
    assert not hasattr(ensemble, "feature_names_in_")
    ensemble.save(tmp_path / "model")
    opened = carya.load(tmp_path / "model")
    assert [member.feature_names_in_.tolist() for member in opened.members_] == [names, names[::-1]]
    assert same_matrix(opened.predict(frames), ensemble.predict(frames))
    with pytest.raises(InputError, match="but in a different order: column 0 is 'feature a', but was 'feature h'"):
        opened.predict(frames[0])


def test_other_copies_of_a_model_keep_the_names() -> None:
    pandas = pytest.importorskip("pandas")
    X, Y, names = data()
    model = _TREE.clone().fit(pandas.DataFrame(X, columns=names), Y)
    assert model.with_weight_dtype("float32").feature_names_in_.tolist() == names
    assert model.to_saved(weight_dtype="float16").shape["feature_names"] == names
    with pytest.raises(InputError, match="in a different order"):
        model.predict_selected(pandas.DataFrame(X, columns=names)[names[::-1]], Y)
    with pytest.raises(InputError, match="in a different order"):
        model.explain(pandas.DataFrame(X, columns=names)[names[::-1]][:1], 0)


def test_cross_validation_with_frames() -> None:
    pandas = pytest.importorskip("pandas")
    X, Y, names = data()
    assert cross_val_score(_TREE, pandas.DataFrame(X, columns=names), Y, cv=2, error_score="raise").min() > 0.2


@pytest.mark.parametrize("names", [["a"], "abcdefgh", [1] * 8, {"a": 1}])
def test_forged_names_are_refused(names: Any, tmp_path: Path) -> None:
    X, Y, _ = data()
    _TREE.clone().fit(X, Y).save(tmp_path / "model")
    saved = storage.load(tmp_path / "model")
    saved.shape["feature_names"] = names
    storage.save(tmp_path / "forged", saved)
    with pytest.raises(ModelFormatError, match="feature"):
        carya.load(tmp_path / "forged")
