"""Sparse matrices written by blocks of rows, as ``.npz`` files that SciPy and libpecos read."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


class CsrFile:
    """A matrix of which only a block of rows is in memory at a time.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with CsrFile(Path(folder) / "X.npz", 3) as file:
    ...         file.append(sp.csr_array(np.eye(2, 3, dtype=np.float32)))
    ...         file.append(sp.csr_array(np.ones((1, 3), np.float32)))
    ...     sp.load_npz(Path(folder) / "X.npz").toarray().tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    """

    def __init__(self, path: Path, n_columns: int) -> None:
        self._path = path
        self._columns = n_columns
        self._ends: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
        self._count = 0
        # An archive takes one member at a time, so the two long arrays wait beside it.
        self._indices, self._values = ((path.with_suffix(f".{name}")).open("wb+") for name in ("indices", "values"))

    def append(self, block: sp.csr_array) -> None:
        """Add rows."""
        self._ends.append(self._count + block.indptr[1:].astype(np.int64))
        self._count += block.nnz
        self._indices.write(np.ascontiguousarray(block.indices, "<i4").data)
        self._values.write(np.ascontiguousarray(block.data, "<f4").data)

    def __enter__(self) -> CsrFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Write the file, unless there was an error."""
        try:
            if kind is None:
                self._finish()
        finally:
            for file in (self._indices, self._values):
                file.close()
                Path(file.name).unlink(missing_ok=True)

    def _finish(self) -> None:
        indptr = np.concatenate(self._ends)
        with zipfile.ZipFile(self._path, "w", zipfile.ZIP_STORED) as archive:
            self._long(archive, "indices", "<i4", self._indices)
            _short(archive, "indptr", indptr.astype("<i4" if self._count < 2**31 else "<i8"))
            _short(archive, "format", np.array(b"csr"))
            _short(archive, "shape", np.array([indptr.size - 1, self._columns], "<i8"))
            self._long(archive, "data", "<f4", self._values)

    def _long(self, archive: zipfile.ZipFile, name: str, dtype: str, file: BinaryIO) -> None:
        head: dict[str, Any] = {"descr": dtype, "fortran_order": False, "shape": (self._count,)}
        file.seek(0)
        with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(member, head)
            shutil.copyfileobj(file, member, 1 << 20)


def _short(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
        np.lib.format.write_array(member, array, allow_pickle=False)
