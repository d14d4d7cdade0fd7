"""Find the files in a data folder, including compressed files and files with alternative names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from carya.data.io.files import COMPRESSIONS, read_lines
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError

#: The splits of a data set.
PARTS = ("train", "test", "dev")

#: The names of the splits in other extreme-classification projects.
SHORT_PARTS = {"train": ("trn", "tr", "train"), "test": ("tst", "ts", "test"), "dev": ("dev", "val", "valid")}


def find_file(folder: Path, names: Iterable[str]) -> Path | None:
    """Return the first existing file with one of these names, with or without a compression suffix, or None.

    Raises InputError if both a compressed and an uncompressed file exist, because the two may differ.
    """
    for name in names:
        suffixes = ("",) if name.endswith((".npz", ".npy")) else ("", *COMPRESSIONS)
        files = [folder / (name + suffix) for suffix in suffixes if (folder / (name + suffix)).is_file()]
        if len(files) > 1:
            raise InputError(f"{folder} contains both {files[0].name} and {files[1].name}. Remove one of them.")
        if files:
            return files[0]
    return None


def require_file(folder: Path, names: Iterable[str]) -> Path:
    """Return the first existing file with one of these names; raise InputError if there is none."""
    names = list(names)
    file = find_file(folder, names)
    if file is None:
        raise InputError(f"{folder} contains no {' or '.join(names)}.")
    return file


def read_numbered_names(file: Path) -> Vocabulary:
    """Return the labels listed in a file, one per line, in index order.

    If a line is empty or repeated, label indices are used as ids and the lines as names.
    """
    lines = list(read_lines(file))
    ids = lines if all(lines) and len(set(lines)) == len(lines) else [str(number) for number in range(len(lines))]
    return Vocabulary(ids, lines, source=str(file))


def check_no_conflict(folder: Path, name: str, *, replaced: str = "") -> None:
    """Raise InputError if a folder contains a file that would be confused with the files to be written.

    Parameters
    ----------
    folder : Path
    name : str
        The name of the conflicting file, without a compression suffix.
    replaced : str
        The name of the file to be written; an existing file with this exact name is replaced and causes no conflict.
    """
    file = find_file(folder, [name])
    if file is not None and file.name != replaced:
        raise InputError(f"{file} exists and would conflict with the new files. Choose another folder.")
