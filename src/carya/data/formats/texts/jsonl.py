"""JSON lines: one object per line, with a text and a list of labels."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from carya.data.corpus import Example
from carya.data.formats.columns import (
    check_label_list,
    is_valid_text,
    join_texts,
    quote_names,
    resolve_text_columns,
    short_repr,
)
from carya.data.io.files import PathLike, display_name, open_text_output, read_lines
from carya.errors import InputError


def read_jsonl(path: PathLike, *, text_column: str = "text", label_column: str | None = "labels") -> Iterator[Example]:
    """Yield the examples in a JSON lines file. Blank lines and other keys are ignored.

    Parameters
    ----------
    path : path
    text_column : str
        The key of the text, or several keys separated by commas.
    label_column : str or None
        The key of the list of labels; None to read texts without labels.
    """
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        location = f"{display_name(path)}, line {number}"
        record = _parse_object(line, location)
        keys = resolve_text_columns(text_column, record)
        for key in keys:
            if not is_valid_text(_get(record, key, location)):
                raise InputError(f'{location}: "{key}" must be a string, got {short_repr(record[key])}.')
        labels: tuple[str, ...] = ()
        if label_column is not None:
            labels = check_label_list(_get(record, label_column, location), label_column, location)
        yield Example(join_texts([record[key] for key in keys]), labels)


def write_jsonl(path: PathLike, examples: Iterable[Example]) -> int:
    """Write examples with the keys `text` and `labels`; return the number of examples."""
    rows = 0
    with open_text_output(path) as write:
        for rows, example in enumerate(examples, 1):  # noqa: B007
            record = {"text": example.text, "labels": example.labels}
            write(json.dumps(record, ensure_ascii=False) + "\n")
    return rows


def _parse_object(line: str, location: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{location}: Invalid JSON at character {error.pos + 1}: {error.msg}.") from None
    except (ValueError, RecursionError) as error:  # a number with thousands of digits, or thousands of nested brackets
        raise InputError(f"{location}: Invalid JSON: {error}.") from None
    if not isinstance(record, dict):
        raise InputError(f"{location}: Each line must be a JSON object, got {short_repr(record)}.")
    return record


def _get(record: dict[str, Any], key: str, location: str) -> Any:
    if key not in record:
        keys = f"the keys are {quote_names(record)}" if record else "the object is empty"
        raise InputError(f'{location}: Missing key "{key}"; {keys}.')
    return record[key]
