"""Tests for upgrading saved models with former names; test_golden_models.py loads models from earlier versions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import carya
from carya.core import storage
from carya.data import SyntheticData
from carya.errors import ModelFormatError
from carya.ranking import AveragedRanker, NeuralRanker, Pairs, register
from carya.upgrade import upgrade

GOLDEN = Path(__file__).parent / "golden" / "model-kinds"


@register
class OpaqueRanker:
    """User-defined ranker whose settings have the same names as those of built-in rankers, but different meanings."""

    name: ClassVar[str] = "opaque"

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def fit(self, pairs: Pairs, relevance: np.ndarray) -> OpaqueRanker:
        return self

    def score(self, pairs: Pairs) -> np.ndarray:
        return pairs.values[:, 0]

    def to_saved(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.settings, {"centre": np.zeros(1, np.float32)}

    @classmethod
    def from_saved(cls, parameters: dict[str, Any], arrays: dict[str, Any]) -> OpaqueRanker:
        assert list(arrays) == ["centre"]
        return cls(**parameters)


@pytest.mark.parametrize(
    "settings",
    [
        {"names": 3},
        {"names": ["features", "text.x"]},
        {"names": {"a": 1}},
        {"rankers": 5},
        {"parameters": {"width": 1}},
    ],
)
@pytest.mark.parametrize("averaged", [False, True])
def test_the_settings_of_user_defined_rankers_are_not_changed(
    world: SyntheticData, settings: dict[str, Any], averaged: bool, tmp_path: Path
) -> None:
    ranker: Any = OpaqueRanker(**settings)
    if averaged:
        ranker = AveragedRanker([NeuralRanker(epochs=1), ranker])
    tree = carya.XRLinear(branching=4, max_leaf_size=8)
    carya.Reranked(tree, ranker).fit(world.X, world.Y).save(tmp_path / "model")
    opened = carya.load(tmp_path / "model").ranker_
    assert (opened.rankers_[1] if averaged else opened).settings == settings


@pytest.mark.parametrize("kind", ["xr-linear", "text"])
def test_a_former_name_next_to_the_current_one_is_rejected(world: SyntheticData, kind: str, tmp_path: Path) -> None:
    model: Any = carya.XRLinear().fit(world.X, world.Y)
    if kind == "text":
        model = carya.TextRanker(carya.Tfidf(min_df=1)).fit(["a cat", "a dog"], [["pet"], ["barks"]])
    model.save(tmp_path / "model")
    saved = storage.load(tmp_path / "model")
    (saved.parameters if kind == "xr-linear" else saved.parameters["model"])["cost"] = 2.0
    storage.save(tmp_path / "forged", saved)
    with pytest.raises(ModelFormatError, match="Both C and one of its former names are present"):
        carya.load(tmp_path / "forged")


@pytest.mark.parametrize("path", sorted(path for path in GOLDEN.iterdir() if path.is_dir()), ids=lambda path: path.name)
def test_an_upgraded_model_is_not_changed_again(path: Path) -> None:
    saved = storage.load(path)
    once = upgrade(saved)
    twice = upgrade(once)
    assert (twice.kind, twice.parameters, twice.shape) == (once.kind, once.parameters, once.shape)
    assert list(twice.arrays) == list(once.arrays)
    assert len(once.arrays) == len(saved.arrays)


def test_unknown_kinds_are_not_changed() -> None:
    saved = storage.SavedModel("toy", {"cost": 1}, {}, {"near/a": np.zeros(1, np.float32)})
    assert upgrade(saved) is saved


@pytest.mark.parametrize("kind", ["ensemble", "reranked", "text-ranker", "xr-transformer"])
def test_incomplete_models_are_rejected(kind: str) -> None:
    with pytest.raises(ModelFormatError, match=r"The parts of the model are inconsistent: '\w+' is missing"):
        upgrade(storage.SavedModel(kind, {}, {}, {}))


@pytest.mark.parametrize("model_kind", [["a"], {"a": 1}, 5, None])
def test_model_kinds_that_are_not_strings_are_rejected(model_kind: Any, tmp_path: Path) -> None:
    carya.TextRanker(carya.Tfidf(min_df=1)).fit(["a cat", "a dog"], [["pet"], ["barks"]]).save(tmp_path / "model")
    saved = storage.load(tmp_path / "model")
    storage.save(tmp_path / "forged", replace(saved, parameters=saved.parameters | {"model_kind": model_kind}))
    with pytest.raises(ModelFormatError, match="Unknown model kind"):
        carya.load(tmp_path / "forged")
