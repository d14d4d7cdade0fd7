"""JSON files: an array of objects, an object of columns, or a sequence of objects.

Arrays and sequences of objects are parsed incrementally; an object of columns is read into memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from carya.data.corpus import Example
from carya.data.formats.columns import ID_COLUMN, Columns, get_column, resolve_text_columns, short_repr
from carya.data.io.files import PathLike, display_name, open_text_output, read_text
from carya.errors import InputError

#: A parser error within this many characters of the end of the text can be caused by an incomplete token.
_MAX_INCOMPLETE = 16
_SPACE = " \t\r\n"


def read_json(
    path: PathLike,
    *,
    text_column: str = "text",
    label_column: str | None = "labels",
    label_separator: str | None = None,
) -> Iterator[Example]:
    """Yield the examples in a JSON file: ``[{"text": …}, …]``, ``{"text": […], …}`` or ``{"text": …} {"text": …}``.

    In an object of columns, the values of a column are a list, or an object as written by pandas.

    Parameters
    ----------
    path : path
    text_column, label_column, label_separator
        See :func:`carya.data.formats.tables.jsonl.read_jsonl`.
    """
    columns = Columns(text_column, label_column, label_separator)
    name = display_name(path)
    values = json_values(path)
    first = next(values, None)
    if first is None:
        return
    line, record = first
    if isinstance(record, dict) and any(
        isinstance(record.get(key), (list, dict)) for key in resolve_text_columns(text_column, record)
    ):
        if next(values, None) is not None:
            raise InputError(f"{name}, line {line}: An object of columns must be the only value in the file.")
        yield from _read_columns(record, columns, name)
        return
    while True:
        location = f"{name}, line {line}"
        if not isinstance(record, dict):
            raise InputError(f"{location}: Each value must be a JSON object, got {short_repr(record)}.")
        yield columns.example(record, location)
        following = next(values, None)
        if following is None:
            return
        line, record = following


def write_json(path: PathLike, examples: Iterable[Example]) -> int:
    """Write an array of objects with the keys `text` and `labels`, one per line; return the number of examples."""
    rows = 0
    with open_text_output(path) as write:
        write("[")
        for rows, example in enumerate(examples, 1):
            record = {"text": example.text, "labels": example.labels}
            write((",\n" if rows > 1 else "\n") + json.dumps(record, ensure_ascii=False))
        write("\n]\n")
    return rows


def json_values(path: PathLike) -> Iterator[tuple[int, Any]]:
    """Yield each element of the top-level array, or each value in a sequence of JSON values, with its line number."""
    parser = _JsonParser(path)
    if parser.next_character() != "[":
        while parser.next_character():
            yield parser.parse_value()
        return
    parser.skip("[")
    if parser.next_character() != "]":
        yield parser.parse_value()
        while parser.next_character() != "]":
            parser.skip(",")
            yield parser.parse_value()
    parser.skip("]")
    if parser.next_character():
        raise parser.error("Expected the end of the file after the array.")


class _JsonParser:
    """Incremental parser that keeps only the current value in memory."""

    def __init__(self, path: PathLike) -> None:
        self._name = display_name(path)
        self._chunks = read_text(path)
        self._decode = json.JSONDecoder().raw_decode
        self._text = ""
        self._position = 0
        self._line = 1

    def next_character(self) -> str:
        """Skip whitespace; return the next character without consuming it, or an empty string at the end."""
        while True:
            rest = self._text[self._position : self._position + 1]
            if rest and rest not in _SPACE:
                return rest
            if rest:
                self._line += rest == "\n"
                self._position += 1
            elif not self._read_more():
                return ""

    def skip(self, expected: str) -> None:
        """Consume the given character; raise InputError if the next character is a different one."""
        character = self.next_character()
        if character != expected:
            found = repr(character) if character else "the end of the file"
            raise self.error(f"Invalid JSON: Expected {expected!r}, got {found}.")
        self._position += 1

    def parse_value(self) -> tuple[int, Any]:
        """Parse the next value; return its line number and the value."""
        self.next_character()
        while True:
            try:
                value, end = self._decode(self._text, self._position)
            except json.JSONDecodeError as error:
                is_incomplete = error.pos >= len(self._text) - _MAX_INCOMPLETE or error.msg.startswith("Unterminated")
                if is_incomplete and self._read_more():
                    continue
                line = self._line + self._text.count("\n", self._position, error.pos)
                column = error.pos - self._text.rfind("\n", 0, error.pos)
                raise InputError(
                    f"{self._name}, line {line}: Invalid JSON at character {column}: {error.msg}."
                ) from None
            except (
                ValueError,
                RecursionError,
            ) as error:  # a number with thousands of digits, or thousands of nested brackets
                raise self.error(f"Invalid JSON: {error}.") from None
            line = self._line
            self._line += self._text.count("\n", self._position, end)
            self._position = end
            return line, value

    def error(self, problem: str) -> InputError:
        return InputError(f"{self._name}, line {self._line}: {problem}")

    def _read_more(self) -> bool:
        """Double the amount of text in memory; return False at the end of the file."""
        rest = self._text[self._position :]
        chunks = [rest]
        size, n_new = len(rest), 0
        while n_new <= size:
            chunk = next(self._chunks, "")
            if not chunk:
                break
            chunks.append(chunk)
            n_new += len(chunk)
        self._text, self._position = "".join(chunks), 0
        return n_new > 0


def _read_columns(table: dict[str, Any], columns: Columns, name: str) -> Iterator[Example]:
    """Yield the examples in an object of columns."""
    text_names = resolve_text_columns(columns.text, table)
    names = [*text_names, *([] if columns.labels is None else [columns.labels])]
    used: dict[str, list[Any]] = {}
    for column in names:
        values = get_column(table, column, name, "text_column" if column in text_names else "label_column")
        if not isinstance(values, (list, dict)):
            raise InputError(f'{name}: Column "{column}" must be a list, got {short_repr(values)}.')
        used[column] = list(values.values()) if isinstance(values, dict) else values
        if isinstance(values, dict) and isinstance(table[names[0]], dict) and values.keys() != table[names[0]].keys():
            raise InputError(f'{name}: Columns "{names[0]}" and "{column}" have different row names.')
        if len(used[column]) != len(used[names[0]]):
            raise InputError(
                f'{name}: Column "{names[0]}" has {len(used[names[0]])} values, but column "{column}" has '
                f"{len(used[column])}."
            )
    n_rows = len(used[names[0]])
    ids = table.get(ID_COLUMN)
    if isinstance(ids, (list, dict)) and len(ids) == n_rows:
        used[ID_COLUMN] = list(ids.values()) if isinstance(ids, dict) else ids
    for row in range(n_rows):
        record: Mapping[str, Any] = {column: values[row] for column, values in used.items()}
        yield columns.example(record, f"{name}, row {row + 1}")
