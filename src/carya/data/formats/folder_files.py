"""The files a data folder is made of: each under one of a few names, compressed or not."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from carya.data.io.files import COMPRESSIONS
from carya.errors import InputError

#: What a data set may be cut into.
PARTS = ("train", "test", "dev")


def piece(folder: Path, names: Iterable[str]) -> Path | None:
    """The file of the first of these names that is there, with any suffix of a compression; None if there is none.

    Raises InputError if it is there both compressed and not: they may differ.
    """
    for name in names:
        suffixes = ("",) if name.endswith((".npz", ".npy")) else ("", *COMPRESSIONS)
        found = [folder / (name + suffix) for suffix in suffixes if (folder / (name + suffix)).is_file()]
        if len(found) > 1:
            raise InputError(f"{folder}: there are both {found[0].name} and {found[1].name}; only one can be meant")
        if found:
            return found[0]
    return None


def refuse(folder: Path, name: str, but: str = "") -> None:
    """Raise InputError if a folder has a file that would be taken for one to be written, or together with it.

    Parameters
    ----------
    folder : Path
    name : str
        Of the file, without the suffix of a compression.
    but : str
        The name that is about to be written, and so may be there.
    """
    there = piece(folder, [name])
    if there is not None and there.name != but:
        raise InputError(f"{there} is in the way: choose another folder")


def needed(folder: Path, names: Iterable[str]) -> Path:
    """The same; raises InputError if there is none."""
    names = list(names)
    found = piece(folder, names)
    if found is None:
        raise InputError(f"{folder}: there is no {' or '.join(names)} in it")
    return found
