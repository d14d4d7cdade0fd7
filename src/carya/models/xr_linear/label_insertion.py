"""Add labels to a trained tree: place them in clusters, and train only their rankers.

The matcher, which consists of the layers above the labels, assigns a new label to the cluster to which it assigns the
label's rows. These layers do not change, so they already lead to the new label. The ranker of the label is trained like
those of all other labels, on its rows and on the negatives among the given rows.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from carya import _core
from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr, Features
from carya.core.progress import Progress
from carya.core.rules import to_python_scalar
from carya.matching import Negatives, RelevanceCosts, level_targets, union_shortlists
from carya.models.new_labels import NewLabels
from carya.models.xr_linear.label_placement import Placement, place_labels
from carya.models.xr_linear.training import favor_rare_labels
from carya.ranking import LayerProblem
from carya.trees.beam_search import BeamSearcher, to_matrix
from carya.trees.chunked_weights import of_chunked, to_chunked
from carya.trees.layer import AddedNodes
from carya.trees.trained_tree import TrainedTree

if TYPE_CHECKING:
    from carya.models.training_data import TrainingData
    from carya.models.xr_linear.model import XRLinear

#: Number of similar labels whose weights are averaged for a label without rows.
_SIMILAR_LABELS = 5
#: The bias of labels without rows and features, as in `fit`.
_BIAS_WITHOUT_ROWS = -1e4


def insert_labels(model: XRLinear, trained: TrainedTree, new: NewLabels, progress: Progress) -> TrainedTree:
    """Return the tree with additional labels; all other weights stay exactly the same."""
    threads, tree = _core.thread_count(model.n_jobs), trained.tree
    data = new.with_label_rows(tree.n_labels) if model.label_row_weight > 0 else new.data
    if data is not None:
        data = favor_rare_labels(model, data)
    matcher = _Matcher(model, trained, threads, progress)
    scores = sp.csr_array((new.count, matcher.n_clusters), dtype=np.float32)
    matched = positives = None
    if data is not None:
        matched = matcher.match(data.features)
        positives = sp.csr_array(data.labels.with_values(1).to_scipy()[:, tree.n_labels :])
        scores = sp.csr_array(positives.T @ matched.to_scipy())
    without_rows = np.flatnonzero(np.ones(new.count) if positives is None else positives.count_nonzero(axis=0) == 0)
    described = None
    if new.features is not None and without_rows.size:
        described = new.features.take(without_rows)
        own = (np.ones(without_rows.size, np.float32), (without_rows, np.arange(without_rows.size)))
        places = sp.csr_array(own, shape=(new.count, without_rows.size))
        scores = sp.csr_array(scores + places @ matcher.match(described).to_scipy())
    placement = place_labels(scores, np.bincount(tree.parents[-1]), int(model.max_leaf_size))
    if data is not None and matched is not None and without_rows.size < new.count:
        added = _train(model, trained, data, matched, placement, threads, progress)
    else:
        added = _untrained(trained, placement)
    if described is not None:
        added = _add_described(model, trained, described, without_rows, added, placement, threads)
    return trained.with_labels(placement.clusters, added, threads=threads)


class _Matcher:
    """The layers above the labels, which assign rows to clusters."""

    def __init__(self, model: XRLinear, trained: TrainedTree, threads: int, progress: Progress) -> None:
        self._progress = progress
        self._beam_width, self._threads = model.effective_training_beam_width, threads
        self._searcher = BeamSearcher(trained.layers[:-1]) if len(trained.layers) > 1 else None
        self.n_clusters = trained.tree.level_sizes[-2]

    def match(self, features: Features) -> Csr:
        """Return the clusters in the beam of each row as a (rows, clusters) matrix; the values are reciprocal ranks."""
        if self._searcher is None:  # the only cluster is the root
            indptr = np.arange(features.rows + 1, dtype=np.int64)
            return Csr.of(indptr, np.zeros(features.rows, np.int32), np.ones(features.rows, np.float32), 1)
        with self._progress.stage("match") as report:
            indptr, clusters, _ = self._searcher.predict(
                features, top_k=self._beam_width, beam_width=self._beam_width, threads=self._threads, report=report
            )
            ranks = np.arange(clusters.size) - np.repeat(indptr[:-1], np.diff(indptr))
            return to_matrix((indptr, clusters, (1 / (ranks + 1)).astype(np.float32)), self.n_clusters)


def _train(
    model: XRLinear,
    trained: TrainedTree,
    data: TrainingData,
    matched: Csr,
    placement: Placement,
    threads: int,
    progress: Progress,
) -> AddedNodes:
    """Train the rankers of the new labels; the rows of other labels in the same cluster are negatives."""
    tree = trained.tree.with_labels(placement.clusters)
    depth, n_nodes = tree.depth, trained.layers[-1].n_nodes
    costs = RelevanceCosts(model.effective_relevance, model.relevance_norm)
    targets = level_targets(data.labels, tree, costs=costs, threads=threads)
    negatives = Negatives.per_layer(model.negatives, depth)[-1]
    n_clusters, width = tree.level_sizes[-2], model.effective_training_beam_width
    sources = negatives.sources_at(depth, n_clusters=n_clusters, beam_width=width)
    shortlists = []
    if depth > 1 and sources != {"matcher"}:
        shortlists.append(targets[-2])
    if depth > 1 and "matcher" in sources:
        shortlists.append(matched)
    order, chunks = placement.order_and_chunks
    new_targets = Csr.of_scipy(sp.csr_array(targets[-1].to_scipy()[:, n_nodes:]))
    problem = LayerProblem(
        level=depth,
        seed=to_python_scalar(model.seed),
        targets=new_targets,
        shortlist=union_shortlists(shortlists, threads=threads).transpose(threads) if shortlists else None,
        order=order,
        chunks=chunks,
        transform=trained.layers[-1].transform,
        depth=depth,
    )
    solver = dataclasses.replace(model.linear_solver().at_layer(depth, depth), weight_dtype="float32")
    with progress.stage("train new labels") as report:
        solution = solver.solve_part(
            data.features,
            problem,
            new_targets.transpose(threads),
            sample_weight=data.sample_weight,
            threads=threads,
            report=report,
        )
    return AddedNodes(solution.weights, solution.biases, solution.dense)


def _add_described(
    model: XRLinear,
    trained: TrainedTree,
    rows: Features,
    described: NDArray[np.int64],
    added: AddedNodes,
    placement: Placement,
    threads: int,
) -> AddedNodes:
    """Add rankers of labels without rows: the mean ranker of similar labels, adjusted to the label's own features.

    The adjustment is a passive-aggressive step (Crammer et al. 2006): the smallest change with which the label's
    features, as a row, have a margin of at least 1.
    """
    layer, bias = trained.layers[-1], float(model.bias)
    searcher = BeamSearcher(trained.layers, leaf_labels=trained.tree.leaf_labels)
    width = int(model.beam_width)
    indptr, similar, _ = searcher.predict(rows, top_k=_SIMILAR_LABELS, beam_width=width, threads=threads)
    leaves = similar if trained.tree.leaf_labels is None else np.searchsorted(trained.tree.leaf_labels, similar)
    positions, column = np.unique(layer.positions[leaves], return_inverse=True)
    counts = np.diff(indptr)
    shares = 1 / np.repeat(np.maximum(counts, 1), counts)
    mean = sp.csr_array((shares.astype(np.float32), column, indptr), shape=(rows.rows, positions.size))
    sparse, dense = rows.sparse.to_scipy(), rows.dense
    weights = sp.csr_array(mean @ sp.csr_array(layer.unpacked(positions.astype(np.int32)).to_scipy().T))
    dense_weights, biases = mean @ layer.dense[positions], mean @ layer.biases[positions]
    scores = (weights * sparse).sum(axis=1) + (dense_weights * dense).sum(axis=1) + biases
    norms = (sparse * sparse).sum(axis=1) + (dense * dense).sum(axis=1) + bias**2
    steps = (np.maximum(0, 1 - scores) / np.maximum(norms, np.finfo(np.float32).tiny)).astype(np.float32)
    weights = sp.csr_array(weights + sp.diags_array(steps) @ sparse)
    solver = model.linear_solver().at_layer(trained.tree.depth, trained.tree.depth)
    weights.data[np.abs(weights.data) < solver.threshold] = 0
    weights.eliminate_zeros()
    ranked = np.flatnonzero(counts)  # rows without features are assigned no labels
    row_of = np.full(len(placement.clusters), -1)
    row_of[described[ranked]] = ranked
    order, chunks = placement.order_and_chunks
    rows_of_leaves = row_of[placement.leaf_labels[order]]
    own = np.flatnonzero(rows_of_leaves >= 0)  # the positions of the new leaves to which rankers are added
    source = rows_of_leaves[own]
    place = sp.csr_array((np.ones(own.size, np.float32), (source, own)), shape=(rows.rows, order.size))
    matrix = of_chunked(added.weights, chunks, trained.widths[0]) + sp.csc_array(weights.T @ place)
    new_biases, new_dense = added.biases.copy(), added.dense.copy()
    new_biases[own] = (biases + steps * bias**2)[source]
    new_dense[own] = (dense_weights + steps[:, None] * dense)[source]
    return AddedNodes(to_chunked(sp.csc_array(matrix), chunks), new_biases, new_dense)


def _untrained(trained: TrainedTree, placement: Placement) -> AddedNodes:
    """Return rankers without weights, whose labels are ranked last."""
    n_features, n_dense = trained.widths
    _, chunks = placement.order_and_chunks
    count = int(chunks[-1])
    weights = to_chunked(sp.csc_array((n_features, count), dtype=np.float32), chunks)
    return AddedNodes(weights, np.full(count, _BIAS_WITHOUT_ROWS, np.float32), np.zeros((count, n_dense), np.float32))
