"""The linear rankers of one tree level: weights, nodes grouped by parent, and score transform."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr, make_read_only
from carya.core.rules import Choice, check
from carya.errors import ModelFormatError
from carya.fork_safety import cached_property
from carya.trees.transforms import Transform

#: Storage types for weights: exact; half the size; or a quarter of the size, with one scale per cluster.
WEIGHT_DTYPES = ("float32", "float16", "int8")
#: The rule for parameters and arguments named weight_dtype.
WEIGHT_DTYPE = Choice(*WEIGHT_DTYPES)


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights of the sparse features of one level, in the packed format used for search and storage (docs/format.md).

    Attributes
    ----------
    starts : ndarray of uint16, shape (sparse features // 28 + 1, 32)
        The start offsets of the blocks, in groups of 28 features.
    data : ndarray of uint8
        The blocks.
    scales : ndarray of float32
        One scale per cluster for int8, otherwise empty.
    dtype : {"float32", "float16", "int8"}
    n_features : int
        The number of sparse features.
    n_weights : int
        The number of weights.
    n_used : int
        The number of features that have at least one weight.
    max_bit_chunks : int
        Blocks contain one bit per cluster, instead of the ids of clusters, only if there are at most this many
        clusters. The value is lower for models that were saved by earlier versions.
    """

    starts: NDArray[np.uint16] = field(repr=False)
    data: NDArray[np.uint8] = field(repr=False)
    scales: NDArray[np.float32] = field(repr=False)
    dtype: str
    n_features: int
    n_weights: int
    n_used: int
    max_bit_chunks: int = _core.MAX_BIT_CHUNKS

    def __post_init__(self) -> None:
        make_read_only(self, "starts", "data", "scales")

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    @classmethod
    def pack(
        cls,
        weights: Csr,
        chunks: NDArray[np.int64],
        dtype: str,
        *,
        threads: int = 1,
        scales: NDArray[np.float32] | None = None,
    ) -> Self:
        """Pack a weight matrix of shape (sparse features, positions).

        Parameters
        ----------
        scales : ndarray of float32, optional
            The scales with which int8 weights were unpacked, one per cluster; if given, packing them again is lossless.
        """
        given = np.zeros(0, np.float32) if scales is None else scales
        packed = _core.pack(weights.native, chunks, getattr(_core.WeightDtype, dtype), threads, given)
        return cls._of_packed(packed, dtype, weights.rows)

    @classmethod
    def pack_chunks(
        cls,
        parts: Sequence[_core.ChunkedWeights],
        chunks: NDArray[np.int64],
        n_features: int,
        dtype: str,
        *,
        threads: int = 1,
    ) -> Self:
        """Pack trained weights, given as parts that together contain all chunks in order.

        The parts are empty afterward, which limits the peak memory.
        """
        packed = _core.pack_chunks(parts, chunks, n_features, getattr(_core.WeightDtype, dtype), threads)
        return cls._of_packed(packed, dtype, n_features)

    @classmethod
    def _of_packed(cls, packed: tuple[Any, ...], dtype: str, n_features: int) -> Self:
        starts, data, scales, n_weights, n_used = packed
        return cls(starts, data, scales, dtype, n_features, n_weights=n_weights, n_used=n_used)

    @classmethod
    def empty(cls, n_features: int, n_positions: int, chunks: NDArray[np.int64]) -> Self:
        """Return packed weights without entries."""
        nothing = Csr.of(
            np.zeros(n_features + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), n_positions
        )
        return cls.pack(nothing, chunks, "float32")

    @property
    def n_bytes(self) -> int:
        """The memory used by the weights, in bytes."""
        return self.starts.nbytes + self.data.nbytes + self.scales.nbytes


