"""Arrow and Feather files, and functions for record batches that are also used for Parquet files.

The labels of a row are a list of strings or integers, an integer, or a string with a separator. Integers that are
declared as class labels in the metadata written by Hugging Face's `datasets` are converted to class names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from carya.core.extras import require
from carya.data.corpus import Example
from carya.data.formats.columns import (
    ID_COLUMN,
    Columns,
    OptionError,
    join_texts,
    parse_labels,
    quote_names,
    resolve_text_columns,
    text_id,
)
from carya.data.io.files import PathLike, display_name, is_stdio, open_output, uncompressed_name
from carya.errors import InputError

_BATCH_SIZE = 4096
_FILE_MAGIC = b"ARROW1"


class Table(NamedTuple):
    """An open table: its schema, and a function that yields record batches of selected columns."""

    schema: Any
    read_batches: Callable[[list[str]], Iterator[Any]]


def read_arrow(
    path: PathLike,
    *,
    text_column: str = "text",
    label_column: str | None = "labels",
    label_separator: str | None = None,
) -> Iterator[Example]:
    """Yield the examples in an Arrow file, a Feather file or an Arrow stream.

    Parameters
    ----------
    path : path
    text_column : str
        The name of the text column, or several names separated by commas; their texts are joined with spaces.
    label_column : str or None
        The name of the label column; None to read texts without labels.
    label_separator : str, optional
        The separator between labels in a column of strings.
    """
    columns = Columns(text_column, label_column, label_separator)
    with open_arrow(path) as table:
        yield from examples_of_table(table, columns, display_name(path))


def write_arrow(path: PathLike, examples: Iterable[Example]) -> int:
    """Write examples to an Arrow file with the columns `text` and `labels`; return the number of examples."""
    pyarrow = import_pyarrow(path, "Arrow")
    schema = text_schema(pyarrow)
    with open_output(path) as stream, pyarrow.ipc.new_file(stream, schema) as writer:
        return write_batches(writer.write_batch, examples, schema, pyarrow, path)


def import_pyarrow(path: PathLike, kind: str, module: str = "pyarrow") -> Any:
    """Import pyarrow; raise InputError if the path is standard input or output, or has a compression suffix."""
    if is_stdio(path):
        raise InputError(
            f"{kind} requires a file. It cannot be read from standard input or written to standard output."
        )
    if uncompressed_name(path) != Path(path).name:
        raise InputError(
            f"{path}: {kind} files are compressed internally. To write a file, remove the suffix {Path(path).suffix}; "
            "to read a file, decompress it first."
        )
    pyarrow = require("pyarrow", extra="arrow", purpose=display_name(path))
    return pyarrow if module == "pyarrow" else require(module, extra="arrow", purpose=display_name(path))


def text_schema(pyarrow: Any) -> Any:
    """Return the schema of the files that Carya writes."""
    return pyarrow.schema([("text", pyarrow.string()), ("labels", pyarrow.list_(pyarrow.string()))])


def write_batches(
    write: Callable[[Any], object], examples: Iterable[Example], schema: Any, pyarrow: Any, path: PathLike
) -> int:
    """Write examples as record batches; return the number of examples."""
    rows, remaining = 0, iter(examples)
    while batch := list(islice(remaining, _BATCH_SIZE)):
        values = [[example.text for example in batch], [list(example.labels) for example in batch]]
        try:
            write(pyarrow.record_batch(values, schema=schema))
        except UnicodeEncodeError:
            raise InputError(f"{path}: A text or label contains a lone surrogate, which UTF-8 cannot encode.") from None
        rows += len(batch)
    return rows


@contextmanager
def open_arrow(path: PathLike) -> Iterator[Table]:
    """Open an Arrow file or stream."""
    pyarrow = import_pyarrow(path, "Arrow")
    with damage_reported(path, "Arrow", pyarrow):
        source = pyarrow.memory_map(str(path))
        is_file = source.read_at(len(_FILE_MAGIC), 0) == _FILE_MAGIC
        reader = (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(source)
        check_names(reader.schema)

    def read_batches(columns: list[str]) -> Iterator[Any]:
        number = 0
        while not is_file or number < reader.num_record_batches:
            with damage_reported(path, "Arrow", pyarrow):
                try:
                    batch = reader.get_batch(number) if is_file else reader.read_next_batch()
                except StopIteration:
                    return
                batch.validate(full=True)
                batch = batch.select(columns)
            number += 1
            for start in range(0, batch.num_rows, _BATCH_SIZE):
                yield batch.slice(start, _BATCH_SIZE)

    with source:
        yield Table(reader.schema, read_batches)


def check_names(schema: Any) -> None:
    """Raise UnicodeDecodeError if a column name is not valid UTF-8; pyarrow decodes names only when they are used."""
    list(schema.names)


@contextmanager
def damage_reported(path: PathLike, kind: str, pyarrow: Any) -> Iterator[None]:
    """Convert pyarrow exceptions to InputError."""
    try:
        yield
    except OSError as error:
        if isinstance(error, pyarrow.ArrowException) or not error.strerror:
            raise _damaged(path, kind) from None
        raise InputError(f"{display_name(path)}: {error.strerror}.") from None
    except (pyarrow.ArrowException, UnicodeDecodeError, OverflowError, MemoryError):
        raise _damaged(path, kind) from None


def _damaged(path: PathLike, kind: str) -> InputError:
    article = "an" if kind[0] in "AEIOU" else "a"
    return InputError(f"{display_name(path)}: The file is damaged or not {article} {kind} file.")


def examples_of_table(table: Table, columns: Columns, name: str, *, first_row: int = 1) -> Iterator[Example]:
    """Yield the examples in a table; row numbers in error messages start at `first_row`."""
    import pyarrow

    schema = table.schema
    text_columns = resolve_text_columns(columns.text, schema.names)
    for column in text_columns:
        _find_column(schema, column, name, "text_column")
        _check_type(schema, column, _is_string, "string", name)
    classes: list[str] | None = None
    if columns.labels is not None:
        _find_column(schema, columns.labels, name, "label_column")
        expected = "list<string>, list<integer>, integer" + (", or string" if columns.separator else "")
        _check_type(schema, columns.labels, _is_labels(columns), expected, name)
        classes = _class_names(schema, columns.labels)
    row = first_row - 1
    label_columns = [] if columns.labels is None else [columns.labels]
    id_columns = [ID_COLUMN] if schema.names.count(ID_COLUMN) == 1 and _is_id(schema.field(ID_COLUMN).type) else []
    used = list(dict.fromkeys([*text_columns, *label_columns, *id_columns]))
    for batch in table.read_batches(used):
        try:
            values = {column: batch.column(column).to_pylist() for column in used}
        except (pyarrow.ArrowException, UnicodeDecodeError):
            raise InputError(f"{name}, row {row + 1}: A text or label is not valid UTF-8.") from None
        for index in range(batch.num_rows):
            row += 1
            location = f"{name}, row {row}"
            parts = [values[column][index] for column in text_columns]
            if None in parts:
                raise InputError(f'{location}: "{text_columns[parts.index(None)]}" must be a string, got None.')
            labels: tuple[str, ...] = ()
            if columns.labels is not None:
                value = values[columns.labels][index]
                labels = (
                    parse_labels(value, columns.labels, columns.separator, location)
                    if classes is None
                    else _to_classes(value, classes, columns.labels, location)
                )
            yield Example(join_texts(parts), labels, text_id(values[ID_COLUMN][index]) if id_columns else None)


def _to_classes(value: Any, classes: list[str], column: str, location: str) -> tuple[str, ...]:
    """Convert class numbers to class names."""
    numbers = value if isinstance(value, list) else [value]
    for number in numbers:
        if type(number) is not int or not 0 <= number < len(classes):
            raise InputError(
                f'{location}: "{column}" must contain class numbers from 0 to {len(classes) - 1}, got {number!r}.'
            )
    return tuple(classes[number] for number in numbers)


def _class_names(schema: Any, column: str) -> list[str] | None:
    """Return the class names of a column if metadata written by `datasets` declares class labels, otherwise None."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return class_names(features[column])
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def class_names(feature: Any) -> list[str] | None:
    """Return the class names in a `datasets` feature if it is a ClassLabel or a list of ClassLabels, otherwise None."""
    while isinstance(feature, (dict, list)):
        if isinstance(feature, list):
            feature = feature[0] if len(feature) == 1 else None
        elif feature.get("_type") == "ClassLabel":
            names = feature.get("names")
            if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
                return None
            return names if len(set(names)) == len(names) else None
        else:
            feature = feature.get("feature")
    return None


