"""The `carya` command: one file per command."""

from __future__ import annotations

from carya.cli.app import main

__all__ = ["main"]
