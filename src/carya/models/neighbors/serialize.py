"""What of a model of neighbours goes into a saved folder, and back. docs/format.md specifies the arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core.matrices import Csr
from carya.core.parameters import from_json, to_json
from carya.core.storage import Saved
from carya.errors import InputError, ModelFormatError
from carya.matching.hnsw import Graph
from carya.models.neighbors.search import Parts, certain
from carya.models.xr_linear.serialize import KIND as LAYERS_KIND
from carya.models.xr_linear.serialize import pack as pack_layers
from carya.models.xr_linear.serialize import unpack as unpack_layers
from carya.trees.label_tree import LabelTree
from carya.trees.trained_tree import Learned

KIND = "nearest-neighbours"


def pack(parts: Parts, parameters: dict[str, Any]) -> Saved:
    """The content of a model folder: the index and the rankers as layers of trees, as other models have them."""
    arrays: dict[str, NDArray[Any]] = {}
    shape: dict[str, Any] = {"labels": parts.n_labels, "graph": parts.graph is not None, "similarity": parts.similarity}
    for name, learned in _trees(parts).items():
        part = pack_layers(learned, {})
        shape[name] = part.shape
        arrays |= {f"{name}/{key}": array for key, array in part.arrays.items()}
    if parts.labels is not None:
        arrays |= {"votes.indptr": parts.labels.indptr, "votes.indices": parts.labels.indices}
    if parts.graph is not None:
        arrays["graph"] = parts.graph.data
    return Saved(KIND, {name: to_json(value) for name, value in parameters.items()}, shape, arrays)


def unpack(saved: Saved) -> tuple[Parts, dict[str, Any]]:
    """What was learned, and the parameters; raises ModelFormatError if the parts do not fit together."""
    try:
        n_labels = int(saved.shape["labels"])
        similarity = float(saved.shape["similarity"])
        if not 0 < similarity < math.inf:
            raise InputError(f"similarity cannot count {similarity}")
        over_rows = "votes.indptr" in saved.arrays
        index = unpack_layers(_part(saved, "index"))[0]
        items = index.layers[0].n_nodes
        above = unpack_layers(_part(saved, "ranker"))[0] if "ranker" in saved.shape else index
        ranker = above.layers[1] if above.tree.depth > 1 else None
        if above.widths != index.widths or (ranker is not None and not _is_chain(above.tree, n_labels)):
            raise InputError("the rankers are not those of the labels")
        if (items != n_labels) if not over_rows else (index.tree.depth > 1):
            raise InputError(f"the index has {items} items for {n_labels} labels")
        labels = _labels(saved, items, n_labels) if over_rows else None
        graph = None
        if saved.shape["graph"]:
            if index.widths[0]:
                raise InputError("there is a graph over sparse features")
            graph = Graph.of_bytes(saved.arrays["graph"], items=items, dimensions=index.widths[1])
        mine = sum(not name.startswith(("index/", "ranker/")) for name in saved.arrays)
        if mine != 2 * over_rows + (graph is not None):
            raise InputError("there are arrays that no part knows")
    except KeyError as error:
        raise ModelFormatError(f"the parts of the model do not fit together: there is no {error}") from None
    except ModelFormatError:
        raise
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise ModelFormatError(f"the parts of the model do not fit together: {error}") from None
    parts = Parts(
        index=index.layers[0],
        ranker=ranker,
        labels=labels,
        graph=graph,
        n_labels=n_labels,
        widths=index.widths,
        row_features=index.row_features,
        similarity=similarity,
    )
    return parts, {name: from_json(value) for name, value in saved.parameters.items()}


def _trees(parts: Parts) -> dict[str, Learned]:
    """The layers as trees: labels with their rankers below them, or rows, and labels with theirs."""
    flat = LabelTree.flat(parts.index.n_nodes)
    if parts.ranker is None:
        return {"index": Learned(flat, [parts.index], parts.widths, parts.row_features)}
    chain = LabelTree([np.zeros(parts.n_labels, np.int32), np.arange(parts.n_labels, dtype=np.int32)])
    if parts.labels is None:
        return {"index": Learned(chain, [parts.index, parts.ranker], parts.widths, parts.row_features)}
    above = certain(parts.n_labels, parts.widths)
    return {
        "index": Learned(flat, [parts.index], parts.widths, parts.row_features),
        "ranker": Learned(chain, [above, parts.ranker], parts.widths, parts.row_features),
    }


def _part(saved: Saved, name: str) -> Saved:
    return saved.part(name, LAYERS_KIND, {}, saved.shape[name])


def _is_chain(tree: LabelTree, n_labels: int) -> bool:
    """Whether every label is the only child of its place."""
    return tree.level_sizes == (1, n_labels, n_labels) and bool((tree.parents[1] == np.arange(n_labels)).all())


def _labels(saved: Saved, rows: int, n_labels: int) -> Csr:
    indptr, indices = saved.arrays["votes.indptr"], saved.arrays["votes.indices"]
    if indptr.dtype != np.int64 or indices.dtype != np.int32 or indptr.shape != (rows + 1,) or indices.ndim != 1:
        raise InputError("the labels of the rows are of another shape")
    return Csr.of(indptr, indices, np.ones(indices.size, np.float32), n_labels, "labels")
