"""Plan a training run: estimate its time, memory, model size and latency, on one machine or on a cluster."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from carya import _core
from carya.core.memory import format_size, parse_size
from carya.core.rules import Integer, check
from carya.data.corpus import Corpus, Matrices
from carya.errors import InputError, ParameterError
from carya.models.ensemble.model import Ensemble
from carya.models.xr_linear.matching_task import ROWS_PER_TASK
from carya.models.xr_linear.model import XRLinear
from carya.planning import cost_model
from carya.planning.cost_model import Level, StageCost
from carya.planning.pilot import Rates, measure_rates
from carya.planning.sampling import DataSample
from carya.planning.schedule import makespan
from carya.planning.sizes import DataSizes
from carya.ranking.tasks.parts import MAX_WORK
from carya.text.default_vectorizer import default_vectorizer

_TASK_SECONDS = 0.1  # for starting a task and opening the files that it shares with other tasks
_READ_BYTES_PER_SECOND = 2e8  # from shared storage, per task
_TREES_AT_ONCE = 4


@dataclass(frozen=True)
class ClusterPlan:
    """The estimated costs of training on a cluster.

    Attributes
    ----------
    nodes, cpus : int
        The number of machines, and the number of CPUs per machine.
    tasks : int
    seconds : float
    worker_bytes, driver_bytes : float
        Peak memory of each machine that runs tasks, and of the process that calls `fit`.
    network_bytes : float
        The amount of data read from and written to the shared folder.
    """

    nodes: int
    cpus: int
    tasks: int
    seconds: float
    worker_bytes: float
    driver_bytes: float
    network_bytes: float


@dataclass(frozen=True)
class Plan:
    """The estimated costs of a training run.

    Attributes
    ----------
    sizes : DataSizes
    threads, trees : int
    levels : tuple of int
        The number of nodes at each level of the tree.
    stages : tuple of StageCost
    seconds, cpu_seconds : float
        Elapsed time and CPU time of training, from reading the data to saving the model.
    peak_bytes : float
    model_bytes : float
    query_us : float
        The latency of a single query on one thread, in microseconds.
    cluster : ClusterPlan or None
    rates : Rates
        The results of the pilot run.
    warnings : tuple of str
    """

    sizes: DataSizes
    threads: int
    trees: int
    levels: tuple[int, ...]
    stages: tuple[StageCost, ...]
    model_bytes: float
    query_us: float
    cluster: ClusterPlan | None
    rates: Rates
    warnings: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """Elapsed time of training on this machine."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def cpu_seconds(self) -> float:
        """CPU time of training, summed over all threads."""
        return sum(stage.cpu_seconds for stage in self.stages)

    @property
    def peak_bytes(self) -> float:
        """Peak memory of training on this machine."""
        return max(stage.memory_bytes for stage in self.stages)

    def to_dict(self) -> dict[str, Any]:
        """Return all values as a JSON-serializable dictionary."""
        totals = {"seconds": self.seconds, "cpu_seconds": self.cpu_seconds, "peak_bytes": self.peak_bytes}
        return dataclasses.asdict(self) | totals


