"""Data sets: doors for those in files, real ones from a Debian package index, and generated worlds.

Each name is imported when it is first used, so that commands which need none of them start quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carya.data.corpus import Corpus, Example, Matrices
    from carya.data.formats.vocabularies import read_vocabulary, write_vocabulary
    from carya.data.read_write import open_data, write_data
    from carya.data.synthetic.generator import World, generate, make_world
    from carya.data.synthetic.published_sizes import synthesise
    from carya.data.vocabulary import Vocabulary

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
    "carya.data.corpus": ("Corpus", "Example", "Matrices"),
    "carya.data.vocabulary": ("Vocabulary",),
    "carya.data.read_write": ("open_data", "write_data"),
    "carya.data.synthetic.published_sizes": ("synthesise",),
    "carya.data.synthetic.generator": ("World", "generate", "make_world"),
    "carya.data.formats.vocabularies": ("read_vocabulary", "write_vocabulary"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'carya.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
