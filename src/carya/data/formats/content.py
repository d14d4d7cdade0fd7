"""Recognize formats by the first lines of a file or stream."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from carya.core.progress import Progress
from carya.data.io.files import MATRIX_SUFFIXES, PathLike, display_name, is_stdio, peek_standard_input, read_lines
from carya.data.io.reading_progress import showing_progress
from carya.data.io.utf16 import UTF16_MARKS
from carya.errors import InputError

_MAX_LINES = 20
_DECISIVE_ROWS = 3  # number of rows needed to distinguish a sparse matrix from texts that contain numbers

_PAIR = r"\d+:[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_SPARSE_ROW = re.compile(rf"\s*{_PAIR}(?:\s+{_PAIR})*\s*", re.ASCII)
_LABELED_ROW = re.compile(rf"(?:[+-]?\d+(?:,\d+)*)?(?:\s+{_PAIR})+\s*(?:#.*)?", re.ASCII)
_HEADER = re.compile(r"\s*\d+\s+\d+(?:\s+\d+)?\s*", re.ASCII)
_LABELS = re.compile(r"\d+(?:,\d+)*\s*", re.ASCII)
_JSON_OBJECT = re.compile(r"\s*\{\s*\"(?:[^\"\\]|\\.)*\"\s*:")
_JSON_ARRAY = re.compile(r"\s*\[\s*\{\s*\"")
_XMC_RECORD = re.compile(r"\"target_ind\"\s*:")
_FASTTEXT = re.compile(r"(?:^|\s)__label__\S")
_IDS_AND_TEXT = re.compile(r"\d+(?::[\d.eE+-]+)?(?:,\d+(?::[\d.eE+-]+)?)*\t.*\S.*", re.ASCII)


def first_lines(path: PathLike) -> list[str]:
    """Return the first available lines of a file or standard input; return an empty list if it is not text."""
    if is_stdio(path):
        content = peek_standard_input()
        encoding = "utf-16" if content[:2] in UTF16_MARKS else "utf-8-sig"
        text = codecs.getincrementaldecoder(encoding)("replace").decode(content)
        *lines, last = text.split("\n")
        return [*lines, last.rpartition(" ")[0] or last][:_MAX_LINES]  # the last word may be incomplete
    try:
        with showing_progress(Progress()):  # no progress bar, because the file is not read to the end
            return list(islice(read_lines(path), _MAX_LINES))
    except InputError:
        return []


def guess_format(lines: Sequence[str]) -> str | None:
    """Return the format that the first lines of a file indicate, or None if they could be arbitrary text."""
    rows = [line for line in lines if line.strip()]
    if not rows:
        return None
    recognized = {
        "xmc-json": _JSON_OBJECT.match(rows[0]) and _XMC_RECORD.search(rows[0]),
        "jsonl": _JSON_OBJECT.match(rows[0]),
        "json": _JSON_ARRAY.match("\n".join(rows)),
        "fasttext": all(map(_FASTTEXT.search, rows)),
        "text2text": all(map(_IDS_AND_TEXT.fullmatch, rows)),
    }
    return sparse_format(rows) or next((name for name, is_match in recognized.items() if is_match), None)


def sparse_format(rows: Sequence[str]) -> str | None:
    """Return the sparse-matrix format that the first nonblank lines match, or None if they match none."""
    if not _HEADER.fullmatch(rows[0]):
        return "svmlight" if len(rows) > 1 and all(map(_LABELED_ROW.fullmatch, rows)) else None
    has_pairs = [_SPARSE_ROW.fullmatch(row) or _LABELED_ROW.fullmatch(row) for row in rows[1:]]
    others = [row for row, pairs in zip(rows[1:], has_pairs, strict=True) if not pairs]
    if not any(has_pairs) or not all(map(_LABELS.fullmatch, others)):
        return None
    return "xmc-pair" if len(rows[0].split()) == 2 else "xmc"


def is_label_matrix(path: PathLike) -> bool:
    """Return whether a label file contains a matrix rather than the labels of one row per line."""
    if is_stdio(path):
        return False
    if Path(path).suffix in MATRIX_SUFFIXES:
        return True
    rows = [line for line in first_lines(path) if line.strip()]
    return bool(rows) and sparse_format(rows) == "xmc-pair"


def text_lines(path: PathLike) -> Iterator[str]:
    """Yield the lines of a text file; raise InputError before the first line if the file contains a sparse matrix."""
    lines = read_lines(path)
    begin: list[str] = []
    for line in lines:
        begin.append(line)
        if not _may_be_sparse(begin):
            break
    check_not_sparse(path, begin)
    yield from begin
    yield from lines


def check_not_sparse(path: PathLike, lines: Sequence[str]) -> None:
    """Raise InputError if a text file begins like a sparse matrix; the message explains how to read such a file."""
    rows = [line for line in lines if line.strip()]
    form = sparse_format(rows) if rows else None
    if form is None:
        return
    begins = (
        f"{display_name(path)}: Expected texts, but the file contains a sparse matrix: it begins with {rows[0][:40]!r}"
    )
    if form == "svmlight":
        raise InputError(f"{begins}. To read features and labels, specify the format 'svmlight'.")
    if form == "xmc":
        raise InputError(
            f"{begins}, followed by labels and index:value pairs. To read features and labels, pass only this "
            "file and specify the format 'xmc'."
        )
    raise InputError(
        f"{begins}, followed by index:value pairs. To read features and labels, pass the feature file, such as "
        "trn_X_Xf.txt, and specify the format 'xmc-pair'; the labels are read from trn_X_Y.txt in the same folder, or "
        "from the file passed as labels (--labels)."
    )


def _may_be_sparse(begin: Sequence[str]) -> bool:
    """Return whether more lines are needed to rule out a sparse matrix; this is rare, so streams are seldom delayed."""
    rows = [line for line in begin if line.strip()]
    if not rows:
        return True
    return len(rows) < _DECISIVE_ROWS and (_HEADER.fullmatch(rows[0]) or _LABELED_ROW.fullmatch(rows[0])) is not None
