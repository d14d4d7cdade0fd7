"""Nearest dense vectors by walking a graph of neighbours: HNSW (Malkov and Yashunin 2020), as usearch builds it.

A graph is kept as the library's own bytes. They are read by code that trusts them, so :func:`check_bytes` looks at
every link first: what comes from a file is either a graph that can be walked or a ModelFormatError.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import sys
import threading
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from carya.core.progress import Report
from carya.errors import ModelFormatError, ParameterError

#: How vectors lie in the graph. Half precision halves its bytes and walks faster; exact scores come from elsewhere.
_SCALAR, _SCALAR_CODE, _SCALAR_BYTES = "f16", 12, 2
_MAGIC = b"usearch"
_METRIC, _METRIC_CODE = "ip", ord("i")
_KEY_CODE, _SLOT_CODE = 14, 15

# The layout of the bytes: how many vectors and the bytes of each; the vectors; 64 bytes on what they are; five numbers
# on the graph; the level of each node; the nodes, each with its key, its level and, for every level it is on, a list of
# links with their number before it.
_ABOUT, _GRAPH = 64, 40
_NODE_HEAD, _COUNT, _LINK = 10, 4, 4


class Graph:
    """A graph over the rows of a dense matrix; near is a large inner product.

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.eye(4, dtype=np.float32)
    >>> graph = Graph.build(vectors)
    >>> items, products = graph.search(vectors[:2], count=1, width=8)
    >>> items.tolist()
    [[0], [1]]
    """

    def __init__(self, index: Any, data: NDArray[np.uint8]) -> None:
        self._index = index
        self._lock = threading.Lock()  # a search has scratch that belongs to the index
        self.data = data

    @classmethod
    def build(
        cls, vectors: NDArray[np.float32], *, connectivity: int = 16, width: int = 128, report: Report = None
    ) -> Self:
        """The graph of some vectors, shape (items, dimensions).

        Built by one thread: which links there are depends on the order of arrival, and the same vectors should give the
        same bytes whatever the number of cores.

        Parameters
        ----------
        connectivity : int
            Links of a node; on the lowest level twice as many.
        width : int
            Candidates looked at for the links of a new node.
        """
        index = _usearch().Index(
            ndim=vectors.shape[1],
            metric=_METRIC,
            dtype=_SCALAR,
            connectivity=connectivity,
            expansion_add=width,
            enable_key_lookups=False,
        )
        step = max(1, min(4096, len(vectors)))  # in pieces, so that Ctrl-C and progress get their turn
        for first in range(0, len(vectors), step):
            piece = vectors[first : first + step]
            index.add(np.arange(first, first + len(piece), dtype=np.uint64), piece, threads=1)
            if report is not None:
                report(first + len(piece), len(vectors))
        data = np.frombuffer(index.save(), np.uint8)
        return cls(index, data)

    @classmethod
    def of_bytes(cls, data: NDArray[np.uint8], *, items: int, dimensions: int) -> Self:
        """The graph in some bytes, used where they lie; raises ModelFormatError unless it is one of that size."""
        check_bytes(data, items=items, dimensions=dimensions)
        try:
            index = _usearch().Index.restore(data, view=True)
        except (RuntimeError, ValueError) as error:
            raise ModelFormatError(f"the graph cannot be read: {error}") from None
        if index is None or len(index) != items or index.ndim != dimensions:
            raise ModelFormatError("the graph cannot be read: it is not the one that was saved")
        return cls(index, data)

    def search(
        self, queries: NDArray[np.float32], *, count: int, width: int, threads: int = 1
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The nearest items of each query and their inner products, best first; both of shape (queries, count).

        Fewer than `count` only if the graph has no more; the number of threads changes nothing.

        Parameters
        ----------
        width : int
            Candidates kept while walking; more find the right ones more surely, and take longer.
        """
        count = min(count, len(self._index))
        if len(queries) == 0 or count == 0:
            return np.zeros((len(queries), count), np.int32), np.zeros((len(queries), count), np.float32)
        with self._lock:
            self._index.expansion_search = max(width, count)
            found = self._index.search(np.ascontiguousarray(queries), count, threads=threads)
        shape = (len(queries), count)
        items = found.keys.astype(np.int32).reshape(shape)
        return items, (1 - found.distances.astype(np.float32)).reshape(shape)


