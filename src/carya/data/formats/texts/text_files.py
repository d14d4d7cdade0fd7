"""Texts and labels in two files, one row per line, and folders of such files.

The labels can also be stored as a matrix; in a text folder, this requires a file with the names of its columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from carya.data.corpus import Corpus, Example
from carya.data.formats.columns import TAB, check_one_line, join_labels, split_labels
from carya.data.formats.content import is_label_matrix, text_lines
from carya.data.formats.folder_files import check_no_conflict, find_file, require_file
from carya.data.formats.vocabularies import read_vocabulary, write_vocabulary
from carya.data.io.files import PathLike, display_name, is_stdio, open_text_output
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError, ParameterError

if TYPE_CHECKING:
    from carya.core.matrices import Csr

_MAX_UNNAMED_LABELS = 100_000_000  # prevents a damaged header from filling the memory with label ids
_FEATURE_FILE = "_Xf.txt"  # the ending used by the Extreme Classification Repository
_NAMED_LABELS, _PLAIN_LABELS = "label_names.tsv", "label_names.txt"


def open_pair(
    texts: PathLike,
    *,
    labels: PathLike,
    label_separator: str | None = None,
    vocabulary: Vocabulary | None = None,
) -> Corpus:
    """Open a text file and either a label matrix or a label file, which contains the labels of one row per line.

    Parameters
    ----------
    texts, labels : path
        A label matrix is an ``.npz`` or ``.npy`` file, or a text file such as ``trn_X_Y.txt`` from the Extreme
        Classification Repository. Its columns correspond to the labels of the vocabulary; without a vocabulary, label
        ids are column indices, starting at 0.
    label_separator : str, optional
        The separator between the labels of a row; a tab by default.
    vocabulary : Vocabulary, optional
    """
    if is_label_matrix(labels):
        if label_separator is not None:
            raise ParameterError(f"label_separator cannot be used with {labels}, which contains a matrix. Omit it.")
        if _FEATURE_FILE in display_name(labels):
            raise InputError(f"{labels} contains features, not labels. Pass the label file, such as trn_X_Y.txt.")
        return corpus_with_label_matrix(texts, labels, vocabulary)
    return Corpus(
        lambda: read_pair(texts, labels, label_separator=label_separator),
        source=display_name(texts),
        vocabulary=vocabulary,
        single_pass=is_stdio(texts) or is_stdio(labels),
    )


def read_pair(texts: PathLike, labels: PathLike, *, label_separator: str | None = None) -> Iterator[Example]:
    """Yield the examples in a text file and a label file, one row per line; an empty label line means no labels.

    Parameters
    ----------
    texts, labels : path
    label_separator : str, optional
        The separator between the labels of a row; a tab by default.
    """
    separator = label_separator or TAB
    lines = zip_longest(text_lines(texts), text_lines(labels))
    for number, (text, row_labels) in enumerate(lines, 1):
        if text is None or row_labels is None:
            shorter, longer = (texts, labels) if text is None else (labels, texts)
            raise InputError(
                f"{display_name(shorter)} ends after line {number - 1}, but {display_name(longer)} has more lines."
            )
        yield Example(text, split_labels(row_labels, separator, f"{display_name(labels)}, line {number}"))


def write_pair(
    texts: PathLike, examples: Iterable[Example], *, labels: PathLike, label_separator: str | None = None
) -> int:
    """Write a text file and a label file; return the number of examples."""
    rows = 0
    if Path(texts).absolute() == Path(labels).absolute():
        raise ParameterError(f"{texts} cannot store both texts and labels. Pass two different files.")
    with ExitStack() as files:
        write_text, write_labels = (files.enter_context(open_text_output(path)) for path in (texts, labels))
        for rows, example in enumerate(examples, 1):
            write_text(check_one_line(example.text, f"{texts}, line {rows}") + "\n")
            location = f"{labels}, line {rows}"
            joined = join_labels(example.labels, label_separator or TAB, location)
            write_labels(check_one_line(joined, location) + "\n")
    return rows


def has_text_files(folder: Path, part: str) -> bool:
    """Return whether a folder contains ``{part}.texts.txt``."""
    return find_file(folder, [f"{part}.texts.txt"]) is not None


def read_text_folder(
    folder: PathLike, *, part: str = "train", label_separator: str | None = None, vocabulary: Vocabulary | None = None
) -> Corpus:
    """Open one split of a text folder.

    Parameters
    ----------
    folder : path
        Contains ``{part}.texts.txt`` and either ``{part}.labels.txt`` or ``{part}.labels.npz``; a label matrix also
        requires ``label_names.tsv`` or ``label_names.txt``. All files except the matrix can be compressed.
    part : str
    label_separator : str, optional
        The separator between the labels of a row; a tab by default.
    vocabulary : Vocabulary, optional
        Used instead of the label names in the folder.
    """
    root = Path(folder)
    texts = require_file(root, [f"{part}.texts.txt"])
    labels = require_file(root, [f"{part}.labels.txt", f"{part}.labels.npz"])
    if vocabulary is None:
        vocabulary = _read_label_names(root)
    if labels.suffix == ".npz":
        if vocabulary is None:
            raise InputError(f"{labels} requires {_NAMED_LABELS} or {_PLAIN_LABELS} in the same folder.")
        return corpus_with_label_matrix(texts, labels, vocabulary)
    return Corpus(
        lambda: read_pair(texts, labels, label_separator=label_separator), source=str(root), vocabulary=vocabulary
    )


def corpus_with_label_matrix(texts: PathLike, labels: PathLike, vocabulary: Vocabulary | None) -> Corpus:
    """Return a corpus with the texts of a file and the labels of a matrix.

    The columns of the matrix correspond to the labels of the vocabulary; without a vocabulary, label ids are column
    indices, starting at 0.
    """
    from carya.data.formats.matrices.label_matrix import read_label_matrix

    Y = read_label_matrix(labels)
    if vocabulary is None:
        if Y.cols > _MAX_UNNAMED_LABELS:
            raise InputError(
                f"{display_name(labels)} has {Y.cols} columns. Without label names, the number of columns must be at "
                f"most {_MAX_UNNAMED_LABELS}."
            )
        vocabulary = Vocabulary(map(str, range(Y.cols)), source=display_name(labels))
    elif Y.cols != len(vocabulary):
        raise InputError(
            f"{display_name(labels)} has {Y.cols} columns, but {vocabulary.source} has {len(vocabulary)} labels."
        )
    ids = vocabulary.ids

    def read_texts() -> Iterator[str]:
        return _read_n_lines(texts, labels, Y.rows)

    return Corpus(
        lambda: _add_labels(read_texts(), Y, ids),
        source=display_name(texts),
        vocabulary=vocabulary,
        single_pass=is_stdio(texts),
        texts=read_texts,
        matrix=Y,
    )


def write_text_folder(
    folder: PathLike, corpus: Corpus, *, part: str = "train", label_separator: str | None = None
) -> int:
    """Write one split, and the label names if the corpus has a vocabulary; return the number of examples."""
    root = Path(folder)
    texts, labels = (root / f"{part}.{content}.txt" for content in ("texts", "labels"))
    for path in (texts, labels):
        check_no_conflict(root, path.name, replaced=path.name)
    check_no_conflict(root, f"{part}.labels.npz")
    with label_names_written(root, corpus.vocabulary, existing=_read_label_names(root), plain_file=_PLAIN_LABELS):
        return write_pair(texts, corpus, labels=labels, label_separator=label_separator)


@contextmanager
def label_names_written(
    folder: Path, vocabulary: Vocabulary | None, *, existing: Vocabulary | None, plain_file: str
) -> Iterator[None]:
    """Write the label names of a folder when the context exits, after the rows have been written.

    Parameters
    ----------
    folder : Path
    vocabulary : Vocabulary or None
        The labels of the split that is being written.
    existing : Vocabulary or None
        The labels already listed in the folder, if any. If they differ from `vocabulary`, InputError is raised before
        anything is written.
    plain_file : str
        The file to write if the names are equal to the ids; otherwise, ``label_names.tsv`` is written.
    """
    if vocabulary is not None and existing is not None and existing != vocabulary:
        raise InputError(f"The labels in {existing.source} and {vocabulary.source} differ. Choose another folder.")
    yield
    if vocabulary is not None and existing is None:
        name = plain_file if vocabulary.ids == vocabulary.names else _NAMED_LABELS
        write_vocabulary(folder / name, vocabulary, brackets=False)


def _read_label_names(folder: Path) -> Vocabulary | None:
    file = find_file(folder, (_NAMED_LABELS, _PLAIN_LABELS))
    return None if file is None else read_vocabulary(file)


def _add_labels(texts: Iterable[str], Y: Csr, ids: list[str]) -> Iterator[Example]:
    indptr = Y.indptr.tolist()
    for row, text in enumerate(texts):
        yield Example(text, tuple(ids[label] for label in Y.indices[indptr[row] : indptr[row + 1]].tolist()))


def _read_n_lines(texts: PathLike, labels: PathLike, n_lines: int) -> Iterator[str]:
    """Yield the lines of a file; raise InputError unless the label matrix has the same number of rows."""
    number = 0
    for number, text in enumerate(text_lines(texts), 1):
        if number > n_lines:
            raise InputError(f"{texts} has more than {n_lines} lines, but {labels} has {n_lines} rows.")
        yield text
    if number < n_lines:
        raise InputError(f"{texts} has {number} lines, but {labels} has {n_lines} rows.")
