"""Serialize nearest-neighbor models. docs/format.md specifies the arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core.matrices import Csr
from carya.core.parameters import to_json
from carya.core.storage import SavedModel, consistent_parts, prefixed
from carya.errors import InputError
from carya.matching.hnsw import HnswGraph
from carya.models.neighbors.search import TrainedNeighbors, constant_layer
from carya.models.xr_linear.serialize import KIND as TREE_KIND
from carya.models.xr_linear.serialize import pack as pack_tree
from carya.models.xr_linear.serialize import unpack as unpack_tree
from carya.trees.label_tree import LabelTree
from carya.trees.trained_tree import TrainedTree

KIND = "nearest-neighbors"

#: Searches allocate memory for every label, so an implausibly large number of labels is rejected.
_MAX_UNUSED_LABELS = 10_000_000
_MAX_LABELS_PER_ENTRY = 1000


def pack(trained: TrainedNeighbors, parameters: dict[str, Any]) -> SavedModel:
    """Return the contents of a model folder; the index and the rankers are stored as trained trees."""
    arrays: dict[str, NDArray[Any]] = {}
    shape: dict[str, Any] = {
        "labels": trained.n_labels,
        "graph": trained.graph is not None,
        "similarity": trained.similarity_weight,
    }
    for name, tree in _trees(trained).items():
        part = pack_tree(tree, {})
        shape[name] = part.shape
        arrays |= prefixed(name, part.arrays)
    if trained.labels is not None:
        arrays |= {"votes.indptr": trained.labels.indptr, "votes.indices": trained.labels.indices}
    if trained.graph is not None:
        arrays["graph"] = trained.graph.data
    return SavedModel(KIND, {name: to_json(value) for name, value in parameters.items()}, shape, arrays)


def unpack(saved: SavedModel) -> TrainedNeighbors:
    """Restore a trained model; raise ModelFormatError if its parts are inconsistent."""
    with consistent_parts():
        n_labels = int(saved.shape["labels"])
        similarity_weight = float(saved.shape["similarity"])
        if not 0 < similarity_weight < math.inf:
            raise InputError(f"The similarity weight must be positive and finite, got {similarity_weight}.")
        over_rows = "votes.indptr" in saved.arrays
        index = _unpack_part(saved, "index")
        n_items = index.layers[0].n_nodes
        above = _unpack_part(saved, "ranker") if "ranker" in saved.shape else index
        ranker = above.layers[1] if above.tree.depth > 1 else None
        if above.widths != index.widths or (ranker is not None and not _is_chain(above.tree, n_labels)):
            raise InputError("The rankers do not match the labels.")
        if over_rows and index.tree.depth > 1:
            raise InputError("An index of rows must have a single layer.")
        if not over_rows and n_items != n_labels:
            raise InputError(f"The index has {n_items} items for {n_labels} labels.")
        labels = _unpack_labels(saved, n_items, n_labels) if over_rows else None
        graph = None
        if saved.shape["graph"]:
            if index.widths[0]:
                raise InputError("A graph requires dense features.")
            graph = HnswGraph.of_bytes(saved.arrays["graph"], items=n_items, dimensions=index.widths[1])
        own_arrays = sum(not name.startswith(("index/", "ranker/")) for name in saved.arrays)
        if own_arrays != 2 * over_rows + (graph is not None):
            raise InputError("The model contains unknown arrays.")
        return TrainedNeighbors(
            index=index.layers[0],
            ranker=ranker,
            labels=labels,
            graph=graph,
            n_labels=n_labels,
            widths=index.widths,
            row_features=index.row_features,
            similarity_weight=similarity_weight,
        )


def _trees(trained: TrainedNeighbors) -> dict[str, TrainedTree]:
    """Return the layers as trees.

    If labels are indexed, the rankers are the layer below the index; if rows are indexed, they form a second tree.
    """
    widths, row_features = trained.widths, trained.row_features
    flat = LabelTree.flat(trained.index.n_nodes)
    if trained.ranker is None:
        return {"index": TrainedTree(flat, [trained.index], widths, row_features)}
    chain = LabelTree([np.zeros(trained.n_labels, np.int32), np.arange(trained.n_labels, dtype=np.int32)])
    if trained.labels is None:
        return {"index": TrainedTree(chain, [trained.index, trained.ranker], widths, row_features)}
    above = constant_layer(trained.n_labels, widths)
    return {
        "index": TrainedTree(flat, [trained.index], widths, row_features),
        "ranker": TrainedTree(chain, [above, trained.ranker], widths, row_features),
    }


def _unpack_part(saved: SavedModel, name: str) -> TrainedTree:
    return unpack_tree(saved.part(name, TREE_KIND, {}, saved.shape[name]))


def _is_chain(tree: LabelTree, n_labels: int) -> bool:
    """Return whether every ranker is the only child of its label."""
    return tree.level_sizes == (1, n_labels, n_labels) and bool((tree.parents[1] == np.arange(n_labels)).all())


def _unpack_labels(saved: SavedModel, rows: int, n_labels: int) -> Csr:
    indptr, indices = saved.arrays["votes.indptr"], saved.arrays["votes.indices"]
    if indptr.dtype != np.int64 or indices.dtype != np.int32 or indptr.shape != (rows + 1,) or indices.ndim != 1:
        raise InputError("The labels of the rows have the wrong data type or shape.")
    if n_labels > max(_MAX_UNUSED_LABELS, _MAX_LABELS_PER_ENTRY * indices.size):
        raise InputError(
            f"{n_labels} labels are implausible, because the training rows have only {indices.size} labels in total."
        )
    return Csr.of(indptr, indices, np.ones(indices.size, np.float32), n_labels, "labels")
