"""Stanzas of Debian control files: fields with continuation lines, blank lines between stanzas.

Files are streamed, plain or compressed. What cannot be understood is skipped and noted, never an end of the work.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from carya.data.debian.lz4_frames import open_lz4
from carya.errors import InputError

#: A stanza of more bytes than that is none.
_MOST = 8 << 20
_OPENERS: dict[str, Callable[[BinaryIO], Any]] = {
    "": lambda file: file,
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".xz": lzma.LZMAFile,
    ".bz2": bz2.BZ2File,
    ".lz4": open_lz4,
}
#: The ends of the names of files that can be read.
ENDINGS = tuple(_OPENERS)


@dataclass(frozen=True)
class Problem:
    """Where a stanza was skipped, and why.

    >>> print(Problem("Packages", 7, "a line without a colon"))
    Packages:7: a line without a colon
    """

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


def read_stanzas(
    path: Path,
    wanted: Container[str],
    problems: list[Problem],
    report: Callable[[int], None] | None = None,
) -> Iterator[dict[str, str]]:
    """The stanzas of a file, as :func:`stanzas` gives them.

    Parameters
    ----------
    path : Path
        A plain file, or one that ends in .gz, .xz, .bz2 or .lz4.
    wanted : container of str
        The names of fields to keep, in small letters.
    problems : list of Problem
        Takes a note of every stanza that was skipped.
    report : callable, optional
        Called now and then with the number of bytes of the file that have been read.
    """
    try:
        with path.open("rb") as raw:
            opened = _OPENERS[path.suffix if path.suffix in _OPENERS else ""](raw)
            for number, stanza in enumerate(stanzas(opened, wanted, str(path), problems)):
                if report is not None and number % 1024 == 0:
                    report(raw.tell())
                yield stanza
    except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def stanzas(file: Any, wanted: Container[str], name: str, problems: list[Problem]) -> Iterator[dict[str, str]]:
    r"""The wanted fields of each stanza, by their names in small letters; continuation lines follow after newlines.

    Examples
    --------
    >>> import io
    >>> text = b"Package: hello\nTag: a,\n b\nSize: 3\n\nno colon\n\nPackage: world\n"
    >>> problems = []
    >>> list(stanzas(io.BytesIO(text), {"package", "tag"}, "Packages", problems))
    [{'package': 'hello', 'tag': 'a,\n b'}, {'package': 'world'}]
    >>> print(*problems)
    Packages:6: a line without a field name
    """
    now = _Stanza(wanted)
    number = 0
    while line := file.readline(_MOST):
        number += 1
        if not line.isspace():
            now.add(line, number)
            continue
        yield from now.closed(name, problems)
        now = _Stanza(wanted)
    yield from now.closed(name, problems)


class _Stanza:
    """A stanza that is being read."""

    def __init__(self, wanted: Container[str]) -> None:
        self._wanted = wanted
        self._fields: dict[str, list[bytes]] = {}
        self._seen: set[bytes] = set()
        self._last: list[bytes] | None = None  # what a continuation line continues
        self._size = 0
        self._wrong: tuple[int, str] | None = None

    def add(self, line: bytes, number: int) -> None:
        if self._wrong is not None or line[0] == 0x23:  # a comment
            return
        self._size += len(line)
        if self._size >= _MOST:
            self._fields.clear()
            self._wrong = number, f"a stanza of more than {_MOST >> 20} MiB"
        elif line[0] not in b" \t":
            if what := self._begin(line):
                self._wrong = number, what
        elif self._last is not None:
            self._last.append(line)
        else:
            self._wrong = number, "a continuation line without a field before it"

    def closed(self, name: str, problems: list[Problem]) -> Iterator[dict[str, str]]:
        """The stanza, if it is one."""
        if self._wrong is not None:
            problems.append(Problem(name, *self._wrong))
        elif self._fields:
            yield {key: b"".join(lines).decode("utf-8", "replace").strip() for key, lines in self._fields.items()}

    def _begin(self, line: bytes) -> str:
        """Begin a field; what is wrong with it, if anything."""
        field, colon, value = line.partition(b":")
        field = field.lower()
        if not colon or not _is_name(field):
            return "a line without a field name"
        if field in self._seen:
            return f"a second field {field.decode()!r} in one stanza"
        self._seen.add(field)
        key = field.decode()
        self._last = [value]
        if key in self._wanted:
            self._fields[key] = self._last
        return ""


def _is_name(field: bytes) -> bool:
    return bool(field) and field.isascii() and field.decode().isprintable() and b" " not in field
