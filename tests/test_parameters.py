"""Tests for estimator parameters: names, rules, settings, signatures, and optional packages."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import carya
from carya.core.extras import require
from carya.core.parameters import read_settings
from carya.core.rules import Choice, Either, Integer, check
from carya.errors import MissingExtraError, ParameterError, UnknownParameterError
from carya.models.registry import kind_of
from carya.ranking import LinearSolver


@pytest.mark.parametrize("cls", [carya.XRLinear, carya.Tfidf, carya.Ensemble, carya.TextRanker, carya.XRTransformer])
def test_signatures_show_all_parameters(cls: Any) -> None:
    assert list(inspect.signature(cls).parameters) == cls.parameter_names()
    assert inspect.signature(carya.XRLinear).parameters["beam_width"].default == 10


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"beam_width__x": 1}, r"XRLinear has no parameter 'beam_width__x'\. Did you mean 'beam_width'\?"),
        ({"foo__x": 1}, r"XRLinear has no parameter 'foo__x'\.$"),
        ({"precision": "int8"}, r"XRLinear has no parameter 'precision'\. Use weight_dtype\."),
        ({"tolerance": 0.1}, r"XRLinear has no parameter 'tolerance'\. Use tol\."),
        ({"cost": 1.0}, r"XRLinear has no parameter 'cost'\. Use C\."),
    ],
)
def test_unknown_names_are_quoted_as_written(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownParameterError, match=message):
        carya.XRLinear(**parameters)


def test_only_set_params_accepts_nested_names() -> None:
    ranker = carya.TextRanker(model=carya.XRLinear())
    assert ranker.set_params(model__random_state=3).model.seed == 3  # type: ignore[union-attr]
    with pytest.raises(UnknownParameterError, match="has no parameter 'model__seed'"):
        carya.TextRanker(model__seed=3)  # type: ignore[call-arg]
    with pytest.raises(UnknownParameterError, match=r"model is None, which has no parameter 'seed'"):
        carya.TextRanker().set_params(model__seed=3)


def test_a_parameter_and_its_alias_are_both_named() -> None:
    for names in ({"seed": 1, "random_state": 2}, {"random_state": 1, "seed": 2}):
        first, second = names
        with pytest.raises(ParameterError, match=f"{first} and {second} are the same parameter"):
            carya.XRLinear(**names)  # type: ignore[arg-type]


def test_aliases_apply_to_all_parts_of_a_preset() -> None:
    model = carya.preset("accurate", random_state=7)
    assert (model.seed, model.base.members.seed) == (7, 7)
    assert carya.preset("slice", random_state=7).seed == 7


def test_the_error_for_a_large_integer_states_the_limit() -> None:
    for rule in (Integer(1), Either(Integer(1), Choice(None))):
        with pytest.raises(ParameterError, match=r"^n must be an integer between 1 and 2147483647( or None)?, got 2"):
            check("n", 2**31, rule)
        with pytest.raises(ParameterError, match=r"^n must be an integer >= 1( or None)?, got 0\.$"):
            check("n", 0, rule)


def test_settings_are_read_from_parameters_of_the_same_names() -> None:
    model = carya.XRLinear(C=np.float32(2), max_iter=np.int64(3))  # type: ignore[arg-type]
    solver = read_settings(LinearSolver, model, use_target_costs=True)
    assert (solver.C, solver.max_iter, solver.use_target_costs) == (2.0, 3, True)
    assert type(solver.C) is float
    assert type(solver.max_iter) is int


def test_the_kind_of_a_subclass_is_that_of_its_base() -> None:
    class Subclass(carya.XRLinear):
        """A user-defined model."""

    assert kind_of(Subclass()) == kind_of(carya.XRLinear()) == "xr-linear"
    assert kind_of(carya.Ensemble()) == "ensemble"


def test_broken_packages_are_not_reported_as_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_package.py").write_text("raise ImportError('libbroken.so.2: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    message = r"^Training requires broken_package, which cannot be imported: libbroken\.so\.2.* Repair its installation"
    with pytest.raises(MissingExtraError, match=message) as caught:
        require("broken_package", extra="ann", purpose="Training")
    assert isinstance(caught.value.__cause__, ImportError)
    assert "pip install" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "broken_package", None)
    with pytest.raises(MissingExtraError, match=r"^Training requires broken_package\. Install it with: pip install"):
        require("broken_package", extra="ann", purpose="Training")
