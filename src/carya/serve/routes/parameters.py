"""Path and query parameters, with methods for parsing them and for describing them in the OpenAPI document."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from carya.serve.http.errors import BadRequestError
from carya.serve.settings import ServerSettings

_MAX_ECHO = 100  # characters; longer values are truncated in error messages


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A string parameter.

    Attributes
    ----------
    name, description : str
    location : {"query", "path"}
    required : bool
    """

    name: str
    description: str
    location: str = "query"
    required: bool = False

    def schema(self, settings: ServerSettings) -> dict[str, Any]:
        """Return the JSON schema for the values."""
        return {"type": "string"}

    def describe(self, settings: ServerSettings) -> dict[str, Any]:
        """Return the parameter object for the OpenAPI document."""
        return {
            "name": self.name,
            "in": self.location,
            "required": self.required,
            "schema": self.schema(settings),
            "description": self.description,
        }


@dataclass(frozen=True, kw_only=True)
class IntegerParameter(Parameter):
    """An integer in a closed range.

    Attributes
    ----------
    default, minimum : int
    maximum : int or str
        The maximum, or the name of the setting that contains it.
    """

    default: int
    minimum: int
    maximum: int | str

    def schema(self, settings: ServerSettings) -> dict[str, Any]:
        """Return the JSON schema for the values."""
        bounds = {"minimum": self.minimum, "maximum": self._maximum(settings)}
        return {"type": "integer", **bounds, "default": self.default}

    def parse(self, values: Mapping[str, str], settings: ServerSettings) -> int:
        """Parse the value from a query or form; raise BadRequestError if it is invalid."""
        value = values.get(self.name)
        if value is None:
            return self.default
        maximum = self._maximum(settings)
        is_number = value.isascii() and value.isdigit() and len(value) < 19
        if not is_number or not self.minimum <= int(value) <= maximum:
            raise BadRequestError(
                f"{self.name} must be an integer between {self.minimum} and {maximum}, got {value[:_MAX_ECHO]!r}."
            )
        return int(value)

    def _maximum(self, settings: ServerSettings) -> int:
        return getattr(settings, self.maximum) if isinstance(self.maximum, str) else self.maximum


@dataclass(frozen=True, kw_only=True)
class FractionParameter(Parameter):
    """A number between 0 and 1; 0 by default."""

    def schema(self, settings: ServerSettings) -> dict[str, Any]:
        """Return the JSON schema for the values."""
        return {"type": "number", "minimum": 0, "maximum": 1, "default": 0}

    def parse(self, values: Mapping[str, str]) -> float:
        """Parse the value from a query or form; raise BadRequestError if it is invalid."""
        text = values.get(self.name, "0")
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0.0 <= value <= 1.0:
            raise BadRequestError(f"{self.name} must be a number between 0 and 1, got {text[:_MAX_ECHO]!r}.")
        return value


@dataclass(frozen=True, kw_only=True)
class ChoiceParameter(Parameter):
    """One of several strings; the first by default.

    Attributes
    ----------
    choices : tuple of str
    """

    choices: tuple[str, ...]

    def schema(self, settings: ServerSettings) -> dict[str, Any]:
        """Return the JSON schema for the values."""
        return {"type": "string", "enum": list(self.choices), "default": self.choices[0]}

    def parse(self, values: Mapping[str, str]) -> str:
        """Parse the value from a query; raise BadRequestError if it is invalid."""
        value = values.get(self.name, self.choices[0])
        if value not in self.choices:
            raise BadRequestError(f"{self.name} must be one of {', '.join(self.choices)}, got {value[:_MAX_ECHO]!r}.")
        return value


@dataclass(frozen=True, kw_only=True)
class NumberParameter(Parameter):
    """A finite number, or None if it is omitted."""

    def schema(self, settings: ServerSettings) -> dict[str, Any]:
        """Return the JSON schema for the values."""
        return {"type": "number"}

    def parse(self, values: Mapping[str, str]) -> float | None:
        """Parse the value from a query or form; raise BadRequestError if it is invalid."""
        text = values.get(self.name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise BadRequestError(f"{self.name} must be a finite number, got {text[:_MAX_ECHO]!r}.")
        return value


@dataclass(frozen=True, kw_only=True)
class LanguageParameter(Parameter):
    """A language code; one of the languages of the vocabulary."""

    def parse(self, values: Mapping[str, str], languages: Sequence[str]) -> str:
        """Return the language, by default the first one; raise BadRequestError if it is not supported."""
        language = values.get(self.name) or languages[0]
        if language not in languages:
            raise BadRequestError(
                f"language {language[:20]!r} is not supported by the vocabulary. Use {', '.join(languages)}."
            )
        return language


#: The query parameter that selects the model.
MODEL = Parameter(name="model", description="Name of the model; the default model if omitted.")
