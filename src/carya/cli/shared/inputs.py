"""Load models, and read texts from data sets, standard input or arguments."""

from __future__ import annotations

import itertools
import select
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from carya.cli.options.data_options import DataOptions, path_exists
from carya.data.io.files import MATRIX_SUFFIXES
from carya.errors import InputError

if TYPE_CHECKING:
    from carya.core.progress import Report
    from carya.data.corpus import Example

T = TypeVar("T")

BATCH_SIZE = 2048  # number of texts per batch
_PATH_STARTS = ("/", "./", "../", "~/")
#: Suffixes of files that are not data sets but might be passed as such.
_OTHER_SUFFIXES = (".txt", ".json", ".md", ".pdf", ".html", ".xml", ".docx", ".xlsx", ".gz", ".xz", ".zst", ".zip")


@dataclass(frozen=True)
class TextBatch:
    """Batch of consecutive texts.

    Attributes
    ----------
    first : int
        The number of the first text in its source, starting at 1.
    texts : list of str
    ids : list of (str or None)
        The id of each text, if the source has one.
    """

    first: int
    texts: list[str]
    ids: list[str | None]


def text_batches(data: DataOptions, model: Path | None = None) -> Iterator[TextBatch]:
    """Yield batches of texts; texts from standard input are yielded as soon as they arrive.

    Parameters
    ----------
    data : DataOptions
    model : Path, optional
        The path of the model, for error messages.
    """
    return _numbered(_batches(open_texts(data, model), is_stream=data.source == "-"))


def open_texts(data: DataOptions, model: Path | None = None) -> Iterable[str | Example]:
    """Open a data set of texts, with or without ids; see :func:`text_batches`."""
    from carya.data.formats.content import text_lines

    file = _file_of_texts(data)
    if data.text_column is not None and (file is not None or data.detected_format == "lines"):
        raise InputError(
            f"{file or data.name} contains one text per line, without columns. Remove --text-column, or pass --format."
        )
    return data.open_texts(model) if file is None else text_lines(file)


def argument_batches(texts: Sequence[str]) -> Iterator[TextBatch]:
    """Yield texts that were passed as arguments."""
    return _numbered(_batches(texts))


def are_texts(arguments: Sequence[str], model: Path) -> bool:
    """Return whether the arguments of a command are texts; if not, the only argument is a file or folder.

    Raises
    ------
    InputError
        If an argument is empty, looks like the path of a file that does not exist, or is the path of an existing file
        or folder but not the only argument.
    """
    for argument in arguments:
        if not argument.strip():
            raise InputError("An argument is empty. Pass a text, a file or a folder, or - for standard input.")
        if argument == "-" or path_exists(argument):
            if len(arguments) > 1:
                raise InputError(f"{argument} is a file or folder. Pass either a single file or folder, or only texts.")
            return False
        if looks_like_path(argument):
            raise InputError(
                f"{argument}: No such file or directory. If it is a text, pass it on standard input: "
                f"echo '{argument}' | carya predict {model}"
            )
    return bool(arguments)


def looks_like_path(argument: str) -> bool:
    """Return whether an argument is more likely to be a misspelled path than a text.

    >>> looks_like_path("data/test"), looks_like_path("texts.jsonl.gz"), looks_like_path("TCP/IP and web servers")
    (True, True, False)
    """
    from carya.data.formats.registry import FORMAT_BY_SUFFIX

    if argument.startswith(_PATH_STARTS):
        return True
    has_space = any(character.isspace() for character in argument)
    suffix = Path(argument).suffix.lower()
    return suffix in {*FORMAT_BY_SUFFIX, *MATRIX_SUFFIXES, *_OTHER_SUFFIXES} or ("/" in argument and not has_space)


def counted(items: Iterable[T], report: Report, *, every: int = 1000) -> Iterator[T]:
    """Yield items and report how many have been yielded; the total number is unknown."""
    if report is None:
        yield from items
        return
    for number, item in enumerate(items, 1):
        yield item
        if number % every == 0:
            report(number, 0)