@dataclass(frozen=True, eq=False)
class AddedNodes:
    """The rankers of nodes that are added to a layer, grouped by parent like the nodes of the layer.

    Attributes
    ----------
    weights : _core.ChunkedWeights
        The weights of the sparse features, as float32.
    biases : ndarray of float32, shape (added nodes,)
    dense : ndarray of float32, shape (added nodes, dense features)
        The weights of the dense features.
    """

    weights: _core.ChunkedWeights
    biases: NDArray[np.float32]
    dense: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Layer:
    """The linear rankers of one level.

    Nodes are ordered by *position*: children of the same parent are adjacent, and parents are in ascending order.
    ``order[position]`` is the node. Weights are stored by feature because a query has few features but a beam contains
    many nodes.

    Attributes
    ----------
    weights : Weights
        The weights of the sparse features.
    dense : ndarray of float32, shape (positions, dense features)
        The weights of the dense features.
    biases : ndarray of float32, shape (positions,)
        The constant added to each score.
    chunks : ndarray of int64, shape (parents + 1,)
        The first position of each parent's children.
    order : ndarray of int32, shape (positions,)
    transform : Transform
    folder : _core.ModelFolder, optional
        The open folder that contains the memory-mapped arrays; None if all arrays are in memory. Weights are verified
        on first use, so models of any size load instantly.
    """

    weights: Weights
    dense: NDArray[np.float32] = field(repr=False)
    biases: NDArray[np.float32] = field(repr=False)
    chunks: NDArray[np.int64] = field(repr=False)
    order: NDArray[np.int32] = field(repr=False)
    transform: Transform
    folder: _core.ModelFolder | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        make_read_only(self, "dense", "biases", "chunks", "order")

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    def __getstate__(self) -> dict[str, Any]:
        self.verify()
        cached = ("native", "positions")
        return {name: value for name, value in self.__dict__.items() if name not in cached} | {"folder": None}

    def verify(self) -> None:
        """Raise ModelFormatError if the file that contains the weights was modified."""
        if self.folder is not None:
            self.folder.verify(self.weights.data)
            self.folder.verify(self.dense)

    @property
    def n_nodes(self) -> int:
        """The number of nodes."""
        return self.order.size

    def damaged(self, problem: str) -> ModelFormatError:
        """Return an error that names the model, if it was loaded from a folder."""
        model = "" if self.folder is None else f"{os.fsdecode(self.folder.path)}: "
        return ModelFormatError(f"{model}The weights are damaged: {problem}")

    @contextmanager
    def _reporting_damage(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise self.damaged(str(error)) from None

    @cached_property
    def positions(self) -> NDArray[np.int32]:
        """The position of each node, the inverse of `order`."""
        positions = np.empty_like(self.order)
        positions[self.order] = np.arange(self.order.size, dtype=np.int32)
        return positions

    def unpacked(self, positions: NDArray[np.int32] | None = None) -> Csr:
        """Return the weights as a matrix of shape (sparse features, positions).

        If `positions` is given, in ascending order, only these columns are returned; all weights are still read, but
        memory is allocated only for the result. Raises ModelFormatError if the weights are damaged.
        """
        with self._reporting_damage():
            if positions is None:
                indptr, indices, values = self.native.unpack()
                return Csr.of(indptr, indices, values, self.order.size)
            indptr, indices, values = self.native.unpack_at(positions)
            return Csr.of(indptr, indices, values, positions.size)

    def weights_at(self, features: NDArray[np.int32], position: int) -> NDArray[np.float32]:
        """Return the weights of sparse features at one position; raise ModelFormatError if they are damaged."""
        with self._reporting_damage():
            return self.native.weights_at(features, position)

    def matrix(self) -> sp.csc_array:
        """Return all weights as one matrix of shape (features + 1, nodes); the last row contains the biases."""
        self.verify()
        blocks = [self.unpacked().to_scipy(), sp.csr_array(self.dense.T), sp.csr_array(self.biases[None, :])]
        return sp.csc_array(sp.vstack(blocks, format="csc")[:, self.positions])

    def with_weight_dtype(self, weight_dtype: str, *, threads: int = 1) -> Layer:
        """Return a copy of the layer that stores its weights in a different data type."""
        check("weight_dtype", weight_dtype, WEIGHT_DTYPE)
        if weight_dtype == self.weights.dtype:
            return self
        return replace(self, weights=Weights.pack(self.unpacked(), self.chunks, weight_dtype, threads=threads))

    def take(
        self,
        positions: NDArray[np.int32],
        parents: NDArray[np.int32],
        chunks: NDArray[np.int64],
        order: NDArray[np.int32],
        *,
        threads: int = 1,
    ) -> Layer:
        """Return a layer with a subset of the nodes; the weights are unchanged.

        Parameters
        ----------
        positions : ndarray of int32
            The positions of the nodes, in ascending order.
        parents : ndarray of int32
            The parents of these nodes, in ascending order.
        chunks, order
            The nodes of the new layer, grouped by parent.
        """
        self.verify()
        scales = self.weights.scales[parents] if self.weights.dtype == "int8" else None
        weights = Weights.pack(self.unpacked(positions), chunks, self.weights.dtype, threads=threads, scales=scales)
        return Layer(
            weights=weights,
            dense=np.ascontiguousarray(self.dense[positions]),
            biases=np.ascontiguousarray(self.biases[positions]),
            chunks=chunks,
            order=order,
            transform=self.transform,
        )

    def insert(
        self,
        added: AddedNodes,
        chunks: NDArray[np.int64],
        order: NDArray[np.int32],
        *,
        threads: int = 1,
    ) -> Layer:
        """Return a layer with additional nodes; the weights of the existing nodes are exactly the same.

        The nodes are added at the end of their chunks, and their indices follow those of the existing nodes. Weights of
        type int8 have the scale of their cluster, so they are limited to its largest absolute weight.

        Parameters
        ----------
        added : AddedNodes
        chunks, order
            The nodes of the new layer, grouped by parent.
        """
        self.verify()
        is_new = order >= self.n_nodes
        with self._reporting_damage():
            starts, data, scales, n_added, n_used = self.native.insert_nodes(added.weights, chunks, threads)
        old = self.weights
        dense = np.empty((order.size, self.dense.shape[1]), np.float32)
        biases = np.empty(order.size, np.float32)
        for array, existing, new in ((dense, self.dense, added.dense), (biases, self.biases, added.biases)):
            array[~is_new], array[is_new] = existing, new
        weights = replace(
            old, starts=starts, data=data, scales=scales, n_weights=old.n_weights + n_added, n_used=n_used
        )
        return Layer(weights, dense, biases, chunks, order, self.transform)

    def chunk_weight_counts(self) -> NDArray[np.int64]:
        """Return the total number of weights of each parent's children."""
        with self._reporting_damage():
            return self.native.chunk_weight_counts()

    def take_chunks(self, first: int, last: int, *, threads: int = 1) -> Layer:
        """Return a layer with the children of parents `first` to `last` - 1; their weights are exactly the same.

        The parents and their children are renumbered from 0 in their original order.
        """
        self.verify()
        begin, end = int(self.chunks[first]), int(self.chunks[last])
        nodes = self.order[begin:end]
        with self._reporting_damage():
            packed = self.native.take_chunks(first, last, threads)
        return Layer(
            weights=Weights._of_packed(packed, self.weights.dtype, self.weights.n_features),
            dense=self.dense[begin:end],
            biases=self.biases[begin:end],
            chunks=self.chunks[first : last + 1] - begin,
            order=np.searchsorted(np.sort(nodes), nodes).astype(np.int32),
            transform=self.transform,
        )

    @cached_property
    def native(self) -> _core.SearchLayer:
        """The C++ layer, which shares all arrays."""
        return _core.SearchLayer(
            self.weights.starts,
            self.weights.n_features,
            self.weights.data,
            self.weights.scales,
            getattr(_core.WeightDtype, self.weights.dtype),
            self.dense,
            self.biases,
            self.chunks,
            self.order,
            getattr(_core.TransformKind, self.transform.kind),
            self.transform.power,
            self.folder,
            self.weights.max_bit_chunks,
        )


def flat_layer(vectors: Csr, dense: NDArray[np.float32], *, weight_dtype: str, threads: int = 1) -> Layer:
    """Return a layer below the root whose scores are the inner products of a query with the given vectors.

    Parameters
    ----------
    vectors : Csr of shape (items, sparse features)
        The sparse block of the vectors.
    dense : ndarray of float32, shape (items, dense features)
        The dense block of the vectors.
    """
    chunks = np.array([0, vectors.rows], np.int64)
    return Layer(
        weights=Weights.pack(vectors.transpose(), chunks, weight_dtype, threads=threads),
        dense=dense,
        biases=np.zeros(vectors.rows, np.float32),
        chunks=chunks,
        order=np.arange(vectors.rows, dtype=np.int32),
        transform=Transform.from_name("noop"),
    )
