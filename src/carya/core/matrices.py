"""Matrix types that the kernels accept: validated once, then shared without copying.

:mod:`carya.core.validation` converts user input to these types. The indexing, matching and ranking code exchanges only
matrices of these types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core import memory
from carya.core.rules import MAX_INT
from carya.errors import InputError


def make_read_only(instance: object, *names: str) -> None:
    """Replace arrays of a frozen dataclass with read-only views, so that their validated contents cannot change."""
    for name in names:
        view = getattr(instance, name).view()
        view.setflags(write=False)
        object.__setattr__(instance, name, view)


@dataclass(frozen=True, eq=False)
class Csr:
    """Sparse matrix in CSR format, with strictly increasing column indices in each row and finite values.

    Attributes
    ----------
    indptr : ndarray of int64, shape (rows + 1,)
    indices : ndarray of int32
    values : ndarray of float32
    cols : int
    native : _core.Csr
        The validated C++ matrix.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    cols: int
    native: _core.Csr

    @classmethod
    def of(
        cls,
        indptr: NDArray[np.int64],
        indices: NDArray[np.int32],
        values: NDArray[np.float32],
        cols: int,
        name: str = "matrix",
    ) -> Self:
        """Create a matrix from arrays without copying them; raise InputError if they are invalid."""
        try:
            native = _core.Csr(indptr, indices, values, cols, name)
        except ValueError as error:
            raise InputError(str(error)) from None
        return cls(indptr, indices, values, cols, native)

    @classmethod
    def of_triple(cls, arrays: tuple[Any, Any, Any], cols: int, name: str = "matrix") -> Self:
        """Create a matrix, without validation, from an (indptr, indices, values) triple returned by a kernel."""
        native = _core.Csr(*arrays, cols, name, _core.Validation.none)
        return cls(*arrays, cols, native)

    @classmethod
    def empty(cls, rows: int) -> Self:
        """Create a matrix without columns."""
        return cls.of(np.zeros(rows + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 0)

    @classmethod
    def of_scipy(cls, matrix: sp.csr_array, name: str = "matrix") -> Self:
        """Convert a SciPy matrix; arrays that already have the right dtype are shared, not copied."""
        return cls.of(
            matrix.indptr.astype(np.int64, copy=False),
            matrix.indices.astype(np.int32, copy=False),
            matrix.data.astype(np.float32, copy=False),
            matrix.shape[1],
            name,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).of, (self.indptr, self.indices, self.values, self.cols)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.indptr) - 1

    def to_scipy(self) -> sp.csr_array:
        """Return the matrix as a SciPy array that shares its data.

        SciPy requires column indices and row offsets to have the same data type. The offsets are converted because
        there are fewer of them.
        """
        indptr = self.indptr if self.indptr[-1] > MAX_INT else self.indptr.astype(np.int32)
        return sp.csr_array((self.values, self.indices, indptr), shape=(self.rows, self.cols))

    def with_values(self, value: float) -> Csr:
        """Return a matrix with the same sparsity pattern and all entries set to `value`."""
        values = memory.empty(len(self.indices), np.float32)
        values.fill(value)
        return Csr.of_triple((self.indptr, self.indices, values), self.cols)

    def scale_rows(self, factors: NDArray[np.float32]) -> Csr:
        """Return the matrix with each row multiplied by the corresponding factor."""
        return Csr.of(self.indptr, self.indices, self.values * np.repeat(factors, np.diff(self.indptr)), self.cols)

    def column_counts(self) -> NDArray[np.int64]:
        """Return the number of entries in each column."""
        return np.bincount(self.indices, minlength=self.cols)

    def take(self, rows: NDArray[np.int64] | slice) -> Csr:
        """Return a matrix with the selected rows."""
        return Csr.of_scipy(self.to_scipy()[rows])

    def transpose(self, threads: int = 1) -> Csr:
        """Return the transposed matrix."""
        return Csr.of_triple(_core.transpose(self.native, threads), self.rows)

    def merge_columns(self, to: NDArray[np.int32], cols: int, threads: int = 1) -> Csr:
        """Sum groups of columns: column c is added to column ``to[c]`` of the result, which has `cols` columns."""
        try:
            return Csr.of_triple(_core.merge_columns(self.native, to, cols, threads), cols)
        except ValueError as error:
            raise InputError(str(error)) from None

    def unite(self, other: Csr, threads: int = 1) -> Csr:
        """Return the union of the sparsity patterns of two matrices of the same shape; all entries are 1."""
        return Csr.of_triple(_core.unite(self.native, other.native, threads), self.cols)


@dataclass(frozen=True, eq=False)
class Features:
    """Feature matrix with a sparse and a dense block side by side; either block may have no columns.

    Attributes
    ----------
    sparse : Csr
    dense : ndarray of float32, shape (rows, dense columns)
    native : _core.Features
        The validated C++ blocks.
    """

    sparse: Csr
    dense: NDArray[np.float32]
    native: _core.Features

    @classmethod
    def of(cls, sparse: Csr, dense: NDArray[np.float32] | None = None, name: str = "X") -> Self:
        """Combine two blocks; raise InputError if their numbers of rows differ."""
        if dense is None:
            dense = np.zeros((sparse.rows, 0), np.float32)
        try:
            native = _core.Features(sparse.native, dense, name)
        except ValueError as error:
            raise InputError(str(error)) from None
        return cls(sparse, dense, native)

    def take(self, rows: NDArray[np.int64] | slice) -> Features:
        """Return a matrix with the selected rows."""
        return Features.of(self.sparse.take(rows), np.ascontiguousarray(self.dense[rows]))

    def to_input(self) -> Any:
        """Return the features in a format that models accept: sparse, dense, or a (sparse, dense) pair."""
        if not self.widths[1]:
            return self.sparse.to_scipy()
        return (self.sparse.to_scipy(), self.dense) if self.widths[0] else self.dense

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.sparse.rows

    @property
    def widths(self) -> tuple[int, int]:
        """The numbers of sparse and dense columns."""
        return self.sparse.cols, self.dense.shape[1]
