"""Serialize split models: the top of the tree, and the parts. docs/format.md specifies the arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core.storage import SavedModel, consistent_parts
from carya.errors import InputError
from carya.models.xr_linear.serialize import EARLIER_MAX_BIT_CHUNKS, check_max_bit_chunks
from carya.models.xr_linear.serialize import KIND as TREE_KIND
from carya.models.xr_linear.serialize import pack as pack_tree
from carya.models.xr_linear.serialize import unpack as unpack_tree
from carya.trees.layer import WEIGHT_DTYPES, Layer, Weights
from carya.trees.layout_choice import LAYOUTS
from carya.trees.trained_tree import TrainedTree
from carya.trees.transforms import Transform

TOP_KIND = "routed"
PART_KIND = "model-part"


class SplitInfo(NamedTuple):
    """The distribution of the clusters of a tree among the parts.

    Attributes
    ----------
    id : str
        The id of the split, which the top and all parts share.
    first_clusters : ndarray of int64, shape (parts + 1,)
        The first cluster of each part, followed by the number of clusters.
    """

    id: str
    first_clusters: NDArray[np.int64]

    @property
    def n_parts(self) -> int:
        """The number of parts."""
        return self.first_clusters.size - 1


@dataclass(frozen=True, eq=False)
class TopTree:
    """A split tree without the weights of its last layer.

    Attributes
    ----------
    clusters : TrainedTree
        The tree without its last level; its labels are the clusters.
    transform : Transform
        The transform of the last layer.
    parents : ndarray of int32
        The cluster of each node at the last level.
    leaf_labels : ndarray of int32 or None
        The label of each node at the last level, if clusters overlap.
    split : SplitInfo
    """

    clusters: TrainedTree
    transform: Transform
    parents: NDArray[np.int32]
    leaf_labels: NDArray[np.int32] | None
    split: SplitInfo

    @property
    def n_labels(self) -> int:
        """The number of labels."""
        return self.parents.size if self.leaf_labels is None else int(self.leaf_labels[-1]) + 1


@dataclass(frozen=True, eq=False)
class TreePart:
    """The last layer of a split tree, restricted to consecutive clusters.

    Attributes
    ----------
    split : str
        The id of the split.
    number : int
        The number of the part.
    first_cluster : int
    above : list of Transform
        The transforms of the layers above.
    layer : Layer
    layout : str
        The memory layout of the complete layer, which determines how scores are rounded.
    parents : ndarray of int32
        The cluster of each node; clusters are numbered from 0 within the part.
    labels : ndarray of int32
        The index of each label in the unsplit model, in ascending order.
    leaf_labels : ndarray of int32 or None
        The index of each node's label in `labels`, if a label has several nodes.
    """

    split: str
    number: int
    first_cluster: int
    above: list[Transform]
    layer: Layer
    layout: str
    parents: NDArray[np.int32]
    labels: NDArray[np.int32]
    leaf_labels: NDArray[np.int32] | None

    @property
    def n_clusters(self) -> int:
        """The number of clusters."""
        return self.layer.chunks.size - 1


def pack_top(trained: TrainedTree, parameters: dict[str, Any], split: SplitInfo) -> SavedModel:
    """Return the contents of the folder ``top``, given the complete tree and its saved parameters."""
    depth = len(trained.layers)
    tree = trained.tree
    above = replace(
        trained, tree=type(tree)(tree.parents[:-1]), layers=trained.layers[:-1], row_features=trained.row_features
    )
    saved = pack_tree(above, {})
    arrays = saved.arrays | {f"{depth}.parents": tree.parents[-1]}
    if tree.leaf_labels is not None:
        arrays["leaf_labels"] = tree.leaf_labels
    shape = saved.shape | {
        "transforms": [layer.transform.name for layer in trained.layers],
        "split": split.id,
        "first_clusters": split.first_clusters.tolist(),
    }
    return SavedModel(TOP_KIND, parameters, shape, arrays)


def unpack_top(saved: SavedModel) -> TopTree:
    """Restore the top of a tree; raise ModelFormatError if its contents are inconsistent."""
    with consistent_parts():
        transforms = [Transform.from_name(name) for name in saved.shape["transforms"]]
        depth = len(transforms)
        split = SplitInfo(str(saved.shape["split"]), np.array(saved.shape["first_clusters"], np.int64))
        own = {"leaf_labels", f"{depth}.parents"}
        arrays = {name: array for name, array in saved.arrays.items() if name not in own}
        shape = saved.shape | {"transforms": saved.shape["transforms"][:-1]}
        clusters = unpack_tree(replace(saved, kind=TREE_KIND, shape=shape, arrays=arrays))
        n_clusters = clusters.tree.n_labels
        parents, leaf_labels = saved.arrays[f"{depth}.parents"], saved.arrays.get("leaf_labels")
        if parents.dtype != np.int32 or parents.ndim != 1 or not parents.size:
            raise InputError(
                "The parents of the labels must be a non-empty one-dimensional int32 array, got dtype "
                f"{parents.dtype} and shape {parents.shape}."
            )
        if parents.min() < 0 or parents.max() >= n_clusters:
            raise InputError(f"The parents of the labels must be between 0 and {n_clusters - 1}.")
        if leaf_labels is not None:
            steps = np.diff(leaf_labels)
            if leaf_labels.dtype != np.int32 or leaf_labels.shape != parents.shape or leaf_labels[0] != 0:
                raise InputError("leaf_labels must contain one int32 label per node of the last level, starting at 0.")
            if ((steps != 0) & (steps != 1)).any():
                raise InputError("leaf_labels must be in ascending order, without gaps.")
        firsts = split.first_clusters
        if firsts.ndim != 1 or firsts.size < 2 or firsts[0] != 0 or firsts[-1] != n_clusters:
            raise InputError("The parts must cover all clusters.")
        if (np.diff(firsts) < 1).any():
            raise InputError("Every part must contain at least one cluster.")
        return TopTree(clusters, transforms[-1], parents, leaf_labels, split)


def pack_part(part: TreePart, widths: tuple[int, int]) -> SavedModel:
    """Return the contents of a part's folder."""
    layer = part.layer
    shape = {
        "split": part.split,
        "part": part.number,
        "first_cluster": part.first_cluster,
        "clusters": part.n_clusters,
        "sparse_features": widths[0],
        "dense_features": widths[1],
        "transforms": [transform.name for transform in [*part.above, layer.transform]],
        "precision": layer.weights.dtype,
        "weights": layer.weights.n_weights,
        "features_used": layer.weights.n_used,
        "max_bit_chunks": layer.weights.max_bit_chunks,
        "layout": part.layout,
    }
    arrays: dict[str, NDArray[Any]] = {
        "parents": part.parents,
        "labels": part.labels,
        "weights.starts": layer.weights.starts,
        "weights.data": layer.weights.data,
        "weights.scales": layer.weights.scales,
        "dense": layer.dense,
        "offsets": layer.biases,
    }
    if part.leaf_labels is not None:
        arrays["leaf_labels"] = part.leaf_labels
    return SavedModel(PART_KIND, {}, shape, arrays)


