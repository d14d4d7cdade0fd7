r"""Read and write text and binary files, compressed or not. All data formats use these functions.

The suffix of a path selects the compression: ``.gz``, ``.xz`` or ``.zst``; any other suffix means no compression. ``-``
means standard input or output. Text is encoded in UTF-8, or in UTF-16 with a byte order mark, and only ``\n`` and
``\r\n`` end a line.
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import itertools
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from carya.core.atomic import atomic_file
from carya.core.extras import require
from carya.data.io.reading_progress import open_counted
from carya.data.io.utf16 import UTF16_MARKS, UTF32_MARK, Utf16Reader
from carya.data.io.zstd import ZstdReader
from carya.errors import InputError, SaveError

#: The path of a file.
PathLike = str | os.PathLike[str]

#: The suffixes of compressed files.
COMPRESSIONS = (".gz", ".xz", ".zst")

#: The suffixes of files that contain a single matrix.
MATRIX_SUFFIXES = (".npz", ".npy")

_BUFFER_SIZE = 1 << 18
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_STDIN, _STDOUT = 0, 1
_MAX_LINE_BYTES = 1 << 27  # lines must fit into memory; a longer line indicates a damaged file or a compression bomb
_GZIP_LEVEL = 6  # as in the gzip command; Python's default (9) takes twice as long for files that are 1% smaller


def is_stdio(path: PathLike) -> bool:
    """Return whether a path means standard input or output."""
    return os.fspath(path) == "-"


def display_name(path: PathLike) -> str:
    """Return the name of an input file for error messages."""
    return "standard input" if is_stdio(path) else os.fspath(path)


def uncompressed_name(path: PathLike) -> str:
    """Return the name of a file without its folder and without a compression suffix.

    Examples
    --------
    >>> uncompressed_name("sets/train.jsonl.gz")
    'train.jsonl'
    """
    return Path(path).name.removesuffix(_compression(path))


def read_lines(path: PathLike, *, keep_ends: bool = False) -> Iterator[str]:
    """Yield the lines of a text file; lines of a stream are yielded as soon as they arrive.

    A byte order mark at the beginning is ignored.

    Parameters
    ----------
    path : path
    keep_ends : bool
        Whether to keep the newline at the end of each line.

    Raises
    ------
    InputError
        If the file cannot be read, a line is too long, or a line is not valid UTF-8. In the last case, the preceding
        lines are yielded first.
    """
    with _open_input(path) as stream:
        n_lines = 0
        partial_line: list[bytes] = []
        partial_bytes = 0
        mark = _BYTE_ORDER_MARK
        for chunk in itertools.chain(_chunks(path, lambda: stream.read1(_BUFFER_SIZE)), [b""]):
            end = chunk.rfind(b"\n") + 1
            if chunk and not end:
                partial_line.append(chunk)
                partial_bytes += len(chunk)
                if partial_bytes > _MAX_LINE_BYTES:
                    raise _line_too_long(path, n_lines + 1)
                continue
            block = b"".join([*partial_line, chunk[:end]])
            partial_line = [chunk[end:]]
            partial_bytes = 0
            if block:
                for lines in _decode_lines(block.removeprefix(mark), keep_ends, path, n_lines):
                    n_lines += len(lines)
                    yield from lines
                mark = b""


def _decode_lines(block: bytes, keep_ends: bool, path: PathLike, n_lines: int) -> Iterator[list[str]]:
    """Yield the lines of a block as one list; yield the lines that precede a UTF-8 error before raising the error."""
    problem = None
    try:
        text = block.decode()
    except UnicodeDecodeError as error:
        start = block.rfind(b"\n", 0, error.start) + 1
        problem = f"Invalid UTF-8: byte 0x{block[error.start]:02x} at position {error.start - start + 1}."
        text = block[:start].decode()
    lines = text.split("\n")
    last = lines.pop()  # empty if the last line ends with a newline
    if keep_ends:
        lines = [line + "\n" for line in lines]
    elif "\r" in text:
        lines = [line.removesuffix("\r") for line in lines]
    yield [*lines, last] if last else lines
    if problem is not None:
        raise InputError(f"{display_name(path)}, line {n_lines + len(lines) + 1}: {problem}")


def read_blocks(path: PathLike, size: int = 1 << 19) -> Iterator[bytes]:
    """Yield blocks of complete lines, about `size` bytes each; append a newline if the file does not end with one."""
    with _open_input(path) as stream:
        block = bytearray()
        mark = _BYTE_ORDER_MARK
        n_lines = 0
        for chunk in _chunks(path, lambda: stream.read(size)):
            end = chunk.rfind(b"\n") + 1
            block += chunk[:end] if end else chunk
            if end:
                n_lines += block.count(b"\n")
                yield bytes(block).removeprefix(mark)
                block, mark = bytearray(chunk[end:]), b""
            elif len(block) > _MAX_LINE_BYTES:
                raise _line_too_long(path, n_lines + 1)
        if block.removeprefix(mark):
            yield bytes(block).removeprefix(mark) + b"\n"


def _line_too_long(path: PathLike, line: int) -> InputError:
    return InputError(
        f"{display_name(path)}, line {line}: The line exceeds the limit of {_MAX_LINE_BYTES >> 20} MiB. Check "
        "that the file has one example per line, or split the text."
    )


def read_text(path: PathLike) -> Iterator[str]:
    """Yield the text of a file in chunks, for formats that are not line-based."""
    with _open_input(path) as stream:
        decode = codecs.getincrementaldecoder("utf-8")().decode
        n_lines = 0
        mark = _BYTE_ORDER_MARK.decode()
        for chunk in itertools.chain(_chunks(path, lambda: stream.read1(_BUFFER_SIZE)), [b""]):
            try:
                text = decode(chunk, not chunk)
            except UnicodeDecodeError as error:
                line = n_lines + error.object[: error.start].count(b"\n") + 1
                byte = error.object[error.start]
                raise InputError(f"{display_name(path)}, line {line}: Invalid UTF-8: byte 0x{byte:02x}.") from None
            n_lines += text.count("\n")
            if text:
                yield text.removeprefix(mark)
                mark = ""


def read_bytes(path: PathLike) -> bytes:
    """Return the decompressed contents of a file."""
    with _open_input(path) as stream:
        return b"".join(_chunks(path, lambda: stream.read(_BUFFER_SIZE)))


@contextmanager
def open_output(path: PathLike) -> Iterator[BinaryIO]:
    """Open a file for writing bytes; on success, an existing file is replaced atomically.

    Raises
    ------
    SaveError
        If the path cannot be written.
    """
    try:
        with contextlib.ExitStack() as stack:
            if is_stdio(path) or (Path(path).exists() and not Path(path).is_file()):  # a pipe or a device
                target = stack.enter_context(_open_stream(path))
            else:
                target = stack.enter_context(atomic_file(Path(os.path.realpath(path))))
            yield stack.enter_context(_compress(path, target))
    except OSError as error:
        if isinstance(error, (SaveError, BrokenPipeError)):
            raise
        name = "standard output" if is_stdio(path) else os.fspath(path)
        raise SaveError(f"{name}: {error.strerror or error}.") from error


@contextmanager
def open_text_output(path: PathLike) -> Iterator[Callable[[str], object]]:
    """Yield a function that writes text to a file as UTF-8; see :func:`open_output`."""
    with open_output(path) as stream:
        is_empty = True

        def write(text: str) -> None:
            nonlocal is_empty
            try:
                raw = text.encode()
            except UnicodeEncodeError as error:
                surrogate = text[error.start].encode("unicode-escape").decode()
                raise InputError(
                    f"{os.fspath(path)}: The text contains a lone surrogate, {surrogate}, which UTF-8 cannot encode."
                ) from None
            if is_empty and raw.startswith(_BYTE_ORDER_MARK):
                stream.write(_BYTE_ORDER_MARK)  # a second byte order mark, because readers skip the first one
            is_empty = is_empty and not raw
            stream.write(raw)

        yield write


def _compression(path: PathLike) -> str:
    suffix = Path(path).suffix
    return suffix if suffix in COMPRESSIONS else ""


def _zstandard(path: PathLike) -> Any:
    return require("zstandard", extra="zstd", purpose=os.fspath(path))


@contextmanager
def _open_input(path: PathLike) -> Iterator[Any]:
    """Open a file for reading decompressed bytes; UTF-16 text is converted to UTF-8."""
    with contextlib.ExitStack() as stack:
        try:
            file = _standard_input(stack) if is_stdio(path) else stack.enter_context(open_counted(path, _BUFFER_SIZE))
        except OSError as error:
            raise InputError(f"{display_name(path)}: {error.strerror or error}.") from None
        stream: Any
        match _compression(path):
            case ".gz":
                stream = stack.enter_context(io.BufferedReader(gzip.GzipFile(fileobj=file), _BUFFER_SIZE))
            case ".xz":
                stream = stack.enter_context(io.BufferedReader(lzma.LZMAFile(file), _BUFFER_SIZE))  # noqa: SIM115
            case ".zst":
                stream = stack.enter_context(io.BufferedReader(ZstdReader(file, _zstandard(path)), _BUFFER_SIZE))
            case _:
                stream = file  # without a second buffer, which would delay the lines of a stream until it is full
        with _input_errors(path):
            mark = stream.peek(len(UTF32_MARK))[: len(UTF32_MARK)]
        if mark == UTF32_MARK:
            raise InputError(f"{display_name(path)}: The text is encoded in UTF-32. Convert it to UTF-8.")
        if mark[:2] in UTF16_MARKS:
            stream = stack.enter_context(io.BufferedReader(Utf16Reader(stream, display_name(path)), _BUFFER_SIZE))
        yield stream


def _standard_input(stack: contextlib.ExitStack) -> Any:
    """Return the buffer of standard input, from which :func:`peek_standard_input` may already have read."""
    buffer = getattr(sys.stdin, "buffer", None)
    return stack.enter_context(open(_STDIN, "rb", closefd=False)) if buffer is None else buffer


def peek_standard_input() -> bytes:
    """Return the bytes currently available on standard input without consuming them."""
    buffer: Any = getattr(sys.stdin, "buffer", None)
    if buffer is None:
        return b""
    with _input_errors("-"):
        return bytes(buffer.peek())


def _chunks(path: PathLike, read: Callable[[], bytes]) -> Iterator[bytes]:
    """Yield the results of `read` until it returns no data; convert its exceptions to InputError."""
    while True:
        with _input_errors(path):
            chunk = read()
        if not chunk:
            return
        yield chunk


@contextmanager
def _input_errors(path: PathLike) -> Iterator[None]:
    """Convert exceptions raised while reading or decompressing a file to InputError."""
    decompression_errors: tuple[type[Exception], ...] = (zlib.error, lzma.LZMAError, gzip.BadGzipFile)
    if _compression(path) == ".zst":
        decompression_errors += (_zstandard(path).ZstdError,)
    try:
        yield
    except EOFError:
        raise InputError(f"{display_name(path)}: The compressed data is truncated.") from None
    except decompression_errors:
        raise InputError(f"{display_name(path)}: The file is damaged or not a {_compression(path)} file.") from None
    except OSError as error:
        raise InputError(f"{display_name(path)}: {error.strerror or error}.") from None


@contextmanager
def _open_stream(path: PathLike) -> Iterator[BinaryIO]:
    """Open standard output, a pipe or a device, none of which can be replaced atomically."""
    target: Any = _STDOUT if is_stdio(path) else path
    with open(target, "wb", closefd=not is_stdio(path)) as stream:
        yield stream


@contextmanager
def _compress(path: PathLike, target: BinaryIO) -> Iterator[BinaryIO]:
    """Yield a stream that compresses its data according to the suffix of the path."""
    stream: Any
    match _compression(path):
        case ".gz":  # without a file name or timestamp, so that the same data results in the same bytes
            stream = gzip.GzipFile("", "wb", _GZIP_LEVEL, target, mtime=0)
        case ".xz":
            stream = lzma.LZMAFile(target, "wb")  # noqa: SIM115
        case ".zst":
            compressor = _zstandard(path).ZstdCompressor(write_checksum=True)
            stream = compressor.stream_writer(target, closefd=False)
        case _:
            yield target
            return
    with stream:
        yield stream