def check_bytes(data: NDArray[np.uint8], *, items: int, dimensions: int) -> None:
    """Raise ModelFormatError unless some bytes are those of a graph with so many items, and all its links lead to one.

    >>> check_bytes(Graph.build(np.eye(4, dtype=np.float32)).data, items=4, dimensions=4)
    >>> check_bytes(np.zeros(200, np.uint8), items=4, dimensions=4)
    Traceback (most recent call last):
    ...
    carya.errors.ModelFormatError: the graph is damaged: it is not one of 4 vectors of 4 numbers
    """
    width = dimensions * _SCALAR_BYTES
    about = 8 + items * width
    levels_at = about + _ABOUT + _GRAPH
    nodes_at = levels_at + 2 * items
    whole = data.dtype == np.uint8 and data.ndim == 1 and data.size >= nodes_at
    _demand(
        whole and data[:8].view("<u4").tolist() == [items, width], f"not one of {items} vectors of {dimensions} numbers"
    )
    head = data[about : about + _ABOUT].tobytes()
    codes = bytes([_METRIC_CODE, _SCALAR_CODE, _KEY_CODE, _SLOT_CODE])
    _demand(head.startswith(_MAGIC) and head[13:17] == codes, "not of the kind that is built here")
    _demand(np.frombuffer(head, "<u8", 3, 17).tolist() == [items, 0, dimensions], "of another size than it says")
    size, upper, lowest, top, entry = np.frombuffer(data[about + _ABOUT : levels_at].tobytes(), "<u8").tolist()
    levels = np.frombuffer(data[levels_at:nodes_at].tobytes(), "<i2").astype(np.int64)
    _demand(size == items > 0 and levels.min() >= 0 and 2 <= upper <= lowest <= 4096, "of numbers that cannot be")
    _demand(levels.max() == top and entry < items and levels[entry] == top, "without a way in")
    sizes = _NODE_HEAD + _COUNT + _LINK * lowest + levels * (_COUNT + _LINK * upper)
    starts = nodes_at + np.concatenate([[0], np.cumsum(sizes)])
    _demand(starts[-1] == data.size, "longer or shorter than its nodes")
    heads = data[starts[:-1, None] + np.arange(_NODE_HEAD)]
    _demand((heads[:, :8].copy().view("<u8").ravel() == np.arange(items)).all(), "of items out of order")
    _demand((heads[:, 8:].copy().view("<i2").ravel() == levels).all(), "of nodes that are on other levels")
    for level in range(int(top) + 1):
        on = np.flatnonzero(levels >= level)
        at = starts[on] + _NODE_HEAD
        if level:
            at += _COUNT + _LINK * lowest + (level - 1) * (_COUNT + _LINK * upper)
        _check_links(data, at, upper if level else lowest, levels >= level)


def _check_links(data: NDArray[np.uint8], at: NDArray[np.int64], most: int, here: NDArray[np.bool_]) -> None:
    """Look at lists of at most so many links, that begin at some places and may lead to some items."""
    for some in np.array_split(at, at.size // 65536 + 1):
        lists = data[some[:, None] + np.arange(_COUNT + _LINK * most)].copy().view("<u4")
        counts, links = lists[:, :1], lists[:, 1:]
        _demand(counts.max(initial=0) <= most, "with more links than a node can have")
        used = links[np.arange(most) < counts]
        _demand(used.max(initial=0) < here.size and here[used].all(), "with a link that leads nowhere")


def _demand(so: object, otherwise: str) -> None:
    if not so:
        raise ModelFormatError(f"the graph is damaged: it is {otherwise}")


def _load_lightgbm_first() -> None:
    """Load LightGBM's library, where it is installed, before that of usearch.

    usearch's wheel brings a C++ runtime of its own whose locales then serve later libraries too; LightGBM's numbers
    become empty texts with them ("Feature (Column_) appears more than one time"). In this order both work.
    """
    found = None if "lightgbm" in sys.modules else importlib.util.find_spec("lightgbm")
    if found is None or found.origin is None or "usearch" in sys.modules:
        return
    for library in Path(found.origin).parent.glob("lib/lib_lightgbm.*"):
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(library))


def _usearch() -> Any:
    """The library, or an error that says how to install it."""
    try:
        _load_lightgbm_first()
        return importlib.import_module("usearch.index")
    except ImportError:
        raise ParameterError("search='graph' needs usearch; pip install 'carya[ann]', or search='exact'") from None
