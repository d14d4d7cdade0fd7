"""Texts without labels, one per line."""

from __future__ import annotations

from collections.abc import Iterator

from carya.data.corpus import Example
from carya.data.formats.content import text_lines
from carya.data.io.files import PathLike


def read_text_lines(path: PathLike) -> Iterator[Example]:
    """Yield the lines of a file as texts without labels."""
    return (Example(line) for line in text_lines(path))
