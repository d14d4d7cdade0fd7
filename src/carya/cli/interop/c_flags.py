"""`carya c-flags`: compiler flags for the C interface."""

from __future__ import annotations

import click

from carya.cli.commands import command


@command("c-flags", examples=["cc examples/rank.c $(carya c-flags) -o rank"])
def c_flags() -> None:
    """Print the compiler flags for C programs.

    Programs compiled with these flags can rank labels with a saved model without Python; see docs/c.md.
    """
    from carya.c_library import compiler_flags

    click.echo(" ".join(compiler_flags()))
