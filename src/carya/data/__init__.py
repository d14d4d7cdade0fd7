"""Data sets: doors for those in files, real ones from a Debian package index, and generated worlds.

Each name is imported when it is first used, so that commands which need none of them start quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carya.data.corpus import Corpus, Example, Matrices, Vocabulary
    from carya.data.formats import open_data, write_data
    from carya.data.formats.vocabularies import read_vocabulary, write_vocabulary
    from carya.data.worlds.published import synthesise
    from carya.data.worlds.synth import World, generate, make_world

__all__ = [
    "Corpus",
    "Example",
    "Matrices",
    "Vocabulary",
    "World",
    "generate",
    "make_world",
    "open_data",
    "read_vocabulary",
    "synthesise",
    "write_data",
    "write_vocabulary",
]

_HOMES = {
    "carya.data.corpus": ("Corpus", "Example", "Matrices", "Vocabulary"),
    "carya.data.formats": ("open_data", "write_data"),
    "carya.data.worlds.published": ("synthesise",),
    "carya.data.worlds.synth": ("World", "generate", "make_world"),
    "carya.data.formats.vocabularies": ("read_vocabulary", "write_vocabulary"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'carya.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