def unpack_part(saved: SavedModel) -> TreePart:
    """Restore a part; raise ModelFormatError if its arrays are inconsistent."""
    with consistent_parts():
        shape, arrays = saved.shape, saved.arrays
        widths = (int(shape["sparse_features"]), int(shape["dense_features"]))
        *above, transform = (Transform.from_name(name) for name in shape["transforms"])
        dtype, layout = shape["precision"], shape["layout"]
        if dtype not in WEIGHT_DTYPES or layout not in LAYOUTS or not above:
            raise InputError("The weight type, the layout or the transforms are invalid.")
        parents, labels, leaf_labels = arrays["parents"], arrays["labels"], arrays.get("leaf_labels")
        order, chunks = _core.group_by_parent(parents, int(shape["clusters"]))
        starts, data, scales = (arrays[f"weights.{name}"] for name in ("starts", "data", "scales"))
        n_weights, n_used = int(shape["weights"]), int(shape["features_used"])
        limit = check_max_bit_chunks(shape.get("max_bit_chunks", EARLIER_MAX_BIT_CHUNKS))
        if not 0 <= n_used <= widths[0] or not 0 <= n_weights <= data.size:
            raise InputError(f"The part cannot have {n_weights} weights for {n_used} features.")
        dense, biases = arrays["dense"], arrays["offsets"]
        if starts.ndim != 2 or dense.shape != (order.size, widths[1]) or not np.isfinite(biases).all():
            raise InputError("The weights have the wrong shape, or a bias is not finite.")
        n_labels = order.size if leaf_labels is None else int(leaf_labels[-1]) + 1
        if labels.dtype != np.int32 or labels.shape != (n_labels,) or (np.diff(labels) < 1).any() or labels[0] < 0:
            raise InputError(
                "labels must contain distinct label indices in ascending order, one per label of the part."
            )
        if len(arrays) != 7 + (leaf_labels is not None):
            raise InputError("The part contains unknown arrays.")
        layer = Layer(
            weights=Weights(
                starts, data, scales, dtype, widths[0], n_weights=n_weights, n_used=n_used, max_bit_chunks=limit
            ),
            dense=dense,
            biases=biases,
            chunks=chunks,
            order=order,
            transform=transform,
            folder=saved.folder,
        )
        first = int(shape["first_cluster"])
        return TreePart(
            str(shape["split"]), int(shape["part"]), first, above, layer, layout, parents, labels, leaf_labels
        )
