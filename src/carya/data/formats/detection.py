"""Which format a file or folder has: by its suffix, its first line, or what lies in the folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from carya.data.formats.matrices.pecos import has_matrices, has_raw_texts
from carya.data.formats.texts.annif import annif_documents, looks_like_annif
from carya.data.formats.texts.text_files import has_texts
from carya.data.io.files import PathLike, bare_name, is_standard, shown
from carya.errors import InputError, ParameterError


@dataclass(frozen=True)
class Format:
    """What a format holds, which suffixes say so, and which options its functions take."""

    holds: str
    suffixes: tuple[str, ...] = ()
    options: frozenset[str] = frozenset()
    folder: bool = False
    written: bool = True


_COLUMNS = frozenset({"text_column", "label_column"})
_SEPARATOR = frozenset({"label_separator"})
_VOCABULARY = frozenset({"vocabulary"})
_PART = frozenset({"part", "vocabulary"})

#: All formats by their names.
FORMATS = {
    "jsonl": Format("texts", (".jsonl", ".ndjson"), _COLUMNS),
    "csv": Format("texts", (".csv",), _COLUMNS | _SEPARATOR),
    "tsv": Format("texts", (".tsv",), _COLUMNS | _SEPARATOR),
    "parquet": Format("texts", (".parquet", ".pq"), _COLUMNS),
    "annif": Format("texts"),
    "annif-folder": Format("texts", (), _VOCABULARY, folder=True, written=False),
    "pair": Format("texts", (), _SEPARATOR | {"labels"}),
    "texts": Format("texts", (), _SEPARATOR | _PART, folder=True),
    "x-transformer": Format("texts", (), _SEPARATOR | _PART, folder=True, written=False),
    "xmc": Format("features", (".xmc",), _VOCABULARY),
    "svmlight": Format("features", (".svm", ".svmlight", ".libsvm"), _VOCABULARY),
    "pecos": Format("features", (), _PART, folder=True),
}

_BY_SUFFIX = {suffix: name for name, one in FORMATS.items() for suffix in one.suffixes}


def format_to_read(path: PathLike, part: str, labels: PathLike | None) -> str:
    """The name of the format of what is there; raises InputError if it cannot be told."""
    if labels is not None and not Path(path).is_dir() and Path(bare_name(path)).suffix not in _BY_SUFFIX:
        return "pair"
    if is_standard(path):
        raise InputError(f"standard input does not tell its format: give one of {_listed()}")
    if Path(path).is_dir():
        return _of_folder(Path(path), part)
    suffix = Path(bare_name(path)).suffix
    if suffix == ".txt":
        from carya.data.formats.matrices.xmc import looks_like_xmc

        if looks_like_xmc(path):
            return "xmc"
        raise InputError(
            f"{path}: texts in a .txt file need a file of labels (labels=, or --labels); or give the format, one of "
            f"{_listed()}"
        )
    if suffix == ".tsv" and looks_like_annif(path):
        return "annif"
    return _by_suffix(path, suffix)


def format_to_write(path: PathLike, holds: str, labels: PathLike | None) -> str:
    """The name of the format that a path asks for; raises InputError if it does not say."""
    if labels is not None:
        return "pair"
    if is_standard(path):
        raise InputError(f"standard output does not tell a format: give one of {_listed()}")
    suffix = Path(bare_name(path)).suffix
    if Path(path).is_dir() or not suffix or os.fspath(path).endswith("/"):
        return "texts" if holds == "texts" else "pecos"
    if suffix == ".txt":
        if holds == "features":
            return "xmc"
        raise InputError(f"{path}: texts in a .txt file need a file of labels; or give the format, one of {_listed()}")
    return _by_suffix(path, suffix)


def check_format(name: str, path: PathLike, given: dict[str, bool], *, write: bool = False) -> Format:
    """The format of that name; raises ParameterError for names and options there are not.

    Parameters
    ----------
    name : str
    path : path
        What is to be opened or written.
    given : dict
        Whether an option was given, by its name.
    write : bool
        Whether it is to be written.
    """
    known = [one for one, found in FORMATS.items() if found.written or not write]
    if name not in known:
        raise ParameterError(f"{shown(path)}: the format must be one of {', '.join(known)}; got {name!r}")
    form = FORMATS[name]
    for option, was_given in given.items():
        if was_given and option not in form.options:
            raise ParameterError(f"{shown(path)}: the format {name!r} knows no {option}")
    if name == "pair" and not given["labels"]:
        raise ParameterError(f"{shown(path)}: the format 'pair' needs labels, the path of a second file")
    if form.folder and not is_standard(path) and Path(path).exists() and not Path(path).is_dir():
        raise InputError(f"{path}: the format {name!r} is that of a folder, this is a file")
    if not form.folder and not is_standard(path) and Path(path).is_dir():
        raise InputError(f"{path}: the format {name!r} is that of a file, this is a folder")
    return form


def _of_folder(folder: Path, part: str) -> str:
    if has_texts(folder, part):
        return "texts"
    if has_raw_texts(folder, part):
        return "x-transformer"
    if has_matrices(folder, part):
        return "pecos"
    if annif_documents(folder):
        return "annif-folder"
    matrix = {"train": "X.trn.npz", "test": "X.tst.npz"}.get(part, f"X.{part}.npz")
    wanted = f"{part}.texts.txt, {part}_texts.txt, {matrix}, or *.txt files with *.tsv or *.key beside them"
    raise InputError(f"{folder}: there is no data of the part {part!r} in it: {wanted}")


def _by_suffix(path: PathLike, suffix: str) -> str:
    if suffix not in _BY_SUFFIX:
        known = ", ".join((*_BY_SUFFIX, ".txt"))
        raise InputError(
            f"{path}: the suffix tells no format; it may be {known}, with .gz, .xz or .zst. Or give the format, one of "
            f"{_listed()}"
        )
    return _BY_SUFFIX[suffix]


def _listed() -> str:
    return ", ".join(FORMATS)
