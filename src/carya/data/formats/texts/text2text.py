"""PECOS's text2text format: lines with label indices, a tab and a text.

The label names are in a separate file, one per line, usually ``output-items.txt`` in the same folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from carya.data.corpus import Corpus, Example
from carya.data.formats.columns import TAB, check_one_line, short_repr
from carya.data.formats.folder_files import find_file, read_numbered_names
from carya.data.io.files import PathLike, display_name, is_stdio, open_text_output, read_lines
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError

_LABEL_FILES = ("output-items.txt", "label_map.txt")
_ID = re.compile(r"(\d{1,18})(?::(.*))?", re.ASCII)
_RELEVANCE = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def read_text2text(path: PathLike, *, vocabulary: Vocabulary | None = None) -> Corpus:
    """Open a file of ``0,17<TAB>text`` or ``0:0.5,17:1<TAB>text`` lines.

    Labels are numbered from 0. The relevance after a colon must be a number >= 0; labels with a relevance of 0 are
    ignored, and all others are treated equally. Blank lines are ignored.

    Parameters
    ----------
    path : path
    vocabulary : Vocabulary, optional
        The labels in index order; by default, they are read from ``output-items.txt`` or ``label_map.txt`` in the same
        folder. If neither file exists, the indices are used as ids.
    """
    if vocabulary is None and not is_stdio(path):
        file = find_file(Path(path).parent, _LABEL_FILES)
        vocabulary = None if file is None else read_numbered_names(file)
    return Corpus(
        lambda: _read_examples(path, vocabulary),
        source=display_name(path),
        vocabulary=vocabulary,
        single_pass=is_stdio(path),
    )


def write_text2text(path: PathLike, corpus: Corpus) -> int:
    """Write a corpus and return the number of rows; without a vocabulary, all label ids must be integers >= 0."""
    rows = 0
    with open_text_output(path) as write:
        for rows, example in enumerate(corpus, 1):
            location = f"{path}, line {rows}"
            numbers = [_number(label, corpus.vocabulary, location) for label in example.labels]
            if not numbers:
                raise InputError(f"{location}: This format cannot represent a text without labels.")
            write(f"{','.join(numbers)}\t{check_one_line(example.text, location)}\n")
    return rows


def _read_examples(path: PathLike, vocabulary: Vocabulary | None) -> Iterator[Example]:
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        location = f"{display_name(path)}, line {number}"
        ids, tab, text = line.partition(TAB)
        if not tab:
            raise InputError(f"{location}: A line must contain label indices, a tab and a text, but it has no tab.")
        labels = (_parse_label(field.strip(" "), vocabulary, location) for field in ids.split(","))
        yield Example(text, tuple(label for label in labels if label is not None))


def _parse_label(field: str, vocabulary: Vocabulary | None, location: str) -> str | None:
    """Return the id of a label; None if its relevance is 0."""
    match = _ID.fullmatch(field)
    if match is None:
        raise InputError(
            f"{location}: A label must be an integer >= 0, optionally followed by a colon and a relevance, got "
            f"{short_repr(field)}."
        )
    if match[2] is not None and not _RELEVANCE.fullmatch(match[2]):
        raise InputError(f"{location}: The relevance must be a number >= 0, got {short_repr(match[2])}.")
    label = int(match[1])
    if vocabulary is not None and label >= len(vocabulary):
        raise InputError(
            f"{location}: Label {label} is out of range for the {len(vocabulary)} labels in {vocabulary.source}, "
            "which are numbered from 0."
        )
    if match[2] is not None and float(match[2]) == 0:
        return None
    return str(label) if vocabulary is None else vocabulary.ids[label]


def _number(label: str, vocabulary: Vocabulary | None, location: str) -> str:
    if vocabulary is not None:
        return str(vocabulary.number(label))
    if not label.isascii() or not label.isdigit() or str(int(label)) != label:
        raise InputError(
            f"{location}: Label {short_repr(label)} is not a label index. This format requires label indices or a "
            "vocabulary (--vocabulary)."
        )
    return label
