"""Read and write data sets in any supported format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import EllipsisType
from typing import Any

from carya.data.corpus import Corpus, Matrices
from carya.data.formats.columns import OptionError
from carya.data.formats.detection import check_format, choose_format, detect_format
from carya.data.formats.folder_files import PARTS
from carya.data.formats.registry import FORMATS, Content
from carya.data.formats.vocabularies import read_vocabulary
from carya.data.io.files import PathLike, display_name, is_stdio
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError, ParameterError

#: The types of the options that describe the format, columns or numbering of the data rather than its location.
_READ_OPTIONS = {
    "format": str,
    "text_column": str,
    "label_column": str,
    "label_separator": str,
    "zero_based": bool,
}
_FLAGS = {"zero_based": "--zero-based or --one-based"}


def open_data(
    path: PathLike,
    *,
    part: str = "train",
    format: str | None = None,  # noqa: A002
    labels: PathLike | None = None,
    text_column: str | None = None,
    label_column: str | EllipsisType | None = ...,
    label_separator: str | None = None,
    zero_based: bool | None = None,
    vocabulary: Vocabulary | PathLike | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Corpus | Matrices:
    r"""Open a data set: labeled texts, or matrices if the data contains features.

    Parameters
    ----------
    path : path
        A file, compressed or not, a folder, or ``-`` for standard input. ``docs/data.md`` describes all formats.
    part : {"train", "test", "dev"}
        The split to read from a folder; ignored for files.
    format : str, optional
        The name of the format, such as ``"jsonl"``; a key of ``carya.data.formats.registry.FORMATS``. By default, it
        is detected from the suffix or the content.
    labels : path, optional
        A file with one line of labels per line of `path`, or a label matrix.
    text_column : str, optional
        The name of the text column or key, ``text`` by default, or several names separated by commas; their texts are
        joined with spaces.
    label_column : str or None
        The name of the label column or key, ``labels`` by default; None to read texts without labels.
    label_separator : str, optional
        The separator between labels in a string. Default: ``;`` in CSV and TSV, a tab in label files; in other tables,
        strings are not split unless a separator is given.
    zero_based : bool, optional
        Whether the features of an svmlight file are numbered from 0 instead of 1. By default, features are assumed to
        be numbered from 0 if feature 0 occurs, and from 1 otherwise.
    vocabulary : Vocabulary or path, optional
        The known labels, for data that does not list them.
    defaults : mapping, optional
        Default values for `text_column`, `label_column`, `label_separator` and `zero_based`, which are used if the
        format supports them, and for `format`, which is used if the format cannot be detected; for example, the
        `data_options_` of a model. `label_separator` is used only if the format of the data and the default format are
        both table formats, or if neither is.

    Returns
    -------
    Corpus or Matrices
        A corpus reads its files during iteration, so errors in the files are raised then.

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
    if not is_stdio(path) and not Path(path).exists():
        raise InputError(f"{display_name(path)}: No such file or directory.")
    defaults = check_read_options(defaults or {})
    trained_on = defaults.pop("format", None)
    name = format or detect_format(
        path,
        part,
        labels,
        needs_labels=label_column is not None,
        default=trained_on,
        text_column=text_column or defaults.get("text_column", "text"),
    )
    options: dict[str, Any] = {
        "labels": labels,
        "text_column": text_column,
        "label_separator": label_separator,
        "zero_based": zero_based,
    }
    options = {option: value for option, value in options.items() if value is not None}
    if label_column not in (..., None):
        options["label_column"] = label_column
    form = check_format(name, path, options)
    defaults = {option: value for option, value in defaults.items() if option in form.options - options.keys()}
    if trained_on is not None and form.is_table != FORMATS[trained_on].is_table:
        defaults.pop("label_separator", None)  # table cells and label files use different separators
    options |= defaults
    if label_column is None and "label_column" in form.options:  # formats without label columns ignore None
        options["label_column"] = None
    if "part" in form.options:
        options["part"] = part
    if vocabulary is not None and not isinstance(vocabulary, Vocabulary):
        vocabulary = read_vocabulary(vocabulary)
    if vocabulary is not None and "vocabulary" in form.options:
        options["vocabulary"] = vocabulary
    read = partial(form.load(form.read), path, **options)
    data: Corpus | Matrices
    if form.is_stream:
        data = Corpus(read, source=display_name(path), vocabulary=vocabulary, single_pass=is_stdio(path))
    else:
        with _naming_defaults(defaults):
            data = read()
    return data.converting_errors(partial(_naming_defaults, defaults)) if isinstance(data, Corpus) else data


@contextmanager
def _naming_defaults(defaults: Mapping[str, Any]) -> Iterator[None]:
    """Explain in option errors that the invalid value is a default stored in the model."""
    try:
        yield
    except OptionError as error:
        if error.option not in defaults:
            raise
        flag = _FLAGS.get(error.option, "--" + error.option.replace("_", "-"))
        raise InputError(
            f"{error} {error.option}={defaults[error.option]!r} is stored in the model because it was used to "
            f"read the training data; to use a different value for this data, pass {error.option} ({flag})."
        ) from None


def write_data(
    path: PathLike,
    data: Corpus | Matrices,
    *,
    part: str = "train",
    format: str | None = None,  # noqa: A002
    labels: PathLike | None = None,
    label_separator: str | None = None,
) -> int:
    """Write a data set to a file or folder and return its number of rows.

    Files are written atomically: either completely or not at all.

    Parameters
    ----------
    path : path
        The suffix selects the format and the compression; a path without a suffix is a folder.
    data : Corpus or Matrices
    part : {"train", "test", "dev"}
        The split to write to a folder; ignored for files.
    format : str, optional
        The name of the format if the suffix does not determine it, as in :func:`open_data`. Some formats can only be
        read.
    labels : path, optional
        The file to write the labels to, if `path` is to contain only the texts or features.
    label_separator : str, optional
        The separator between labels in a string, as in :func:`open_data`.

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
        raise InputError(
            f"data must be a Corpus or Matrices, got {type(data).__name__}. Convert a list with Corpus.of."
        )
    content: Content = "texts" if isinstance(data, Corpus) else "features"
    name = format or choose_format(path, content, labels)
    options = {"labels": labels, "label_separator": label_separator}
    form = check_format(name, path, [option for option, value in options.items() if value is not None], write=True)
    if form.content != content:
        raise InputError(f"{path}: The format {name!r} stores {form.content}, but {data.source} contains {content}.")
    if isinstance(data, Matrices):
        data = Matrices.of(data.X, data.Y, data.vocabulary, data.source)
    options["part"] = part
    rows: int = form.load(form.write)(
        path, data, **{option: value for option, value in options.items() if option in form.write_options}
    )
    return rows


def check_read_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Validate and return the options used to read a model's training data; raise ParameterError if any is invalid."""
    for option, value in options.items():
        is_valid = isinstance(value, _READ_OPTIONS.get(option, ())) and value != ""
        if not is_valid or (option == "format" and value not in FORMATS):
            raise ParameterError(
                f"defaults must contain only {', '.join(_READ_OPTIONS)}, with valid values, got {option}={value!r}."
            )
    return dict(options)


def _check_options(part: str, label_separator: str | None) -> None:
    if part not in PARTS:
        raise ParameterError(f"part must be one of {', '.join(PARTS)}, got {part!r}.")
    if label_separator == "":
        raise ParameterError("label_separator must not be empty.")
