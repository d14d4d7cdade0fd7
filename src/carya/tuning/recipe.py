"""Recipes: files that store a model's settings, so that training can be reproduced."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from carya.core.atomic import atomic_file
from carya.core.parameters import Parameterized, from_json, set_in_all, to_json
from carya.errors import InputError, ParameterError
from carya.models.interface import Model
from carya.text.text_ranker import TextRanker
from carya.version import __version__

#: The classes that a recipe can contain, and their modules.
_CLASSES = {
    "AveragedRanker": "carya.ranking.averaged",
    "BoostedRanker": "carya.ranking.boosted",
    "Ensemble": "carya.models.ensemble.model",
    "NearestNeighbors": "carya.models.neighbors.model",
    "NeuralRanker": "carya.ranking.neural",
    "Reranked": "carya.models.reranked.model",
    "TextRanker": "carya.text.text_ranker",
    "Tfidf": "carya.text.tfidf",
    "XRLinear": "carya.models.xr_linear.model",
}
#: Parameters that depend on the machine and do not change the trained model.
_NOT_STORED = frozenset({"n_jobs", "verbose", "checkpoint_dir", "memory"})
_FORMAT = "carya-recipe"
_VERSION = 1
_MAX_BYTES = 1 << 20
_MAX_DEPTH = 8


@dataclass(frozen=True, eq=False)
class Recipe:
    """All settings of an unfitted model, and the results measured with these settings.

    A recipe stores every parameter that affects the trained model, including defaults, so it describes the same model
    in later versions of Carya.

    Attributes
    ----------
    estimator : TextRanker, XRLinear, NearestNeighbors, Ensemble or Reranked
        The unfitted model.
    measured : mapping
        The results on held-out rows, such as ``{"P@1": 0.41}``.

    Examples
    --------
    >>> import carya
    >>> recipe = carya.Recipe(carya.TextRanker(carya.Tfidf(min_df=1), carya.XRLinear(C=0.5)))
    >>> copy = carya.Recipe.from_dict(recipe.to_dict())
    >>> copy.build()
    TextRanker(vectorizer=Tfidf(min_df=1), model=XRLinear(C=0.5))
    """

    estimator: Any
    measured: Mapping[str, Any] = field(default_factory=dict)

    def build(self, **shared: Any) -> Any:
        """Return an unfitted copy of the model; `shared` parameters, such as n_jobs, are also set in its components."""
        estimator = _to_estimator(_to_description(self.estimator))
        set_in_all(estimator, **shared)
        return estimator

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as a JSON-serializable dictionary."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "carya": __version__,
            "model": _to_description(self.estimator),
            "measured": to_json(dict(self.measured)),
        }

    @classmethod
    def from_dict(cls, content: Any, source: str = "The recipe") -> Self:
        """Create a recipe from the result of :meth:`to_dict`, and check all parameters."""
        if not isinstance(content, Mapping) or content.get("format") != _FORMAT:
            raise InputError(f"{source} is not a recipe. Pass a file written by `carya tune` or carya.Recipe.save.")
        if content.get("version") != _VERSION:
            raise InputError(
                f"{source} has version {content.get('version')!r}, but this version of Carya reads version {_VERSION}. "
                "Use the version of Carya that wrote the recipe, or run `carya tune` again."
            )
        try:
            estimator = _to_estimator(content.get("model"))
            if not isinstance(estimator, (TextRanker, Model)):
                raise InputError(f"The model must be a ranker, got {type(estimator).__name__}.")
            estimator.check_parameters()
        except (ParameterError, InputError) as error:
            raise InputError(f"{source}: {error}") from None
        measured = content.get("measured")
        return cls(estimator, dict(measured) if isinstance(measured, Mapping) else {})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the recipe to a JSON file; an existing file is replaced atomically."""
        with atomic_file(Path(path)) as file:
            file.write((json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a recipe from a JSON file."""
        try:
            with Path(path).open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}.") from None
        if len(data) > _MAX_BYTES:
            raise InputError(f"{path} is not a recipe: it has more than {_MAX_BYTES:,} bytes.")
        try:
            content = json.loads(data)
        except (ValueError, RecursionError):
            raise InputError(f"{path} is not a recipe: it is not valid JSON.") from None
        return cls.from_dict(content, str(path))


def _to_description(value: Any) -> Any:
    """Convert an estimator, or a parameter value that may contain estimators, to JSON-serializable values."""
    if isinstance(value, Parameterized):
        name = type(value).__name__
        if name not in _CLASSES:
            raise InputError(f"A recipe cannot contain {name}. Supported classes: {', '.join(sorted(_CLASSES))}.")
        if getattr(value, "tree", None) is not None:
            raise InputError("A recipe cannot contain a label tree. Omit the tree parameter.")
        parameters = {
            field.name: _to_description(getattr(value, field.name))
            for field in value.parameters()
            if field.name not in _NOT_STORED and field.name != "tree"
        }
        return {"class": name, "parameters": parameters}
    if isinstance(value, (list, tuple)):
        return [_to_description(item) for item in value]
    converted = to_json(value)
    if converted is not None and not isinstance(converted, (bool, int, float, str, list)):
        raise InputError(f"A recipe cannot contain {type(value).__name__}. Use Carya's own classes and plain values.")
    return converted


def _to_estimator(description: Any, depth: int = 0) -> Any:
    """Create an unfitted estimator from its description."""
    if not isinstance(description, Mapping) or not isinstance(description.get("parameters"), Mapping):
        raise InputError(f"A model must have a class and parameters, got {description!r:.80}.")
    name = description.get("class")
    if depth > _MAX_DEPTH:
        raise InputError(f"Models can be nested at most {_MAX_DEPTH} levels deep.")
    if not isinstance(name, str) or name not in _CLASSES:
        raise InputError(f"Unknown class {name!r:.80}. Supported classes: {', '.join(sorted(_CLASSES))}.")
    parameters = {key: _to_value(value, depth) for key, value in description["parameters"].items()}
    return getattr(importlib.import_module(_CLASSES[name]), name)(**parameters)


def _to_value(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        return _to_estimator(value, depth + 1)
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        return [_to_estimator(item, depth + 1) for item in value]
    return from_json(value)