def plan(
    data: Matrices | Corpus | DataSample,
    model: Any = None,
    *,
    vectorizer: Any = None,
    nodes: int | None = None,
    cpus: int | None = None,
    memory: str | None = None,
    seed: int = 0,
) -> Plan:
    """Estimate the training time, peak memory, model size and latency of a model, without training it.

    A pilot run measures the costs on this machine: it trains the rankers of a few full-size clusters on a sample of the
    data, which takes a few seconds. The formulas are in ``carya/planning/cost_model.py``.

    Parameters
    ----------
    data : Matrices or Corpus
        The training data, as returned by :func:`carya.data.open_data`.
    model : XRLinear or Ensemble, optional
        The unfitted model, XRLinear() by default; the trees of an ensemble must have the same parameters.
    vectorizer : Tfidf, optional
        The unfitted vectorizer for texts; by default, the one that `carya train` uses.
    nodes, cpus : int, optional
        The number of machines in a cluster, and the number of CPUs per machine (by default, the number of threads that
        the model uses on this machine).
    memory : str, optional
        The memory of each machine, such as ``"64GB"``. The plan contains a warning if training needs more.
    seed : int
        Seed for drawing the sample.

    Examples
    --------
    >>> import carya
    >>> X, Y = carya.data.make_world(2000, 300, seed=0)
    >>> planned = carya.plan(carya.data.Matrices.of(X, Y), carya.XRLinear(n_jobs=2))
    >>> planned.levels
    (1, 3, 300)
    >>> [stage.stage for stage in planned.stages][1:3]
    ['represent labels', 'build label tree']
    """
    tree, trees = _single_tree(XRLinear() if model is None else model)
    for name, value in (("nodes", nodes), ("cpus", cpus)):
        if value is not None:
            check(name, value, Integer(1))
    if cpus is not None and nodes is None:
        raise ParameterError(
            "cpus requires nodes, the number of machines. To plan for a single machine, set the model's n_jobs instead."
        )
    available = None if memory is None else parse_size(memory)
    tree.check_parameters()
    sample = _sample(data, tree, vectorizer)
    sizes, threads = sample.sizes, _core.thread_count(tree.n_jobs)
    if tree.tree is not None and tree.tree.n_labels != sizes.labels:
        raise InputError(f"The tree has {tree.tree.n_labels} labels, but the data has {sizes.labels}.")
    level_sizes = cost_model.tree_sizes(tree, sizes.labels)
    n_clusters = level_sizes[-2]
    per_row, _ = cost_model.shortlist_size(
        tree, len(level_sizes) - 1, level_sizes, min(sizes.labels_per_row, n_clusters)
    )
    rates = measure_rates(
        sample,
        tree,
        group_size=max(round(sizes.labels / n_clusters), 1),
        rows_per_group=max(sizes.rows * per_row / n_clusters, 1.0),
        seed=seed,
    )
    together = min(trees, _TREES_AT_ONCE)
    costs, levels = cost_model.stage_costs(sizes, tree, rates, threads=threads, trees=together)
    if trees > together:
        costs = [_repeat(cost, trees / together) for cost in costs]
    costs = _with_vectorizing(costs, sample, threads)
    cluster = None if nodes is None else _plan_cluster(sizes, costs, levels, rates, trees, nodes, cpus or threads)
    planned = Plan(
        sizes=sizes,
        threads=threads,
        trees=trees,
        levels=tuple(level_sizes),
        stages=tuple(costs),
        model_bytes=cost_model.model_bytes(levels, sizes) * trees,
        query_us=cost_model.query_us(levels, sizes, rates, tree.beam_width) * trees,
        cluster=cluster,
        rates=rates,
    )
    return dataclasses.replace(planned, warnings=tuple(_warnings(planned, available)))


def _single_tree(model: Any) -> tuple[XRLinear, int]:
    if isinstance(model, XRLinear):
        if model.clusters_per_label > 1 or model.representation != "pifa":
            raise ParameterError(
                "plan supports only clusters_per_label=1 and representation='pifa', got "
                f"clusters_per_label={model.clusters_per_label} and representation={model.representation!r}."
            )
        return model, 1
    if isinstance(model, Ensemble) and isinstance(model.members, XRLinear):
        tree, _ = _single_tree(model.members)
        return tree, model.effective_n_trees
    raise ParameterError(
        "plan supports XRLinear and ensembles of trees with the same parameters, got "
        f"{type(model).__name__}. Plan the trees of the model separately."
    )


def _sample(data: Any, tree: XRLinear, vectorizer: Any) -> DataSample:
    if isinstance(data, DataSample):
        return data
    if isinstance(data, Matrices):
        return DataSample.of_matrices(data)
    if isinstance(data, Corpus):
        return DataSample.of_corpus(data, default_vectorizer(tree) if vectorizer is None else vectorizer)
    raise InputError(
        f"data must be Matrices or a Corpus, got {type(data).__name__}. Use carya.data.open_data or Matrices.of(X, Y)."
    )


