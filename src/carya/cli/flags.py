"""Command-line flags from the parameters of estimators, and commands that are made when they are called.

The estimators take longer to import than most commands run, so only a command that needs their parameters loads them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from carya.errors import ParameterError
from carya.params import Choice, Integer, Parameterised, Real, Rule

#: Parameters that the command line has its own way of giving, or none.
NOT_FLAGS = frozenset({"tree", "verbose", "n_jobs", "tokens", "vectorizer", "ranker"})


def flags_of(*kinds: type[Parameterised]) -> list[inspect.Parameter]:
    """A flag for each parameter of some estimators; one that is not given is None, one that several have is of all."""
    made: list[inspect.Parameter] = []
    for kind in kinds:
        for field in kind.parameters():
            if field.name in NOT_FLAGS or field.name in {one.name for one in made}:
                continue
            rule: Rule = field.metadata["rule"]
            switch = isinstance(rule, Choice) and set(rule.values) == {True, False}
            name = "--" + field.name.replace("_", "-")
            about = f"{field.metadata['doc']} [{kind.__name__}; default: {_shown(field.default)}]"
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


class LazyGroup(TyperGroup):
    """Commands that were marked by :func:`lazily` are made when they are called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command, with all of its flags."""
        name, command, rest = super().resolve_command(ctx, args)
        make = getattr(getattr(command, "callback", None), "make_command", None)
        return (name, make(name), rest) if make else (name, command, rest)


def add(app: typer.Typer, command: Callable[..., None], name: str | None = None) -> None:
    """Register a command; the examples in its docstring end its help."""
    about, _, examples = inspect.cleandoc(command.__doc__ or "").partition("\nExamples:\n")
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    ends = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines) if lines else None
    app.command(name, help=about, epilog=ends)(command)


def lazily(make: Callable[[], Callable[..., None]]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a function, whose first line is shown in the list of commands, as standing for what `make` gives."""

    def marked(stub: Callable[..., None]) -> Callable[..., None]:
        def make_command(name: str) -> Any:
            alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
            add(alone, make(), name)
            return typer.main.get_command(alone)

        stub.make_command = make_command  # type: ignore[attr-defined]
        return stub

    return marked
