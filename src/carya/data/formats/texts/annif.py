"""Annif's corpora: TSV files of texts and subject URIs, and folders with one file per text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from carya.data.corpus import Corpus, Example
from carya.data.formats.columns import TAB, check_one_line, short_repr
from carya.data.io.files import PathLike, display_name, open_text_output, read_lines
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError

_URI = re.compile(r"<([^<>\s]+)>")


def read_annif(path: PathLike) -> Iterator[Example]:
    """Yield the examples in a file with ``text<TAB><uri> <uri>`` lines. Blank lines are ignored."""
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip(" "):
            continue
        location = f"{display_name(path)}, line {number}"
        fields = line.split(TAB)
        if len(fields) != 2:
            raise InputError(
                f"{location}: A line must contain a text, a tab and subject URIs, but it has {len(fields) - 1} tabs."
            )
        yield Example(fields[0], tuple(_parse_uri(subject, location) for subject in fields[1].split()))


def looks_like_annif(path: PathLike) -> bool:
    """Return whether a TSV file begins with an Annif example, not with a header; lines without subjects are skipped."""
    for line in filter(str.strip, read_lines(path)):
        fields = line.split(TAB)
        if len(fields) != 2 or fields[1].strip():
            return len(fields) == 2 and all(map(_URI.fullmatch, fields[1].split()))
    return False


def write_annif(path: PathLike, examples: Iterable[Example]) -> int:
    """Write examples as ``text<TAB><uri> <uri>`` lines; return the number of examples."""
    rows = 0
    with open_text_output(path) as write:
        for rows, example in enumerate(examples, 1):
            location = f"{path}, line {rows}"
            subjects = [f"<{label}>" for label in example.labels]
            for subject in subjects:
                _parse_uri(subject, location)
            write(f"{check_one_line(example.text, location, TAB)}\t{' '.join(subjects)}\n")
    return rows


def has_documents(folder: Path, part: str) -> bool:
    """Return whether a folder is an Annif full-text corpus; it has no splits, so `part` is ignored."""
    return bool(_find_documents(folder))


def read_annif_folder(folder: PathLike, *, vocabulary: Vocabulary | None = None) -> Corpus:
    """Open a folder with one ``.txt`` file per text and, with the same name, a ``.tsv`` or ``.key`` file of subjects.

    A ``.tsv`` file contains ``<uri><TAB>name`` lines, and a ``.key`` file contains one name per line. Names are
    converted to ids if a vocabulary is given. Texts without a subject file are ignored.
    """
    return Corpus(lambda: _read_documents(Path(folder), vocabulary), source=display_name(folder), vocabulary=vocabulary)


def _find_documents(folder: Path) -> list[tuple[Path, Path]]:
    """Return the text files in a folder, sorted by name, each with its subject file."""
    documents = []
    for text in sorted(folder.glob("*.txt")):
        for subjects in (text.with_suffix(".tsv"), text.with_suffix(".key")):
            if subjects.is_file():
                documents.append((text, subjects))
                break
    return documents


def _read_documents(folder: Path, vocabulary: Vocabulary | None) -> Iterator[Example]:
    # A dictionary is faster than the vocabulary's index. If several labels have the same name, the first one is used.
    ids = {} if vocabulary is None else dict(zip(reversed(vocabulary.names), reversed(vocabulary.ids), strict=True))
    for text_file, subject_file in _find_documents(folder):
        labels = []
        for number, line in enumerate(read_lines(subject_file), 1):
            if not line.strip():
                continue
            location = f"{subject_file}, line {number}"
            if subject_file.suffix == ".tsv":
                labels.append(_parse_uri(line.split(TAB)[0], location))
                continue
            name = line.strip()
            if vocabulary is not None and name not in ids:
                raise InputError(f"{location}: {vocabulary.source} has no label named {short_repr(name)}.")
            labels.append(ids.get(name, name))
        yield Example("".join(read_lines(text_file, keep_ends=True)), tuple(labels), text_file.stem)


def _parse_uri(subject: str, location: str) -> str:
    match = _URI.fullmatch(subject)
    if match is None:
        raise InputError(f"{location}: A subject must be a URI in angle brackets, got {short_repr(subject)}.")
    return match[1]
