"""Declare all data formats; reading, writing, detection and error messages are derived from the declarations.

Formats refer to their functions by name, so that commands that process texts do not import NumPy or SciPy.
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
        A one-line description for the documentation.
    content : {"texts", "features"}
    module : str
        The module that contains its functions, relative to ``carya.data.formats``.
    read : str
        The function that reads the format. For a text file, it returns an iterator over examples and is called
        again for every iteration of the corpus; otherwise, or if `opens_corpus`, it returns a Corpus or Matrices.
    write : str
        The function that writes the format and returns the number of rows; empty if the format can only be read.
    detect : str
        The function that returns whether a folder contains a split in this format; empty for file formats.
    folder_file : str
        The name of a file that `detect` searches for, with the placeholder ``{part}`` or ``{short_part}``; used in
        error messages.
    suffixes : tuple of str
        The file name suffixes that identify the format.
    options : frozenset of str
        The options of `open_data` that `read` accepts.
    write_options : frozenset of str
        The options of `write_data` that `write` accepts.
    opens_corpus : bool
        Whether `read` returns a Corpus although the format is a text file.
    extra : str
        The Carya extra that the format requires, if any.
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
    write_options: frozenset[str] = frozenset()
    opens_corpus: bool = False
    extra: str = ""

    @property
    def is_folder(self) -> bool:
        """Whether the format is stored as a folder instead of a file."""
        return bool(self.detect)

    @property
    def is_table(self) -> bool:
        """Whether the format has a label column."""
        return "label_column" in self.options

    @property
    def is_stream(self) -> bool:
        """Whether `read` returns an iterator over examples."""
        return self.content == "texts" and not self.is_folder and not self.opens_corpus

    def load(self, function: str) -> Callable[..., Any]:
        """Import a function of the format: `read`, `write` or `detect`."""
        module = importlib.import_module(f"carya.data.formats.{self.module}")
        loaded: Callable[..., Any] = getattr(module, function)
        return loaded


_SEPARATOR = frozenset({"label_separator"})
_COLUMNS = frozenset({"text_column", "label_column", "label_separator"})
_LABELS = frozenset({"labels"})
_VOCABULARY = frozenset({"vocabulary"})
_PART = frozenset({"part"})

#: All formats by name. The format of a folder is detected by trying the folder formats in this order.
FORMATS: dict[str, Format] = {
    "jsonl": Format(
        "JSON lines, one object per line",
        "texts",
        "tables.jsonl",
        "read_jsonl",
        "write_jsonl",
        suffixes=(".jsonl", ".ndjson"),
        options=_COLUMNS,
    ),
    "json": Format(
        "a JSON array of objects, or an object of columns",
        "texts",
        "tables.json_file",
        "read_json",
        "write_json",
        suffixes=(".json",),
        options=_COLUMNS,
    ),
    "csv": Format(
        "columns with a header, separated by commas, semicolons, tabs or vertical bars",
        "texts",
        "tables.delimited",
        "read_csv",
        "write_csv",
        suffixes=(".csv",),
        options=_COLUMNS,
        write_options=_SEPARATOR,
    ),
    "tsv": Format(
        "tab-separated columns with a header, without quoting",
        "texts",
        "tables.delimited",
        "read_tsv",
        "write_tsv",
        suffixes=(".tsv",),
        options=_COLUMNS,
        write_options=_SEPARATOR,
    ),
    "parquet": Format(
        "Parquet columns; requires `pip install 'carya[arrow]'`",
        "texts",
        "tables.parquet",
        "read_parquet",
        "write_parquet",
        suffixes=(".parquet", ".pq"),
        options=_COLUMNS,
        extra="arrow",
    ),
    "arrow": Format(
        "Arrow or Feather columns; requires `pip install 'carya[arrow]'`",
        "texts",
        "tables.arrow",
        "read_arrow",
        "write_arrow",
        suffixes=(".arrow", ".feather"),
        options=_COLUMNS,
        extra="arrow",
    ),
    "pair": Format(
        "a text file and either a label file or a label matrix",
        "texts",
        "texts.text_files",
        "open_pair",
        "write_pair",
        options=_SEPARATOR | _LABELS | _VOCABULARY,
        write_options=_SEPARATOR | _LABELS,
        opens_corpus=True,
    ),
    "lines": Format(
        "texts without labels, one per line",
        "texts",
        "texts.lines",
        "read_text_lines",
    ),
    "fasttext": Format(
        "lines with `__label__x` words and a text, as in fastText; also `.txt` files that begin with such lines",
        "texts",
        "texts.fasttext",
        "read_fasttext",
        "write_fasttext",
        suffixes=(".ft",),
    ),
    "text2text": Format(
        "lines with label indices, a tab and a text, as in PECOS; also `.txt` or `.tsv` files with such lines",
        "texts",
        "texts.text2text",
        "read_text2text",
        "write_text2text",
        options=_VOCABULARY,
        opens_corpus=True,
    ),
    "annif": Format(
        "Annif's TSV format: lines with a text, a tab and URIs; also `.tsv` files that begin with such a line",
        "texts",
        "texts.annif",
        "read_annif",
        "write_annif",
    ),
    "xmc-json": Format(
        "the Extreme Classification Repository's raw texts; also `.json` files with the key `target_ind`",
        "texts",
        "tables.xmc_json",
        "read_xmc_json",
        options=_VOCABULARY | {"text_column", "label_column"},
        opens_corpus=True,
    ),
    "xmc": Format(
        "the Extreme Classification Repository's format; also `.txt` files that begin with three numbers",
        "features",
        "matrices.xmc",
        "read_xmc",
        "write_xmc",
        suffixes=(".xmc",),
        options=_VOCABULARY,
    ),
    "xmc-pair": Format(
        "the repository's `…_Xf.txt` and `…_Y.txt`; also `.txt` files with two numbers, then index:value pairs",
        "features",
        "matrices.xmc_pair",
        "read_xmc_pair",
        "write_xmc_pair",
        options=_VOCABULARY | _LABELS,
        write_options=_LABELS,
    ),
    "svmlight": Format(
        "svmlight or libsvm, with any number of labels per row",
        "features",
        "matrices.svmlight",
        "read_svmlight",
        "write_svmlight",
        suffixes=(".svm", ".svmlight", ".libsvm"),
        options=_VOCABULARY | {"zero_based"},
    ),
    "npz": Format(
        "SciPy or NumPy matrices: a feature file and a label file",
        "features",
        "matrices.matrix_pair",
        "read_matrix_pair",
        "write_matrix_pair",
        suffixes=(".npz", ".npy"),
        options=_VOCABULARY | _LABELS,
        write_options=_LABELS,
    ),
    "texts": Format(
        "text and label files for train, test and dev",
        "texts",
        "texts.text_files",
        "read_text_folder",
        "write_text_folder",
        detect="has_text_files",
        folder_file="{part}.texts.txt",
        options=_SEPARATOR | _PART | _VOCABULARY,
        write_options=_SEPARATOR | _PART,
    ),
    "x-transformer": Format(
        "the raw-text format of X-Transformer, AttentionXML and PECOS",
        "texts",
        "matrices.pecos",
        "read_raw_texts",
        detect="has_raw_texts",
        folder_file="{part}_texts.txt",
        options=_SEPARATOR | _PART | _VOCABULARY,
    ),
    "xmc-json-folder": Format(
        "the raw texts of a data set from the Extreme Classification Repository",
        "texts",
        "tables.xmc_json",
        "read_xmc_json_folder",
        detect="has_json_parts",
        folder_file="{short_part}.json.gz",
        options=_PART | _VOCABULARY | {"text_column"},
    ),
    "huggingface": Format(
        "a data set saved by Hugging Face's `datasets`; requires `pip install 'carya[arrow]'`",
        "texts",
        "tables.huggingface",
        "read_dataset",
        detect="has_dataset",
        folder_file="dataset_dict.json",
        options=_COLUMNS | _PART,
        extra="arrow",
    ),
    "pecos": Format(
        "feature and label matrices, named as in PECOS",
        "features",
        "matrices.pecos",
        "read_pecos",
        "write_pecos",
        detect="has_matrices",
        folder_file="X.{short_part}.npz",
        options=_PART | _VOCABULARY,
        write_options=_PART,
    ),
    "xmc-folder": Format(
        "the features of a data set from the Extreme Classification Repository or AttentionXML",
        "features",
        "matrices.xmc_pair",
        "read_xmc_folder",
        "write_xmc_folder",
        detect="has_xmc_files",
        folder_file="{short_part}_X_Xf.txt",
        options=_PART | _VOCABULARY,
        write_options=_PART,
    ),
    "annif-folder": Format(
        "Annif's full-text corpus, one file per text",
        "texts",
        "texts.annif",
        "read_annif_folder",
        detect="has_documents",
        folder_file="*.txt files with *.tsv or *.key files with the same names",
        options=_VOCABULARY,
    ),
}

#: Format names by file name suffix.
FORMAT_BY_SUFFIX = {suffix: name for name, form in FORMATS.items() for suffix in form.suffixes}


def format_names(*, writable: bool = False) -> list[str]:
    """Return the names of all formats or, if `writable`, of those that can be written."""
    return [name for name, form in FORMATS.items() if form.write or not writable]