def _repeat(cost: StageCost, factor: float) -> StageCost:
    if cost.stage in ("read data", "represent labels"):
        return cost
    return dataclasses.replace(cost, cpu_seconds=cost.cpu_seconds * factor, seconds=cost.seconds * factor)


def _with_vectorizing(costs: list[StageCost], sample: DataSample, threads: int) -> list[StageCost]:
    """Add the stage that converts texts to features."""
    if not sample.text_bytes:
        return costs
    cpu = sample.vectorize_seconds
    # While counting, the vectorizer keeps the term indices of all texts in memory, which take about as much space as
    # the features.
    memory = costs[0].memory_bytes + 8 * sample.sizes.feature_entries + 100 * sample.sizes.features
    return [StageCost("vectorize texts", cpu, cpu / threads, memory), *costs[1:]]


def _plan_cluster(
    sizes: DataSizes,
    costs: list[StageCost],
    levels: list[Level],
    rates: Rates,
    trees: int,
    nodes: int,
    cpus: int,
) -> ClusterPlan:
    """Schedule the tasks of a training run as the engine does: every stage waits for the previous one."""
    by_stage = {cost.stage: cost for cost in costs}
    on_driver = sum(
        by_stage[stage].seconds
        for stage in ("read data", "vectorize texts", "represent labels", "build label tree", "save")
        if stage in by_stage
    )
    row_bytes = 8 * sizes.features_per_row + 4 * sizes.dense_features + 8
    workers = nodes * cpus
    seconds, n_tasks, network, largest_rows = on_driver, 0, sizes.rows * row_bytes, 0.0
    phases: list[list[float]] = []
    inner_tasks: list[float] = []
    for level in levels:
        is_last = level is levels[-1]
        rate = rates.leaf if is_last else rates.inner
        n_parts = int(max(1, min(-(-level.work // MAX_WORK), level.parents)))
        rows = level.rows_per_parent * level.parents / n_parts
        read = rows * row_bytes
        largest_rows = max(largest_rows, level.rows_per_parent)
        duration = 1e-9 * rate.ns * level.work / n_parts + read / _READ_BYTES_PER_SECOND + _TASK_SECONDS
        network += trees * (n_parts * read + 1.5 * level.bytes)
        if level.is_matched:
            n_match = -(-sizes.rows // ROWS_PER_TASK)
            matching = by_stage["match"].cpu_seconds / n_match
            phases += [inner_tasks, [matching + ROWS_PER_TASK * row_bytes / _READ_BYTES_PER_SECOND] * n_match]
            network += sizes.rows * row_bytes * trees
            inner_tasks = []
        inner_tasks += [duration] * (n_parts * trees)
    phases.append(inner_tasks)
    for durations in phases:
        seconds += makespan(sorted(durations, reverse=True), workers)
        n_tasks += len(durations)
    last = levels[-1]
    local = largest_rows * (10.8 * sizes.features_per_row + 100) + 144 * sizes.features
    driver = max(by_stage[stage].memory_bytes for stage in ("build label tree", "match"))
    driver = max(driver, by_stage["match"].memory_bytes + 2.1 * last.bytes * trees)
    return ClusterPlan(nodes, cpus, n_tasks, seconds, cpus * (60e6 + local), driver, network)


def _warnings(planned: Plan, memory: int | None) -> list[str]:
    messages = []
    if planned.cluster is None:
        if memory is not None and planned.peak_bytes > memory:
            messages.append(
                f"Training needs about {format_size(planned.peak_bytes)} of memory, but {format_size(memory)} is "
                "available. Use fewer features per row, a higher threshold, or a machine with more memory."
            )
        return messages
    if memory is not None:
        for name, needed in (("worker", planned.cluster.worker_bytes), ("driver", planned.cluster.driver_bytes)):
            if needed > memory:
                messages.append(
                    f"A {name} needs about {format_size(needed)} of memory, but {format_size(memory)} is available."
                )
    return messages
