"""One level's ranker: its weights, whose children it scores, and how its scores join those of the level above."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr
from carya.errors import ModelFormatError
from carya.trees.transforms import Transform

#: How weights can be kept: exactly, in half the bytes, or in a quarter with one scale for each cluster.
PRECISIONS = ("float32", "float16", "int8")


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights of one level's sparse features, packed as they are searched and saved (docs/format.md).

    Attributes
    ----------
    starts : ndarray of uint16, shape (sparse features // 28 + 1, 32)
        Where the blocks of every 28 features begin in the data.
    data : ndarray of uint8
        The blocks.
    scales : ndarray of float32
        One for each cluster with precision int8, else none.
    precision : {"float32", "float16", "int8"}
    n_features : int
        The number of sparse features.
    n_weights : int
        How many weights there are.
    n_used : int
        How many features have any.
    """

    starts: NDArray[np.uint16] = field(repr=False)
    data: NDArray[np.uint8] = field(repr=False)
    scales: NDArray[np.float32] = field(repr=False)
    precision: str
    n_features: int
    n_weights: int
    n_used: int

    @classmethod
    def pack(cls, weights: Csr, chunks: NDArray[np.int64], precision: str, *, threads: int = 1) -> Self:
        """Weights of sparse features x positions."""
        kept = getattr(_core.Precision, precision)
        starts, data, scales = _core.pack(weights.native, chunks, kept, threads)
        used = int(np.count_nonzero(np.diff(weights.indptr)))
        return cls(starts, data, scales, precision, weights.rows, n_weights=weights.values.size, n_used=used)

    @property
    def n_bytes(self) -> int:
        """The memory they take."""
        return self.starts.nbytes + self.data.nbytes + self.scales.nbytes


@dataclass(frozen=True, eq=False)
class Layer:
    """The linear ranker of one level.

    Nodes are kept by *position*: children of the same parent side by side, parents in order. ``order[position]`` is
    the node. Weights are kept feature by feature, since a query brings few features and a beam many nodes.

    Attributes
    ----------
    weights : Weights
        Of the sparse features.
    dense : ndarray of float32, shape (positions, dense features)
    offsets : ndarray of float32, shape (positions,)
        The bias as it is added to a score.
    chunks : ndarray of int64, shape (parents + 1,)
        Where the children of each parent begin.
    order : ndarray of int32, shape (positions,)
    transform : Transform
    folder : the opened folder that some of the arrays lie in, unless all are in memory
        Weights are verified when they are first used, so that a model opens at once whatever its size.
    """

    weights: Weights
    dense: NDArray[np.float32] = field(repr=False)
    offsets: NDArray[np.float32] = field(repr=False)
    chunks: NDArray[np.int64] = field(repr=False)
    order: NDArray[np.int32] = field(repr=False)
    transform: Transform
    folder: _core.Folder | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        self.verify()
        made = ("native", "positions")
        return {name: value for name, value in self.__dict__.items() if name not in made} | {"folder": None}

    def verify(self) -> None:
        """Raise ModelFormatError if the file that the weights lie in has been altered."""
        if self.folder is not None:
            self.folder.verify(self.weights.data)
            self.folder.verify(self.dense)

    @property
    def n_nodes(self) -> int:
        """The number of nodes it scores."""
        return self.order.size

    @cached_property
    def positions(self) -> NDArray[np.int32]:
        """The position of every node."""
        positions = np.empty_like(self.order)
        positions[self.order] = np.arange(self.order.size, dtype=np.int32)
        return positions

    def unpacked(self, positions: NDArray[np.int32] | None = None) -> Csr:
        """The weights as sparse features x positions, or x some of them, ascending; raises ModelFormatError if damaged.

        For some positions it takes the time to pass over all weights, but only the memory of the answer.
        """
        try:
            if positions is None:
                return Csr.of_triple(self.native.unpack(), self.order.size)
            return Csr.of_triple(self.native.unpack_at(positions), positions.size)
        except ValueError as error:
            raise ModelFormatError(f"the weights are damaged: {error}") from None

    def weights_at(self, features: NDArray[np.int32], position: int) -> NDArray[np.float32]:
        """The weights of some sparse features at one position; raises ModelFormatError if they are damaged."""
        try:
            return self.native.weights_at(features, position)
        except ValueError as error:
            raise ModelFormatError(f"the weights are damaged: {error}") from None

    def matrix(self) -> sp.csc_array:
        """All weights as one matrix, features x nodes, the sparse features first and the offsets in the last row."""
        self.verify()
        blocks = [self.unpacked().to_scipy(), sp.csr_array(self.dense.T), sp.csr_array(self.offsets[None, :])]
        return sp.csc_array(sp.vstack(blocks, format="csc")[:, self.positions])

    def with_precision(self, precision: str, *, threads: int = 1) -> Layer:
        """The same ranker with its weights kept otherwise."""
        if precision == self.weights.precision:
            return self
        return replace(self, weights=Weights.pack(self.unpacked(), self.chunks, precision, threads=threads))

    @cached_property
    def native(self) -> _core.SearchLayer:
        """The same arrays for the search."""
        return _core.SearchLayer(
            self.weights.starts,
            self.weights.n_features,
            self.weights.data,
            self.weights.scales,
            getattr(_core.Precision, self.weights.precision),
            self.dense,
            self.offsets,
            self.chunks,
            self.order,
            getattr(_core.TransformKind, self.transform.kind),
            self.transform.power,
            self.folder,
        )
