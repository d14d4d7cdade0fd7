"""CSV and TSV files with a header; the text is in one or more columns, and the labels are in another column.

In CSV, quoted fields can contain any character, and the field separator is detected from the header. TSV has no
quoting: a field cannot contain a tab or a newline.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence

from carya.data.corpus import Example
from carya.data.formats.columns import (
    ID_COLUMN,
    TAB,
    Columns,
    OptionError,
    check_one_line,
    join_labels,
    join_texts,
    parse_labels,
    quote_names,
    resolve_text_columns,
    short_repr,
    split_labels,
    text_id,
)
from carya.data.io.files import PathLike, display_name, open_text_output, read_lines
from carya.errors import InputError

#: The default separator between labels within their column.
LABEL_SEPARATOR = ";"

#: The field separators to detect, in this order.
_DELIMITERS = (",", ";", TAB, "|")
#: The line in which spreadsheet programs specify the separator.
_SEPARATOR_LINE = re.compile(r"\"?sep=([^\"\r\n])\"?\r?\n?", re.IGNORECASE)
#: The beginning of a list of labels in Python notation.
_PYTHON_LIST = re.compile(r"\[\s*['\"\d]")

#: A row and the number of the line on which it begins.
NumberedRow = tuple[int, list[str]]


def read_csv(
    path: PathLike,
    *,
    text_column: str = "text",
    label_column: str | None = "labels",
    label_separator: str | None = None,
) -> Iterator[Example]:
    """Yield the examples in a CSV file.

    The field separator is the character specified in a first line such as ``sep=;`` or, by default,
    whichever of comma, semicolon, tab and vertical bar results in a header with the required columns.

    Parameters
    ----------
    path : path
    text_column : str
        The name of the text column, or several names separated by commas; their texts are joined with spaces.
    label_column : str or None
        The name of the label column; None to read texts without labels.
    label_separator : str, optional
        The separator between labels within that column, ``;`` by default. If it is not given, labels can also be a
        JSON list.
    """
    columns = Columns(text_column, label_column, label_separator)
    lines = read_lines(path, keep_ends=True)
    first = next(lines, None)
    if first is None:
        raise InputError(f"{display_name(path)}: Missing header. The file is empty.")
    stated = _SEPARATOR_LINE.fullmatch(first)
    if stated:
        rows = _parse_csv(path, lines, stated[1], first_line=2)
        yield from _read_examples(path, rows, columns, stated[1])
        return
    delimiter = _detect_delimiter(first, columns)
    yield from _read_examples(path, _parse_csv(path, itertools.chain([first], lines), delimiter), columns, delimiter)


def read_tsv(
    path: PathLike,
    *,
    text_column: str = "text",
    label_column: str | None = "labels",
    label_separator: str | None = None,
) -> Iterator[Example]:
    """Yield the examples in a TSV file; like :func:`read_csv`, but fields are separated by tabs, without quoting."""
    return _read_examples(path, tsv_rows(path), Columns(text_column, label_column, label_separator), TAB)


def guess_table(lines: Sequence[str], text_column: str, default: str | None = None) -> str | None:
    """Return "csv" or "tsv" if lines begin with the header of a table with this text column, and None otherwise.

    Parameters
    ----------
    lines : sequence of str
        The first available lines.
    text_column : str
        As in :func:`read_csv`.
    default : str, optional
        The format of the training data. A table with a single column is recognized only if this format is CSV or TSV.

    Examples
    --------
    >>> guess_table(["title;text", "An apple;It is red."], "text")
    'csv'
    >>> guess_table(["speech,text,video", "and pictures"], "text")
    """
    rows = [line.rstrip("\r") for line in lines if line.strip()]
    if not rows:
        return None
    if _SEPARATOR_LINE.fullmatch(rows[0]):
        return "csv"
    min_fields = 1 if default in ("csv", "tsv") else 2
    for delimiter in _DELIMITERS:
        header, *first = (_split_header(row, delimiter) for row in rows[:2])
        has_columns = set(resolve_text_columns(text_column, header)) <= set(header)
        if not has_columns or len(header) < min_fields:
            continue
        if not first or len(first[0]) == len(header) or '"' in rows[1]:  # quoted fields can span several lines
            return "tsv" if delimiter == TAB and default != "csv" else "csv"
    return None


def write_csv(path: PathLike, examples: Iterable[Example], *, label_separator: str | None = None) -> int:
    """Write examples with the columns `text` and `labels`; return the number of examples."""
    rows = 0
    with open_text_output(path) as write:
        write("text,labels\n")
        for rows, example in enumerate(examples, 1):
            labels = join_labels(example.labels, label_separator or LABEL_SEPARATOR, f"{path}, line {rows + 1}")
            write(f"{quote_field(example.text)},{quote_field(labels)}\n")
    return rows


def write_tsv(path: PathLike, examples: Iterable[Example], *, label_separator: str | None = None) -> int:
    """Write examples with the columns `text` and `labels`; return the number of examples."""
    rows = 0
    with open_text_output(path) as write:
        write("text\tlabels\n")
        for rows, example in enumerate(examples, 1):
            location = f"{path}, line {rows + 1}"
            labels = join_labels(example.labels, label_separator or LABEL_SEPARATOR, location)
            write(f"{check_one_line(example.text, location, TAB)}\t{check_one_line(labels, location, TAB)}\n")
    return rows


def csv_rows(path: PathLike) -> Iterator[NumberedRow]:
    """Yield the rows of a comma-separated file with their line numbers; blank lines are ignored."""
    return _parse_csv(path, read_lines(path, keep_ends=True), ",")


def tsv_rows(path: PathLike) -> Iterator[NumberedRow]:
    """Yield the rows of a TSV file with their line numbers; blank lines are ignored."""
    for number, line in enumerate(read_lines(path), 1):
        if line:
            yield number, line.split(TAB)


def find_column(header: list[str], name: str, location: str, option: str = "") -> int:
    """Return the index of a column; raise InputError if it is missing or not unique.

    `option` is the name of the option that selects the column, if any.
    """
    match header.count(name):
        case 0:
            raise OptionError(f'{location}: Missing column "{name}"; the columns are {quote_names(header)}.', option)
        case 1:
            return header.index(name)
    raise InputError(f'{location}: There is more than one column named "{name}".')


def check_n_fields(row: list[str], header: list[str], location: str) -> None:
    """Raise InputError if a row has more or fewer fields than the header."""
    if len(row) != len(header):
        raise InputError(f"{location}: Expected {len(header)} fields, as in the header, got {len(row)}.")


def _parse_csv(path: PathLike, lines: Iterator[str], delimiter: str, *, first_line: int = 1) -> Iterator[NumberedRow]:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + first_line
        limit = csv.field_size_limit(sys.maxsize)  # a process-wide setting, which must be restored
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{display_name(path)}, line {line}: Invalid CSV: {error}.") from None
        finally:
            csv.field_size_limit(limit)
        if row:
            yield line, row


def _detect_delimiter(header: str, columns: Columns) -> str:
    """Return the first separator that yields the required columns or, if there is none, the most frequent separator."""
    fields = {delimiter: _split_header(header, delimiter) for delimiter in _DELIMITERS}
    for delimiter, names in fields.items():
        needed = [*resolve_text_columns(columns.text, names), *([] if columns.labels is None else [columns.labels])]
        if all(name in names for name in needed):
            return delimiter
    return max(_DELIMITERS, key=lambda delimiter: len(fields[delimiter]))


def _split_header(header: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([header], delimiter=delimiter), [])
    except csv.Error:  # reported when the file is read
        return []


def _read_examples(path: PathLike, rows: Iterator[NumberedRow], columns: Columns, delimiter: str) -> Iterator[Example]:
    first = next(rows, None)
    if first is None:
        raise InputError(f"{display_name(path)}: Missing header. The file is empty.")
    line, header = first
    location = f"{display_name(path)}, line {line}"
    text_columns = resolve_text_columns(columns.text, header)
    text_indices = [find_column(header, name, location, "text_column") for name in text_columns]
    label_index = None if columns.labels is None else find_column(header, columns.labels, location, "label_column")
    id_index = header.index(ID_COLUMN) if header.count(ID_COLUMN) == 1 else None
    for line, row in rows:
        location = f"{display_name(path)}, line {line}"
        check_n_fields(row, header, location)
        labels: tuple[str, ...] = ()
        if label_index is not None:
            labels = _read_labels(row[label_index], columns, delimiter, location)
        row_id = None if id_index is None else text_id(row[id_index])
        yield Example(join_texts([row[index] for index in text_indices]), labels, row_id)


def _read_labels(cell: str, columns: Columns, delimiter: str, location: str) -> tuple[str, ...]:
    """Return the labels in a cell; raise InputError if the cell is ambiguous without an explicit separator."""
    if columns.separator is not None:
        return split_labels(cell, columns.separator, location)
    if cell.startswith("[") and cell.endswith("]"):
        try:
            labels = json.loads(cell)
        except (ValueError, RecursionError):
            if _PYTHON_LIST.match(cell):
                raise InputError(
                    f'{location}: "{columns.labels}" looks like a Python list, {short_repr(cell)}. Write the labels '
                    "as a JSON list, or with a separator."
                ) from None
        else:
            return parse_labels(labels, str(columns.labels), None, location)
    if delimiter == LABEL_SEPARATOR and LABEL_SEPARATOR not in cell:
        for separator in (",", "|"):
            if separator in cell:
                raise InputError(
                    f"{location}: {short_repr(cell)} can be one label, or labels separated by {separator!r}. Pass "
                    f"label_separator (--label-separator): {LABEL_SEPARATOR!r} for one label, or {separator!r} for "
                    "several."
                )
    return split_labels(cell, LABEL_SEPARATOR, location)


def quote_field(field: str) -> str:
    """Quote a CSV field if needed, without the csv module, whose quoting of newlines varies between Python versions."""
    if any(character in field for character in ',"\r\n') or field[:1] == " ":
        return '"' + field.replace('"', '""') + '"'
    return field
