"""Approximate nearest-neighbor search over dense vectors with an HNSW graph (Malkov and Yashunin 2020), using usearch.

Graphs are stored in usearch's serialization format. usearch does not validate the data it reads, so :func:`check_bytes`
checks the header and every link first and raises ModelFormatError if the graph is invalid.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from carya.core.extras import require
from carya.core.progress import Report
from carya.errors import ModelFormatError
from carya.fork_safety import ForkSafeLock

#: Half precision halves the size of the graph and speeds up searches; retrieved labels are rescored without the graph.
_SCALAR, _SCALAR_CODE, _SCALAR_BYTES = "f16", 12, 2
_MAGIC = b"usearch"
_METRIC, _METRIC_CODE = "ip", ord("i")
_KEY_CODE, _SLOT_CODE = 14, 15
_BUILD_BLOCK = 4096  # number of vectors added at a time; between blocks, progress is reported and Ctrl-C is handled

# The serialized layout consists of the number of vectors and the number of bytes per vector; the vectors; a 64-byte
# header that describes them; five integers that describe the graph; the level of each node; and the nodes. Each node
# consists of its key, its level and, for every level it is on, the number of links followed by the links.
_HEADER, _GRAPH_HEADER = 64, 40
_NODE_HEADER, _COUNT, _LINK = 10, 4, 4


class HnswGraph:
    """HNSW graph of the rows of a dense matrix, for inner-product search.

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.eye(4, dtype=np.float32)
    >>> graph = HnswGraph.build(vectors)
    >>> items, products = graph.search(vectors[:2], count=1, ef_search=8)
    >>> items.tolist()
    [[0], [1]]
    """

    def __init__(self, index: Any, data: NDArray[np.uint8]) -> None:
        self._index = index
        self._lock = ForkSafeLock()  # searches share the index's scratch memory
        self._process = os.getpid()
        self.data = data

    @classmethod
    def build(
        cls, vectors: NDArray[np.float32], *, connectivity: int = 16, ef_construction: int = 128, report: Report = None
    ) -> Self:
        """Build a graph from vectors of shape (items, dimensions).

        The graph is built in one thread because the links depend on the order of insertion, and the same vectors must
        produce the same bytes regardless of the number of cores.

        Parameters
        ----------
        connectivity : int
            The maximum number of links per node; it is doubled at the lowest level.
        ef_construction : int
            The number of candidates considered for the links of a new node.
        """
        index = require_usearch().Index(
            ndim=vectors.shape[1],
            metric=_METRIC,
            dtype=_SCALAR,
            connectivity=connectivity,
            expansion_add=ef_construction,
            enable_key_lookups=False,
        )
        for first in range(0, len(vectors), _BUILD_BLOCK):
            block = vectors[first : first + _BUILD_BLOCK]
            index.add(np.arange(first, first + len(block), dtype=np.uint64), block, threads=1)
            if report is not None:
                report(first + len(block), len(vectors))
        data = np.frombuffer(index.save(), np.uint8)
        return cls(index, data)

    @classmethod
    def of_bytes(cls, data: NDArray[np.uint8], *, items: int, dimensions: int) -> Self:
        """Load a serialized graph without copying it.

        Raises ModelFormatError if the graph is invalid or does not have the given size.
        """
        check_bytes(data, items=items, dimensions=dimensions)
        usearch = require_usearch(purpose="The model", alternative=None)
        try:
            index = usearch.Index.restore(data, view=True)
        except (RuntimeError, ValueError) as error:
            raise ModelFormatError(f"The graph cannot be read: {error}") from None
        if index is None or len(index) != items or index.ndim != dimensions:
            raise ModelFormatError("The graph cannot be read: its size does not match the model.")
        return cls(index, data)

    def search(
        self, queries: NDArray[np.float32], *, count: int, ef_search: int, threads: int = 1
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the items nearest to each query and their inner products, best first.

        Both arrays have shape (queries, count), or fewer columns if the graph contains fewer than `count` items. The
        results do not depend on the number of threads.

        Parameters
        ----------
        ef_search : int
            The number of candidates kept during the search; more candidates increase both recall and search time.
        """
        count = min(count, len(self._index))
        if len(queries) == 0 or count == 0:
            return np.zeros((len(queries), count), np.int32), np.zeros((len(queries), count), np.float32)
        with self._lock:
            if self._process != os.getpid():  # in a forked process, usearch waits for the threads of the parent process
                self._index = require_usearch().Index.restore(self.data, view=True)
                self._process = os.getpid()
            self._index.expansion_search = max(ef_search, count)
            matches = self._index.search(np.ascontiguousarray(queries), count, threads=threads)
        shape = (len(queries), count)
        items = matches.keys.astype(np.int32).reshape(shape)
        return items, (1 - matches.distances.astype(np.float32)).reshape(shape)


