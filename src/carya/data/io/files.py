r"""Lines of text and bytes from files, compressed or not, and into them; all formats read and write by these functions.

The suffix of a path says how it is compressed: ``.gz``, ``.xz``, ``.zst``, or not at all. ``-`` is standard input or
output. Text is UTF-8, and a line ends with ``\n`` or ``\r\n`` and nothing else.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import lzma
import os
import secrets
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from carya.core.extras import need
from carya.data.io.zstd import ZstdReader
from carya.errors import InputError, SaveError

#: Anything that names a file.
PathLike = str | os.PathLike[str]

#: The suffixes of compressed files.
COMPRESSIONS = (".gz", ".xz", ".zst")

_BUFFER = 1 << 18
_BOM = b"\xef\xbb\xbf"
_STANDARD_INPUT, _STANDARD_OUTPUT = 0, 1
_FAST = 6  # as the gzip command; Python's default takes twice the time for 1 % of the bytes


def is_standard(path: PathLike) -> bool:
    """Whether a path means standard input or output."""
    return os.fspath(path) == "-"


def shown(path: PathLike) -> str:
    """What messages call a file to be read."""
    return "standard input" if is_standard(path) else os.fspath(path)


def bare_name(path: PathLike) -> str:
    """The name of a file without its folder and without the suffix of a compression.

    Examples
    --------
    >>> bare_name("sets/train.jsonl.gz")
    'train.jsonl'
    """
    name = Path(path).name
    return name.removesuffix(_compression(path))


def read_lines(path: PathLike, *, ends: bool = False) -> Iterator[str]:
    """The lines of a text, one after the other, without what ends them; with it if `ends`.

    A byte order mark at the start is no part of the text. Bytes that are no UTF-8 raise InputError with the line. Lines
    of a stream are given as soon as they have come.
    """
    with _opened(path) as stream:
        before = 0  # lines
        begun: list[bytes] = []  # pieces of a line
        mark = _BOM
        for piece in itertools.chain(_pieces(path, lambda: stream.read1(_BUFFER)), [b""]):
            end = piece.rfind(b"\n") + 1
            if piece and not end:
                begun.append(piece)
                continue
            block = b"".join([*begun, piece[:end]])
            begun = [piece[end:]]
            if block:
                lines = _lines(block.removeprefix(mark), ends, path, before)
                mark = b""
                for lines_read in lines:
                    before += len(lines_read)
                    yield from lines_read


def _lines(block: bytes, ends: bool, path: PathLike, before: int) -> Iterator[list[str]]:
    """The lines of a block, all at once; if it is no UTF-8 those before the one that is wrong."""
    bad = None
    try:
        text = block.decode()
    except UnicodeDecodeError as error:
        start = block.rfind(b"\n", 0, error.start) + 1
        bad = f"not UTF-8: byte 0x{block[error.start]:02x} at position {error.start - start + 1}"
        text = block[:start].decode()
    lines = text.split("\n")
    last = lines.pop()  # what follows the last end: nothing, unless the file ends without one
    if ends:
        lines = [line + "\n" for line in lines]
    elif "\r" in text:
        lines = [line.removesuffix("\r") for line in lines]
    yield [*lines, last] if last else lines
    if bad is not None:
        raise InputError(f"{shown(path)}, line {before + len(lines) + 1}: {bad}")


def read_blocks(path: PathLike, size: int = 1 << 19) -> Iterator[bytes]:
    """Whole lines, many at once: about `size` bytes, the last line ended as well."""
    with _opened(path) as stream:
        block = b""
        mark = _BOM  # before the first line only
        for piece in _pieces(path, lambda: stream.read(size)):
            block += piece
            end = block.rfind(b"\n") + 1
            if end:
                yield block[:end].removeprefix(mark)
                block, mark = block[end:], b""
        if block.removeprefix(mark):
            yield block.removeprefix(mark) + b"\n"


def read_bytes(path: PathLike) -> bytes:
    """All of a file."""
    with _opened(path) as stream:
        return b"".join(_pieces(path, lambda: stream.read(_BUFFER)))


@contextmanager
def writing(path: PathLike) -> Iterator[BinaryIO]:
    """A file to write bytes into; what the path names changes when all is written, or not at all.

    Raises SaveError if the place cannot be written to.
    """
    try:
        with contextlib.ExitStack() as stack:
            if is_standard(path) or (Path(path).exists() and not Path(path).is_file()):  # a pipe, a device
                target = stack.enter_context(_to_stream(path))
            else:
                target = stack.enter_context(_to_sibling(Path(os.path.realpath(path))))
            yield stack.enter_context(_compressing(path, target))
    except OSError as error:
        if isinstance(error, (SaveError, BrokenPipeError)):
            raise
        name = "standard output" if is_standard(path) else os.fspath(path)
        raise SaveError(f"{name}: {error.strerror or error}") from error


@contextmanager
def writing_text(path: PathLike) -> Iterator[Callable[[str], object]]:
    """A function that writes text to a file as UTF-8; the file is as in :func:`writing`."""
    with writing(path) as stream:
        first = True

        def write(text: str) -> None:
            nonlocal first
            try:
                raw = text.encode()
            except UnicodeEncodeError as error:
                lone = text[error.start].encode("unicode-escape").decode()
                raise InputError(f"{os.fspath(path)}: half a character, {lone}, cannot be written as UTF-8") from None
            if first and raw.startswith(_BOM):
                stream.write(_BOM)  # readers drop one
            first = first and not raw
            stream.write(raw)

        yield write


def _compression(path: PathLike) -> str:
    suffix = Path(path).suffix
    return suffix if suffix in COMPRESSIONS else ""


@contextmanager
def _opened(path: PathLike) -> Iterator[Any]:
    try:
        place = _STANDARD_INPUT if is_standard(path) else path
        opened = open(place, "rb", buffering=_BUFFER, closefd=not is_standard(path))  # noqa: SIM115
    except OSError as error:
        raise InputError(f"{shown(path)}: {error.strerror or error}") from None
    with opened as file:
        if not _compression(path):
            yield file  # no second buffer: that would wait until it is full
            return
        stream: Any = file
        match _compression(path):
            case ".gz":
                stream = gzip.GzipFile(fileobj=file)
            case ".xz":
                stream = lzma.LZMAFile(file)  # noqa: SIM115
            case ".zst":
                stream = ZstdReader(file, need("zstandard", "zstd", os.fspath(path)))
        with io.BufferedReader(stream, _BUFFER) as buffered:
            yield buffered


def _pieces(path: PathLike, read: Callable[[], bytes]) -> Iterator[bytes]:
    """What `read` gives until it gives nothing; what it raises becomes an InputError."""
    broken: tuple[type[Exception], ...] = (zlib.error, lzma.LZMAError, gzip.BadGzipFile)
    if _compression(path) == ".zst":
        broken += (need("zstandard", "zstd", os.fspath(path)).ZstdError,)
    while True:
        try:
            piece = read()
        except EOFError:
            raise InputError(f"{shown(path)}: the file ends in the midst of its compressed data") from None
        except broken:
            raise InputError(f"{shown(path)}: damaged, or no {_compression(path)} file") from None
        except OSError as error:
            raise InputError(f"{shown(path)}: {error.strerror or error}") from None
        if not piece:
            return
        yield piece


@contextmanager
def _to_stream(path: PathLike) -> Iterator[BinaryIO]:
    place: Any = _STANDARD_OUTPUT if is_standard(path) else path
    with open(place, "wb", closefd=not is_standard(path)) as stream:
        yield stream


@contextmanager
def _to_sibling(place: Path) -> Iterator[BinaryIO]:
    """A file beside its place, moved there when it is whole and removed when it is not."""
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = place.parent / f".{place.name}.{secrets.token_hex(8)}.tmp"
    try:
        with beside.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def _compressing(path: PathLike, target: BinaryIO) -> Iterator[BinaryIO]:
    stream: Any
    match _compression(path):
        case ".gz":  # no name and no time in it: same data, same bytes
            stream = gzip.GzipFile("", "wb", _FAST, target, mtime=0)
        case ".xz":
            stream = lzma.LZMAFile(target, "wb")  # noqa: SIM115
        case ".zst":
            compressor = need("zstandard", "zstd", os.fspath(path)).ZstdCompressor(write_checksum=True)
            stream = compressor.stream_writer(target, closefd=False)
        case _:
            yield target
            return
    with stream:
        yield stream
