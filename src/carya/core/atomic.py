"""Atomic writes: a file or folder appears at its path either complete or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from carya import _core


def temporary_sibling(path: Path) -> Path:
    """Return an unused hidden path in the same folder, so that renaming it to `path` stays within one file system."""
    return path.parent / f".{path.name}.{secrets.token_hex(8)}.tmp"


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file for writing; it replaces `path` on success and is deleted on error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path.parent)) from None
    temporary = temporary_sibling(path)
    try:
        with temporary.open("xb") as stream:
            yield stream
            flush_to_disk(stream)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def replace_folder(new: Path, path: Path) -> None:
    """Rename a folder to `path`; an existing folder is replaced atomically if the operating system supports it."""
    if not path.exists():
        new.rename(path)
    elif not _core.exchange_paths(os.fspath(new), os.fspath(path)):
        old = new.with_suffix(".old")
        path.rename(old)
        new.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    with contextlib.suppress(OSError):  # make the rename durable
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def flush_to_disk(file: IO[Any]) -> None:
    """Flush all buffered data of a file to disk."""
    file.flush()
    os.fsync(file.fileno())
