"""Cost model: estimate the cost of each training stage from the sizes of the data and the rates of a pilot run.

Notation: n rows with f features and k labels each; L labels and d features in total; T threads. The tree has K₀ = 1,
K₁, …, K_D = L nodes per level, and level t has c_t = K_t / K_t-1 children per parent. q(K) is the mean number of
clusters, out of K, that contain at least one label of a row, and b is the beam width of the matcher.

========================  ===================================================================  =====================
stage                     CPU time                                                             unit cost
========================  ===================================================================  =====================
read                      n (f + k)                                                            constant
represent labels          Σ_labels min(rows of the label, 128) · f                             pilot: `represent_ns`
build label tree          L · entries per label · log₂ K_D-1                                   pilot: `tree_ns`
train layers 1 … D - 1    n · u_t · f · ⌈c_t / 16⌉ · 16, with u_t = q(K_t-1) parents per row   pilot: `inner.ns`
match                     n · (search of layers 1 … D - 1, as below, and sorting)              pilot: `inner_search`
train layer D             as above; u_D is the size of the union of q(K_D-1) and b clusters    pilot: `leaf.ns`
save                      bytes of the model                                                   constant
========================  ===================================================================  =====================

A training row is visited once for each cluster in its shortlist, and each visit reads its f features for all children
of the cluster, in blocks of 16. The union of the q clusters of a row's own labels and the b clusters in its beam has
about (q⁴ + b⁴)^¼ elements, which is close to the larger of the two numbers unless they are about equal.

The pilot run measures the number of weights per label on full-size clusters. The number of weights of an inner node
grows as a power of the number of its positive rows, up to d; the pilot run also measures the exponent. The more
clusters a layer has, the more bytes each cluster index takes. The training rows of parents near the root do not fit in
the cache, which slows down the solver.

A search visits b parents per level. Each feature of the query takes a constant time per level plus a constant time per
block of 16 children; these times grow with the logarithm of the layer's size once the layer exceeds the cache.

The memory of a stage is the total size of the data structures that exist at the same time; `_Memory` lists them. The
stage that requires the most memory determines the peak.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carya.indexing import clustering
from carya.matching import Negatives
from carya.planning.sizes import DataSizes

if TYPE_CHECKING:
    from carya.models.xr_linear.model import XRLinear
    from carya.planning.pilot import Rates

#: The stages, in the order in which they run.
STAGES = (
    "read data",
    "represent labels",
    "build label tree",
    "train inner layers",
    "match",
    "train last layer",
    "save",
)

_LANES = 16
_MAX_LABEL_ROWS = 128
# CPU nanoseconds for reading an entry of X or Y, sorting a candidate, and saving a byte.
_READ_NS, _SORT_NS, _SAVE_NS = 15.0, 150.0, 2.0
# Search: nanoseconds per feature and layer, and per feature and block of 16 children; only their ratio matters.
_FEATURE_NS, _CHILDREN_NS = 18.0, 4.0
_CACHE_BYTES, _CACHE_GROWTH, _MAX_CACHE_FACTOR = 2e6, 0.25, 2.5
_LOCAL_GROWTH, _MAX_LOCAL_FACTOR = 0.3, 3.0
_PROCESS_BYTES = 60e6  # Python with NumPy, SciPy and Carya loaded
_START_BYTES = 64 / 28  # per feature and layer
# Memory while a layer is packed and afterward, relative to the size of the packed layer. The memory of the trained
# weights is released during packing if the layer is large; otherwise, the allocator retains it.
_LARGE_LAYER_BYTES = 2e8
_PACKING, _PACKED = 2.1, 2.1
_PACKING_LARGE, _PACKED_LARGE = 1.7, 1.1


@dataclass(frozen=True)
class Level:
    """A tree layer to be trained.

    Attributes
    ----------
    parents, nodes : int
    rows_per_parent : float
        The number of rows on which the rankers of a parent's children are trained.
    work : float
        Nonzeros x children, summed over all parents; the number of children is rounded up to a multiple of 16.
    weights, bytes : float
        The number of weights, and their total size in the model in bytes.
    is_matched : bool
        Whether a matcher selects the training rows.
    """

    parents: int
    nodes: int
    rows_per_parent: float
    work: float
    weights: float
    bytes: float
    is_matched: bool


@dataclass(frozen=True)
class StageCost:
    """The estimated costs of a stage.

    Attributes
    ----------
    stage : str
    cpu_seconds : float
        CPU time, summed over all threads.
    seconds : float
        Elapsed time.
    memory_bytes : float
        The peak memory during the stage.
    """

    stage: str
    cpu_seconds: float
    seconds: float
    memory_bytes: float


def tree_sizes(model: XRLinear, n_labels: int) -> list[int]:
    """Return the number of nodes at each level, K₀ … K_D.

    >>> import carya
    >>> tree_sizes(carya.XRLinear(), 670_091)
    [1, 7, 224, 7168, 670091]
    """
    if model.tree is not None:
        return list(model.tree.level_sizes)
    sizes = [1]
    for branching in clustering.plan(n_labels, model.branching, model.max_leaf_size, model.max_depth):
        sizes.append(min(sizes[-1] * branching, n_labels))
    return [*sizes, n_labels]


def union_size(own: float, beam: float, n_clusters: float) -> float:
    """Estimate the size of the union of a row's own clusters and the clusters in its beam.

    >>> round(union_size(4, 10, 1000), 1), round(union_size(20, 10, 1000), 1)
    (10.1, 20.3)
    """
    return float(min((own**4 + beam**4) ** 0.25, n_clusters))


def shortlist_size(model: XRLinear, level: int, tree: Sequence[int], own: float) -> tuple[float, bool]:
    """Return the mean number of parents in a row's shortlist, and whether a matcher selects them."""
    if level == 1:
        return 1.0, False
    beam, n_clusters = model.effective_training_beam_width, tree[level - 1]
    negatives = Negatives.per_layer(model.negatives, len(tree) - 1)[level - 1]
    sources = negatives.sources_at(level, n_clusters=n_clusters, beam_width=beam)
    if "matcher" not in sources:
        return (own if "given" not in sources else union_size(own, beam, n_clusters)), False
    return (min(beam, n_clusters) if sources == {"matcher"} else union_size(own, beam, n_clusters)), True


