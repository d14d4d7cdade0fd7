"""CSV and TSV files with a header: the text in a column or several, the labels in one.

In CSV a field may be quoted and then hold anything. TSV has no quotes: a TAB or a line end cannot be in a field.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator

from carya.data.corpus import Example
from carya.data.formats.columns import TAB, join_labels, joined_text, one_line, quoted, split_labels, text_columns
from carya.data.io.files import PathLike, read_lines, shown, writing_text
from carya.errors import InputError

#: What separates the labels in their column.
LABEL_SEPARATOR = ";"


def read_csv(
    path: PathLike,
    *,
    text_column: str = "text",
    label_column: str | None = "labels",
    label_separator: str | None = None,
) -> Iterator[Example]:
    """The examples of a CSV file; fields are separated by commas.

    Parameters
    ----------
    path : path
    text_column : str
        The column of the text, or several with commas between, joined by a space.
    label_column : str or None
        The column of the labels; None if there are none to read.
    label_separator : str, optional
        What separates labels in that column; ``;`` if not given.
    """
    return _examples(path, csv_rows(path), text_column, label_column, label_separator)


def read_tsv(
    path: PathLike,
    *,
    text_column: str = "text",
    label_column: str | None = "labels",
    label_separator: str | None = None,
) -> Iterator[Example]:
    """The examples of a TSV file, as :func:`read_csv`; fields are separated by TABs, and quotes mean nothing."""
    return _examples(path, tsv_rows(path), text_column, label_column, label_separator)


def write_csv(path: PathLike, examples: Iterable[Example], *, label_separator: str | None = None) -> int:
    """Write examples with columns `text` and `labels`; gives their number."""
    rows = 0
    with writing_text(path) as write:
        write("text,labels\n")
        for rows, example in enumerate(examples, 1):
            labels = join_labels(example.labels, label_separator or LABEL_SEPARATOR, f"{path}, line {rows + 1}")
            write(f"{_quoted(example.text)},{_quoted(labels)}\n")
    return rows


def write_tsv(path: PathLike, examples: Iterable[Example], *, label_separator: str | None = None) -> int:
    """Write examples with columns `text` and `labels`; gives their number."""
    rows = 0
    with writing_text(path) as write:
        write("text\tlabels\n")
        for rows, example in enumerate(examples, 1):
            where = f"{path}, line {rows + 1}"
            labels = join_labels(example.labels, label_separator or LABEL_SEPARATOR, where)
            write(f"{one_line(example.text, where, TAB)}\t{one_line(labels, where, TAB)}\n")
    return rows


def csv_rows(path: PathLike) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file, each with the line it begins on; blank lines are skipped."""
    reader = csv.reader(read_lines(path, ends=True), strict=True)
    while True:
        line = reader.line_num + 1
        before = csv.field_size_limit(sys.maxsize)  # it is one for the whole process
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{shown(path)}, line {line}: not CSV: {error}") from None
        finally:
            csv.field_size_limit(before)
        if row:
            yield line, row


def tsv_rows(path: PathLike) -> Iterator[tuple[int, list[str]]]:
    """The rows of a TSV file, each with its line; blank lines are skipped."""
    for number, line in enumerate(read_lines(path), 1):
        if line:
            yield number, line.split("\t")


def column(header: list[str], name: str, where: str) -> int:
    """The number of a column; raises InputError if there is none of that name, or more than one."""
    match header.count(name):
        case 0:
            raise InputError(f'{where}: there is no column "{name}"; the columns are {quoted(header)}')
        case 1:
            return header.index(name)
    raise InputError(f'{where}: there is more than one column "{name}"')


def _examples(
    path: PathLike,
    rows: Iterator[tuple[int, list[str]]],
    text_column: str,
    label_column: str | None,
    label_separator: str | None,
) -> Iterator[Example]:
    first = next(rows, None)
    if first is None:
        raise InputError(f"{shown(path)}: there is no header")
    line, header = first
    where = f"{shown(path)}, line {line}"
    texts = [column(header, name, where) for name in text_columns(text_column, header)]
    labels = None if label_column is None else column(header, label_column, where)
    for line, row in rows:
        where = f"{shown(path)}, line {line}"
        if len(row) != len(header):
            raise InputError(f"{where}: the number of fields is {len(row)}, in the header it is {len(header)}")
        yield Example(
            joined_text([row[one] for one in texts]),
            () if labels is None else split_labels(row[labels], label_separator or LABEL_SEPARATOR, where),
        )


def _quoted(field: str) -> str:
    """A field as CSV holds it. The quotes of the csv module depend on its version where a line end is in a field."""
    if any(one in field for one in ',"\r\n') or field[:1] == " ":
        return '"' + field.replace('"', '""') + '"'
    return field
