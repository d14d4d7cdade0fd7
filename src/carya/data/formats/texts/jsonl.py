"""JSON lines: one object a line, with a text and a list of labels."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from carya.data.corpus import Example
from carya.data.formats.columns import brief, is_text, joined_text, label_list, quoted, text_columns
from carya.data.io.files import PathLike, read_lines, shown, writing_text
from carya.errors import InputError


def read_jsonl(path: PathLike, *, text_column: str = "text", label_column: str | None = "labels") -> Iterator[Example]:
    """The examples of a file of JSON lines. Blank lines are skipped, other keys ignored.

    Parameters
    ----------
    path : path
    text_column : str
        The key of the text, or several with commas between.
    label_column : str or None
        The key of the list of labels; None if there are none to read.
    """
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        where = f"{shown(path)}, line {number}"
        row = _object(line, where)
        names = text_columns(text_column, row)
        for name in names:
            if not is_text(_value(row, name, where)):
                raise InputError(f'{where}: "{name}" must be a string, got {brief(row[name])}')
        labels = () if label_column is None else label_list(_value(row, label_column, where), label_column, where)
        yield Example(joined_text([row[name] for name in names]), labels)


def write_jsonl(path: PathLike, examples: Iterable[Example]) -> int:
    """Write examples, one object a line; gives their number."""
    rows = 0
    with writing_text(path) as write:
        for rows, example in enumerate(examples, 1):  # noqa: B007
            row = {"text": example.text, "labels": example.labels}
            write(json.dumps(row, ensure_ascii=False) + "\n")
    return rows


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON at character {error.pos + 1}: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or as many brackets
        raise InputError(f"{where}: not JSON that can be read: {error}") from None
    if not isinstance(row, dict):
        raise InputError(f"{where}: must be an object, got {brief(row)}")
    return row


def _value(row: dict[str, Any], name: str, where: str) -> Any:
    if name not in row:
        raise InputError(f'{where}: there is no "{name}", only {quoted(row) or "an empty object"}')
    return row[name]
