"""Detect the format of a file or folder from its suffix, its first lines, or the files in the folder."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from carya.data.formats.content import first_lines, guess_format
from carya.data.formats.registry import FORMAT_BY_SUFFIX, FORMATS, Content, Format, format_names
from carya.data.formats.tables.delimited import guess_table
from carya.data.io.files import PathLike, display_name, is_stdio, uncompressed_name
from carya.errors import InputError, ParameterError

#: Suffixes shared by several formats, each with the formats that can be recognized by their first lines.
_AMBIGUOUS_SUFFIXES = {".tsv": ("text2text",), ".json": ("xmc-json",), ".jsonl": ("xmc-json",)}
#: Suffixes of files in which any line can be a text.
_LINE_SUFFIXES = (".txt", "")


def detect_format(
    path: PathLike,
    part: str,
    labels: PathLike | None,
    *,
    needs_labels: bool = True,
    default: str | None = None,
    text_column: str = "text",
) -> str:
    """Return the format name of existing data; raise InputError if the format cannot be detected.

    Parameters
    ----------
    path : path
    part : str
        The split to read, if the path is a folder.
    labels : path or None
        The separate label file that the user passed, if any.
    needs_labels : bool
        Whether labels are required. If not, a text file in an unknown format is read as one text per line.
    default : str, optional
        The format to assume if the suffix and the first lines of a file do not determine it. If labels are not
        required, any line can be a text, so the default is used only if it is a format for features.
    text_column : str
        The name of the text column, by which the header of a table on standard input is recognized.
    """
    if not is_stdio(path) and Path(path).is_dir():
        return _detect_folder_format(Path(path), part)
    suffix = "" if is_stdio(path) else Path(uncompressed_name(path)).suffix
    if suffix in FORMAT_BY_SUFFIX and suffix not in _AMBIGUOUS_SUFFIXES:
        return FORMAT_BY_SUFFIX[suffix]
    lines = first_lines(path)
    content = guess_format(lines)
    if suffix in _AMBIGUOUS_SUFFIXES:
        return _choose_between(path, suffix, content)
    if labels is not None:
        return content if content in ("xmc", "xmc-pair") else "pair"
    if content is None and needs_labels and _begins_like_xmc(path, suffix):
        content = "xmc"
    if content is None and suffix == "":
        content = guess_table(lines, text_column, default)
    are_lines = not needs_labels and suffix in _LINE_SUFFIXES
    if content is None and suffix != ".txt" and _is_file_format(default, features=are_lines):
        content = default
    elif content is None and are_lines:
        content = "lines"
    return content or _format_of_suffix(path, suffix)


def _choose_between(path: PathLike, suffix: str, content: str | None) -> str:
    """Return the format of a file whose suffix is shared by several formats."""
    if suffix == ".tsv":
        from carya.data.formats.texts.annif import looks_like_annif

        if looks_like_annif(path):
            return "annif"
    return content if content in _AMBIGUOUS_SUFFIXES[suffix] else FORMAT_BY_SUFFIX[suffix]


def _is_file_format(name: str | None, *, features: bool) -> bool:
    """Return whether a name identifies a file format; if `features` is true, only formats for features count."""
    return name is not None and not FORMATS[name].is_folder and not (features and FORMATS[name].content == "texts")


def _begins_like_xmc(path: PathLike, suffix: str) -> bool:
    """Return whether the first line of a file is an XMC header, without examining the rows."""
    from carya.data.formats.matrices.xmc import looks_like_xmc

    return suffix == ".txt" and looks_like_xmc(path)


def choose_format(path: PathLike, content: Content, labels: PathLike | None) -> str:
    """Return the name of the output format for a path; raise InputError if the path does not determine it."""
    if labels is not None and content == "texts":
        return "pair"
    if is_stdio(path):
        raise InputError(f"Standard output requires a format. Pass one of: {_names(writable=True)}.")
    suffix = Path(uncompressed_name(path)).suffix
    if Path(path).is_dir() or not suffix or os.fspath(path).endswith("/"):
        return "texts" if content == "texts" else "pecos"
    if suffix == ".txt" and content == "features":
        return "xmc-pair" if labels is not None or "_Xf." in os.fspath(path) else "xmc"
    return _format_of_suffix(path, suffix, write=True)


def check_format(name: str, path: PathLike, options: Collection[str], *, write: bool = False) -> Format:
    """Return the format with this name; raise an error if it does not exist or does not match the path or options.

    Parameters
    ----------
    name : str
    path : path
        The path of the data to be read or written.
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
        if option not in (form.write_options if write else form.options):
            raise ParameterError(f"{display_name(path)}: The format {name!r} does not support {option}.")
    if name == "pair" and "labels" not in options:
        raise ParameterError(f"{display_name(path)}: The format 'pair' requires a second file. Pass it as labels.")
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


def _format_of_suffix(path: PathLike, suffix: str, *, write: bool = False) -> str:
    """Return the format for a suffix; raise InputError if there is none."""
    if is_stdio(path):
        raise InputError(f"Standard input requires a format. Pass one of: {_names()}.")
    if suffix == ".txt":
        flag = "--to-labels" if write else "--labels"
        raise InputError(
            f"{path}: Texts in a .txt file require a label file. Pass it as labels ({flag}). For another format, pass "
            f"its name: {_names(writable=write)}."
        )
    if suffix not in FORMAT_BY_SUFFIX:
        suffixes = ", ".join((*FORMAT_BY_SUFFIX, ".txt"))
        raise InputError(
            f'{path}: Unknown file type "{suffix}". Use {suffixes}, optionally with .gz, .xz or .zst, or pass a '
            f"format: {_names()}."
        )
    return FORMAT_BY_SUFFIX[suffix]


def _names(*, writable: bool = False) -> str:
    return ", ".join(format_names(writable=writable))
