"""`carya c-flags`: how to compile a program that uses the C interface."""

from __future__ import annotations

import typer


def c_flags() -> None:
    """Print the compiler flags for programs in C that rank with a saved model.

    Examples:

      cc examples/rank.c $(carya c-flags) -o rank
    """
    from carya.core.c_library import flags

    typer.echo(" ".join(flags()))
