"""Nearest-neighbor search by cosine similarity.

Neighbors are label centroids (Slice, Jain et al. 2019) or training rows (AnnexML, Tagami 2017).

Sparse features are searched with an inverted index, which lists the items that contain each feature; a weight layer has
the same structure, so beam search can use it as an index. This search is exact, and it is faster than searching an HNSW
graph of projections (docs/design-notes.md). Dense features are searched with an HNSW graph, or exactly if there are few
items.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from carya.core.matrices import Csr, Features
from carya.core.progress import Report
from carya.matching.hnsw import HnswGraph
from carya.trees.beam_search import BeamSearcher, Rankings
from carya.trees.layer import Layer, flat_layer
from carya.trees.transforms import Transform


def index_layer(
    items: Features, *, weight_dtype: str, similarity_weight: float | None = None, threads: int = 1
) -> Layer:
    """Return a layer of unit-norm items, from which beam search retrieves the nearest items.

    Parameters
    ----------
    items : Features
        One row per item.
    similarity_weight : float, optional
        If given, scores are exp(-similarity_weight · (1 - cosine)) and are multiplied by the scores of the layer
        below; otherwise, scores are cosine similarities.
    """
    scale = np.float32(1.0 if similarity_weight is None else similarity_weight)
    sparse = items.sparse
    scaled = Csr.of(sparse.indptr, sparse.indices, sparse.values * scale, sparse.cols, "items")
    layer = flat_layer(scaled, items.dense * scale, weight_dtype=weight_dtype, threads=threads)
    if similarity_weight is None:
        return layer
    # -w · (1 - cosine) is the logarithm of the l1-hinge transform of 1 - w + w · cosine.
    biases = np.full(items.rows, 1 - similarity_weight, np.float32)
    return replace(layer, biases=biases, transform=Transform.from_name("l1-hinge"))


@dataclass(frozen=True, eq=False)
class NeighborSearcher:
    """Searcher that retrieves the items nearest to a query.

    Attributes
    ----------
    index : BeamSearcher
        An exact index of the items.
    graph : HnswGraph or None
        An approximate index; if given, it is used instead of `index`.
    """

    index: BeamSearcher
    graph: HnswGraph | None = None

    def search(
        self, queries: Features, *, count: int, ef_search: int | None = None, threads: int, report: Report = None
    ) -> Rankings:
        """Return the `count` items nearest to each query, nearest first; queries without features have no neighbors.

        Parameters
        ----------
        ef_search : int, optional
            The number of candidates kept during a graph search; at least twice `count` candidates are kept.
        """
        if self.graph is None:
            return self.index.predict(queries, top_k=count, beam_width=count, threads=threads, report=report)
        nonempty = np.flatnonzero(queries.dense.any(axis=1))
        items, similarities = self.graph.search(
            queries.dense[nonempty], count=count, ef_search=max(2 * count, ef_search or 0), threads=threads
        )
        sizes = np.zeros(queries.rows, np.int64)
        sizes[nonempty] = items.shape[1]
        return np.concatenate([[0], np.cumsum(sizes)]), items.reshape(-1), similarities.reshape(-1)


def exclude_self(neighbors: Rankings, first: int, count: int) -> Rankings:
    """Remove each query from its own neighbors and keep at most `count` of the others; query i is item `first` + i."""
    indptr, items, similarities = neighbors
    sizes = np.diff(indptr)
    query = np.repeat(np.arange(sizes.size), sizes)
    others = items != query + first
    rank = np.cumsum(others) - np.repeat(np.concatenate([[0], np.cumsum(others)])[indptr[:-1]], sizes)
    kept = others & (rank <= count)
    ends = np.concatenate([[0], np.cumsum(np.bincount(query[kept], minlength=sizes.size))])
    return ends.astype(np.int64), items[kept], similarities[kept]
