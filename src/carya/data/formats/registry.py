"""Declarations of all data formats, from which reading, writing, detection and error messages are derived.

Formats refer to their functions by name, so that commands on texts do not import NumPy and SciPy.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

#: Possible contents of a data set.
Content = Literal["texts", "features"]


@dataclass(frozen=True)
class Format:
    """A data format.

    Attributes
    ----------
    description : str
        One line for the documentation.
    content : {"texts", "features"}
    module : str
        The module of its functions, below ``carya.data.formats``.
    read : str
        The function that reads it. For a file of texts it returns an iterator over examples and is called again for
        every iteration of the corpus; otherwise it returns a Corpus or Matrices.
    write : str
        The function that writes it and returns the number of rows; empty if the format can only be read.
    detect : str
        The function that returns whether a folder contains a part in this format; empty for file formats.
    folder_file : str
        A file that `detect` searches for, with ``{part}`` or ``{short_part}``, for error messages.
    suffixes : tuple of str
        The file name suffixes that identify it.
    options : frozenset of str
        The options of `open_data` and `write_data` that its functions accept.
    """

    description: str
    content: Content
    module: str
    read: str
    write: str = ""
    detect: str = ""
    folder_file: str = ""
    suffixes: tuple[str, ...] = ()
    options: frozenset[str] = frozenset()

    @property
    def is_folder(self) -> bool:
        """Whether the format is stored as a folder instead of a file."""
        return bool(self.detect)

    @property
    def is_stream(self) -> bool:
        """Whether `read` returns an iterator over examples."""
        return self.content == "texts" and not self.is_folder

    def load(self, function: str) -> Callable[..., Any]:
        """Import a function of the format: `read`, `write` or `detect`."""
        module = importlib.import_module(f"carya.data.formats.{self.module}")
        loaded: Callable[..., Any] = getattr(module, function)
        return loaded


_COLUMNS = frozenset({"text_column", "label_column"})
_SEPARATOR = frozenset({"label_separator"})
_VOCABULARY = frozenset({"vocabulary"})
_PART = frozenset({"part", "vocabulary"})

#: All formats by name. The format of a folder is detected by trying them in this order.
FORMATS: dict[str, Format] = {
    "jsonl": Format(
        "JSON lines, one object per line",
        "texts",
        "texts.jsonl",
        "read_jsonl",
        "write_jsonl",
        suffixes=(".jsonl", ".ndjson"),
        options=_COLUMNS,
    ),
    "csv": Format(
        "comma-separated columns with a header",
        "texts",
        "texts.tables",
        "read_csv",
        "write_csv",
        suffixes=(".csv",),
        options=_COLUMNS | _SEPARATOR,
    ),
    "tsv": Format(
        "tab-separated columns with a header",
        "texts",
        "texts.tables",
        "read_tsv",
        "write_tsv",
        suffixes=(".tsv",),
        options=_COLUMNS | _SEPARATOR,
    ),
    "parquet": Format(
        "Parquet columns; requires `pip install 'carya[parquet]'`",
        "texts",
        "texts.parquet",
        "read_parquet",
        "write_parquet",
        suffixes=(".parquet", ".pq"),
        options=_COLUMNS,
    ),
    "pair": Format(
        "one file of texts and one of labels",
        "texts",
        "texts.text_files",
        "read_pair",
        "write_pair",
        options=_SEPARATOR | {"labels"},
    ),
    "texts": Format(
        "files of texts and labels for train, test and dev",
        "texts",
        "texts.text_files",
        "read_text_folder",
        "write_text_folder",
        detect="has_text_files",
        folder_file="{part}.texts.txt",
        options=_SEPARATOR | _PART,
    ),
    "x-transformer": Format(
        "the raw texts of X-Transformer, AttentionXML and PECOS",
        "texts",
        "matrices.pecos",
        "read_raw_texts",
        detect="has_raw_texts",
        folder_file="{part}_texts.txt",
        options=_SEPARATOR | _PART,
    ),
    "xmc": Format(
        "the Extreme Classification Repository's format; also `.txt` that begins with three numbers",
        "features",
        "matrices.xmc",
        "read_xmc",
        "write_xmc",
        suffixes=(".xmc",),
        options=_VOCABULARY,
    ),
    "svmlight": Format(
        "svmlight or libsvm with any number of labels",
        "features",
        "matrices.svmlight",
        "read_svmlight",
        "write_svmlight",
        suffixes=(".svm", ".svmlight", ".libsvm"),
        options=_VOCABULARY,
    ),
    "pecos": Format(
        "feature and label matrices, named as in PECOS",
        "features",
        "matrices.pecos",
        "read_pecos",
        "write_pecos",
        detect="has_matrices",
        folder_file="X.{short_part}.npz",
        options=_PART,
    ),
    "annif": Format(
        "Annif's TSV of texts and URIs; also `.tsv` that begins with such a line",
        "texts",
        "texts.annif",
        "read_annif",
        "write_annif",
    ),
    "annif-folder": Format(
        "Annif's full-text corpus, one file per text",
        "texts",
        "texts.annif",
        "read_annif_folder",
        detect="has_documents",
        folder_file="*.txt files with *.tsv or *.key files of the same names",
        options=_VOCABULARY,
    ),
}

#: Format names by file name suffix.
FORMAT_BY_SUFFIX = {suffix: name for name, form in FORMATS.items() for suffix in form.suffixes}


def format_names(*, writable: bool = False) -> list[str]:
    """Return the names of all formats, or of those that can be written."""
    return [name for name, form in FORMATS.items() if form.write or not writable]
