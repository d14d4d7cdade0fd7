"""Escape text for terminals."""

from __future__ import annotations

_CONTROL_CHARACTERS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    r"""Escape control characters, which could change the title, the colors or the contents of a terminal.

    >>> printable("a\x1b[31m")
    'a\\x1b[31m'
    """
    return text.translate(_CONTROL_CHARACTERS)
