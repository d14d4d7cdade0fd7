"""Commands that start quickly: made when they are called, and without pydantic.

Typer asks pydantic about every option, given or not, and loading that takes longer than most commands run.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class QuickCommand(TyperCommand):
    """A command that reads what is simple by itself."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What is left when options and arguments are taken."""
        _read_simply(self.get_params(ctx))
        return super().parse_args(ctx, args)


class LazyGroup(TyperGroup):
    """Commands that were marked by :func:`lazily` are made when they are called."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What is left for a command when the group's own options are taken."""
        _read_simply(self.get_params(ctx))
        return super().parse_args(ctx, args)

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
    app.command(name, cls=QuickCommand, help=about, epilog=ends)(command)


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


def _read_simply(options: list[Any]) -> None:
    """Let options that are not given, texts, paths and numbers pass without typer's conversion.

    What is not as it should be is left to typer, which has the words to say so.
    """
    for option in options:
        about = getattr(option, "type_descriptor", None)  # versions of typer that have none do without pydantic
        if about is not None and option.nargs == 1 and not option.multiple:
            option.process_value = _simply(option, about.annotation, about.parameter_info)


def _simply(option: Any, kind: Any, limits: Any) -> Callable[[Any, Any], Any]:
    usual = option.process_value
    least = -math.inf if limits.min is None else limits.min
    most = math.inf if limits.max is None else limits.max

    def process_value(ctx: Any, value: Any) -> Any:
        if value is None and not option.required:
            return None if option.callback is None else option.callback(ctx, option, None)
        if option.callback is not None:
            return usual(ctx, value)
        if kind in (str, Path) and isinstance(value, str):
            return kind(value)
        if kind in (int, float):
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                number = kind(value)
                if math.isfinite(number) and least <= number <= most:
                    return number
        return usual(ctx, value)

    return process_value
