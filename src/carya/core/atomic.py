"""Atomic writes: a file or folder appears at its path either complete or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from carya import _core

#: Maximum number of attempts to replace a folder while other processes are replacing it.
_MAX_ATTEMPTS = 100
#: Errors that occur if the file system cannot swap two folders.
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP)
#: Errors that occur if another process has created, moved or removed the folder in the meantime.
_CONCURRENT_CHANGE = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST)


def temporary_sibling(path: Path) -> Path:
    """Return an unused hidden path in the folder of `path`, so that a rename to `path` stays within one file system."""
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


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Create a hidden folder next to `path`; remove it on exit, unless it has been renamed to `path`.

    Temporary folders for `path` left by killed processes are removed as well. Each process holds a lock on its folder,
    so the folders of running processes are kept.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path)
    folder, lock = _create_locked(path)
    try:
        yield folder
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def replace_folder(new: Path, path: Path) -> None:
    """Rename a folder to `path`, replacing an existing folder.

    The complete old folder remains at its path until the new folder takes its place. If the file system cannot swap two
    folders, the old folder is briefly moved to the path returned by :func:`replaced_folder`, where readers look for it.
    """
    flush_folder(new)
    for attempt in range(1, _MAX_ATTEMPTS + 1):
        try:
            _replace(new, path)
            break
        except OSError as error:
            if error.errno not in _CONCURRENT_CHANGE or attempt == _MAX_ATTEMPTS:
                raise
    with contextlib.suppress(OSError):  # some file systems cannot flush folders
        _flush_entries(path.parent)
    _remove_replaced(path)


def replaced_folder(path: Path) -> Path:
    """Return the path to which a folder is moved while it is being replaced, if the file system cannot swap folders."""
    return path.parent / f".{path.name}.old"


def flush_to_disk(file: IO[Any]) -> None:
    """Flush the buffered data of a file to disk."""
    file.flush()
    os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Flush all files and subfolders of a folder to disk, so that a later rename cannot reach the disk before them."""
    for parent, _, files in os.walk(folder, topdown=False):
        for name in files:
            with (Path(parent) / name).open("rb") as file:
                os.fsync(file.fileno())
        _flush_entries(Path(parent))


def _flush_entries(folder: Path) -> None:
    """Flush the directory entries of a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: the file system cannot flush folders
            raise
    finally:
        os.close(descriptor)


def _replace(new: Path, path: Path) -> None:
    if not os.path.lexists(path):
        new.rename(path)  # fails if another process has created a folder there in the meantime
        return
    error = _core.exchange_paths(os.fsencode(new), os.fsencode(path))
    if error == 0:
        return
    if error not in _NO_EXCHANGE:
        raise OSError(error, os.strerror(error), str(path))
    with _locked(path.parent):  # no other process may remove the folder that this one has moved aside
        _move_aside_and_rename(new, path)


def _move_aside_and_rename(new: Path, path: Path) -> None:
    old = replaced_folder(path)
    if path.exists():
        _remove_replaced(path)
    path.rename(old)
    try:
        new.rename(path)
    except OSError:
        with contextlib.suppress(OSError):  # fails if another process has created a folder there in the meantime
            old.rename(path)
        raise


def _remove_replaced(path: Path) -> None:
    """Remove the replaced folder, after renaming it so that readers cannot open an incomplete folder."""
    with contextlib.suppress(OSError):
        removed = temporary_sibling(path)
        replaced_folder(path).rename(removed)
        shutil.rmtree(removed, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder, if the file system supports locks."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _create_locked(path: Path) -> tuple[Path, int]:
    """Create and lock a temporary folder; return its path and the file descriptor that holds the lock."""
    while True:
        folder = temporary_sibling(path)
        folder.mkdir()
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # another process removed the folder before it was locked
            continue
        with contextlib.suppress(OSError):  # not supported by all file systems
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.exists():
            return folder, descriptor
        os.close(descriptor)


def _remove_abandoned(path: Path) -> None:
    """Remove the temporary folders of `path` that no process has locked."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}\.tmp")
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        names = [entry.name for entry in entries if pattern.fullmatch(entry.name)]
        for name in names:
            with contextlib.suppress(OSError):  # locked, or already removed
                descriptor = os.open(path.parent / name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path.parent / name, ignore_errors=True)
                finally:
                    os.close(descriptor)