def _find_column(schema: Any, column: str, name: str, option: str) -> None:
    if column not in schema.names:
        raise OptionError(f'{name}: Missing column "{column}"; the columns are {quote_names(schema.names)}.', option)
    if schema.names.count(column) > 1:
        raise InputError(f'{name}: There is more than one column named "{column}".')


def _check_type(schema: Any, column: str, is_valid: Callable[[Any], bool], expected: str, name: str) -> None:
    kind = schema.field(column).type
    if not is_valid(kind):
        hint = ""
        if _is_string(kind) and is_valid is not _is_string:
            hint = " To split strings into labels, pass label_separator (--label-separator)."
        raise InputError(f'{name}: Column "{column}" must have type {expected}, got {kind}.{hint}')


def _is_string(kind: Any) -> bool:
    import pyarrow

    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind) or _is_string_view(kind))


def _is_id(kind: Any) -> bool:
    import pyarrow

    return _is_string(kind) or bool(pyarrow.types.is_integer(kind))


def _is_string_view(kind: Any) -> bool:
    return str(kind) == "string_view"


def _is_labels(columns: Columns) -> Callable[[Any], bool]:
    import pyarrow

    def is_valid(kind: Any) -> bool:
        types = pyarrow.types
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            return bool(_is_string(kind.value_type) or types.is_integer(kind.value_type))
        return bool(types.is_integer(kind)) or (columns.separator is not None and _is_string(kind))

    return is_valid
