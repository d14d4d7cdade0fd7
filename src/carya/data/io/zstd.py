"""A Zstandard stream that notices when its file ends too early; the reader of the package takes that for the end."""

from __future__ import annotations

import io
from typing import Any, BinaryIO

_CHUNK = 1 << 12  # all that it holds is decompressed in one step
_LARGEST_WINDOW = 1 << 31  # what `zstd --long=31` writes


class ZstdReader(io.RawIOBase):
    """The content of a .zst file of one frame or several; raises EOFError where a frame is cut short.

    Parameters
    ----------
    file : binary file
        The compressed bytes; closed with the reader.
    package : module
        The `zstandard` package.
    """

    def __init__(self, file: BinaryIO, package: Any) -> None:
        self._file = file
        self._decompressor = package.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
        self._frame: Any = None
        self._compressed = b""
        self._content = memoryview(b"")

    def readable(self) -> bool:
        """Yes."""
        return True

    def close(self) -> None:
        """Close the file as well."""
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as one step of decompression goes; 0 at the end."""
        while not self._content:
            self._compressed = self._compressed or self._file.read(_CHUNK)
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError
                return 0
            self._frame = self._frame or self._decompressor.decompressobj()
            self._content = memoryview(self._frame.decompress(self._compressed))
            self._compressed = b""
            if self._frame.eof:
                self._compressed, self._frame = self._frame.unused_data, None
        taken = min(len(buffer), len(self._content))
        buffer[:taken] = self._content[:taken]
        self._content = self._content[taken:]
        return taken
