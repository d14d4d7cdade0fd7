"""The `carya` command: one file a verb."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from carya.cli.c_flags import c_flags
from carya.cli.calibrate import calibrate
from carya.cli.commands import LazyGroup, add
from carya.cli.data import datasets
from carya.cli.demo import demo
from carya.cli.evaluate import evaluate
from carya.cli.explain import explain
from carya.cli.import_pecos import import_pecos
from carya.cli.inspect import inspect
from carya.cli.predict import predict
from carya.cli.serve import serve
from carya.cli.train import train

_INTERRUPTED = 130  # how typer ends after Ctrl-C

app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Extreme multi-label ranking: the few right labels out of millions.",
)


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from carya.core.version import __version__

        typer.echo(f"carya {__version__}")
        raise typer.Exit


for command, name in (
    (train, None),
    (predict, None),
    (evaluate, None),
    (calibrate, None),
    (explain, None),
    (serve, None),
    (inspect, None),
    (demo, None),
    (import_pecos, "import-pecos"),
    (c_flags, "c-flags"),
):
    add(app, command, name)
app.add_typer(datasets.app, name="data")


def main() -> None:
    """Run the command; user errors become one line and exit code 2, Ctrl-C exit code 130."""
    from carya.errors import CaryaError

    try:
        app()
    except CaryaError as error:
        print(f"carya: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:  # whoever reads has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except (OSError, MemoryError) as error:
        print(f"carya: {'out of memory' if isinstance(error, MemoryError) else error}", file=sys.stderr)
        raise SystemExit(1) from None
    except SystemExit as done:
        if done.code == _INTERRUPTED:
            print("carya: interrupted", file=sys.stderr)
        raise
