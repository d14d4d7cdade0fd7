"""Choose the memory layout of a layer's weights with which the search is fastest.

Models are saved in the ``packed`` layout, which the search reads directly from the memory-mapped file. Other layouts
(section 3.1 of the paper) are built when a model is loaded. Which layout is fastest depends on the number of features
per query, the number of weights per feature and per label, and the number of clusters in the beam. The constants below
were measured with ``benchmarks/run_layouts.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from carya.trees.layer import Layer

#: The packed layout and the four layouts from the paper.
LAYOUTS = ("packed", "by-label", "by-feature", "hash", "search")

#: Assumed number of features per query, as in a short text, if the training rows are unknown.
TYPICAL_FEATURES = 50.0

# Other layouts are used only if the search is at least this many times as fast as with the packed layout, because
# building them takes time and memory.
_MIN_SPEEDUP = 2.0
# Layers with more weights always use the packed layout, because other layouts take about 30 bytes per weight.
_MAX_WEIGHTS = 100_000_000
# Time per operation, in nanoseconds. In the packed layout, the clusters in the beam are found in a feature's block
# either by scanning all of its clusters or by looking up each cluster in the beam, whichever is faster.
_FEATURE, _BLOCK, _SCANNED_CHUNK, _LOOKUP, _PACKED_ADD = 6.0, 60.0, 0.3, 20.0, 0.6
_LABEL_ADD, _SPREAD_FEATURE = 1.9, 5.0
_HASH_PROBE, _SEARCH_STEP, _ADD = 100.0, 11.0, 1.2


@dataclass(frozen=True)
class LayoutChoice:
    """Layout of a layer, and the reason for choosing it.

    Attributes
    ----------
    layout : str
    reason : str
        A human-readable reason for the choice.
    costs : dict of str to float
        The estimated time per query on this layer for each layout, in nanoseconds.
    """

    layout: str
    reason: str
    costs: dict[str, float]


def choose_layout(layer: Layer, *, beam_width: int, query_features: float = TYPICAL_FEATURES) -> LayoutChoice:
    """Choose the layout of a layer.

    Parameters
    ----------
    query_features : float
        The mean number of sparse features per query.
    """
    clusters, nodes = layer.chunks.size - 1, max(layer.n_nodes, 1)
    weights, used = layer.weights.n_weights, max(layer.weights.n_used, 1)
    visited = min(beam_width, clusters)  # number of clusters searched per query
    effective = query_features * used / max(layer.weights.n_features, 1)  # number of query features with weights
    per_feature = weights / used
    adds = effective * per_feature * visited / clusters
    per_cluster = max(weights / clusters, 2.0)
    find_chunks = min(_SCANNED_CHUNK * min(per_feature, clusters), _LOOKUP * visited)
    costs = {
        "packed": query_features * _FEATURE + effective * (_BLOCK + find_chunks) + adds * _PACKED_ADD,
        "by-label": query_features * _SPREAD_FEATURE + visited / clusters * weights * _LABEL_ADD,
        "by-feature": query_features * _FEATURE
        + effective * (_BLOCK + visited * _SEARCH_STEP * math.log2(per_feature + 2))
        + adds * _ADD,
        "hash": query_features * visited * _HASH_PROBE + adds * _ADD,
        "search": query_features * visited * _SEARCH_STEP * math.log2(per_cluster) + adds * _ADD,
    }
    best = min(LAYOUTS, key=lambda name: costs[name])
    details = (
        f"{visited} of {clusters:,} clusters, {query_features:.0f} features per query, {per_feature:.1f} weights per "
        f"feature, {weights / nodes:.1f} weights per node"
    )
    if weights > _MAX_WEIGHTS:
        return LayoutChoice("packed", f"other layouts would take too much memory ({details})", costs)
    if best == "packed" or costs["packed"] < _MIN_SPEEDUP * costs[best]:
        other = min((name for name in LAYOUTS if name != "packed"), key=lambda name: costs[name])
        if best == "packed":
            reason = f"fastest; {other} would take {costs[other] / max(costs[best], 1e-9):.1f} times as long"
        else:
            speedup = costs["packed"] / costs[other]
            reason = (
                f"{other} would be {speedup:.1f} times as fast, but must be {_MIN_SPEEDUP:g} times as fast to pay off"
            )
        return LayoutChoice("packed", f"{reason} ({details})", costs)
    return LayoutChoice(best, f"{costs['packed'] / costs[best]:.1f} times as fast as packed ({details})", costs)
