"""Click commands with options grouped under headings, and command groups that import commands on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

_LAST_HEADINGS = ("Output", "Options")  # listed after all others, in this order
_MIN_OPTIONS = 7  # a command with fewer options lists them without headings


class Option(click.Option):
    """An option that `--help` lists under a heading."""

    def __init__(self, *args: Any, heading: str = "Options", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.heading = heading


class Argument(click.Argument):
    """An argument with a description."""

    def __init__(self, *args: Any, help: str = "", **settings: Any) -> None:  # noqa: A002
        super().__init__(*args, **settings)
        self.help = help


class Command(click.Command):
    """A command whose help lists its arguments, its options grouped under headings, and examples.

    Parameters
    ----------
    examples : sequence of str
        Command lines shown at the end of the help text.
    generate_options : callable, optional
        Returns additional options. It is called when the command runs or its help is printed, but not when the command
        is listed, so it can import modules that are slow to load.
    """

    def __init__(
        self,
        *args: Any,
        examples: Sequence[str] = (),
        generate_options: Callable[[], Sequence[click.Option]] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*args, **settings)
        self.examples = examples
        self._generate_options = generate_options

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all parameters, including the generated options."""
        if self._generate_options is not None:
            self.params += self._generate_options()
            self._generate_options = None
        return super().get_params(ctx)

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write nothing, because `format_options` lists the arguments; click 8.5 and later would list them here."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments, then the options grouped by heading."""
        arguments = []
        options: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if isinstance(param, Argument):
                arguments.append((param.human_readable_name, param.help or ""))
            elif (row := param.get_help_record(ctx)) is not None:
                options.setdefault(getattr(param, "heading", "Options"), []).append(row)
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        if sum(map(len, options.values())) < _MIN_OPTIONS:
            options = {"Options": [row for rows in options.values() for row in rows]}
        last = [heading for heading in _LAST_HEADINGS if heading in options]
        for heading in [*(heading for heading in options if heading not in last), *last]:
            with formatter.section(heading):
                formatter.write_dl(options[heading])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


class LazyGroup(click.Group):
    """A command group that imports a command's module when the command is used or listed.

    Parameters
    ----------
    lazy_commands : mapping of str to str
        Maps command names to ``module:attribute``. The help lists the commands in the order of this mapping.
    """

    def __init__(self, name: str, *, lazy_commands: Mapping[str, str], **settings: Any) -> None:
        super().__init__(name, invoke_without_command=True, callback=self._print_help, **settings)
        self.lazy_commands = lazy_commands

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names."""
        return list(self.lazy_commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None if it does not exist."""
        if cmd_name not in self.lazy_commands:
            return None
        module, _, attribute = self.lazy_commands[cmd_name].partition(":")
        loaded: click.Command = getattr(importlib.import_module(module), attribute)
        return loaded

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command named in the arguments; if it does not exist, raise UsageError with a suggestion."""
        name = args[0]
        if name not in self.lazy_commands and not name.startswith("-") and not ctx.resilient_parsing:
            from carya.core.parameters import did_you_mean

            ctx.fail(f"Unknown command {name!r}.{did_you_mean(name, self.lazy_commands)}")
        return super().resolve_command(ctx, args)

    @staticmethod
    @click.pass_context
    def _print_help(ctx: click.Context) -> None:
        """Print the help if no command is given."""
        if ctx.invoked_subcommand is None:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(2)


def command(name: str, cls: type[Command] = Command, **settings: Any) -> Callable[[Callable[..., None]], Command]:
    """Turn a function into a :class:`Command`; its docstring is the help text."""
    return click.command(name, cls=cls, **settings)


def option(*names: str, **settings: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add an :class:`Option` to a function decorated with :func:`command`."""
    return click.option(*names, cls=Option, **settings)


def argument(name: str, **settings: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add an :class:`Argument` to a function decorated with :func:`command`."""
    return click.argument(name, cls=Argument, **settings)
