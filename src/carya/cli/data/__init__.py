"""The `carya data` commands: one file per command."""

from __future__ import annotations

from carya.cli.commands import LazyGroup

data = LazyGroup(
    "data",
    lazy_commands={
        "debian": "carya.cli.data.debian:debian",
        "synth": "carya.cli.data.synth:synth",
        "convert": "carya.cli.data.convert:convert",
        "feedback": "carya.cli.data.feedback:feedback",
    },
    help="Create and convert data sets.",
)
