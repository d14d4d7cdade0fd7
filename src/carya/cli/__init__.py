"""The `carya` command, with one file per subcommand."""

from __future__ import annotations

from carya.cli.app import main

__all__ = ["main"]
