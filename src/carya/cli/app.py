"""The `carya` command group and its entry point."""

from __future__ import annotations

import sys
import warnings
from typing import TextIO

import click

from carya.cli.commands import LazyGroup
from carya.cli.shared.terminal import printable
from carya.errors import CaryaError, CaryaWarning

_INTERRUPTED = 130  # the exit code of a command interrupted by Ctrl-C: 128 + SIGINT


def _print_version(context: click.Context, _option: click.Parameter, requested: bool) -> None:
    if requested and not context.resilient_parsing:
        from carya.version import __version__  # imported here because the import is slow

        click.echo(f"carya {__version__}")
        context.exit()


app = LazyGroup(
    "carya",
    lazy_commands={
        "train": "carya.cli.train:train",
        "predict": "carya.cli.predict:predict",
        "evaluate": "carya.cli.evaluate:evaluate",
        "vectorize": "carya.cli.features.vectorize:vectorize",
        "encode": "carya.cli.features.encode:encode",
        "calibrate": "carya.cli.calibrate:calibrate",
        "explain": "carya.cli.explain:explain",
        "inspect": "carya.cli.inspect:inspect",
        "report": "carya.cli.report:report",
        "plan": "carya.cli.plan:plan",
        "tune": "carya.cli.tuning.tune:tune",
        "split": "carya.cli.parts.split:split",
        "serve": "carya.cli.serve:serve",
        "push": "carya.cli.hub.push:push",
        "pull": "carya.cli.hub.pull:pull",
        "demo": "carya.cli.demo:demo",
        "data": "carya.cli.data:data",
        "import-pecos": "carya.cli.interop.import_pecos:import_pecos",
        "c-flags": "carya.cli.interop.c_flags:c_flags",
    },
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Show the version and exit.",
        )
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Extreme multi-label ranking: find the few relevant labels among millions.",
    epilog=(
        "\b\n"
        "To enable shell completion in Bash, add this line to ~/.bashrc:\n"
        '  eval "$(_CARYA_COMPLETE=bash_source carya)"\n'
        "For zsh or fish, use zsh_source or fish_source and add the line to the startup file of that shell."
    ),
)


def main() -> None:
    """Run the command and exit.

    On error, print a message and exit with status 2 (invalid input), 1 (system error) or 130 (Ctrl-C). Print each
    warning from Carya as one line on standard error.
    """
    warnings.showwarning = _show_warning
    try:
        exit_code = app.main(prog_name="carya", standalone_mode=False)
    except click.UsageError as error:
        _fail(_usage_message(error), error.exit_code)
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except CaryaError as error:
        _fail(str(error), 2)
    except MemoryError:
        _fail("Out of memory.", 1)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error), 1)
    except (click.Abort, KeyboardInterrupt):
        _fail("Interrupted.", _INTERRUPTED)
    raise SystemExit(exit_code)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a CaryaWarning (a warning about the user's data) on one line, and any other warning in Python's format."""
    text = f"carya: warning: {message}\n"
    if not issubclass(category, CaryaWarning):
        text = warnings.formatwarning(message, category, filename, lineno, line)
    print(text, file=sys.stderr if file is None else file, end="")


def _fail(message: str, exit_code: int) -> None:
    print(f"carya: {printable(message)}", file=sys.stderr)
    raise SystemExit(exit_code)


def _usage_message(error: click.UsageError) -> str:
    """Return a one-line error message that suggests the closest option or, failing that, the `--help` option."""
    message = error.format_message()
    if isinstance(error, click.NoSuchOption):
        message = f"Unknown option {error.option_name!r}."
        if error.possibilities:
            return f"{message} Did you mean {error.possibilities[0]!r}?"
    if not message.endswith((".", "?")):
        message += "."
    if error.ctx is None:
        return message
    return f"{message} Run '{error.ctx.command_path} --help' for usage."
