"""Validation rules for parameters; each rule completes the sentence "must be …"."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

from carya.errors import ParameterError


class Rule:
    """What a parameter may be; `text` completes the sentence "must be ..."."""

    text: str

    def allows(self, value: object) -> bool:
        """Whether the value is acceptable."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Integer(Rule):
    """A whole number of at least `low`, and within what the kernels count with."""

    low: int
    high: int = 2**31 - 1

    @property
    def text(self) -> str:  # type: ignore[override]
        """The rule in words."""
        return f"an integer of at least {self.low}"

    def allows(self, value: object) -> bool:
        """Whether the value is such an integer."""
        return (
            isinstance(value, numbers.Integral) and not isinstance(value, bool) and self.low <= int(value) <= self.high
        )


@dataclasses.dataclass(frozen=True)
class Real(Rule):
    """A finite number of at least `low`, or above it, and of at most `most`."""

    low: float
    above: bool = False
    most: float = math.inf

    @property
    def text(self) -> str:  # type: ignore[override]
        """The rule in words."""
        if math.isfinite(self.most):
            return f"a number between {self.low:g} and {self.most:g}"
        return f"a number {'above' if self.above else 'of at least'} {self.low:g}"

    def allows(self, value: object) -> bool:
        """Whether the value is such a number."""
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            return False
        try:
            if not math.isfinite(value):
                return False
        except OverflowError:  # a whole number beyond all floats
            return False
        return (float(value) > self.low if self.above else float(value) >= self.low) and float(value) <= self.most


class Choice(Rule):
    """One of some fixed values."""

    def __init__(self, *values: object) -> None:
        self.values = values
        names = [repr(value) for value in values]
        self.text = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"

    def allows(self, value: object) -> bool:
        """Whether the value is one of them; NumPy's scalars count as Python's."""
        return any(type(plain(value)) is type(known) and plain(value) == known for known in self.values)


class Either(Rule):
    """What one of several rules allows."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules
        self.text = " or ".join(rule.text for rule in rules)

    def allows(self, value: object) -> bool:
        """Whether any of the rules allows the value."""
        return any(rule.allows(value) for rule in self.rules)


class Instance(Rule):
    """An object of a class, or of one of several."""

    def __init__(self, kind: type | tuple[type, ...], text: str) -> None:
        self.kind = kind
        self.text = text

    def allows(self, value: object) -> bool:
        """Whether the value is such an object."""
        return isinstance(value, self.kind) and not isinstance(value, type)


class Parsed(Rule):
    """A name that a function understands; the function raises ParameterError for others."""

    def __init__(self, parse: Callable[[str], object], text: str) -> None:
        self.parse = parse
        self.text = text

    def allows(self, value: object) -> bool:
        """Whether the value is such a name."""
        if not isinstance(value, str):
            return False
        try:
            self.parse(value)
        except ParameterError:
            return False
        return True


class PerLayer(Rule):
    """One value for all layers, a pair for inner layers and the last, or one value for each layer."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.text = f"{rule.text}; a pair of them, for the inner layers and the last; or one for each layer"

    def allows(self, value: object) -> bool:
        """Whether the value, or each of its items, is allowed."""
        if isinstance(value, (list, tuple)):
            return len(value) > 0 and all(self.rule.allows(item) for item in value)
        return self.rule.allows(value)


def per_layer(value: str | Sequence[str], depth: int, name: str) -> list[str]:
    """One value for each of `depth` layers.

    >>> per_layer("teacher", 3, "negatives")
    ['teacher', 'teacher', 'teacher']
    >>> per_layer(("teacher", "both"), 3, "negatives")
    ['teacher', 'teacher', 'both']
    """
    if isinstance(value, str):
        return [value] * depth
    if len(value) == 2 and depth != 2:
        return [value[0]] * (depth - 1) + [value[1]]
    if len(value) != depth:
        raise ParameterError(f"{name} has {len(value)} values, the tree has {depth} layers")
    return list(value)


def plain(value: Any) -> Any:
    """A NumPy scalar as Python's; anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value
