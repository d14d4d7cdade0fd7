"""Which way of keeping a layer's weights searches it fastest.

``packed`` is how models are saved: it is searched straight from the mapped file and takes no memory of its own. The
others (the paper's, section 3.1) are built from it when a model is opened. Which one wins depends on how many features
a query has, how many weights a feature and a label have, and how many clusters the beam holds; the constants below were
measured with ``benchmarks/run_layouts.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from carya.trees.layer import Layer

#: How weights can be kept while searching: the paper's four ways behind the one models are saved in.
LAYOUTS = ("packed", "by-label", "by-feature", "hash", "search")

#: Features of a query where nothing is known of the rows a model was trained on: a short text.
TYPICAL_FEATURES = 50.0

# Nanoseconds. Another layout than packed must be this much faster: it has to be built, and takes memory.
_WORTH_BUILDING = 2.0
_FEATURE, _BLOCK, _SCANNED_CHUNK, _PACKED_ADD = 6.0, 60.0, 0.3, 0.6
_LABEL_ADD, _SPREAD_FEATURE = 1.9, 5.0
_HASH_PROBE, _SEARCH_STEP, _ADD = 100.0, 11.0, 1.2


@dataclass(frozen=True)
class LayoutChoice:
    """A layout for a layer, and why.

    Attributes
    ----------
    layout : str
    reason : str
        In words.
    costs : dict of str to float
        The estimated nanoseconds that a query spends on the layer with each layout.
    """

    layout: str
    reason: str
    costs: dict[str, float]


def choose(layer: Layer, *, beam_width: int, query_features: float = TYPICAL_FEATURES) -> LayoutChoice:
    """The layout for a layer of a model.

    Parameters
    ----------
    query_features : float
        How many sparse features a query has on average.
    """
    clusters, nodes = layer.chunks.size - 1, max(layer.n_nodes, 1)
    weights, used = layer.weights.n_weights, max(layer.weights.n_used, 1)
    held = min(beam_width, clusters)  # clusters that a query looks into
    asked = query_features * used / max(layer.weights.n_features, 1)  # features of a query that have weights at all
    each = weights / used  # weights of a feature
    adds = asked * each * held / clusters
    features_a_cluster = max(weights / clusters, 2.0)
    costs = {
        "packed": query_features * _FEATURE
        + asked * (_BLOCK + _SCANNED_CHUNK * min(each, clusters))
        + adds * _PACKED_ADD,
        "by-label": query_features * _SPREAD_FEATURE + held / clusters * weights * _LABEL_ADD,
        "by-feature": query_features * _FEATURE
        + asked * (_BLOCK + held * _SEARCH_STEP * math.log2(each + 2))
        + adds * _ADD,
        "hash": query_features * held * _HASH_PROBE + adds * _ADD,
        "search": query_features * held * _SEARCH_STEP * math.log2(features_a_cluster) + adds * _ADD,
    }
    best = min(LAYOUTS, key=lambda name: costs[name])
    about = (
        f"{held} of {clusters:,} clusters, {query_features:.0f} features a query, {each:.1f} weights a feature, "
        f"{weights / nodes:.1f} a node"
    )
    if best == "packed" or costs["packed"] < _WORTH_BUILDING * costs[best]:
        other = min((name for name in LAYOUTS if name != "packed"), key=lambda name: costs[name])
        told = f"mapped from the file; {other} would take {costs[other] / max(costs['packed'], 1e-9):.1f} times as long"
        return LayoutChoice("packed", f"{told} ({about})", costs)
    return LayoutChoice(best, f"{costs['packed'] / costs[best]:.1f} times as fast as packed ({about})", costs)
