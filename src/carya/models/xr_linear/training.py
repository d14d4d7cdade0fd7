"""Train XR-Linear models (algorithm 2 in the paper): every layer is the matcher for the next one.

The training of a tree is implemented as a generator, which yields the layer problems to be solved next, receives the
trained layers, and returns the trained tree. Several trees can therefore be trained concurrently (:func:`train_trees`),
and the problems that are ready at the same time form one task pool.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

from carya import _core
from carya.core import validation
from carya.core.matrices import Csr, Features
from carya.core.memory import check_required, limit_memory
from carya.core.parameters import read_settings
from carya.core.progress import Progress, Report, show_progress
from carya.core.rules import expand_per_layer, to_python_scalar
from carya.errors import InputError, ParameterError
from carya.indexing import Indexer, RepresentationCache
from carya.indexing.representations import aggregate
from carya.matching import (
    Negatives,
    RelevanceCosts,
    add_leaves,
    check_shortlist,
    level_targets,
    restrict_targets,
    union_shortlists,
)
from carya.models.restriction import concatenate
from carya.models.xr_linear.matching_task import ROWS_PER_TASK, MatchRows, store_matcher
from carya.models.xr_linear.rare_labels import add_label_rows, weight_rare_labels
from carya.models.xr_linear.representation_task import concatenate_vectors, divide_labels
from carya.ranking import LayerProblem
from carya.ranking.tasks.checkpoint_folder import CheckpointFolder, csr_arrays, csr_of_arrays, fingerprint
from carya.ranking.tasks.solve_part import StoredData, store_data, train_layers
from carya.trees.beam_search import BeamSearcher
from carya.trees.label_tree import LabelTree
from carya.trees.layer import Layer
from carya.trees.trained_tree import TrainedTree
from carya.trees.transforms import Transform

if TYPE_CHECKING:
    from carya.models.training_data import TrainingData
    from carya.models.xr_linear.model import XRLinear

_MAX_LANES = 16  # number of labels whose rankers each thread trains at the same time
_FLOAT_BYTES = 4

T = TypeVar("T")
#: Generator that yields layer problems, receives trained layers, and returns a result.
TrainingSteps = Generator[list[LayerProblem], list[Layer], T]


def train_trees(
    models: Sequence[XRLinear], data: TrainingData, *, cache: RepresentationCache | None = None
) -> list[TrainedTree]:
    """Train the trees of several models concurrently on the same rows.

    Parameters
    ----------
    models : sequence of XRLinear
        The models; their solver settings, `relevance`, `tail_weight`, `label_row_weight`, `n_jobs`, `verbose`,
        `checkpoint_dir` and `memory` must be equal.
    data : TrainingData
    cache : dict, optional
        Label representations shared by trees on the same data.
    """
    first = models[0]
    data = favor_rare_labels(first, data)
    solver, threads = first.linear_solver(), _core.thread_count(first.n_jobs)
    suffix = "" if len(models) == 1 else f", {len(models)} trees"
    trained: dict[int, TrainedTree] = {}
    checkpoints = None if first.checkpoint_dir is None else CheckpointFolder(first.checkpoint_dir)
    if data.engine is not None and checkpoints is None:
        raise ParameterError("engine requires checkpoint_dir, a folder that all machines share.")
    data_key = "" if checkpoints is None else _fingerprint_of(data)
    with limit_memory(first.memory), show_progress(first.verbose) as progress:
        _check_memory(data.features, threads)
        trainings = [_TreeTraining(model, data, threads, progress, checkpoints, data_key) for model in models]
        steps = [training.steps(cache) for training in trainings]
        received: dict[int, list[Layer] | None] = dict.fromkeys(range(len(models)))
        while received:
            requested: dict[int, list[LayerProblem]] = {}
            for number, layers in received.items():
                try:
                    requested[number] = next(steps[number]) if layers is None else steps[number].send(layers)
                except StopIteration as end:
                    trained[number] = end.value
            problems = [problem for request in requested.values() for problem in request]
            if problems:
                with progress.stage(f"train {_name_levels(problems)}{suffix}") as report:
                    shared: dict[str, Any] = {"checkpoints": checkpoints, "data_key": data_key, "threads": threads}
                    if data.engine is None:
                        solved = solver.train(
                            data.features, problems, sample_weight=data.sample_weight, report=report, **shared
                        )
                    else:
                        stored = StoredData(data.features, data.sample_weight)
                        solved = train_layers(solver, stored, problems, engine=data.engine, report=report, **shared)
            received = {number: [solved.pop(0) for _ in request] for number, request in requested.items()}
    return [trained[number] for number in range(len(models))]


def favor_rare_labels(model: XRLinear, data: TrainingData) -> TrainingData:
    """Return the data with the costs that result from `tail_weight` and the rows added for `label_row_weight`."""
    if model.tail_weight > 0:
        data = weight_rare_labels(data, float(model.tail_weight), use_values=model.relevance != "none")
    return add_label_rows(data, float(model.label_row_weight)) if model.label_row_weight > 0 else data


def _check_memory(features: Features, threads: int) -> None:
    """Raise ParameterError if the memory limit is too low for the arrays that the threads use."""
    sparse, dense = features.widths
    solver = threads * _MAX_LANES * _FLOAT_BYTES * (sparse + dense + 3 * features.rows)
    indexing = threads * 4 * _FLOAT_BYTES * (sparse + dense)
    check_required(solver + indexing, {f"the arrays of {threads} threads": solver + indexing})


def _name_levels(problems: Sequence[LayerProblem]) -> str:
    levels = sorted({problem.level for problem in problems})
    return f"layer {levels[0]}" if len(levels) == 1 else f"layers {levels[0]}–{levels[-1]}"


class _TreeTraining:
    """Training run for one tree."""

    def __init__(
        self,
        model: XRLinear,
        data: TrainingData,
        threads: int,
        progress: Progress,
        checkpoints: CheckpointFolder | None,
        data_key: str,
    ) -> None:
        self._model, self._data, self._threads, self._progress = model, data, threads, progress
        self._checkpoints, self._data_key = checkpoints, data_key
        self._beam_width = model.effective_training_beam_width
        self._costs = RelevanceCosts(model.effective_relevance, model.relevance_norm)

    def steps(self, cache: RepresentationCache | None) -> TrainingSteps[TrainedTree]:
        """Build the tree and train its layers.

        With several clusters per label, a matcher is trained first on the tree without its last level; each label then
        receives additional leaves in the clusters that the matcher assigns to its rows, and finally all layers are
        trained on the extended tree.
        """
        features, labels = self._data.features, self._data.labels
        shortlist = check_shortlist(self._data.shortlist, labels, self._model.negatives)
        _check_overlap(self._model)
        tree = self._build_tree(cache)
        assigned = None
        if self._model.clusters_per_label > 1 and tree.depth > 1 and tree.leaf_labels is None:
            to_cluster, n_clusters = tree.parents[-1], tree.level_sizes[-2]
            matcher = yield from self._train_layers(
                LabelTree(tree.parents[:-1]),
                labels.merge_columns(to_cluster, n_clusters),
                None if shortlist is None else shortlist.merge_columns(to_cluster, n_clusters),
                depth=tree.depth,
            )
            matched = self._match(tree, matcher, "match for overlapping clusters")
            tree, assigned = add_leaves(
                tree,
                labels,
                matched,
                clusters_per_label=self._model.clusters_per_label,
                sample_weight=self._data.sample_weight,
            )
        layers = yield from self._train_layers(tree, labels, shortlist, assigned=assigned, depth=tree.depth)
        return TrainedTree(tree, layers, features.widths, features.sparse.values.size / features.rows)

    def _build_tree(self, cache: RepresentationCache | None) -> LabelTree:
        model, data = self._model, self._data
        tree = data.tree if model.tree is None else model.tree
        if tree is not None:
            unused = ("label_graph",) if model.label_row_weight > 0 else ("label_features", "label_graph")
            for name in unused:
                if getattr(data, name) is not None:
                    raise InputError(
                        f"{name} cannot be combined with a tree, because it applies only if a tree is built. Omit it."
                    )
            if tree.n_labels != data.labels.cols:
                raise InputError(f"The tree has {tree.n_labels} labels, but Y has {data.labels.cols}.")
            return tree
        indexer = read_settings(Indexer, model)
        if self._checkpoints is None:
            return self._cluster(indexer, cache)
        inputs = [self._data_key, *(repr(value) for value in dataclasses.astuple(indexer)), model.relevance]
        arrays = self._checkpoints.get_or_compute(
            "label-tree", inputs, lambda: _tree_to_arrays(self._cluster(indexer, cache))
        )
        return LabelTree([arrays[str(level)] for level in range(len(arrays))])

    def _cluster(self, indexer: Indexer, cache: RepresentationCache | None) -> LabelTree:
        model, data = self._model, self._data
        # Label features that are used only as training rows do not influence the tree.
        for_rows_only = model.label_row_weight > 0 and not model.needs_label_features
        label_features = None if for_rows_only else data.label_features
        return indexer.build(
            data.features,
            data.labels if model.relevance != "none" else data.labels.with_values(1),
            label_features,
            label_graph=data.label_graph,
            sample_weight=data.sample_weight,
            threads=self._threads,
            progress=self._progress,
            cache=cache,
            aggregator=None if data.engine is None else self._aggregate_by_engine,
        )

    def _aggregate_by_engine(self, labels: Csr, *, keep: float | None, for_group: bool, report: Report) -> Features:
        """Compute the PIFA representation; each task aggregates the rows of a range of labels."""
        data, checkpoints = self._data, self._checkpoints
        assert checkpoints is not None  # checked in train_trees
        assert data.engine is not None
        positives = labels.transpose(self._threads)
        tasks = divide_labels(data.features, positives, checkpoints, self._data_key, keep=keep, for_group=for_group)
        if len(tasks) == 1:
            return aggregate(
                data.features, positives, keep=keep, for_group=for_group, threads=self._threads, report=report
            )
        store_data(checkpoints, self._data_key, StoredData(data.features, data.sample_weight))
        data.engine.run([task for task in tasks if not task.is_done()], report)
        return concatenate_vectors([task.result() for task in tasks], data.features.sparse.cols)

    def _train_layers(
        self, tree: LabelTree, labels: Csr, shortlist: Csr | None, *, assigned: Csr | None = None, depth: int
    ) -> TrainingSteps[list[Layer]]:
        """Train the layers of a tree, from the root down.

        A layer with matcher negatives requires the trained layers above it; all other layers are requested together,
        which keeps every thread busy while the few large problems near the root are solved.

        Parameters
        ----------
        labels : Csr, rows x labels of this tree
        shortlist : Csr, rows x labels, or None
            The user-supplied shortlist, for layers whose negatives use it.
        assigned : Csr, rows x leaves, or None
            If clusters overlap, the leaf to which each (row, label) entry is assigned; None means all leaves.
        depth : int
            The depth of the complete tree, used to expand per-layer parameters.
        """
        model = self._model
        negatives = Negatives.per_layer(model.negatives, depth)
        transforms = [
            Transform.from_name(name) for name in expand_per_layer(model.effective_transform, depth, "transform")
        ]
        targets = level_targets(labels, tree, costs=self._costs, assigned=assigned, threads=self._threads)
        shortlist_targets = [] if shortlist is None else level_targets(shortlist, tree, threads=self._threads)
        layers: list[Layer] = []
        pending: list[LayerProblem] = []
        for level in range(1, tree.depth + 1):
            sources = negatives[level - 1].sources_at(
                level, n_clusters=tree.level_sizes[level - 1], beam_width=self._beam_width
            )
            shortlists = []
            if "teacher" in sources:
                shortlists.append(targets[level - 2])
            if "given" in sources:
                shortlists.append(shortlist_targets[level - 2])
            if "matcher" in sources:
                if pending:
                    layers += yield pending
                    pending = []
                shortlists.append(self._match(tree, layers, f"match for layer {level}"))
            combined = union_shortlists(shortlists, threads=self._threads) if shortlists else None
            layer_targets = targets[level - 1]
            if level == tree.depth and assigned is not None and combined is not None:
                layer_targets = restrict_targets(layer_targets, tree.parents[-1], combined)
            order, chunks = tree.children(level)
            pending.append(
                LayerProblem(
                    level=level,
                    seed=to_python_scalar(model.seed),
                    targets=layer_targets,
                    shortlist=None if combined is None else combined.transpose(self._threads),
                    order=order,
                    chunks=chunks,
                    transform=transforms[level - 1],
                    depth=depth,
                )
            )
        return layers + (yield pending)

    def _match(self, tree: LabelTree, layers: Sequence[Layer], stage: str) -> Csr:
        """Return the clusters in each training row's beam as a (rows, clusters) matrix."""

        def search() -> Csr:
            with self._progress.stage(stage) as report:
                return BeamSearcher(layers).shortlist(
                    self._data.features, beam_width=self._beam_width, threads=self._threads, report=report
                )

        if self._checkpoints is None:
            return search()
        inputs = [self._data_key, self._beam_width, *(part for layer in layers for part in _parts_of_layer(layer))]
        if self._data.engine is not None:
            return self._match_by_engine(tree, layers, stage, fingerprint(inputs))
        arrays = self._checkpoints.get_or_compute("shortlist", inputs, lambda: csr_arrays(search()))
        return csr_of_arrays(arrays, layers[-1].n_nodes, "The shortlist")

    def _match_by_engine(self, tree: LabelTree, layers: Sequence[Layer], stage: str, key: str) -> Csr:
        """Return the same matrix as :meth:`_match`, computed by tasks that match blocks of rows."""
        data, checkpoints = self._data, self._checkpoints
        assert checkpoints is not None  # checked in train_trees
        assert data.engine is not None
        store_data(checkpoints, self._data_key, StoredData(data.features, data.sample_weight))
        trained = TrainedTree(LabelTree(tree.parents[: len(layers)]), list(layers), data.features.widths, 0.0)
        store_matcher(checkpoints, key, trained)
        tasks = [
            MatchRows(str(checkpoints.path.absolute()), self._data_key, key, first, self._beam_width)
            for first in range(0, data.features.rows, ROWS_PER_TASK)
        ]
        with self._progress.stage(stage) as report:
            data.engine.run([task for task in tasks if not task.is_done()], report)
        return Csr.of(*concatenate([task.result() for task in tasks]), layers[-1].n_nodes, "The shortlist")


