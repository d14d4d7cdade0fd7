"""The raw texts of the Extreme Classification Repository: JSON lines with titles, contents and label indices.

The label names are in the same folder: in ``lbl.json.gz`` or, one per line, in ``Y.txt``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from carya.data.corpus import Corpus, Example
from carya.data.formats.columns import get_column, get_text, is_integer, resolve_text_columns, short_repr, text_id
from carya.data.formats.folder_files import SHORT_PARTS, find_file, read_numbered_names, require_file
from carya.data.formats.tables.jsonl import parse_object
from carya.data.io.files import PathLike, display_name, is_stdio, read_lines
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError

_LABEL_COLUMN = "target_ind"
_ID_COLUMN = "uid"
_TEXT_COLUMNS = ("title", "content")
_LABEL_FILES = ("lbl.json", "Y.txt")


def has_json_parts(folder: Path, part: str) -> bool:
    """Return whether a folder contains the raw texts of a split, such as ``trn.json.gz``."""
    return find_file(folder, _names(part)) is not None


def read_xmc_json_folder(
    folder: PathLike, *, part: str = "train", text_column: str | None = None, vocabulary: Vocabulary | None = None
) -> Corpus:
    """Open the raw texts of one split in a folder; see :func:`read_xmc_json`."""
    file = require_file(Path(folder), _names(part))
    return read_xmc_json(file, text_column=text_column, vocabulary=vocabulary)


def read_xmc_json(
    path: PathLike,
    *,
    text_column: str | None = None,
    label_column: str | None = _LABEL_COLUMN,
    vocabulary: Vocabulary | None = None,
) -> Corpus:
    """Open a file of objects with the keys ``title``, ``content`` and ``target_ind``, one per line.

    Parameters
    ----------
    path : path
    text_column : str, optional
        The key of the text, or several keys separated by commas; by default, ``title`` and ``content``, if they exist.
    label_column : str or None
        The key of the list of label indices, which start at 0; None to read texts without labels.
    vocabulary : Vocabulary, optional
        The labels in index order; by default, they are read from ``lbl.json.gz`` or ``Y.txt`` in the same folder. If
        neither file exists, or if two labels have the same name, the indices are used as ids.
    """
    if vocabulary is None and not is_stdio(path):
        file = find_file(Path(path).parent, _LABEL_FILES)
        vocabulary = None if file is None else _read_labels(file)
    return Corpus(
        lambda: _read_examples(path, text_column, label_column, vocabulary),
        source=display_name(path),
        vocabulary=vocabulary,
        single_pass=is_stdio(path),
    )


def _read_examples(
    path: PathLike, text_column: str | None, label_column: str | None, vocabulary: Vocabulary | None
) -> Iterator[Example]:
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        location = f"{display_name(path)}, line {number}"
        record = parse_object(line, location)
        if text_column is None:
            columns = [name for name in _TEXT_COLUMNS if name in record] or ["title"]
        else:
            columns = resolve_text_columns(text_column, record)
        labels: tuple[str, ...] = ()
        if label_column is not None:
            numbers = get_column(record, label_column, location, "label_column")
            if not isinstance(numbers, list) or not all(map(is_integer, numbers)):
                raise InputError(
                    f'{location}: "{label_column}" must be a list of label indices, got {short_repr(numbers)}.'
                )
            labels = tuple(_to_id(label, vocabulary, location) for label in numbers)
        yield Example(get_text(record, columns, location), labels, text_id(record.get(_ID_COLUMN)))


def _to_id(number: int, vocabulary: Vocabulary | None, location: str) -> str:
    if vocabulary is None:
        return str(number)
    if number >= len(vocabulary):
        raise InputError(
            f"{location}: Label {number} is out of range for the {len(vocabulary)} labels in {vocabulary.source}, "
            "which are numbered from 0."
        )
    return vocabulary.ids[number]


def _read_labels(file: Path) -> Vocabulary:
    """Return the labels in ``Y.txt``, or the titles in ``lbl.json.gz``, in index order."""
    if file.name.startswith("Y.txt"):
        return read_numbered_names(file)
    names = []
    for number, line in enumerate(read_lines(file), 1):
        location = f"{file}, line {number}"
        names.append(get_text(parse_object(line, location), ["title"], location))
    ids = names if all(names) and len(set(names)) == len(names) else [str(number) for number in range(len(names))]
    return Vocabulary(ids, names, source=str(file))


def _names(part: str) -> list[str]:
    return [f"{name}.json" for name in SHORT_PARTS[part]]
