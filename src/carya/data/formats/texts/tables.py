"""CSV and TSV files with a header: the text in one or more columns, the labels in another.

In CSV, quoted fields can contain any character. In TSV, which has no quotes, a field cannot contain a TAB or a line
end.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator

from carya.data.corpus import Example
from carya.data.formats.columns import (
    TAB,
    check_one_line,
    join_labels,
    join_texts,
    quote_names,
    resolve_text_columns,
    split_labels,
)
from carya.data.io.files import PathLike, display_name, open_text_output, read_lines
from carya.errors import InputError

#: The default separator of labels within their column.
LABEL_SEPARATOR = ";"

#: A row and the number of the line on which it begins.
NumberedRow = tuple[int, list[str]]


def read_csv(
    path: PathLike,
    *,
    text_column: str = "text",
    label_column: str | None = "labels",
    label_separator: str | None = None,
) -> Iterator[Example]:
    """Yield the examples in a CSV file, whose fields are separated by commas.

    Parameters
    ----------
    path : path
    text_column : str
        The column of the text. The texts of several columns, separated by commas, are joined by spaces.
    label_column : str or None
        The column of the labels; None to read texts without labels.
    label_separator : str, optional
        The separator of labels within that column, ``;`` by default.
    """
    return _read_examples(path, csv_rows(path), text_column, label_column, label_separator)


def read_tsv(
    path: PathLike,
    *,
    text_column: str = "text",
    label_column: str | None = "labels",
    label_separator: str | None = None,
) -> Iterator[Example]:
    """Yield the examples in a TSV file, like :func:`read_csv`; fields are separated by TABs, without quotes."""
    return _read_examples(path, tsv_rows(path), text_column, label_column, label_separator)


def write_csv(path: PathLike, examples: Iterable[Example], *, label_separator: str | None = None) -> int:
    """Write examples with the columns `text` and `labels`; return the number of examples."""
    rows = 0
    with open_text_output(path) as write:
        write("text,labels\n")
        for rows, example in enumerate(examples, 1):
            labels = join_labels(example.labels, label_separator or LABEL_SEPARATOR, f"{path}, line {rows + 1}")
            write(f"{_quote_field(example.text)},{_quote_field(labels)}\n")
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
    """Yield the rows of a CSV file with their line numbers; blank lines are ignored."""
    reader = csv.reader(read_lines(path, keep_ends=True), strict=True)
    while True:
        line = reader.line_num + 1
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


def tsv_rows(path: PathLike) -> Iterator[NumberedRow]:
    """Yield the rows of a TSV file with their line numbers; blank lines are ignored."""
    for number, line in enumerate(read_lines(path), 1):
        if line:
            yield number, line.split(TAB)


def find_column(header: list[str], name: str, location: str) -> int:
    """Return the index of a column; raise InputError if it is missing or not unique."""
    match header.count(name):
        case 0:
            raise InputError(f'{location}: Missing column "{name}"; the columns are {quote_names(header)}.')
        case 1:
            return header.index(name)
    raise InputError(f'{location}: There is more than one column "{name}".')


def check_n_fields(row: list[str], header: list[str], location: str) -> None:
    """Raise InputError if a row has more or fewer fields than the header."""
    if len(row) != len(header):
        raise InputError(f"{location}: Expected {len(header)} fields, as in the header, got {len(row)}.")


def _read_examples(
    path: PathLike,
    rows: Iterator[NumberedRow],
    text_column: str,
    label_column: str | None,
    label_separator: str | None,
) -> Iterator[Example]:
    first = next(rows, None)
    if first is None:
        raise InputError(f"{display_name(path)}: Missing header. The file is empty.")
    line, header = first
    location = f"{display_name(path)}, line {line}"
    text_indices = [find_column(header, name, location) for name in resolve_text_columns(text_column, header)]
    label_index = None if label_column is None else find_column(header, label_column, location)
    for line, row in rows:
        location = f"{display_name(path)}, line {line}"
        check_n_fields(row, header, location)
        labels: tuple[str, ...] = ()
        if label_index is not None:
            labels = split_labels(row[label_index], label_separator or LABEL_SEPARATOR, location)
        yield Example(join_texts([row[index] for index in text_indices]), labels)


def _quote_field(field: str) -> str:
    """Quote a CSV field if necessary. The csv module is not used: its quoting of line ends depends on its version."""
    if any(character in field for character in ',"\r\n') or field[:1] == " ":
        return '"' + field.replace('"', '""') + '"'
    return field
