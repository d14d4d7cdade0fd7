"""Write dense matrices block by block, as ``.npy`` files."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray


class ArrayWriter:
    """Writer for a float32 matrix that keeps only one block of rows in memory at a time.

    Parameters
    ----------
    stream : binary stream
        A seekable stream; the number of rows is known only at the end but is stored in the header.
    n_columns : int

    Examples
    --------
    >>> import io
    >>> stream = io.BytesIO()
    >>> writer = ArrayWriter(stream, 3)
    >>> writer.append(np.eye(2, 3, dtype=np.float32))
    >>> writer.append(np.ones((1, 3), np.float32))
    >>> writer.finish()
    >>> _ = stream.seek(0)
    >>> np.load(stream).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    """

    def __init__(self, stream: BinaryIO, n_columns: int) -> None:
        self._stream = stream
        self._n_columns = n_columns
        self._n_rows = 0
        self._stream.write(self._header())

    def append(self, block: NDArray[np.float32]) -> None:
        """Append rows."""
        if block.ndim != 2 or block.shape[1] != self._n_columns:
            raise ValueError(f"A block must have {self._n_columns} columns, got shape {block.shape}.")
        self._stream.write(np.ascontiguousarray(block, "<f4").data)
        self._n_rows += block.shape[0]

    def finish(self) -> None:
        """Write the final number of rows to the header."""
        self._stream.seek(0)
        self._stream.write(self._header())

    def _header(self) -> bytes:
        """Return the file header, the length of which does not depend on the number of rows."""
        fields: dict[str, Any] = {"descr": "<f4", "fortran_order": False, "shape": (self._n_rows, self._n_columns)}
        text = f"{fields!r}"
        padded = text + " " * (_HEADER_SIZE - len(text) - 1) + "\n"
        return np.lib.format.magic(1, 0) + len(padded).to_bytes(2, "little") + padded.encode("latin1")


_HEADER_SIZE = 128 - 10  # 128 bytes with the magic string and length; the format requires a multiple of 64
