"""The matrices that kernels accept: checked once, never copied again.

User input becomes these in :mod:`carya.core.validation`; everything between the phases is made of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.errors import InputError


@dataclass(frozen=True, eq=False)
class Csr:
    """Sparse rows: columns strictly increasing in each row, values finite.

    Attributes
    ----------
    indptr : ndarray of int64, shape (rows + 1,)
    indices : ndarray of int32
    values : ndarray of float32
    cols : int
    native : the checked matrix on the other side
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
        """Check the arrays and keep them; raises InputError naming the matrix."""
        try:
            native = _core.Csr(indptr, indices, values, cols, name)
        except ValueError as error:
            raise InputError(str(error)) from None
        return cls(indptr, indices, values, cols, native)

    @classmethod
    def of_triple(cls, arrays: tuple[Any, Any, Any], cols: int, name: str = "matrix") -> Self:
        """A matrix from the (indptr, indices, values) that kernels give."""
        indptr, indices, values = arrays
        return cls.of(indptr, indices, values, cols, name)

    @classmethod
    def empty(cls, rows: int) -> Self:
        """Rows without columns."""
        return cls.of(np.zeros(rows + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 0)

    @classmethod
    def of_scipy(cls, matrix: sp.csr_array, name: str = "matrix") -> Self:
        """The same matrix; its arrays are shared where their types already fit."""
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
        """The same matrix for SciPy."""
        return sp.csr_array((self.values, self.indices, self.indptr), shape=(self.rows, self.cols))

    def with_values(self, value: float) -> Csr:
        """The same pattern with one value everywhere."""
        return Csr.of(self.indptr, self.indices, np.full(len(self.indices), value, np.float32), self.cols)

    def column_counts(self) -> NDArray[np.int64]:
        """How many rows have an entry in each column."""
        return np.bincount(self.indices, minlength=self.cols)

    def take(self, rows: NDArray[np.int64] | slice) -> Csr:
        """Some of the rows."""
        return Csr.of_scipy(self.to_scipy()[rows])

    def transpose(self) -> Csr:
        """Columns as rows."""
        return Csr.of_triple(_core.transpose(self.native), self.rows)

    def merge_columns(self, to: NDArray[np.int32], cols: int) -> Csr:
        """Column c added into column to[c] of a matrix with `cols` columns."""
        return Csr.of_triple(_core.merge_columns(self.native, to, cols), cols, "the sum of some columns")


@dataclass(frozen=True, eq=False)
class Features:
    """Rows of features: a sparse and a dense block side by side, either possibly without columns.

    Attributes
    ----------
    sparse : Csr
    dense : ndarray of float32, shape (rows, dense columns)
    native : the checked pair on the other side
    """

    sparse: Csr
    dense: NDArray[np.float32]
    native: _core.Features

    @classmethod
    def of(cls, sparse: Csr, dense: NDArray[np.float32] | None = None, name: str = "X") -> Self:
        """Put two blocks side by side; raises InputError if they do not fit."""
        if dense is None:
            dense = np.zeros((sparse.rows, 0), np.float32)
        try:
            native = _core.Features(sparse.native, dense, name)
        except ValueError as error:
            raise InputError(str(error)) from None
        return cls(sparse, dense, native)

    def take(self, rows: NDArray[np.int64] | slice) -> Features:
        """Some of the rows."""
        return Features.of(self.sparse.take(rows), np.ascontiguousarray(self.dense[rows]))

    def as_given(self) -> Any:
        """The same as a user would give it: sparse, dense, or a pair of both."""
        if not self.widths[1]:
            return self.sparse.to_scipy()
        return (self.sparse.to_scipy(), self.dense) if self.widths[0] else self.dense

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.sparse.rows

    @property
    def widths(self) -> tuple[int, int]:
        """How many columns are sparse, how many dense."""
        return self.sparse.cols, self.dense.shape[1]
