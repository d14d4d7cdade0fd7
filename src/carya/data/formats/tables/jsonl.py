"""JSON lines: one object per line, with a text and a list of labels."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from carya.data.corpus import Example
from carya.data.formats.columns import Columns, short_repr
from carya.data.io.files import PathLike, display_name, open_text_output, read_lines
from carya.errors import InputError


def read_jsonl(
    path: PathLike,
    *,
    text_column: str = "text",
    label_column: str | None = "labels",
    label_separator: str | None = None,
) -> Iterator[Example]:
    """Yield the examples in a JSON lines file.

    Blank lines are ignored, as are keys other than ``id`` and those of the text and the labels.

    Parameters
    ----------
    path : path
    text_column : str
        The key of the text, or several keys separated by commas.
    label_column : str or None
        The key of the labels, whose value is a list of strings or integers, an integer, or, with `label_separator`, a
        string; None to read texts without labels.
    label_separator : str, optional
        The separator between labels in a string.
    """
    columns = Columns(text_column, label_column, label_separator)
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            location = f"{display_name(path)}, line {number}"
            yield columns.example(parse_object(line, location), location)


def write_jsonl(path: PathLike, examples: Iterable[Example]) -> int:
    """Write examples with the keys `text` and `labels`; return the number of examples."""
    rows = 0
    with open_text_output(path) as write:
        for rows, example in enumerate(examples, 1):  # noqa: B007
            record = {"text": example.text, "labels": example.labels}
            write(json.dumps(record, ensure_ascii=False) + "\n")
    return rows


def parse_object(line: str, location: str) -> dict[str, Any]:
    """Parse the JSON object on a line; raise InputError if it is invalid."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{location}: Invalid JSON at character {error.pos + 1}: {error.msg}.") from None
    except (ValueError, RecursionError) as error:  # a number with thousands of digits, or thousands of nested brackets
        raise InputError(f"{location}: Invalid JSON: {error}.") from None
    if not isinstance(record, dict):
        raise InputError(f"{location}: Each line must be a JSON object, got {short_repr(record)}.")
    return record