def check_bytes(data: NDArray[np.uint8], *, items: int, dimensions: int) -> None:
    """Raise ModelFormatError unless the bytes form a graph of the given size in which every link points to an item.

    >>> check_bytes(HnswGraph.build(np.eye(4, dtype=np.float32)).data, items=4, dimensions=4)
    >>> check_bytes(np.zeros(200, np.uint8), items=4, dimensions=4)
    Traceback (most recent call last):
    ...
    carya.errors.ModelFormatError: The graph is damaged: it does not contain 4 vectors with 4 dimensions.
    """
    vector_bytes = dimensions * _SCALAR_BYTES
    header_at = 8 + items * vector_bytes
    levels_at = header_at + _HEADER + _GRAPH_HEADER
    nodes_at = levels_at + 2 * items
    complete = data.dtype == np.uint8 and data.ndim == 1 and data.size >= nodes_at
    _check(
        complete and data[:8].view("<u4").tolist() == [items, vector_bytes],
        f"it does not contain {items} vectors with {dimensions} dimensions",
    )
    header = data[header_at : header_at + _HEADER].tobytes()
    codes = bytes([_METRIC_CODE, _SCALAR_CODE, _KEY_CODE, _SLOT_CODE])
    _check(header.startswith(_MAGIC) and header[13:17] == codes, "it does not have the header of a Carya graph")
    _check(np.frombuffer(header, "<u8", 3, 17).tolist() == [items, 0, dimensions], "the size in its header is wrong")
    size, upper, lowest, top, entry = np.frombuffer(data[header_at + _HEADER : levels_at].tobytes(), "<u8").tolist()
    levels = np.frombuffer(data[levels_at:nodes_at].tobytes(), "<i2").astype(np.int64)
    _check(size == items > 0 and levels.min() >= 0 and 2 <= upper <= lowest <= 4096, "its header has invalid values")
    _check(levels.max() == top and entry < items and levels[entry] == top, "its entry point is invalid")
    sizes = _NODE_HEADER + _COUNT + _LINK * lowest + levels * (_COUNT + _LINK * upper)
    starts = nodes_at + np.concatenate([[0], np.cumsum(sizes)])
    _check(starts[-1] == data.size, "its length does not match its number of nodes and links")
    headers = data[starts[:-1, None] + np.arange(_NODE_HEADER)]
    _check((headers[:, :8].copy().view("<u8").ravel() == np.arange(items)).all(), "its items are out of order")
    _check((headers[:, 8:].copy().view("<i2").ravel() == levels).all(), "its nodes have inconsistent levels")
    for level in range(int(top) + 1):
        on_level = np.flatnonzero(levels >= level)
        offsets = starts[on_level] + _NODE_HEADER
        if level:
            offsets += _COUNT + _LINK * lowest + (level - 1) * (_COUNT + _LINK * upper)
        _check_links(data, offsets, upper if level else lowest, levels >= level)


def _check_links(data: NDArray[np.uint8], offsets: NDArray[np.int64], max_links: int, valid: NDArray[np.bool_]) -> None:
    """Check that each link list at the given offsets has at most `max_links` links, all of them to valid nodes."""
    for block in np.array_split(offsets, offsets.size // 65536 + 1):
        lists = data[block[:, None] + np.arange(_COUNT + _LINK * max_links)].copy().view("<u4")
        counts, links = lists[:, :1], lists[:, 1:]
        _check(counts.max(initial=0) <= max_links, "a node has too many links")
        used = links[np.arange(max_links) < counts]
        _check(used.max(initial=0) < valid.size and valid[used].all(), "a link points to an invalid node")


def _check(condition: object, problem: str) -> None:
    if not condition:
        raise ModelFormatError(f"The graph is damaged: {problem}.")


def _preload_lightgbm() -> None:
    """Load the LightGBM library, if installed, before usearch.

    The usearch wheel includes its own C++ runtime, and libraries that are loaded later use the locales of this runtime.
    With these locales, LightGBM formats numbers as empty strings ("Feature (Column_) appears more than one time").
    Loading LightGBM first avoids this.
    """
    spec = None if "lightgbm" in sys.modules else importlib.util.find_spec("lightgbm")
    if spec is None or spec.origin is None or "usearch" in sys.modules:
        return
    for library in Path(spec.origin).parent.glob("lib/lib_lightgbm.*"):
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(library))


def require_usearch(purpose: str = "search='graph'", alternative: str | None = "search='exact'") -> Any:
    """Import usearch; raise MissingExtraError if it is not installed."""
    _preload_lightgbm()
    return require("usearch.index", extra="ann", purpose=purpose, alternative=alternative)
