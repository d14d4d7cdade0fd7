"""Read and write data sets, build them from a Debian package index, and generate synthetic data.

Each public name is imported on first use, so that commands that use none of them start quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from carya.data.corpus import Corpus, Example, Matrices
    from carya.data.formats.vocabularies import read_vocabulary, write_vocabulary
    from carya.data.read_write import open_data, write_data
    from carya.data.synthetic.published_sizes import synthesize
    from carya.data.synthetic.small_data import SyntheticData, generate_data, make_world
    from carya.data.vocabulary import Vocabulary

__all__ = [
    "Corpus",
    "Example",
    "Matrices",
    "SyntheticData",
    "Vocabulary",
    "generate_data",
    "make_world",
    "open_data",
    "read_vocabulary",
    "synthesize",
    "write_data",
    "write_vocabulary",
]

_NAMES_BY_MODULE = {
    "carya.data.corpus": ("Corpus", "Example", "Matrices"),
    "carya.data.vocabulary": ("Vocabulary",),
    "carya.data.read_write": ("open_data", "write_data"),
    "carya.data.synthetic.published_sizes": ("synthesize",),
    "carya.data.synthetic.small_data": ("SyntheticData", "generate_data", "make_world"),
    "carya.data.formats.vocabularies": ("read_vocabulary", "write_vocabulary"),
}


def __getattr__(name: str) -> Any:
    for module, names in _NAMES_BY_MODULE.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'carya.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
