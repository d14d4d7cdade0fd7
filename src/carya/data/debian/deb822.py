"""Parse Debian control files: blank lines separate stanzas, and fields can have continuation lines.

Files are streamed, whether compressed or not. Malformed stanzas are skipped and recorded.
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

from carya.core.extras import require
from carya.errors import InputError

#: Supported compression suffixes; an empty suffix means no compression. LZ4 requires the `debian` extra.
SUFFIXES = ("", ".gz", ".xz", ".bz2", ".lz4")

_MAX_STANZA_BYTES = 8 << 20


@dataclass(frozen=True)
class SkippedStanza:
    """The location of a stanza that was skipped, and the reason.

    >>> print(SkippedStanza("Packages", 7, "line without a field name"))
    Packages, line 7: line without a field name
    """

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.reason}"


def read_stanzas(
    path: Path,
    fields: Container[str],
    skipped: list[SkippedStanza],
    report: Callable[[int], None] | None = None,
) -> Iterator[dict[str, str]]:
    """Yield the stanzas of a file; see :func:`parse_stanzas`.

    Parameters
    ----------
    path : Path
        An uncompressed file, or a file with the suffix .gz, .xz, .bz2 or .lz4.
    fields : container of str
        The names of the fields to keep, in lower case.
    skipped : list of SkippedStanza
        A list to which skipped stanzas are appended.
    report : callable, optional
        Called regularly with the number of bytes read from the file.

    Raises
    ------
    MissingExtraError
        If the file is LZ4-compressed and lz4 is not installed.
    """
    try:
        with path.open("rb") as file:
            stream = _decompress(path, file)
            for number, stanza in enumerate(parse_stanzas(stream, fields, str(path), skipped)):
                if report is not None and number % 1024 == 0:
                    report(file.tell())
                yield stanza
    except InputError:
        raise
    except (OSError, EOFError, ValueError, RuntimeError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None


def parse_stanzas(
    stream: Any, fields: Container[str], name: str, skipped: list[SkippedStanza]
) -> Iterator[dict[str, str]]:
    r"""Yield the selected fields of each stanza by lowercase name; continuation lines are joined with newlines.

    Examples
    --------
    >>> import io
    >>> text = b"Package: hello\nTag: a,\n b\nSize: 3\n\nno colon\n\nPackage: world\n"
    >>> skipped = []
    >>> list(parse_stanzas(io.BytesIO(text), {"package", "tag"}, "Packages", skipped))
    [{'package': 'hello', 'tag': 'a,\n b'}, {'package': 'world'}]
    >>> print(*skipped)
    Packages, line 6: line without a field name
    """
    stanza = _Stanza(fields)
    number = 0
    while line := stream.readline(_MAX_STANZA_BYTES):
        number += 1
        if not line.isspace():
            stanza.add(line, number)
            continue
        yield from stanza.finish(name, skipped)
        stanza = _Stanza(fields)
    yield from stanza.finish(name, skipped)


def _decompress(path: Path, file: BinaryIO) -> Any:
    """Return a stream of the decompressed content of a file."""
    match path.suffix:
        case ".gz":
            return gzip.GzipFile(fileobj=file)
        case ".xz":
            return lzma.LZMAFile(file)
        case ".bz2":
            return bz2.BZ2File(file)
        case ".lz4":
            return require("lz4.frame", extra="debian", purpose=str(path)).open(file)
    return file


class _Stanza:
    """A stanza that is being parsed."""

    def __init__(self, fields: Container[str]) -> None:
        self._selected = fields
        self._fields: dict[str, list[bytes]] = {}
        self._seen: set[bytes] = set()
        self._current: list[bytes] | None = None  # the lines of the current field, including continuation lines
        self._size = 0
        self._error: tuple[int, str] | None = None

    def add(self, line: bytes, number: int) -> None:
        """Add a line, unless it is a comment."""
        if self._error is not None or line.startswith(b"#"):
            return
        self._size += len(line)
        if self._size >= _MAX_STANZA_BYTES:
            self._fields.clear()
            self._error = number, f"stanza larger than {_MAX_STANZA_BYTES >> 20} MiB"
        elif line[0] not in b" \t":
            if reason := self._begin_field(line):
                self._error = number, reason
        elif self._current is not None:
            self._current.append(line)
        else:
            self._error = number, "continuation line without a preceding field"

    def finish(self, name: str, skipped: list[SkippedStanza]) -> Iterator[dict[str, str]]:
        """Yield the selected fields, if any, or record why the stanza was skipped."""
        if self._error is not None:
            skipped.append(SkippedStanza(name, *self._error))
        elif self._fields:
            yield {key: b"".join(lines).decode("utf-8", "replace").strip() for key, lines in self._fields.items()}

    def _begin_field(self, line: bytes) -> str:
        """Begin a field; return an error message if the line is invalid, otherwise an empty string."""
        field, colon, value = line.partition(b":")
        field = field.lower()
        if not colon or not _is_field_name(field):
            return "line without a field name"
        if field in self._seen:
            return f"repeated field {field.decode()!r}"
        self._seen.add(field)
        self._current = [value]
        if field.decode() in self._selected:
            self._fields[field.decode()] = self._current
        return ""


def _is_field_name(field: bytes) -> bool:
    return bool(field) and field.isascii() and field.decode().isprintable() and b" " not in field