def train_levels(sizes: DataSizes, model: XRLinear, rates: Rates) -> list[Level]:
    """Return the layers to be trained, from the root down."""
    tree = tree_sizes(model, sizes.labels)
    row_work = sizes.features_per_row + sizes.dense_features
    levels = []
    for level in range(1, len(tree)):
        parents, nodes = tree[level - 1 : level + 1]
        per_row, is_matched = shortlist_size(model, level, tree, rates.clusters_per_row(sizes, parents))
        rows = sizes.rows * per_row / parents
        rate = rates.leaf if level == len(tree) - 1 else rates.inner
        positives = sizes.rows * rates.clusters_per_row(sizes, nodes) / nodes
        weights = nodes * rate.weights_at(positives, sizes.features)
        blocks = math.ceil(nodes / parents / _LANES) * _LANES
        work = parents * rows * row_work * blocks
        levels.append(Level(parents, nodes, rows, work, weights, weights * rate.bytes_at(parents), is_matched))
    return levels


def layer_search_us(level: Level, sizes: DataSizes, rates: Rates, beam_width: int, *, is_last: bool) -> float:
    """Return the CPU time for searching one layer for one query, in microseconds."""
    if is_last:
        return rates.leaf_search_us * _cache_factor(level.bytes) / _cache_factor(rates.leaf_bytes)
    visited = min(beam_width, level.parents) * level.nodes / level.parents
    pilot = _FEATURE_NS + _CHILDREN_NS * rates.inner_nodes / _LANES
    relative = (_FEATURE_NS + _CHILDREN_NS * visited / _LANES) / pilot
    return rates.inner_search_us * relative * _cache_factor(level.bytes)


