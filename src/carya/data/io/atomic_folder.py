"""Folders that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path

from carya.core.storage import move_into_place
from carya.errors import SaveError


@contextmanager
def new_folder(path: str | os.PathLike[str], ours: Container[str]) -> Iterator[Path]:
    """A folder beside the wanted place, renamed to it at the end; after an error or Ctrl-C nothing is left.

    Parameters
    ----------
    path : path
        Where the folder will be. What is there already is replaced only if it holds nothing but ``ours``.
    ours : container of str
        Names of files that a data set of this kind has.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     with new_folder(f"{place}/set", {"x.txt"}) as folder:
    ...         _ = (folder / "x.txt").write_text("hello")
    ...     os.listdir(place), os.listdir(f"{place}/set")
    (['set'], ['x.txt'])
    """
    place = Path(os.path.abspath(path))  # noqa: PTH100  (resolve() would follow links)
    check_place(place, ours)
    beside = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        beside.mkdir()
    except OSError as error:
        raise SaveError(f"{path} cannot be written: {error.strerror}") from None
    try:
        yield beside
        _put(beside, place, ours)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _put(beside: Path, place: Path, ours: Container[str]) -> None:
    try:
        check_place(place, ours)
        move_into_place(beside, place)
    except OSError as error:
        if isinstance(error, SaveError):
            raise
        raise SaveError(f"{place} cannot be written: {error.strerror or error}") from None


def check_place(path: str | os.PathLike[str], ours: Container[str]) -> None:
    """Refuse a place where something else is.

    >>> check_place("/nowhere/at/all", ())
    """
    place = Path(path)
    if not place.name:
        raise SaveError(f"{path} is not a place for a data set: give the path of a folder")
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise SaveError(f"{path} exists and is not a folder")
    if place.is_dir():
        foreign = sorted(entry.name for entry in place.iterdir() if entry.name not in ours)
        if foreign:
            raise SaveError(
                f"{path} exists and holds {foreign[0]!r}, which is no part of such a data set; it is left alone"
            )
