"""Locate the C library included in this package; see docs/c.md."""

from __future__ import annotations

from pathlib import Path

from carya import _core


def compiler_flags() -> list[str]:
    """Return the compiler flags for building programs that use the C library.

    >>> [flag[:2] for flag in compiler_flags()]
    ['-I', '-L', '-W', '-l']
    """
    package = Path(_core.__file__).parent
    return [f"-I{package / 'include'}", f"-L{package / 'lib'}", f"-Wl,-rpath,{package / 'lib'}", "-lcarya"]
