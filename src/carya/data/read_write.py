"""Read and write data sets in any supported format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from carya.data.corpus import Corpus, Example, Matrices
from carya.data.formats.detection import check_format, format_to_read, format_to_write
from carya.data.formats.folder_files import PARTS
from carya.data.formats.matrices.pecos import checked_matrices, read_pecos, read_raw_texts, write_pecos
from carya.data.formats.texts.annif import read_annif, read_annif_folder, write_annif
from carya.data.formats.texts.jsonl import read_jsonl, write_jsonl
from carya.data.formats.texts.parquet import read_parquet, write_parquet
from carya.data.formats.texts.tables import read_csv, read_tsv, write_csv, write_tsv
from carya.data.formats.texts.text_files import read_pair, read_texts, write_pair, write_texts
from carya.data.formats.vocabularies import read_vocabulary
from carya.data.io.files import PathLike, is_standard, shown
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError, ParameterError


def open_data(
    path: PathLike,
    *,
    part: str = "train",
    format: str | None = None,  # noqa: A002
    labels: PathLike | None = None,
    text_column: str = "text",
    label_column: str | None = "labels",
    label_separator: str | None = None,
    vocabulary: Vocabulary | PathLike | None = None,
) -> Corpus | Matrices:
    r"""A data set from a file or folder: texts with labels, or matrices where it holds features.

    Parameters
    ----------
    path : path
        A file, compressed or not, a folder, or ``-`` for standard input. ``docs/data.md`` shows all formats.
    part : "train", "test" or "dev"
        Which part of a folder; a file has only one.
    format : str, optional
        What it is, where its suffix or content does not tell: ``jsonl``, ``csv``, ``tsv``, ``parquet``, ``annif``,
        ``annif-folder``, ``pair``, ``texts``, ``x-transformer``, ``xmc``, ``svmlight`` or ``pecos``.
    labels : path, optional
        The labels, a line for each line of `path`.
    text_column : str
        The column or key of the text; several with commas between are joined by a space.
    label_column : str or None
        The column or key of the labels; None if there are none to read.
    label_separator : str, optional
        What separates labels in a string: ``;`` in CSV and TSV, a TAB in files of labels, if not given.
    vocabulary : Vocabulary or path, optional
        The labels there are, for data that does not bring its own.

    Returns
    -------
    Corpus or Matrices
        A corpus reads its files while it is iterated, so errors in them are found then.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "fruit.csv")
    ...     _ = file.write_text("text,labels\na red apple,fruit;red\na pear,fruit\n")
    ...     list(open_data(file))
    [Example(text='a red apple', labels=('fruit', 'red')), Example(text='a pear', labels=('fruit',))]
    """
    _check_options(part, label_separator)
    if not is_standard(path) and not Path(path).exists():
        raise InputError(f"{shown(path)}: No such file or directory")
    name = format or format_to_read(path, part, labels)
    given = {
        "labels": labels is not None,
        "text_column": text_column != "text",
        "label_column": label_column not in ("labels", None),  # not to read labels is for formats that can
        "label_separator": label_separator is not None,
    }
    form = check_format(name, path, given)
    if vocabulary is not None and not isinstance(vocabulary, Vocabulary):
        vocabulary = read_vocabulary(vocabulary)
    options: dict[str, Any] = {
        "part": part,
        "labels": labels,
        "text_column": text_column,
        "label_column": label_column,
        "label_separator": label_separator,
        "vocabulary": vocabulary,
    }
    known = {one: options[one] for one in form.options}
    if name in _WHOLE:
        return _WHOLE[name](path, **known)
    return Corpus(
        partial(_STREAMED[name], path, **known), source=shown(path), vocabulary=vocabulary, once=is_standard(path)
    )


def write_data(
    path: PathLike,
    data: Corpus | Matrices,
    *,
    part: str = "train",
    format: str | None = None,  # noqa: A002
    labels: PathLike | None = None,
    label_separator: str | None = None,
) -> int:
    """Write a data set to a file or folder, and give the number of its rows.

    A file appears when all of it is written, or not at all.

    Parameters
    ----------
    path : path
        The suffix tells the format, and how to compress it; a path without a suffix is a folder.
    data : Corpus or Matrices
    part : "train", "test" or "dev"
        Which part of a folder; a file has only one.
    format : str, optional
        What to write, where the suffix does not tell: ``jsonl``, ``csv``, ``tsv``, ``parquet``, ``annif``, ``pair`` or
        ``texts`` for a corpus, ``xmc``, ``svmlight`` or ``pecos`` for matrices.
    labels : path, optional
        Where to write the labels, if `path` is to hold only the texts.
    label_separator : str, optional
        What separates labels in a string, as in :func:`open_data`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> corpus = Corpus.of([("a red apple", ["fruit", "red"]), ("a pear", ["fruit"])])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = write_data(f"{folder}/fruit.jsonl", corpus)
    ...     print(pathlib.Path(folder, "fruit.jsonl").read_text(), end="")
    {"text": "a red apple", "labels": ["fruit", "red"]}
    {"text": "a pear", "labels": ["fruit"]}
    """
    _check_options(part, label_separator)
    if not isinstance(data, Corpus | Matrices):
        raise InputError(f"data must be a Corpus or Matrices, got {type(data).__name__}; Corpus.of makes one of a list")
    holds = "texts" if isinstance(data, Corpus) else "features"
    name = format or format_to_write(path, holds, labels)
    given = {"labels": labels is not None, "label_separator": label_separator is not None}
    form = check_format(name, path, given, write=True)
    if form.holds != holds:
        raise InputError(f"{path}: the format {name!r} holds {form.holds}, {data.source} has {holds}")
    if isinstance(data, Matrices):
        data = checked_matrices(data.X, data.Y, data.vocabulary, data.source)
    options: dict[str, Any] = {"part": part, "labels": labels, "label_separator": label_separator}
    return _WRITERS[name](path, data, **{one: options[one] for one in options.keys() & form.options})


def _check_options(part: str, label_separator: str | None) -> None:
    if part not in PARTS:
        raise ParameterError(f"the part must be one of {', '.join(PARTS)}; got {part!r}")
    if label_separator == "":
        raise ParameterError("the label separator must not be empty")


def _read_xmc(path: PathLike, **options: Any) -> Matrices:
    from carya.data.formats.matrices.xmc import read_xmc

    return read_xmc(path, **options)


def _read_svmlight(path: PathLike, **options: Any) -> Matrices:
    from carya.data.formats.matrices.svmlight import read_svmlight

    return read_svmlight(path, **options)


def _write_xmc(path: PathLike, matrices: Matrices) -> int:
    from carya.data.formats.matrices.xmc import write_xmc

    return write_xmc(path, matrices)


def _write_svmlight(path: PathLike, matrices: Matrices) -> int:
    from carya.data.formats.matrices.svmlight import write_svmlight

    return write_svmlight(path, matrices)


#: What gives an iterator of examples.
_STREAMED: dict[str, Callable[..., Iterator[Example]]] = {
    "jsonl": read_jsonl,
    "csv": read_csv,
    "tsv": read_tsv,
    "parquet": read_parquet,
    "annif": read_annif,
    "annif-folder": read_annif_folder,
    "pair": read_pair,
}


#: What gives a corpus or matrices, and knows their vocabulary.
_WHOLE: dict[str, Callable[..., Corpus | Matrices]] = {
    "texts": read_texts,
    "x-transformer": read_raw_texts,
    "xmc": _read_xmc,
    "svmlight": _read_svmlight,
    "pecos": read_pecos,
}


_WRITERS: dict[str, Callable[..., int]] = {
    "jsonl": write_jsonl,
    "csv": write_csv,
    "tsv": write_tsv,
    "parquet": write_parquet,
    "annif": write_annif,
    "pair": write_pair,
    "texts": write_texts,
    "xmc": _write_xmc,
    "svmlight": _write_svmlight,
    "pecos": write_pecos,
}
