"""Write sparse matrices block by block, as ``.npz`` files that SciPy and libpecos can read."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


class CsrWriter:
    """Writer for a CSR matrix that keeps only one block of rows in memory at a time.

    Parameters
    ----------
    path : Path
    n_columns : int

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with CsrWriter(Path(folder) / "X.npz", 3) as writer:
    ...         writer.append(sp.csr_array(np.eye(2, 3, dtype=np.float32)))
    ...         writer.append(sp.csr_array(np.ones((1, 3), np.float32)))
    ...     sp.load_npz(Path(folder) / "X.npz").toarray().tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    """

    def __init__(self, path: Path, n_columns: int) -> None:
        self._path = path
        self._n_columns = n_columns
        self._indptr: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
        self._n_entries = 0
        # A zip archive is written one member at a time, so the two long arrays are first collected in separate files.
        self._indices, self._values = ((path.with_suffix(f".{name}")).open("wb+") for name in ("indices", "values"))

    def append(self, block: sp.csr_array) -> None:
        """Append rows."""
        self._indptr.append(self._n_entries + block.indptr[1:].astype(np.int64))
        self._n_entries += block.nnz
        self._indices.write(np.ascontiguousarray(block.indices, "<i4").data)
        self._values.write(np.ascontiguousarray(block.data, "<f4").data)

    def __enter__(self) -> CsrWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Write the matrix, unless there was an error, and remove the temporary files."""
        try:
            if kind is None:
                self._write_archive()
        finally:
            for file in (self._indices, self._values):
                file.close()
                Path(file.name).unlink(missing_ok=True)

    def _write_archive(self) -> None:
        indptr = np.concatenate(self._indptr)
        with zipfile.ZipFile(self._path, "w", zipfile.ZIP_STORED) as archive:
            self._copy_member(archive, "indices", "<i4", self._indices)
            _write_member(archive, "indptr", indptr.astype("<i4" if self._n_entries < 2**31 else "<i8"))
            _write_member(archive, "format", np.array(b"csr"))
            _write_member(archive, "shape", np.array([indptr.size - 1, self._n_columns], "<i8"))
            self._copy_member(archive, "data", "<f4", self._values)

    def _copy_member(self, archive: zipfile.ZipFile, name: str, dtype: str, file: BinaryIO) -> None:
        header: dict[str, Any] = {"descr": dtype, "fortran_order": False, "shape": (self._n_entries,)}
        file.seek(0)
        with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(member, header)
            shutil.copyfileobj(file, member, 1 << 20)


def _write_member(archive: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
        np.lib.format.write_array(member, array, allow_pickle=False)
