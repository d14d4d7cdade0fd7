"""Convert option strings to values that satisfy a validation rule."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from carya.core.rules import Choice, Either, Instance, Integer, Real, Rule
from carya.errors import ParameterError

#: Type of options that accept any number.
NUMBER = Instance((int, float), "a number")

_MAX_METAVAR = 40  # characters; longer lists of choices appear only in the description


class RuleType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """Type of an option whose values are validated by a rule.

    Parameters
    ----------
    rule : Rule
        Also provides the error message, as in ``--beam-width must be an integer >= 1, got 0.``
    """

    name = "value"

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert a string to a value; return other values, such as defaults, unchanged."""
        if not isinstance(value, str) or param is None:
            return value
        return parse_value(value, self.rule, next(name for name in param.opts if name.startswith("--")))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the choices of the rule that start with the incomplete value."""
        return [CompletionItem(name) for name in _choices(self.rule) if name.startswith(incomplete)]


def parse_value(text: str, rule: Rule, flag: str) -> Any:
    """Return the first interpretation of a string that satisfies the rule; raise ParameterError if none does.

    A string is interpreted as a number, ``none``, a list of lists separated by slashes, a list separated by commas, or
    a plain string.

    >>> parse_value("2", Integer(1), "--branching"), parse_value("none", Choice("l1", None), "--norm")
    (2, None)
    >>> parse_value("0", Integer(1), "--beam-width")
    Traceback (most recent call last):
    carya.errors.ParameterError: --beam-width must be an integer >= 1, got 0.
    """
    interpretations = []
    for interpret in (_number, _none, _nested_list, _list, str):
        try:
            value = interpret(text)
        except ValueError:
            continue
        if rule.allows(value):
            return value
        interpretations.append(value)
    raise ParameterError(f"{flag} must be {rule.describe(interpretations[0])}, got {interpretations[0]!r}.")


def placeholder(rule: Rule) -> str:
    """Return the placeholder that `--help` shows for a value.

    >>> placeholder(Either(Integer(1), Choice(None))), placeholder(Choice("l1", "l2", None)), placeholder(Real(0))
    ('[INTEGER|none]', '[l1|l2|none]', 'NUMBER')
    """
    names = _placeholders(rule)
    text = "|".join(names)
    if not names or len(text) > _MAX_METAVAR:
        return "VALUE"
    return text if len(names) == 1 and text.isupper() else f"[{text}]"


def _placeholders(rule: Rule) -> list[str]:
    match rule:
        case Integer():
            return ["INTEGER"]
        case Real():
            return ["NUMBER"]
        case Choice():
            return _choices(rule)
        case Either():
            alternatives = [_placeholders(part) for part in rule.rules]
            return [name for names in alternatives for name in names] if all(alternatives) else []
    return []


def _choices(rule: Rule) -> list[str]:
    if isinstance(rule, Either):
        return [name for part in rule.rules for name in _choices(part)]
    return (
        [str(value).lower() if value is None else str(value) for value in rule.values]
        if isinstance(rule, Choice)
        else []
    )


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _none(text: str) -> None:
    if text.lower() != "none":
        raise ValueError(text)


def _list(text: str) -> tuple[Any, ...]:
    if "," not in text:
        raise ValueError(text)
    items = [item.strip() for item in text.split(",")]
    try:
        return tuple(_number(item) for item in items)
    except ValueError:
        return tuple(items)


def _nested_list(text: str) -> tuple[Any, ...]:
    """Parse a list of lists, such as ``1,2/3,5``."""
    if "/" not in text:
        raise ValueError(text)
    return tuple(_list(item) for item in text.split("/"))
