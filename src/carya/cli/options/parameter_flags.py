"""Command-line flags from the parameters of estimators.

The estimators take longer to import than most commands run, so only a command that needs their parameters loads them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from carya.core.parameters import Parameterised
from carya.core.rules import Choice, Integer, Real, Rule
from carya.errors import ParameterError

#: Parameters that the command line has its own way of giving, or none.
NOT_FLAGS = frozenset({"tree", "verbose", "n_jobs", "tokens", "vectorizer", "ranker"})


def flags_of(**kinds: type[Parameterised]) -> list[inspect.Parameter]:
    """A flag for each parameter of some estimators, by the names that are shown.

    A flag that is not given is None, and one that several have is of all.
    """
    made: list[inspect.Parameter] = []
    for called, kind in kinds.items():
        for field in kind.parameters():
            if field.name in NOT_FLAGS or field.name in {one.name for one in made}:
                continue
            rule: Rule = field.metadata["rule"]
            switch = isinstance(rule, Choice) and set(rule.values) == {True, False}
            name = "--" + field.name.replace("_", "-")
            about = f"{field.metadata['doc']} [{called}; default: {_shown(field.default)}]"
            option = typer.Option(
                f"{name}/--no-{name[2:]}" if switch else name,
                help=about,
                show_default=False,
                metavar=None if switch else _metavar(rule),
            )
            annotation = Annotated[bool | None if switch else str | None, option]  # type: ignore[valid-type]
            made.append(
                inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            )
    return made


def values_of(kind: type[Parameterised], given: Mapping[str, Any]) -> dict[str, Any]:
    """What flags say of an estimator's parameters; raises ParameterError for what a parameter cannot be."""
    rules = {field.name: field.metadata["rule"] for field in kind.parameters()}
    return {
        name: value if isinstance(value, bool) else parsed(value, rules[name], "--" + name.replace("_", "-"))
        for name, value in given.items()
        if name in rules and value is not None
    }


def parsed(text: str, rule: Rule, flag: str) -> Any:
    """The value that a text stands for: the first reading of it that the rule allows.

    >>> parsed("2", Integer(1), "--branching"), parsed("0.5", Real(0), "--cost")
    (2, 0.5)
    """
    for read in (_number, _nothing, _pairs, _list, str):
        try:
            value = read(text)
        except ValueError:
            continue
        if rule.allows(value):
            return value
    raise ParameterError(f"{flag} is {text!r}; it must be {rule.text}")


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _nothing(text: str) -> None:
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


def _pairs(text: str) -> tuple[Any, ...]:
    """Lists of a list, as in 1,2/3,5."""
    if "/" not in text:
        raise ValueError(text)
    return tuple(_list(item) for item in text.split("/"))


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _metavar(rule: Rule) -> str:
    return "INTEGER" if isinstance(rule, Integer) else "NUMBER" if isinstance(rule, Real) else "VALUE"
