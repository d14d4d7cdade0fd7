"""Nearest items of a query, by cosine: labels by their centroids (Jain et al. 2019, Slice), or training rows
(Tagami 2017, AnnexML).

Sparse features are searched by an inverted index: for each feature the items that have it, which is just what a layer
of weights is to the beam search. It is exact, and faster than a graph over projections of them (docs/architecture.md).
Dense features are searched by a graph, or exactly if there are few items.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carya.core.matrices import Csr, Features
from carya.core.progress import Report
from carya.matching.hnsw import Graph
from carya.trees.beam_search import Searcher
from carya.trees.layer import Layer, Weights
from carya.trees.transforms import Transform

#: Row offsets, items and similarities.
Found = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]


def index_layer(items: Features, *, precision: str, strength: float | None = None, threads: int = 1) -> Layer:
    """Items of length 1 as a layer below the root, so that a beam search finds the nearest ones.

    Parameters
    ----------
    items : Features, one row an item
    strength : float, optional
        Scores are exp(-strength · (1 - cosine)), which multiply with what is ranked below; None is the cosine itself.
    """
    scale = 1.0 if strength is None else strength
    scaled = Csr.of(
        items.sparse.indptr, items.sparse.indices, items.sparse.values * np.float32(scale), items.sparse.cols, "items"
    )
    chunks = np.array([0, items.rows], np.int64)
    # -strength · (1 - cosine) is the logarithm of the l1-hinge of 1 - strength + strength · cosine.
    return Layer(
        weights=Weights.pack(scaled.transpose(), chunks, precision, threads=threads),
        dense=items.dense * np.float32(scale),
        offsets=np.full(items.rows, 0 if strength is None else 1 - strength, np.float32),
        chunks=chunks,
        order=np.arange(items.rows, dtype=np.int32),
        transform=Transform.named("noop" if strength is None else "l1-hinge"),
    )


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Finds the nearest items.

    Attributes
    ----------
    index : Searcher
        Over the layer of the items alone.
    graph : Graph or None
        What finds them instead, if there is one.
    """

    index: Searcher
    graph: Graph | None = None

    def search(
        self, queries: Features, *, count: int, width: int | None = None, threads: int, report: Report = None
    ) -> Found:
        """The `count` nearest items of each query, best first; none for a query without features.

        Parameters
        ----------
        width : int, optional
            Candidates kept while a graph is walked, at least twice `count`.
        """
        if self.graph is None:
            return self.index.predict(queries, top_k=count, beam_width=count, threads=threads, report=report)
        asked = np.flatnonzero(queries.dense.any(axis=1))
        items, near = self.graph.search(
            queries.dense[asked], count=count, width=max(2 * count, width or 0), threads=threads
        )
        sizes = np.zeros(queries.rows, np.int64)
        sizes[asked] = items.shape[1]
        return np.concatenate([[0], np.cumsum(sizes)]), items.reshape(-1), near.reshape(-1)


def without_themselves(found: Found, first: int, count: int) -> Found:
    """What rows `first`, `first` + 1, … found among all rows, less each itself, and at most `count`."""
    indptr, items, near = found
    sizes = np.diff(indptr)
    asking = np.repeat(np.arange(sizes.size), sizes)
    others = items != asking + first
    place = np.cumsum(others) - np.repeat(np.concatenate([[0], np.cumsum(others)])[indptr[:-1]], sizes)
    kept = others & (place <= count)
    ends = np.concatenate([[0], np.cumsum(np.bincount(asking[kept], minlength=sizes.size))])
    return ends.astype(np.int64), items[kept], near[kept]


def sorted_rows(found: Found, cols: int) -> Csr:
    """What was found as a matrix, queries x items."""
    indptr, items, near = found
    order = np.lexsort((items, np.repeat(np.arange(indptr.size - 1), np.diff(indptr))))
    return Csr.of(indptr.astype(np.int64, copy=False), items[order], near[order], cols)
