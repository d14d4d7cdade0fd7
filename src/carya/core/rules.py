"""Validation rules for estimator parameters.

The `text` of a rule completes the sentence "beam_width must be …" in error messages and on the parameter page.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

from carya.errors import ParameterError

#: The largest integer that the kernels accept.
MAX_INT = 2**31 - 1


class Rule:
    """Base class for all rules."""

    text: str

    def allows(self, value: object) -> bool:
        """Return whether the value is valid."""
        raise NotImplementedError

    def describe(self, value: object) -> str:
        """Describe the rule, for an error message about an invalid value."""
        return self.text


def check(name: str, value: object, rule: Rule) -> None:
    """Raise ParameterError if a value violates a rule.

    >>> check("beam_width", 0, Integer(1))
    Traceback (most recent call last):
    carya.errors.ParameterError: beam_width must be an integer >= 1, got 0.
    """
    if not rule.allows(value):
        raise ParameterError(f"{name} must be {rule.describe(value)}, got {value!r}.")


@dataclasses.dataclass(frozen=True)
class Integer(Rule):
    """An integer in a closed range.

    >>> Integer(1).text, Integer(1, 100).text
    ('an integer >= 1', 'an integer between 1 and 100')
    """

    low: int
    high: int = MAX_INT

    @property
    def text(self) -> str:  # type: ignore[override]
        """The description of the rule; it omits the upper limit if only the integer type imposes one."""
        if self.high >= MAX_INT:
            return f"an integer >= {self.low}"
        return f"an integer between {self.low} and {self.high}"

    def allows(self, value: object) -> bool:
        """Return whether the value is an integer in the range."""
        return (
            isinstance(value, numbers.Integral) and not isinstance(value, bool) and self.low <= int(value) <= self.high
        )

    def describe(self, value: object) -> str:
        """Describe the rule, including the upper limit if the value exceeds it."""
        if isinstance(value, numbers.Integral) and int(value) > self.high:
            return f"an integer between {self.low} and {self.high}"
        return self.text


@dataclasses.dataclass(frozen=True)
class Real(Rule):
    """A finite number in a range; `open_low` excludes the lower bound.

    >>> Real(0).text, Real(0, 1).text, Real(0, 0.9, open_low=True).text
    ('a number >= 0', 'a number between 0 and 1', 'a number > 0 and <= 0.9')
    """

    low: float
    high: float = math.inf
    open_low: bool = False

    @property
    def text(self) -> str:  # type: ignore[override]
        """The description of the rule."""
        if math.isinf(self.high):
            return f"a number {'>' if self.open_low else '>='} {self.low:g}"
        if self.open_low:
            return f"a number > {self.low:g} and <= {self.high:g}"
        return f"a number between {self.low:g} and {self.high:g}"

    def allows(self, value: object) -> bool:
        """Return whether the value is a finite number in the range."""
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            return False
        try:
            number = float(value)
        except OverflowError:  # an integer that exceeds the range of floats
            return False
        above = number > self.low if self.open_low else number >= self.low
        return math.isfinite(number) and above and number <= self.high


class Choice(Rule):
    """One of a fixed set of values."""

    def __init__(self, *values: object) -> None:
        self.values = values
        names = [repr(value) for value in values]
        self.text = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"

    def allows(self, value: object) -> bool:
        """Return whether the value is one of the choices; NumPy scalars are treated as Python scalars."""
        scalar = to_python_scalar(value)
        return any(type(scalar) is type(choice) and scalar == choice for choice in self.values)


class Either(Rule):
    """A value that satisfies at least one of several rules."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules
        self.text = " or ".join(rule.text for rule in rules)

    def allows(self, value: object) -> bool:
        """Return whether any of the rules allows the value."""
        return any(rule.allows(value) for rule in self.rules)

    def describe(self, value: object) -> str:
        """Describe all rules, joined with "or"."""
        return " or ".join(rule.describe(value) for rule in self.rules)


class Instance(Rule):
    """An instance of a class, or of one of several classes."""

    def __init__(self, kind: type | tuple[type, ...], text: str) -> None:
        self.kind = kind
        self.text = text

    def allows(self, value: object) -> bool:
        """Return whether the value is an instance of the class."""
        return isinstance(value, self.kind) and not isinstance(value, type)


class Parsed(Rule):
    """A string that a parsing function accepts; the function raises ParameterError for invalid strings."""

    def __init__(self, parse: Callable[[str], object], text: str) -> None:
        self.parse = parse
        self.text = text

    def allows(self, value: object) -> bool:
        """Return whether the value is a string that the parsing function accepts."""
        if not isinstance(value, str):
            return False
        try:
            self.parse(value)
        except ParameterError:
            return False
        return True


class PerLayer(Rule):
    """One value for all layers, a pair (inner layers, last layer), or one value per layer."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.text = f"{rule.text}; a pair of values for the inner layers and the last layer; or one value per layer"

    def allows(self, value: object) -> bool:
        """Return whether the value, or every item of a list or tuple, is valid."""
        if isinstance(value, (list, tuple)):
            return len(value) > 0 and all(self.rule.allows(item) for item in value)
        return self.rule.allows(value)


def expand_per_layer(value: Any, depth: int, name: str) -> list[Any]:
    """Return one value for each of `depth` layers.

    >>> expand_per_layer("teacher", 3, "negatives")
    ['teacher', 'teacher', 'teacher']
    >>> expand_per_layer(("teacher", "both"), 3, "negatives")
    ['teacher', 'teacher', 'both']
    >>> expand_per_layer(0.1, 2, "threshold")
    [0.1, 0.1]
    """
    if not isinstance(value, (list, tuple)):
        return [value] * depth
    if len(value) == 2 and depth != 2:
        return [value[0]] * (depth - 1) + [value[1]]
    if len(value) != depth:
        raise ParameterError(
            f"{name} has {len(value)} values, but the tree has {depth} layers. Pass one value, a pair of values for "
            "the inner layers and the last layer, or one value per layer."
        )
    return list(value)


def to_sequence(value: Any) -> Sequence[Any]:
    """Return the value or values of a per-layer parameter as a sequence.

    >>> to_sequence("teacher"), to_sequence(["teacher", "both"])
    (('teacher',), ['teacher', 'both'])
    """
    return value if isinstance(value, (list, tuple)) else (value,)


def to_python_scalar(value: Any) -> Any:
    """Convert a NumPy scalar to a Python scalar; return other values unchanged."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
