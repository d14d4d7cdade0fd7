"""Split a saved model into a top (the upper layers of its tree) and several parts, one part in memory at a time."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core import storage, validation
from carya.core.atomic import replace_folder, temporary_folder
from carya.core.storage import SavedModel
from carya.errors import InputError, SaveError
from carya.models.routed.serialize import TOP_KIND, SplitInfo, TreePart, pack_part, pack_top
from carya.models.xr_linear.serialize import KIND as TREE_KIND
from carya.models.xr_linear.serialize import unpack
from carya.trees.layer import Layer
from carya.trees.layout_choice import choose_layout
from carya.trees.trained_tree import TrainedTree
from carya.upgrade import upgrade

#: The names of the folders.
TOP, PART = "top", "part-{}"

_TEXT_KIND = "text-ranker"
_TREE_ARRAYS = re.compile(r"\d+\.(parents|weights\.(starts|data|scales)|dense|offsets)|leaf_labels")
_FOLDERS = re.compile(r"top|part-\d+")


@dataclass(frozen=True)
class PartSummary:
    """A folder written by :func:`split_model`.

    Attributes
    ----------
    path : Path
    bytes : int
        The size on disk.
    clusters, labels : int
        The numbers of clusters and labels; 0 for the top, which contains no label rankers.
    """

    path: Path
    bytes: int
    clusters: int = 0
    labels: int = 0


def split_model(
    path: str | os.PathLike[str], output: str | os.PathLike[str], *, n_parts: int, n_jobs: int = -1
) -> list[PartSummary]:
    """Split a saved XR-Linear model, or a text ranker that contains one, into a top and several parts.

    The folder ``top`` contains everything except for the label rankers, which are in the folders ``part-0``,
    ``part-1``, …. Each part contains consecutive clusters, selected so that all parts have approximately the same size.
    The unsplit model is memory-mapped; only one part at a time is held in memory. `output` is written atomically.

    Parameters
    ----------
    path : str or path-like
        The folder of the model.
    output : str or path-like
        The folder to write; a previous split is replaced.
    n_parts : int
        The number of parts, at most the number of leaf clusters.
    n_jobs : int
        The number of threads; -1 means all cores.

    Returns
    -------
    list of PartSummary
        The parts, followed by the top.

    Examples
    --------
    >>> import tempfile, carya
    >>> X, Y = carya.data.make_world(300, 60, seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     carya.XRLinear(max_leaf_size=10).fit(X, Y).save(f"{folder}/model")
    ...     parts = carya.split_model(f"{folder}/model", f"{folder}/parts", n_parts=2)
    >>> [(part.path.name, part.labels) for part in parts]
    [('part-0', 30), ('part-1', 30), ('top', 0)]
    """
    n_parts = validation.check_positive_int(n_parts, "n_parts")
    threads = _core.thread_count(n_jobs)
    target = Path(output)
    _check_output(target)
    saved = upgrade(storage.load(path, lazy=storage.LAZY_ARRAYS))
    tree_model = _tree_model(saved, path)
    trained = unpack(tree_model)
    if len(trained.layers) < 2:
        raise InputError(f"{path} cannot be split, because its tree has no clusters. Train it with max_depth >= 2.")
    layer = trained.layers[-1]
    n_clusters = layer.chunks.size - 1
    if n_parts > n_clusters:
        raise InputError(f"n_parts must be at most {n_clusters}, the number of leaf clusters, got {n_parts}.")
    bounds = _balance(_cluster_bytes(layer), n_parts)
    split = SplitInfo(_split_id(path, bounds), bounds)
    beam_width = int(tree_model.parameters["beam_width"])
    layout = choose_layout(layer, beam_width=beam_width, query_features=trained.row_features).layout

    try:
        with temporary_folder(target) as temporary:
            summaries = []
            for number in range(n_parts):
                part = _take_part(trained, split, number, layout, threads)
                folder = temporary / PART.format(number)
                storage.save(folder, pack_part(part, trained.widths))
                size = storage.size_on_disk(folder)
                summaries.append(PartSummary(target / folder.name, size, part.n_clusters, part.labels.size))
                del part  # freed before the next part is created
            storage.save(temporary / TOP, _top_of(saved, tree_model, pack_top(trained, tree_model.parameters, split)))
            summaries.append(PartSummary(target / TOP, storage.size_on_disk(temporary / TOP)))
            _check_output(target)  # checked again, because writing a large model takes a while
            replace_folder(temporary, target)
            return summaries
    except SaveError:
        raise
    except OSError as error:
        raise SaveError(f"The parts cannot be written to {target}: {error.strerror or error}.") from error


def _check_output(target: Path) -> None:
    """Raise SaveError if the output folder contains anything other than a previous split."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise SaveError(f"{target} exists and is not a folder. Choose a different path.")
    if not target.is_dir():
        return
    others = [entry.name for entry in target.iterdir() if not _FOLDERS.fullmatch(entry.name)]
    if others:
        raise SaveError(
            f"{target} contains {sorted(others)[0]!r}, which is not part of a split model. It was not modified. Choose "
            "a different path."
        )


def _tree_model(saved: SavedModel, path: str | os.PathLike[str]) -> SavedModel:
    """Return the XR-Linear model in a saved model; raise InputError if the model is of a different kind."""
    is_text = saved.kind == _TEXT_KIND
    kind = str(saved.parameters.get("model_kind", TREE_KIND)) if is_text else saved.kind
    if kind == TOP_KIND:
        raise InputError(f"{path} is the top of a split model. Pass the unsplit model.")
    if kind != TREE_KIND:
        raise InputError(
            f"{path} contains a model of kind {kind!r}. Only XRLinear models and TextRankers with an XRLinear model "
            "can be split."
        )
    parameters: dict[str, Any] = saved.parameters["model"] if is_text else saved.parameters
    arrays = {name: array for name, array in saved.arrays.items() if _TREE_ARRAYS.fullmatch(name)}
    return replace(saved, kind=TREE_KIND, parameters=parameters, arrays=arrays)


def _top_of(saved: SavedModel, tree_model: SavedModel, top: SavedModel) -> SavedModel:
    """Return the saved model with the top of its tree instead of the complete tree."""
    others = {name: array for name, array in saved.arrays.items() if name not in tree_model.arrays}
    is_text = saved.kind == _TEXT_KIND
    return replace(
        saved,
        kind=saved.kind if is_text else top.kind,
        parameters=saved.parameters | {"model_kind": top.kind} if is_text else saved.parameters,
        shape=saved.shape | top.shape,
        arrays=top.arrays | others,
    )


def _take_part(trained: TrainedTree, split: SplitInfo, number: int, layout: str, threads: int) -> TreePart:
    first, last = (int(bound) for bound in split.first_clusters[number : number + 2])
    layer, tree = trained.layers[-1], trained.tree
    part = layer.take_chunks(first, last, threads=threads)
    nodes = np.sort(layer.order[layer.chunks[first] : layer.chunks[last]])
    labels, leaf_labels = nodes, None
    if tree.leaf_labels is not None:
        labels, indices = np.unique(tree.leaf_labels[nodes], return_inverse=True)
        leaf_labels = indices.astype(np.int32) if labels.size < nodes.size else None
    return TreePart(
        split=split.id,
        number=number,
        first_cluster=first,
        above=[upper.transform for upper in trained.layers[:-1]],
        layer=part,
        layout=layout,
        parents=(tree.parents[-1][nodes] - first).astype(np.int32),
        labels=labels.astype(np.int32),
        leaf_labels=leaf_labels,
    )


def _cluster_bytes(layer: Layer) -> NDArray[np.int64]:
    """Return the approximate number of bytes that each cluster contributes to the last layer."""
    value_bytes = {"float32": 4, "float16": 2, "int8": 1}[layer.weights.dtype]
    node_bytes = 4 * layer.dense.shape[1] + 12  # the dense weights, the bias, the label and the parent
    sizes: NDArray[np.int64] = layer.chunk_weight_counts() * (value_bytes + 1) + np.diff(layer.chunks) * node_bytes
    return sizes


def _balance(sizes: NDArray[np.int64], n_parts: int) -> NDArray[np.int64]:
    """Return the first cluster of each part, followed by the number of clusters; no part is empty.

    >>> _balance(np.array([1, 1, 1, 9, 1, 1]), 3).tolist()
    [0, 3, 4, 6]
    """
    ends = np.cumsum(sizes)
    targets = ends[-1] * np.arange(1, n_parts) / n_parts
    after = np.searchsorted(ends, targets) + 1
    before_is_closer = targets - (ends - sizes)[after - 1] < ends[after - 1] - targets
    bounds = np.concatenate([[0], after - before_is_closer, [sizes.size]]).astype(np.int64)
    for part in range(1, n_parts):  # at least one cluster per part
        bounds[part] = min(max(bounds[part], bounds[part - 1] + 1), sizes.size - (n_parts - part))
    return bounds


def _split_id(path: str | os.PathLike[str], bounds: NDArray[np.int64]) -> str:
    """Return an id that is derived from the model and the distribution of its clusters."""
    manifest = storage.read_manifest(path)
    return f"{_core.xxh64(np.frombuffer(manifest + bounds.tobytes(), np.uint8)):016x}"
