"""Parquet files with a column of texts and a column of lists of labels, read and written in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from carya.core.extras import require
from carya.data.corpus import Example
from carya.data.formats.columns import check_label_list, join_texts, quote_names, resolve_text_columns
from carya.data.io.files import PathLike, display_name, is_stdio, open_output, uncompressed_name
from carya.errors import InputError

_BATCH_SIZE = 4096


def read_parquet(
    path: PathLike, *, text_column: str = "text", label_column: str | None = "labels"
) -> Iterator[Example]:
    """Yield the examples in a Parquet file.

    Parameters
    ----------
    path : path
    text_column : str
        The column of the text. The texts of several columns, separated by commas, are joined by spaces.
    label_column : str or None
        The column of the labels, of type list<string>; None to read texts without labels.
    """
    with _open_parquet(path) as (pyarrow, file):
        schema = file.schema_arrow
        text_columns = resolve_text_columns(text_column, schema.names)
        for name in text_columns:
            _check_type(schema, name, _is_string, "string", path, pyarrow)
        if label_column is not None:
            _check_type(schema, label_column, _is_string_list, "list<string>", path, pyarrow)
        row = 0
        columns = [*text_columns, *([label_column] if label_column is not None else [])]
        for batch in _read_batches(path, pyarrow, file, columns):
            texts = zip(*(batch.column(name).to_pylist() for name in text_columns), strict=True)
            label_lists = batch.column(label_column).to_pylist() if label_column is not None else None
            for index, parts in enumerate(texts):
                row += 1
                location = f"{display_name(path)}, row {row}"
                if None in parts:
                    raise InputError(f'{location}: "{text_columns[parts.index(None)]}" must be a string, got None.')
                labels: tuple[str, ...] = ()
                if label_lists is not None:
                    labels = check_label_list(label_lists[index], str(label_column), location)
                yield Example(join_texts(parts), labels)


def write_parquet(path: PathLike, examples: Iterable[Example]) -> int:
    """Write examples with the columns `text` and `labels`; return the number of examples."""
    pyarrow, parquet = _import_pyarrow(path)
    schema = pyarrow.schema([("text", pyarrow.string()), ("labels", pyarrow.list_(pyarrow.string()))])
    rows, remaining = 0, iter(examples)
    with open_output(path) as stream, parquet.ParquetWriter(stream, schema) as writer:
        while batch := list(islice(remaining, _BATCH_SIZE)):
            columns = [[example.text for example in batch], [list(example.labels) for example in batch]]
            try:
                writer.write_batch(pyarrow.record_batch(columns, schema=schema))
            except UnicodeEncodeError:
                raise InputError(
                    f"{path}: A text or label contains a lone surrogate, which UTF-8 cannot encode."
                ) from None
            rows += len(batch)
    return rows


def _import_pyarrow(path: PathLike) -> tuple[Any, Any]:
    if is_stdio(path):
        raise InputError(
            "Parquet requires a file. It cannot be read from standard input or written to standard output."
        )
    if uncompressed_name(path) != Path(path).name:
        raise InputError(
            f"{path}: Parquet files are compressed internally. Remove the suffix {Path(path).suffix} to write one, or "
            "decompress the file to read it."
        )
    return (
        require("pyarrow", extra="parquet", purpose=display_name(path)),
        require("pyarrow.parquet", extra="parquet", purpose=display_name(path)),
    )


@contextmanager
def _open_parquet(path: PathLike) -> Iterator[tuple[Any, Any]]:
    pyarrow, parquet = _import_pyarrow(path)
    try:
        file = parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid:
        raise _damaged(path) from None
    except OSError as error:
        raise InputError(f"{display_name(path)}: {error.strerror}.") if error.strerror else _damaged(path) from None
    with file:
        yield pyarrow, file


def _read_batches(path: PathLike, pyarrow: Any, file: Any, columns: list[str]) -> Iterator[Any]:
    batches = file.iter_batches(_BATCH_SIZE, columns=columns)
    while True:
        try:
            batch = next(batches, None)
        except (pyarrow.ArrowException, OSError):
            raise _damaged(path) from None
        if batch is None:
            return
        yield batch


def _damaged(path: PathLike) -> InputError:
    return InputError(f"{display_name(path)}: Damaged, or not a Parquet file.")


def _check_type(
    schema: Any, name: str, is_valid: Callable[[Any, Any], bool], expected: str, path: PathLike, pyarrow: Any
) -> None:
    if name not in schema.names:
        raise InputError(f'{display_name(path)}: Missing column "{name}"; the columns are {quote_names(schema.names)}.')
    kind = schema.field(name).type
    if not is_valid(pyarrow, kind):
        raise InputError(f'{display_name(path)}: Column "{name}" must have type {expected}, got {kind}.')


def _is_string(pyarrow: Any, kind: Any) -> bool:
    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


def _is_string_list(pyarrow: Any, kind: Any) -> bool:
    is_list = pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind)
    return bool(is_list) and _is_string(pyarrow, kind.value_type)
