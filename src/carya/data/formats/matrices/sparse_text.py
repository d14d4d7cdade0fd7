"""A sparse matrix as text: a header with its shape, then one line of ``column:value`` pairs per row."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from carya.data.formats.columns import short_repr
from carya.data.formats.matrices.sparse_lines import Limits, RowCollector, format_rows, parse_block, to_csr
from carya.data.io.files import PathLike, display_name, open_output, read_blocks
from carya.errors import InputError

_MAX_COLUMNS = 2**31 - 1


def read_sparse_text(path: PathLike, column: str = "feature") -> sp.csr_array:
    r"""Read a sparse matrix from a text file.

    Parameters
    ----------
    path : path
    column : str
        The term for a column in error messages.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "trn_X_Xf.txt")
    ...     _ = file.write_text("2 3\n1:0.5 2:1\n0:2\n")
    ...     read_sparse_text(file).toarray().tolist()
    [[0.0, 0.5, 1.0], [2.0, 0.0, 0.0]]
    """
    name = display_name(path)
    blocks = read_blocks(path)
    header, _, block = next(blocks, b"").partition(b"\n")
    n_rows, n_columns = parse_header(header, name, ("rows", f"{column}s"))
    limits = Limits(n_columns, 1, "the header", column)
    collector = RowCollector()
    while block or (block := next(blocks, b"")):
        # `parse_block` expects a row without labels to begin with a space.
        rows = b" " + block[:-1].replace(b"\n", b"\n ") + b"\n"
        collector.add_stated(parse_block(rows, collector.n_rows + 2, name, limits, skip_blank=False), n_rows, name)
        block = b""
    collector.check_n_rows(n_rows, name)
    matrix = to_csr(collector.take("feature_counts"), collector.take("features"), collector.take("values"), n_columns)
    return matrix[:n_rows] if collector.n_rows > n_rows else matrix  # without trailing blank lines


def write_sparse_text(path: PathLike, matrix: Any) -> None:
    """Write a matrix; reading it restores the float32 values exactly."""
    matrix = sp.csr_array(matrix)
    with open_output(path) as stream:
        stream.write(f"{matrix.shape[0]} {matrix.shape[1]}\n".encode())
        for line in format_rows(matrix, sp.csr_array((matrix.shape[0], 1), dtype=np.float32)):
            stream.write(line[1:].encode())


def parse_header(header: bytes, name: str, sizes: tuple[str, ...]) -> tuple[int, ...]:
    """Return the integers in a header; raise InputError unless there is exactly one for each name in `sizes`."""
    text = header.decode("ascii", "backslashreplace").strip()
    fields = text.split()
    if len(fields) != len(sizes) or not all(field.isdigit() and len(field) <= 18 for field in fields):
        number = {2: "two", 3: "three"}[len(sizes)]
        raise InputError(
            f"{name}, line 1: The header must consist of {number} integers ({', '.join(sizes)}), got "
            f"{short_repr(text)}."
        )
    numbers = tuple(map(int, fields))
    if max(numbers[1:]) > _MAX_COLUMNS:
        raise InputError(
            f"{name}, line 1: The number of columns must be at most {_MAX_COLUMNS}, got {max(numbers[1:])}."
        )
    return numbers
