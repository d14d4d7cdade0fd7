"""Texts and labels in two files, a line a row, and folders of such files.

In a folder the labels are in a text file as well, or in a matrix with a list of what its columns are called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

from carya.data.corpus import Corpus, Example
from carya.data.formats.columns import TAB, join_labels, one_line, split_labels
from carya.data.formats.folder_files import needed, piece, refuse
from carya.data.formats.vocabularies import read_vocabulary, write_vocabulary
from carya.data.io.files import PathLike, read_lines, shown, writing_text
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError, ParameterError

_NAMES = ("label_names.tsv", "label_names.txt")


def read_pair(texts: PathLike, labels: PathLike, *, label_separator: str | None = None) -> Iterator[Example]:
    """The examples of a file of texts and a file of labels, a line a row; an empty line is no labels.

    Parameters
    ----------
    texts, labels : path
    label_separator : str, optional
        What separates the labels of a row; a TAB if not given.
    """
    separator = label_separator or TAB
    pairs = zip_longest(read_lines(texts), read_lines(labels))
    for number, (text, row) in enumerate(pairs, 1):
        if text is None or row is None:
            short, long = (texts, labels) if text is None else (labels, texts)
            raise InputError(f"{shown(short)}: the number of lines is {number - 1}, {shown(long)} has more")
        yield Example(text, split_labels(row, separator, f"{shown(labels)}, line {number}"))


def write_pair(
    texts: PathLike, examples: Iterable[Example], *, labels: PathLike, label_separator: str | None = None
) -> int:
    """Write a file of texts and a file of labels; gives the number of examples."""
    rows = 0
    if Path(texts).absolute() == Path(labels).absolute():
        raise ParameterError(f"{texts} cannot hold both texts and labels: give another file for one of them")
    with ExitStack() as both:
        write_text, write_labels = (both.enter_context(writing_text(path)) for path in (texts, labels))
        for rows, example in enumerate(examples, 1):
            write_text(one_line(example.text, f"{texts}, line {rows}") + "\n")
            where = f"{labels}, line {rows}"
            write_labels(one_line(join_labels(example.labels, label_separator or TAB, where), where) + "\n")
    return rows


def has_texts(folder: Path, part: str) -> bool:
    """Whether a folder holds texts of that part in the form of this module."""
    return piece(folder, [f"{part}.texts.txt"]) is not None


def read_texts(
    folder: PathLike, *, part: str = "train", label_separator: str | None = None, vocabulary: Vocabulary | None = None
) -> Corpus:
    """The texts of one part of a folder.

    Parameters
    ----------
    folder : path
        With ``{part}.texts.txt``, and ``{part}.labels.txt`` or ``{part}.labels.npz``, and ``label_names.tsv`` or
        ``label_names.txt``, which only labels in a matrix need. All but the matrix may be compressed.
    part : str
    label_separator : str, optional
        What separates the labels of a row; a TAB if not given.
    vocabulary : Vocabulary, optional
        Stands for ``label_names``.
    """
    place = Path(folder)
    texts = needed(place, [f"{part}.texts.txt"])
    labels = needed(place, [f"{part}.labels.txt", f"{part}.labels.npz"])
    if vocabulary is None:
        vocabulary = _names(place)
    if labels.suffix == ".npz":
        if vocabulary is None:
            raise InputError(f"{place}: there is no label_names.tsv or label_names.txt, which {labels.name} needs")
        return with_label_matrix(texts, labels, vocabulary)
    return Corpus(
        lambda: read_pair(texts, labels, label_separator=label_separator), source=str(place), vocabulary=vocabulary
    )


def with_label_matrix(texts: Path, labels: Path, vocabulary: Vocabulary) -> Corpus:
    """Texts whose labels are the entries of a matrix; its columns are the labels of the vocabulary."""
    from carya.data.io.matrix_files import read_labels

    Y = read_labels(labels)
    if Y.cols != len(vocabulary):
        raise InputError(f"{labels} has {Y.cols} columns, {vocabulary.source} has {len(vocabulary)} labels")
    return Corpus(
        lambda: _with_rows(_as_many(texts, labels, Y.rows), Y.indptr.tolist(), Y.indices, vocabulary.ids),
        source=str(texts.parent),
        vocabulary=vocabulary,
        texts=lambda: _as_many(texts, labels, Y.rows),
        matrix=Y,
    )


def write_texts(folder: PathLike, corpus: Corpus, *, part: str = "train", label_separator: str | None = None) -> int:
    """Write one part of a folder, and ``label_names`` if the corpus has a vocabulary; gives the number of examples."""
    place = Path(folder)
    texts, labels = (place / f"{part}.{what}.txt" for what in ("texts", "labels"))
    for path in (texts, labels):
        refuse(place, path.name, but=path.name)
    refuse(place, f"{part}.labels.npz")
    with naming(place, corpus.vocabulary, _names(place), _NAMES[1]):
        return write_pair(texts, corpus, labels=labels, label_separator=label_separator)


@contextmanager
def naming(place: Path, vocabulary: Vocabulary | None, there: Vocabulary | None, plain: str) -> Iterator[None]:
    """Write what labels are called after the rows: to the file `plain` if they have no names beside their ids.

    What is `there` already belongs to other parts: it must be the same, and is looked at before.
    """
    if vocabulary is not None and there is not None and there != vocabulary:
        raise InputError(f"{there.source} lists other labels than {vocabulary.source}: choose another folder")
    yield
    if vocabulary is not None and there is None:
        name = plain if vocabulary.ids == vocabulary.names else _NAMES[0]
        write_vocabulary(place / name, vocabulary, brackets=False)


def _names(place: Path) -> Vocabulary | None:
    listed = piece(place, _NAMES)
    return None if listed is None else read_vocabulary(listed)


def _with_rows(texts: Iterable[str], indptr: list[int], indices: Any, ids: list[str]) -> Iterator[Example]:
    for row, text in enumerate(texts):
        yield Example(text, tuple(ids[one] for one in indices[indptr[row] : indptr[row + 1]].tolist()))


def _as_many(texts: Path, labels: Path, rows: int) -> Iterator[str]:
    """The lines of a file that must have as many of them as a matrix has rows."""
    row = 0
    for row, text in enumerate(read_lines(texts), 1):
        if row > rows:
            raise InputError(f"{texts}: the number of lines is more than {rows}, the rows of {labels}")
        yield text
    if row < rows:
        raise InputError(f"{texts}: the number of lines is {row}, {labels} has {rows} rows")
