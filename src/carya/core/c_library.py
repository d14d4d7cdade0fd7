"""Where the C library of this package lies: docs/c.md."""

from __future__ import annotations

from pathlib import Path

from carya import _core


def flags() -> list[str]:
    """What a C compiler needs to be told to find and link it.

    >>> [flag[:2] for flag in flags()]
    ['-I', '-L', '-W', '-l']
    """
    package = Path(_core.__file__).parent
    return [f"-I{package / 'include'}", f"-L{package / 'lib'}", f"-Wl,-rpath,{package / 'lib'}", "-lcarya"]
