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

_BATCH = 2048  # texts processed at a time
_PATH_STARTS = ("/", "./", "../", "~/")
#: Suffixes of files that are not data sets but might be passed as one.
_OTHER_SUFFIXES = (".txt", ".json", ".md", ".pdf", ".html", ".xml", ".docx", ".xlsx", ".gz", ".xz", ".zst", ".zip")


@dataclass(frozen=True)
class TextBatch:
    """Consecutive texts.

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
    from carya.data.formats.content import text_lines

    file = _file_of_texts(data)
    if data.text_column is not None and (file is not None or data.detected_format == "lines"):
        raise InputError(
            f"{file or data.name} contains one text per line, without columns. Remove --text-column, or pass --format."
        )
    if file is not None:
        return _without_ids(_batches(text_lines(file)))
    return _with_ids(_batches(data.open_texts(model), is_stream=data.source == "-"))


def argument_batches(texts: Sequence[str]) -> Iterator[TextBatch]:
    """Yield texts that were passed as arguments."""
    return _without_ids(_batches(texts))


def are_texts(arguments: Sequence[str], model: Path) -> bool:
    """Return whether the arguments of a command are texts; if not, the only argument is a file or folder.

    Raises
    ------
    InputError
        If an argument is empty or looks like a file that does not exist, or if there are files among several arguments.
    """
    for argument in arguments:
        if not argument.strip():
            raise InputError("An argument is empty. Pass a text, a file or a folder, or - for standard input.")
        if argument == "-" or path_exists(argument):
            if len(arguments) > 1:
                raise InputError(f"{argument} is a file or folder. Pass one file or folder, or only texts.")
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
    """Yield items and report their number; the total is unknown."""
    if report is None:
        yield from items
        return
    for number, item in enumerate(items, 1):
        yield item
        if number % every == 0:
            report(number, 0)


def _without_ids(batches: Iterable[list[str]]) -> Iterator[TextBatch]:
    first = 1
    for batch in batches:
        yield TextBatch(first, batch, [None] * len(batch))
        first += len(batch)


def _with_ids(batches: Iterable[list[Example]]) -> Iterator[TextBatch]:
    first = 1
    for batch in batches:
        yield TextBatch(first, [example.text for example in batch], [example.id for example in batch])
        first += len(batch)


def _file_of_texts(data: DataOptions) -> Path | None:
    """Return the text file in a folder; no label file is required."""
    from carya.data.formats.folder_files import find_file

    if data.format is not None or not Path(data.source).is_dir():
        return None
    return find_file(Path(data.source), [f"{data.part}.texts.txt"])


def _batches(items: Iterable[T], *, is_stream: bool = False) -> Iterator[list[T]]:
    """Group items into batches; a batch from a stream ends when no more input is available yet."""
    remaining = iter(items)
    if not is_stream:
        yield from iter(lambda: list(itertools.islice(remaining, _BATCH)), [])
        return
    batch = []
    for item in remaining:
        batch.append(item)
        if len(batch) == _BATCH or not select.select([sys.stdin], [], [], 0)[0]:
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


@contextmanager
def naming_input(source: str) -> Iterator[None]:
    """Prefix error messages, in which the matrix is named X, with the name of the input file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