def _fingerprint_of(data: TrainingData) -> str:
    """Return a hash of all training data."""
    optional = [
        None if matrix is None else check(matrix, name)
        for matrix, name, check in (
            (data.label_features, "label_features", validation.check_features),
            (data.label_graph, "label_graph", validation.check_labels),
        )
    ]
    return fingerprint([data.features, data.labels, data.sample_weight, *optional])


def _tree_to_arrays(tree: LabelTree) -> dict[str, NDArray[Any]]:
    return {str(level): parents for level, parents in enumerate(tree.parents)}


def _parts_of_layer(layer: Layer) -> list[object]:
    """Return all values on which the scores of a layer depend."""
    weights = layer.weights
    arrays = (weights.starts, weights.data, weights.scales, layer.dense, layer.biases, layer.chunks, layer.order)
    return [*arrays, weights.dtype, layer.transform.name]


def _check_overlap(model: XRLinear) -> None:
    """Raise ParameterError unless the matcher's scores are between 0 and 1, as overlapping clusters require."""
    if model.clusters_per_label == 1:
        return
    inner = expand_per_layer(model.effective_transform, 2, "transform")[0]
    if not Transform.from_name(inner).is_multiplicative:
        raise ParameterError(
            f"clusters_per_label={model.clusters_per_label} requires the transform of the inner layers to be 'sigmoid' "
            f"or 'l<p>-hinge', got transform={model.transform!r}."
        )