def text_batch(rows: Sequence[str | Example], first: int) -> TextBatch:
    """Return texts, with or without ids, as a batch; `first` is the number of the first text."""
    texts = [row if isinstance(row, str) else row.text for row in rows]
    return TextBatch(first, texts, [None if isinstance(row, str) else row.id for row in rows])


def _numbered(batches: Iterable[Sequence[str | Example]]) -> Iterator[TextBatch]:
    first = 1
    for batch in batches:
        yield text_batch(batch, first)
        first += len(batch)


def _file_of_texts(data: DataOptions) -> Path | None:
    """Return the file of texts if the source is a data folder, even one without labels; otherwise, return None."""
    from carya.data.formats.folder_files import find_file

    if data.format is not None or not Path(data.source).is_dir():
        return None
    return find_file(Path(data.source), [f"{data.part}.texts.txt"])


def _batches(items: Iterable[T], *, is_stream: bool = False) -> Iterator[list[T]]:
    """Group items into batches; for a stream, yield a partial batch when no further input is available yet."""
    remaining = iter(items)
    if not is_stream:
        yield from iter(lambda: list(itertools.islice(remaining, BATCH_SIZE)), [])
        return
    batch = []
    for item in remaining:
        batch.append(item)
        if len(batch) == BATCH_SIZE or not select.select([sys.stdin], [], [], 0)[0]:
            yield batch
            batch = []
    if batch:
        yield batch


def load_model(path: Path) -> Any:
    """Open a model; raise InputError if the folder contains a vectorizer, which cannot rank labels."""
    import carya
    from carya.text.tfidf import Tfidf

    model = carya.load(path)
    if isinstance(model, Tfidf):
        raise InputError(f"{path} contains a vectorizer, not a model. Train a model with: carya train TEXTS -o MODEL")
    return model


def check_common_labels(ranker: Any, labels: Iterable[Iterable[str]], source: str, model: Path) -> None:
    """Raise InputError if a ranker and a data set have no labels in common."""
    known, first = ranker.label_set_, None
    for label in itertools.chain.from_iterable(labels):
        if label in known:
            return
        first = first or label
    if first is None:
        raise InputError(f"{source} contains no labels. At least one is required.")
    raise InputError(
        f"{source} and {model} have no labels in common: the first label in the data is {first!r}, and the first label "
        f"in the model is {ranker.labels_[0]!r}. Use the same --vocabulary as in training."
    )


def read_features(data: DataOptions, n_features: int, model: Path, dense: Path | None = None) -> Any:
    """Return the features from a matrix file, or from data in any format that contains features.

    Parameters
    ----------
    data : DataOptions
    n_features : int
        The number of features of the model.
    model : Path
        The path of the model, for error messages.
    dense : Path, optional
        A file with dense features; if given, a (sparse, dense) pair is returned.
    """
    from carya.data.io.matrix_files import read_matrix

    X = _read_features(data, n_features, model)
    return X if dense is None else (X, read_matrix(dense))


def _read_features(data: DataOptions, n_features: int, model: Path) -> Any:
    from carya.data.corpus import Matrices
    from carya.data.io.matrix_files import read_matrix

    if Path(data.source).suffix in MATRIX_SUFFIXES:
        return read_matrix(data.source)
    if data.detected_format == "xmc-pair":
        from carya.data.formats.matrices.xmc_pair import read_xmc_features

        return read_xmc_features(data.source)
    matrices = data.open()
    if not isinstance(matrices, Matrices):
        raise InputError(
            f"{model} was trained on features. DATA must contain features, but {matrices.source} does not."
        )
    if not matrices.widths_known:  # trailing empty columns may be missing from the file
        matrices.X.resize((matrices.X.shape[0], max(matrices.X.shape[1], n_features)))
    return matrices.X


@contextmanager
def naming_input(source: str) -> Iterator[None]:
    """Add the name of the input file to the messages of input errors, which refer to the input as X."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