def _cache_factor(n_bytes: float) -> float:
    return min(1 + _CACHE_GROWTH * max(math.log2(max(n_bytes, 1) / _CACHE_BYTES), 0.0), _MAX_CACHE_FACTOR)


def _local_factor(relative_rows: float) -> float:
    """Return the factor by which the solver slows down if a parent has more rows than in the pilot run."""
    return min(1 + _LOCAL_GROWTH * max(math.log2(max(relative_rows, 1e-9)), 0.0), _MAX_LOCAL_FACTOR)


def query_us(levels: Sequence[Level], sizes: DataSizes, rates: Rates, beam_width: int) -> float:
    """Return the CPU time of a single query, in microseconds."""
    layers = sum(layer_search_us(level, sizes, rates, beam_width, is_last=level is levels[-1]) for level in levels)
    return rates.query_us + layers


def model_bytes(levels: Sequence[Level], sizes: DataSizes) -> float:
    """Return the size of the saved model: weights, biases, the tree and checksums."""
    nodes = sum(level.nodes for level in levels)
    starts = _START_BYTES * sizes.features * len(levels)
    return sum(level.bytes for level in levels) + starts + nodes * (12 + 4 * sizes.dense_features) + 5e4


def stage_costs(
    sizes: DataSizes, model: XRLinear, rates: Rates, *, threads: int, trees: int = 1
) -> tuple[list[StageCost], list[Level]]:
    """Return the estimated costs of all stages, and the layers of one tree.

    Parameters
    ----------
    trees : int
        The number of trees in an ensemble, all of which are trained together.
    """
    levels = train_levels(sizes, model, rates)
    inner, last = levels[:-1], levels[-1]
    n_clusters = last.parents
    added = min(sizes.label_entries, sizes.labels * _MAX_LABEL_ROWS) * rates.capped_share
    row_work = sizes.features_per_row + sizes.dense_features
    is_built = model.tree is None and model.clustering != "random" and len(levels) > 1
    matched = [number for number, level in enumerate(levels) if level.is_matched]
    match_us = sum(
        layer_search_us(level, sizes, rates, model.effective_training_beam_width, is_last=False)
        for number in matched
        for level in levels[:number]
    )
    sorting = 1e-9 * _SORT_NS * sizes.rows * model.effective_training_beam_width * len(matched)
    saved = model_bytes(levels, sizes)
    cpu = {
        "read data": 0.1 + 1e-9 * _READ_NS * (sizes.feature_entries + sizes.label_entries),
        "represent labels": 1e-9 * rates.represent_ns * added * row_work * is_built,
        "build label tree": 1e-9
        * rates.tree_ns
        * sizes.labels
        * rates.entries_per_label
        * is_built
        * trees
        * math.log2(max(n_clusters, 2)),
        "train inner layers": 1e-9
        * rates.inner.ns
        * sum(level.work * _local_factor(level.rows_per_parent / rates.inner.rows) for level in inner)
        * trees,
        "match": (1e-6 * match_us * sizes.rows + sorting) * trees,
        "train last layer": 1e-9 * rates.leaf.ns * last.work * trees,
        "save": 1e-9 * _SAVE_NS * saved * trees,
    }
    serial = {"read data": cpu["read data"], "match": sorting * trees, "save": cpu["save"]}
    memory = _Memory(sizes, rates, levels, threads, trees)
    peaks = {
        "read data": memory.data,
        "represent labels": memory.data + memory.representations if is_built else memory.data,
        "build label tree": memory.data + 1.3 * memory.representations if is_built else memory.data,
        "train inner layers": memory.prepared + memory.local_rows(inner) if inner else memory.prepared,
        "match": memory.prepared + memory.matching * bool(matched),
        "train last layer": memory.prepared + memory.shortlist + memory.last_layer,
        "save": memory.prepared + memory.shortlist + memory.packed,
    }
    costs = [
        StageCost(
            stage, cpu[stage], serial.get(stage, 0.0) + (cpu[stage] - serial.get(stage, 0.0)) / threads, peaks[stage]
        )
        for stage in STAGES
    ]
    return costs, levels


