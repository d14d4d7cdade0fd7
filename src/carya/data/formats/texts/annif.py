"""Corpora of Annif: lines of a text and the URIs of its subjects, and folders with a file a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from carya.data.corpus import Example
from carya.data.formats.columns import TAB, brief, one_line
from carya.data.io.files import PathLike, read_lines, shown, writing_text
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError

_URI = re.compile(r"<([^<>\s]+)>")


def uri_of(text: str) -> str | None:
    """What is between angle brackets; None if the text is not of that form."""
    found = _URI.fullmatch(text)
    return found[1] if found else None


def read_annif(path: PathLike) -> Iterator[Example]:
    """The examples of a file with ``text<TAB><uri> <uri>`` lines. Blank lines are skipped."""
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip(" "):
            continue
        where = f"{shown(path)}, line {number}"
        fields = line.split(TAB)
        if len(fields) != 2:
            raise InputError(f"{where}: a line must be a text, a TAB and subjects, it has {len(fields) - 1} TABs")
        yield Example(fields[0], tuple(_subject(one, where) for one in fields[1].split()))


def looks_like_annif(path: PathLike) -> bool:
    """Whether a TSV file begins with examples rather than a header; those without subjects do not tell."""
    for line in filter(str.strip, read_lines(path)):
        fields = line.split(TAB)
        if len(fields) != 2 or fields[1].strip():
            return len(fields) == 2 and all(map(uri_of, fields[1].split()))
    return False


def write_annif(path: PathLike, examples: Iterable[Example]) -> int:
    """Write examples as ``text<TAB><uri> <uri>`` lines; gives their number."""
    rows = 0
    with writing_text(path) as write:
        for rows, example in enumerate(examples, 1):
            where = f"{path}, line {rows}"
            subjects = [f"<{label}>" for label in example.labels]
            for subject in subjects:
                _subject(subject, where)
            write(f"{one_line(example.text, where, TAB)}\t{' '.join(subjects)}\n")
    return rows


def annif_documents(folder: Path) -> list[tuple[Path, Path]]:
    """The texts of a folder in the order of their names, each with the file of its subjects: ``.tsv`` or ``.key``."""
    found = []
    for text in sorted(folder.glob("*.txt")):
        beside = next((one for one in (text.with_suffix(".tsv"), text.with_suffix(".key")) if one.is_file()), None)
        if beside is not None:
            found.append((text, beside))
    return found


def read_annif_folder(folder: PathLike, *, vocabulary: Vocabulary | None = None) -> Iterator[Example]:
    """The examples of a folder with a ``.txt`` file a text, whole, and its subjects beside it.

    Subjects are in a ``.tsv`` file, ``<uri><TAB>name`` lines, or in a ``.key`` file, one name a line. Names become ids
    if there is a vocabulary, and stay names if there is none. Texts without subjects beside them are left out.
    """
    for text, beside in annif_documents(Path(folder)):
        subjects = []
        for number, line in enumerate(read_lines(beside), 1):
            if not line.strip():
                continue
            where = f"{beside}, line {number}"
            if beside.suffix == ".tsv":
                subjects.append(_subject(line.split(TAB)[0], where))
            else:
                subjects.append(_by_name(line.strip(), vocabulary, where))
        yield Example("".join(read_lines(text, ends=True)), tuple(subjects))


def _subject(text: str, where: str) -> str:
    uri = uri_of(text)
    if uri is None:
        raise InputError(f"{where}: a subject must be a URI in angle brackets, got {brief(text)}")
    return uri


def _by_name(name: str, vocabulary: Vocabulary | None, where: str) -> str:
    if vocabulary is None:
        return name
    one = vocabulary.named(name)
    if one is None:
        raise InputError(f"{where}: {vocabulary.source} has no label named {brief(name)}")
    return one
