"""LZ4 frames, read without a package for them: apt keeps its lists so in containers.

The format is that of the LZ4 frame and block descriptions. Checksums in frames are passed over.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import BinaryIO

_MAGIC = 0x184D2204
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_WINDOW = 1 << 16  # how far back a match may reach
_LARGEST = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_STORED = 1 << 31


def open_lz4(file: BinaryIO) -> io.BufferedReader:
    """The bytes that a file of LZ4 frames holds; a damaged file raises ``EOFError`` or ``ValueError`` when read.

    Examples
    --------
    >>> open_lz4(io.BytesIO(bytes.fromhex("04224d184040c0 03000080 616263 00000000"))).read()
    b'abc'
    """
    return io.BufferedReader(_Blocks(file), 1 << 20)


class _Blocks(io.RawIOBase):
    """A raw stream over decoded blocks."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._blocks = _frames(file)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = memoryview(block)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _frames(file: BinaryIO) -> Iterator[bytes]:
    while head := file.read(4):
        magic = _number(head, 4)
        if magic in _SKIPPABLE:
            _exactly(file, _number(file.read(4), 4))
        elif magic == _MAGIC:
            yield from _frame(file)
        else:
            raise ValueError("it does not hold LZ4 frames")


def _frame(file: BinaryIO) -> Iterator[bytes]:
    flags, sizes = _exactly(file, 2)
    largest = _LARGEST.get(sizes >> 4 & 7)
    if flags >> 6 != 1 or largest is None or flags & 1:  # another version, or a dictionary we do not have
        raise ValueError("it holds LZ4 frames of a kind that is not known")
    _exactly(file, 1 + (8 if flags & 8 else 0))  # the size of the content, if told, and the checksum of the header
    linked, checked = not flags & 32, flags & 16
    past = bytearray()
    while size := _number(file.read(4), 4):
        data = _exactly(file, size & ~_STORED, largest)
        if not linked:
            past.clear()
        before = len(past)
        if size & _STORED:
            past += data
        else:
            _decode(data, past, before + largest)
        yield bytes(past[before:])
        del past[:-_WINDOW]
        if checked:
            _exactly(file, 4)
    if flags & 4:
        _exactly(file, 4)


def _decode(data: bytes, out: bytearray, most: int) -> None:
    """Append what a block holds: runs of literals, each followed by a match, a copy from up to 64 KiB back."""
    at, end = 0, len(data)
    try:
        while at < end:
            token = data[at]
            at += 1
            length = token >> 4
            if length == 15:
                length, at = _longer(data, at, length)
            if length:
                if at + length > end:
                    raise ValueError("an LZ4 block is damaged")
                out += data[at : at + length]
                at += length
            if at == end:  # the last run has no match
                break
            back = data[at] | data[at + 1] << 8
            at += 2
            length = (token & 15) + 4
            if length == 19:
                length, at = _longer(data, at, length)
            start = len(out) - back
            if start < 0 or not back:
                raise ValueError("an LZ4 block is damaged")
            if length <= back:
                out += out[start : start + length]
            else:
                out += (out[start:] * (length // back + 1))[:length]
            if len(out) > most:
                raise ValueError("an LZ4 block is larger than its frame allows")
    except IndexError:
        raise ValueError("an LZ4 block is damaged") from None


def _longer(data: bytes, at: int, length: int) -> tuple[int, int]:
    while data[at] == 255:
        length += 255
        at += 1
    return length + data[at], at + 1


def _number(data: bytes, size: int) -> int:
    if len(data) < size:
        raise EOFError("it ends early")
    return int.from_bytes(data, "little")


def _exactly(file: BinaryIO, size: int, most: int | None = None) -> bytes:
    if most is not None and size > most:
        raise ValueError("an LZ4 block is larger than its frame allows")
    data = file.read(size)
    if len(data) < size:
        raise EOFError("it ends early")
    return data
