"""Convert UTF-16 text, as exported by spreadsheet programs, to UTF-8 while it is read."""

from __future__ import annotations

import codecs
import io
from typing import Any, BinaryIO

from carya.errors import InputError

#: The byte order marks by which UTF-16 is recognized, and that of UTF-32, which is not supported.
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
UTF32_MARK = codecs.BOM_UTF32_LE

_CHUNK_SIZE = 1 << 16


class Utf16Reader(io.RawIOBase):
    """A stream that converts UTF-16 text to UTF-8.

    Parameters
    ----------
    stream : binary file
        Text in UTF-16 that begins with a byte order mark.
    name : str
        The name of the file in error messages.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self._decode = codecs.getincrementaldecoder("utf-16")().decode
        self._n_lines = 0
        self._content = memoryview(b"")
        self._is_finished = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return the number of bytes read, or 0 at the end of the stream."""
        while not self._content:
            if self._is_finished:
                return 0
            self._content = memoryview(self._next_chunk())
        size = min(len(buffer), len(self._content))
        buffer[:size] = self._content[:size]
        self._content = self._content[size:]
        return size

    def _next_chunk(self) -> bytes:
        chunk = self._stream.read(_CHUNK_SIZE)
        self._is_finished = not chunk
        try:
            text = self._decode(chunk, self._is_finished)
        except UnicodeDecodeError as error:
            line = self._n_lines + error.object[: error.start].count(b"\n") + 1
            raise InputError(f"{self._name}, line {line}: Invalid UTF-16: {error.reason}.") from None
        self._n_lines += text.count("\n")
        return text.encode()
