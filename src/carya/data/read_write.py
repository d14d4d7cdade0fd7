"""Read and write data sets in any supported format."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from carya.data.corpus import Corpus, Matrices
from carya.data.formats.detection import check_format, choose_format, detect_format
from carya.data.formats.folder_files import PARTS
from carya.data.formats.registry import Content
from carya.data.formats.vocabularies import read_vocabulary
from carya.data.io.files import PathLike, display_name, is_stdio
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
    r"""Open a data set: labeled texts, or matrices if the data contains features.

    Parameters
    ----------
    path : path
        A file, compressed or not, a folder, or ``-`` for standard input. ``docs/data.md`` describes all formats.
    part : {"train", "test", "dev"}
        The part of a folder to read; ignored for files.
    format : str, optional
        The name of the format, such as ``"jsonl"``; a key of ``carya.data.formats.registry.FORMATS``. By default it is
        detected from the suffix or the content.
    labels : path, optional
        A file with one line of labels per line of `path`.
    text_column : str
        The column or key of the text. The texts of several columns, separated by commas, are joined by spaces.
    label_column : str or None
        The column or key of the labels; None to read texts without labels.
    label_separator : str, optional
        The separator of labels in a string. Default: ``;`` in CSV and TSV, a TAB in files of labels.
    vocabulary : Vocabulary or path, optional
        The known labels, for data that does not list them.

    Returns
    -------
    Corpus or Matrices
        A corpus reads its files while it is iterated; errors in them are raised then.

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
    name = format or detect_format(path, part, labels)
    is_set = {
        "labels": labels is not None,
        "text_column": text_column != "text",
        "label_column": label_column not in ("labels", None),  # formats without label columns ignore None
        "label_separator": label_separator is not None,
    }
    form = check_format(name, path, [option for option, was_set in is_set.items() if was_set])
    if vocabulary is not None and not isinstance(vocabulary, Vocabulary):
        vocabulary = read_vocabulary(vocabulary)
    options = {
        "part": part,
        "labels": labels,
        "text_column": text_column,
        "label_column": label_column,
        "label_separator": label_separator,
        "vocabulary": vocabulary,
    }
    read = partial(form.load(form.read), path, **{option: options[option] for option in form.options})
    if form.is_stream:
        return Corpus(read, source=display_name(path), vocabulary=vocabulary, single_pass=is_stdio(path))
    data: Corpus | Matrices = read()
    return data


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

    Files are written atomically: complete, or not at all.

    Parameters
    ----------
    path : path
        The suffix selects the format and the compression; a path without a suffix is a folder.
    data : Corpus or Matrices
    part : {"train", "test", "dev"}
        The part of a folder to write; ignored for files.
    format : str, optional
        The name of the format if the suffix does not determine it, as in :func:`open_data`. Some formats can only be
        read.
    labels : path, optional
        The file to write the labels to, if `path` is to contain only the texts.
    label_separator : str, optional
        The separator of labels in a string, as in :func:`open_data`.

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
        path, data, **{option: value for option, value in options.items() if option in form.options}
    )
    return rows


def _check_options(part: str, label_separator: str | None) -> None:
    if part not in PARTS:
        raise ParameterError(f"part must be one of {', '.join(PARTS)}, got {part!r}.")
    if label_separator == "":
        raise ParameterError("label_separator must not be empty.")
