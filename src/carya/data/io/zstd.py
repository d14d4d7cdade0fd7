"""Zstandard streams. Unlike the reader of the zstandard package, this reader detects truncated files."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

_CHUNK_SIZE = 1 << 12  # small, because each chunk is decompressed in a single step
_MAX_WINDOW_SIZE = 1 << 31  # the largest window that the zstd command writes (--long=31)


class ZstdReader(io.RawIOBase):
    """Stream of the decompressed contents of a .zst file with one or more frames.

    Raises EOFError if a frame is truncated.

    Parameters
    ----------
    file : binary file
        The compressed data; the file is closed together with the reader.
    package : module
        The `zstandard` package.
    """

    def __init__(self, file: BinaryIO, package: Any) -> None:
        self._file = file
        self._decompressor = package.ZstdDecompressor(max_window_size=_MAX_WINDOW_SIZE)
        self._frame: Any = None
        self._compressed = b""
        self._content = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Close the reader and the file."""
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        """Read at most one decompressed chunk into a buffer; return the number of bytes read, or 0 at the end."""
        while not self._content:
            self._compressed = self._compressed or self._file.read(_CHUNK_SIZE)
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError
                return 0
            self._frame = self._frame or self._decompressor.decompressobj()
            self._content = memoryview(self._frame.decompress(self._compressed))
            self._compressed = b""
            if self._frame.eof:
                self._compressed, self._frame = self._frame.unused_data, None
        size = min(len(buffer), len(self._content))
        buffer[:size] = self._content[:size]
        self._content = self._content[size:]
        return size
