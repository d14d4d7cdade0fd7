"""Parquet files with a text column and a label column, read and written in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from carya.data.corpus import Example
from carya.data.formats.columns import Columns
from carya.data.formats.tables.arrow import (
    Table,
    check_names,
    damage_reported,
    examples_of_table,
    import_pyarrow,
    text_schema,
    write_batches,
)
from carya.data.io.files import PathLike, display_name, open_output

_BATCH_SIZE = 4096


def read_parquet(
    path: PathLike,
    *,
    text_column: str = "text",
    label_column: str | None = "labels",
    label_separator: str | None = None,
) -> Iterator[Example]:
    """Yield the examples in a Parquet file.

    Parameters
    ----------
    path : path
    text_column, label_column, label_separator
        See :func:`carya.data.formats.tables.arrow.read_arrow`.
    """
    columns = Columns(text_column, label_column, label_separator)
    with _open_parquet(path) as table:
        yield from examples_of_table(table, columns, display_name(path))


def write_parquet(path: PathLike, examples: Iterable[Example]) -> int:
    """Write examples with the columns `text` and `labels`; return the number of examples."""
    pyarrow, parquet = import_pyarrow(path, "Parquet"), import_pyarrow(path, "Parquet", "pyarrow.parquet")
    schema = text_schema(pyarrow)
    with open_output(path) as stream, parquet.ParquetWriter(stream, schema) as writer:
        return write_batches(writer.write_batch, examples, schema, pyarrow, path)


@contextmanager
def _open_parquet(path: PathLike) -> Iterator[Table]:
    pyarrow, parquet = import_pyarrow(path, "Parquet"), import_pyarrow(path, "Parquet", "pyarrow.parquet")
    with damage_reported(path, "Parquet", pyarrow):
        file = parquet.ParquetFile(path)
        schema = file.schema_arrow
        check_names(schema)

    def read_batches(columns: list[str]) -> Iterator[Any]:
        with damage_reported(path, "Parquet", pyarrow):
            batches = file.iter_batches(_BATCH_SIZE, columns=columns)
        while True:
            with damage_reported(path, "Parquet", pyarrow):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    with file:
        yield Table(schema, read_batches)