class _Memory:
    """Sizes of the data structures in bytes."""

    def __init__(self, sizes: DataSizes, rates: Rates, levels: Sequence[Level], threads: int, trees: int) -> None:
        self._sizes, self._levels, self._threads, self._trees = sizes, levels, threads, trees
        own = [rates.clusters_per_row(sizes, level.nodes) for level in levels[:-1]]
        # X and Y in CSR format: 4 bytes per index and per value, and 12 bytes of offsets per row. Y has an additional
        # array of values, which are all 1.
        self.data = (
            _PROCESS_BYTES
            + 8 * sizes.feature_entries
            + 4 * sizes.rows * sizes.dense_features
            + 12 * sizes.label_entries
            + 24 * sizes.rows
        )
        # Label representations: 4 bytes per index and per value. Building the tree copies only some of them at a time.
        self.representations = 8 * sizes.labels * rates.entries_per_label + 8 * sizes.label_entries
        # The targets of all rows at every level, the trained inner layers, and freed memory that the allocator retains.
        targets = sum(8 * sizes.rows * count + 8 * sizes.rows for count in [*own, sizes.labels_per_row])
        retained = sizes.labels * rates.entries_per_label + 0.8 * sizes.feature_entries
        self.prepared = (
            self.data + (targets + sum(level.bytes for level in levels[:-1])) * trees + retained * (len(levels) > 1)
        )
        per_row = levels[-1].rows_per_parent * levels[-1].parents / sizes.rows
        # The shortlist, stored both by row and by parent; during matching, also the order of the candidates.
        self.shortlist = 16 * sizes.rows * per_row * trees if len(levels) > 1 else 0.0
        self.matching = 40 * sizes.rows * per_row

    def local_rows(self, levels: Sequence[Level]) -> float:
        """Return the size of the copies of training rows for the largest problems that are solved at the same time."""
        # Large problems are solved first; the problem of a root with more than 16 children is divided among all
        # threads, which share its rows.
        problems: list[float] = []
        for level in levels:
            problems += [level.rows_per_parent] * min(level.parents, self._threads)
        if levels[0].parents == 1 and levels[0].nodes > _LANES:
            largest = max(problems[0], sum(sorted(problems[1:], reverse=True)[: self._threads]))
        else:
            largest = sum(sorted(problems, reverse=True)[: self._threads])
        sizes = self._sizes
        per_row = 10.8 * sizes.features_per_row + 100  # indices, values and, per row, dual variables of 16 nodes
        return largest * per_row + 80 * self._threads * sizes.features

    @property
    def packed(self) -> float:
        """The size of the packed last layer and of the freed memory that the allocator retains."""
        n_bytes = self._levels[-1].bytes
        return n_bytes * (_PACKED_LARGE if n_bytes > _LARGE_LAYER_BYTES else _PACKED) * self._trees

    @property
    def last_layer(self) -> float:
        """The total size of the solver's copies of rows, the trained weights of each parent, and the packed weights."""
        last, sizes = self._levels[-1], self._sizes
        n_local = min(self._threads, last.parents)
        features = min(sizes.features, last.rows_per_parent * sizes.features_per_row)
        return (
            last.bytes * (_PACKING_LARGE if last.bytes > _LARGE_LAYER_BYTES else _PACKING) * self._trees
            + n_local * last.rows_per_parent * (16 * sizes.features_per_row + 100)
            + 128 * n_local * features
            + 4 * last.nodes * sizes.dense_features
        )
