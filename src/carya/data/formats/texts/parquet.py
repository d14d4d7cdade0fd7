"""Parquet files with a column of texts and a column of lists of labels; read and written in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from carya.core.extras import need
from carya.data.corpus import Example
from carya.data.formats.columns import joined_text, label_list, quoted, text_columns
from carya.data.io.files import PathLike, bare_name, is_standard, shown, writing
from carya.errors import InputError

_BATCH = 4096


def read_parquet(
    path: PathLike, *, text_column: str = "text", label_column: str | None = "labels"
) -> Iterator[Example]:
    """The examples of a Parquet file.

    Parameters
    ----------
    path : path
    text_column : str
        The column of the text, or several with commas between, joined by a space.
    label_column : str or None
        The column of the labels, of type list<string>; None if there are none to read.
    """
    with _opened(path) as (arrow, file):
        schema = file.schema_arrow
        texts = text_columns(text_column, schema.names)
        for name in texts:
            _check(schema, name, _is_string, "string", path, arrow)
        if label_column is not None:
            _check(schema, label_column, _is_list, "list<string>", path, arrow)
        row = 0
        for batch in _batches(path, arrow, file, [*texts, *([label_column] if label_column is not None else [])]):
            columns = [batch.column(name).to_pylist() for name in texts]
            labels = batch.column(label_column).to_pylist() if label_column is not None else None
            for at, parts in enumerate(zip(*columns, strict=True)):
                row += 1
                where = f"{shown(path)}, row {row}"
                if None in parts:
                    raise InputError(f'{where}: "{texts[parts.index(None)]}" must be a string, got None')
                found = () if labels is None else label_list(labels[at], str(label_column), where)
                yield Example(joined_text(parts), found)


def write_parquet(path: PathLike, examples: Iterable[Example]) -> int:
    """Write examples with columns `text` and `labels`; gives their number."""
    arrow, parquet = _packages(path)
    schema = arrow.schema([("text", arrow.string()), ("labels", arrow.list_(arrow.string()))])
    rows, left = 0, iter(examples)
    with writing(path) as stream, parquet.ParquetWriter(stream, schema) as writer:
        while batch := list(islice(left, _BATCH)):
            columns = [[one.text for one in batch], [list(one.labels) for one in batch]]
            try:
                writer.write_batch(arrow.record_batch(columns, schema=schema))
            except UnicodeEncodeError:
                raise InputError(f"{path}: half a character cannot be written as UTF-8") from None
            rows += len(batch)
    return rows


def _packages(path: PathLike) -> tuple[Any, Any]:
    if is_standard(path):
        raise InputError("Parquet is read from and written to files, not standard input and output")
    if bare_name(path) != Path(path).name:
        raise InputError(
            f"{path}: a Parquet file is compressed within; it cannot be read or written compressed once more"
        )
    return need("pyarrow", "parquet", shown(path)), need("pyarrow.parquet", "parquet", shown(path))


@contextmanager
def _opened(path: PathLike) -> Iterator[tuple[Any, Any]]:
    arrow, parquet = _packages(path)
    try:
        file = parquet.ParquetFile(path)
    except arrow.ArrowInvalid:
        raise InputError(f"{shown(path)}: not a Parquet file, or damaged") from None
    except OSError as error:
        raise InputError(f"{shown(path)}: {error.strerror or 'not a Parquet file, or damaged'}") from None
    with file:
        yield arrow, file


def _batches(path: PathLike, arrow: Any, file: Any, columns: list[str]) -> Iterator[Any]:
    batches = file.iter_batches(_BATCH, columns=columns)
    while True:
        try:
            batch = next(batches, None)
        except (arrow.ArrowException, OSError):
            raise InputError(f"{shown(path)}: not a Parquet file, or damaged") from None
        if batch is None:
            return
        yield batch


def _check(schema: Any, name: str, fits: Any, wanted: str, path: PathLike, arrow: Any) -> None:
    if name not in schema.names:
        raise InputError(f'{shown(path)}: there is no column "{name}"; the columns are {quoted(schema.names)}')
    kind = schema.field(name).type
    if not fits(arrow, kind):
        raise InputError(f'{shown(path)}: the column "{name}" must be of type {wanted}, it is {kind}')


def _is_string(arrow: Any, kind: Any) -> bool:
    types = arrow.types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_list(arrow: Any, kind: Any) -> bool:
    types = arrow.types
    return bool(types.is_list(kind) or types.is_large_list(kind)) and _is_string(arrow, kind.value_type)
