"""Determine the format of a file or folder from its suffix, its first line, or the files in the folder."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from carya.data.formats.registry import FORMAT_BY_SUFFIX, FORMATS, Content, Format, format_names
from carya.data.io.files import PathLike, display_name, is_stdio, uncompressed_name
from carya.errors import InputError, ParameterError


def detect_format(path: PathLike, part: str, labels: PathLike | None) -> str:
    """Return the name of the format of existing data; raise InputError if it cannot be determined."""
    suffix = Path(uncompressed_name(path)).suffix
    if labels is not None and not Path(path).is_dir() and suffix not in FORMAT_BY_SUFFIX:
        return "pair"
    if is_stdio(path):
        raise InputError(f"Standard input requires a format: {_names()}.")
    if Path(path).is_dir():
        return _detect_folder_format(Path(path), part)
    if suffix == ".txt":
        from carya.data.formats.matrices.xmc import looks_like_xmc

        if looks_like_xmc(path):
            return "xmc"
        raise InputError(
            f"{path}: Texts in a .txt file require a file of labels (labels= or --labels). For another format, pass "
            f"its name: {_names()}."
        )
    if suffix == ".tsv":
        from carya.data.formats.texts.annif import looks_like_annif

        if looks_like_annif(path):
            return "annif"
    return _format_of_suffix(path, suffix)


def choose_format(path: PathLike, content: Content, labels: PathLike | None) -> str:
    """Return the name of the format in which to write to a path; raise InputError if the path does not determine it."""
    if labels is not None:
        return "pair"
    if is_stdio(path):
        raise InputError(f"Standard output requires a format: {_names(writable=True)}.")
    suffix = Path(uncompressed_name(path)).suffix
    if Path(path).is_dir() or not suffix or os.fspath(path).endswith("/"):
        return "texts" if content == "texts" else "pecos"
    if suffix == ".txt":
        if content == "features":
            return "xmc"
        raise InputError(
            f"{path}: Texts in a .txt file require a file of labels (labels= or --to-labels). For another format, pass "
            f"its name: {_names(writable=True)}."
        )
    return _format_of_suffix(path, suffix)


def check_format(name: str, path: PathLike, options: Collection[str], *, write: bool = False) -> Format:
    """Return the format with this name; raise an error if it does not exist or does not match the path or options.

    Parameters
    ----------
    name : str
    path : path
        The data to be read or written.
    options : collection of str
        The names of the options that the user set.
    write : bool
        Whether the data is to be written.
    """
    names = format_names(writable=write)
    if name not in names:
        raise ParameterError(f"{display_name(path)}: format must be one of {', '.join(names)}, got {name!r}.")
    form = FORMATS[name]
    for option in options:
        if option not in form.options:
            raise ParameterError(f"{display_name(path)}: The format {name!r} does not support {option}.")
    if name == "pair" and "labels" not in options:
        raise ParameterError(f"{display_name(path)}: The format 'pair' requires labels, the path of a second file.")
    if is_stdio(path):
        return form
    if form.is_folder and Path(path).exists() and not Path(path).is_dir():
        raise InputError(f"{path} is a file, but the format {name!r} requires a folder.")
    if not form.is_folder and Path(path).is_dir():
        raise InputError(f"{path} is a folder, but the format {name!r} requires a file.")
    return form


def _detect_folder_format(folder: Path, part: str) -> str:
    folder_formats = {name: form for name, form in FORMATS.items() if form.is_folder}
    for name, form in folder_formats.items():
        if form.load(form.detect)(folder, part):
            return name
    short_part = {"train": "trn", "test": "tst"}.get(part, part)
    expected = [form.folder_file.format(part=part, short_part=short_part) for form in folder_formats.values()]
    raise InputError(
        f"{folder} contains no data for part {part!r}. Expected {', '.join(expected[:-1])}, or {expected[-1]}."
    )


def _format_of_suffix(path: PathLike, suffix: str) -> str:
    if suffix not in FORMAT_BY_SUFFIX:
        suffixes = ", ".join((*FORMAT_BY_SUFFIX, ".txt"))
        raise InputError(
            f'{path}: Unknown file type "{suffix}". Use {suffixes}, optionally with .gz, .xz or .zst, or pass a '
            f"format: {_names()}."
        )
    return FORMAT_BY_SUFFIX[suffix]


def _names(*, writable: bool = False) -> str:
    return ", ".join(format_names(writable=writable))
