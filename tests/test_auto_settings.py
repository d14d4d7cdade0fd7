"""Tests for transform="auto" and C="auto", and for solver settings that differ between layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import carya
from carya.data import SyntheticData
from carya.errors import ParameterError

from command_line import run
from matrix_helpers import same_arrays

_SMALL: dict[str, Any] = {"branching": 4, "max_leaf_size": 8, "n_jobs": 1}


def arrays_of(model: Any, level: int | None = None) -> list[np.ndarray]:
    """Return the saved arrays of a model, or of one of its layers."""
    arrays = model.to_saved().arrays
    return [array for name, array in arrays.items() if level is None or name.startswith(f"{level}.")]


def _setting(name: str, value: Any) -> dict[str, Any]:
    return {name: value}


def manifest(path: Path) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    return parsed


def test_the_default_is_what_it_was(world: SyntheticData, tmp_path: Path) -> None:
    """With the default loss and negatives, automatic settings produce the same files as the former defaults."""
    auto = carya.XRLinear(**_SMALL).fit(world.X, world.Y)
    explicit = carya.XRLinear(C=1.0, transform=("l3-hinge", "l4-hinge"), **_SMALL).fit(world.X, world.Y)
    auto.save(tmp_path / "auto")
    explicit.save(tmp_path / "explicit")
    for file in ("manifest.json", "arrays.bin"):
        assert (tmp_path / "auto" / file).read_bytes() == (tmp_path / "explicit" / file).read_bytes()
    assert auto.transform_ == ("l3-hinge",) * (len(auto.layers_) - 1) + ("l4-hinge",)
    assert auto.C_ == 1.0
    assert (auto.C, auto.transform) == ("auto", "auto")


@pytest.mark.parametrize(
    ("parameters", "C", "transforms"),
    [
        ({"negatives": "teacher"}, 1.0, ("l4-hinge", "l4-hinge")),
        ({"negatives": ("matcher", "teacher")}, 1.0, ("l4-hinge", "l4-hinge")),
        ({"negatives": "both"}, 1.0, ("l3-hinge", "l4-hinge")),
        ({"negatives": "matcher"}, 1.0, ("l3-hinge", "l4-hinge")),
        ({"loss": "logistic"}, 64.0, ("l2-hinge", "l2-hinge")),
        ({"loss": "logistic", "negatives": "teacher"}, 64.0, ("sigmoid", "sigmoid")),
        ({"loss": "hinge"}, 2.0, ("l3-hinge", "l4-hinge")),
        ({"penalty": "l1"}, 8.0, ("l3-hinge", "l4-hinge")),
        ({"loss": "logistic", "penalty": "l1"}, 32.0, ("l2-hinge", "l2-hinge")),
        ({"loss": "logistic", "C": 3.0, "transform": "noop"}, 3.0, ("noop", "noop")),
    ],
)
def test_auto_suits_the_loss_and_the_negatives(
    parameters: dict[str, Any], C: float, transforms: tuple[str, str], world: SyntheticData, tmp_path: Path
) -> None:
    X, Y = world.X[:300], world.Y[:300]
    model = carya.XRLinear(**_SMALL, **parameters).fit(X, Y)
    assert model.C_ == C
    assert (model.transform_[0], model.transform_[-1]) == transforms
    explicit = carya.XRLinear(**_SMALL, **(parameters | {"C": C, "transform": transforms})).fit(X, Y)
    assert same_arrays(arrays_of(model), arrays_of(explicit))
    model.save(tmp_path / "model")
    assert manifest(tmp_path / "model")["parameters"]["C"] == C
    loaded = carya.load(tmp_path / "model")
    assert (loaded.C_, loaded.transform_) == (C, model.transform_)


def test_one_versus_rest(world: SyntheticData) -> None:
    model = carya.XRLinear(max_depth=1, negatives="teacher", n_jobs=1).fit(world.X, world.Y)
    assert model.transform_ == ("l4-hinge",)


def test_auto_in_nearest_neighbors(world: SyntheticData, tmp_path: Path) -> None:
    X, Y = world.X[:300], world.Y[:300]
    for over in ("labels", "rows"):
        settings: dict[str, Any] = {"over": over, "n_neighbors": 20, "similarity_weight": 0.5, "n_jobs": 1}
        default = carya.NearestNeighbors(**settings).fit(X, Y)
        explicit = carya.NearestNeighbors(**settings, C=1.0, transform="l3-hinge").fit(X, Y)
        assert same_arrays(arrays_of(default), arrays_of(explicit))
        assert default.to_saved().parameters == explicit.to_saved().parameters
        assert (default.C_, default.transform_) == (1.0, "l3-hinge")
        logistic = carya.NearestNeighbors(**settings, loss="logistic").fit(X, Y)
        assert (logistic.C_, logistic.transform_) == (64.0, "sigmoid")
        logistic.save(tmp_path / over)
        assert carya.load(tmp_path / over).transform == "sigmoid"
    assert carya.NearestNeighbors(ranker=None, n_neighbors=5).fit(X, Y).transform_ is None


def test_invalid_values() -> None:
    X, Y = carya.data.make_world(50, 5, seed=0)
    for parameters, message in (
        ({"C": "automatic"}, "C must be 'auto' or a number > 0"),
        ({"C": ("auto", 1.0)}, "C must be 'auto' or a number > 0"),
        ({"transform": ("auto", "noop")}, "transform must be 'auto' or 'noop'"),
        ({"threshold": (0.1, -1)}, "threshold must be a number >= 0; a pair of values"),
        ({"max_iter": (1, 0)}, "max_iter must be an integer >= 1; a pair of values"),
    ):
        for model in (carya.XRLinear, carya.NearestNeighbors):
            if model is carya.NearestNeighbors and not isinstance(next(iter(parameters.values())), str):
                continue
            with pytest.raises(ParameterError, match=message):
                model(**parameters).fit(X, Y)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("C", (0.01, 1.0)),
        ("tol", (0.5, 0.0001)),
        ("max_iter", (1, 20)),
        ("threshold", (0.5, 0.01)),
        ("max_weights", (3, None)),
    ],
)
def test_settings_per_layer(name: str, values: tuple[Any, Any], world: SyntheticData) -> None:
    """With a pair of values, each layer equals that of a model trained with the corresponding single value."""
    settings: dict[str, Any] = {**_SMALL, "negatives": "teacher"}  # layers are trained independently
    both = carya.XRLinear(**settings, **_setting(name, values)).fit(world.X, world.Y)
    inner, last = (
        carya.XRLinear(**settings, **_setting(name, value), tree=both.tree_).fit(world.X, world.Y) for value in values
    )
    depth = len(both.layers_)
    assert depth > 2
    for level in range(1, depth + 1):
        models = (both, last if level == depth else inner, inner if level == depth else last)
        own, same, other = (arrays_of(model, level) for model in models)
        assert same_arrays(own, same)
        assert not same_arrays(own, other)
    per_layer = (*(values[0] for _ in range(depth - 1)), values[1])
    listed = carya.XRLinear(**settings, **_setting(name, list(per_layer))).fit(world.X, world.Y)
    assert same_arrays(arrays_of(listed), arrays_of(both))
    with pytest.raises(ParameterError, match=rf"{name} has 7 values, but the tree has {depth} layers"):
        carya.XRLinear(**settings, **_setting(name, [values[1]] * 7)).fit(world.X, world.Y)


def test_settings_per_layer_in_ensembles_and_saved_models(world: SyntheticData, tmp_path: Path) -> None:
    numpy_values: Any = (5, np.int64(9))
    tree = carya.XRLinear(**_SMALL, threshold=[0.3, 0.05], C=(2.0, 1.0), max_iter=numpy_values)
    ensemble = carya.Ensemble(tree, n_trees=2, n_jobs=1).fit(world.X, world.Y)
    single = tree.clone(training_beam_width=8).fit(world.X, world.Y)
    assert same_arrays(arrays_of(ensemble.members_[0]), arrays_of(single))
    ensemble.save(tmp_path / "model")
    member = carya.load(tmp_path / "model").members_[1]
    assert (member.threshold, member.C_, member.max_iter) == ((0.3, 0.05), (2.0, 1.0), (5, 9))
    assert member.clone().fit(world.X, world.Y).C_ == (2.0, 1.0)


def test_command_line(tmp_path: Path) -> None:
    rows = [{"text": f"word{number % 7} thing{number % 3}", "labels": [f"l{number % 7}"]} for number in range(80)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    train = ["train", str(tmp_path / "train.jsonl"), "-o", str(tmp_path / "model"), "--loss", "logistic"]
    result = run(*train, "--C", "auto", "--threshold", "0.2,0.05", "--max-leaf-size", "2", "--branching", "2")
    assert result.returncode == 0, result.stderr
    inspected = json.loads(run("inspect", str(tmp_path / "model"), "--json").stdout)
    assert inspected["parameters"]["C"] == 64.0
    assert inspected["parameters"]["threshold"] == [0.2, 0.05]
    assert {layer["transform"] for layer in inspected["layers"]} == {"l2-hinge"}
    assert "C=64.0" in run("inspect", str(tmp_path / "model")).stdout
