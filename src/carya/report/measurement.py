"""Measurements for reports: latency, recall by beam width, precision by label frequency, and reliability."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya import metrics
from carya.models.calibration.reliability import reliability as reliability_of_top_k

BEAM_WIDTHS = (1, 2, 5, 10, 20, 50)
#: The number of suggestions per row in the recall-latency curve and the reliability plot.
TOP_K = 10
_N_GROUPS = 10
_DECILE_K = 5
_MAX_QUERIES = 1000
_MAX_CURVE_ROWS = 2000
_CURVE_SECONDS = 1.0  # approximate time limit per beam width and repetition
_REPEATS = 3  # the shortest time is recorded
_MIN_CURVE_ROWS = 50
_MAX_BLOCKS = 400  # maximum number of clusters per level in the tree diagram


def measure_run(
    model: Any, queries: Any, Y: Any, S: Any, *, seconds_per_row: float, counts: NDArray[np.int64] | None
) -> dict[str, Any]:
    """Measure one model on test rows and return JSON-serializable results.

    Parameters
    ----------
    model : fitted model
    queries : list of str, or features
        The inputs of the test rows.
    Y : sparse matrix
        Labels of the test rows.
    S : sparse matrix
        Scores of the test rows, with the same shape as Y.
    seconds_per_row : float
        The time per row in batch prediction; the slower the model, the fewer rows are used for the recall-latency
        curve.
    counts : array of shape (n_labels,) or None
        Training rows per label; if None, labels are grouped by their frequency in Y.

    Examples
    --------
    >>> import carya
    >>> X, Y = carya.data.make_world(300, 30, seed=0)
    >>> model = carya.XRLinear(max_leaf_size=5).fit(X, Y)
    >>> run = measure_run(model, X, Y, model.predict(X), seconds_per_row=1e-5, counts=None)
    >>> sorted(run)
    ['beam_widths', 'deciles', 'latency_ms', 'reliability', 'trees']
    """
    return {
        "latency_ms": single_latencies(model, queries),
        "beam_widths": recall_by_beam_width(model, queries, Y, seconds_per_row),
        "deciles": precision_by_frequency(Y, S, counts),
        "reliability": reliability(model, Y, S),
        "trees": describe_trees(model, counts),
    }


def single_latencies(model: Any, queries: Any) -> list[float]:
    """Rank at most 1,000 rows, one at a time, and return the sorted latencies in milliseconds."""
    n_rows = _n_rows(queries)
    rows = np.unique(np.linspace(0, n_rows - 1, min(n_rows, _MAX_QUERIES)).astype(int)).tolist()
    inputs = [_row(queries, row) for row in rows]
    rank: Callable[[Any], Any] = model.suggest if isinstance(queries, list) else model.rank
    for query in inputs[:20]:
        rank(query)
    times = []
    for query in inputs:
        started = time.perf_counter()
        rank(query)
        times.append(1e3 * (time.perf_counter() - started))
    return [float(f"{duration:.4g}") for duration in sorted(times)]


def recall_by_beam_width(model: Any, queries: Any, Y: Any, seconds_per_row: float) -> list[dict[str, float]]:
    """Return R@10, P@1 and the batch prediction time per row (µs) for each beam width; empty without label trees."""
    if not getattr(model, "trees_", ()):
        return []
    affordable = max(_MIN_CURVE_ROWS, int(_CURVE_SECONDS / max(seconds_per_row, 1e-9)))
    rows = slice(0, min(_n_rows(queries), _MAX_CURVE_ROWS, affordable))
    inputs, truth = _rows(queries, rows), Y[rows]
    results = []
    for width in BEAM_WIDTHS:
        seconds = float("inf")
        for _ in range(_REPEATS):
            started = time.perf_counter()
            S = model.predict(inputs, top_k=TOP_K, beam_width=width)
            seconds = min(seconds, time.perf_counter() - started)
        S.resize(truth.shape)
        recall, precision = metrics.recall(truth, S, k=TOP_K), metrics.precision(truth, S, k=1)
        results.append(
            {
                "beam_width": width,
                "recall": float(recall),
                "precision": float(precision),
                "microseconds": 1e6 * seconds / truth.shape[0],
            }
        )
    return results


def precision_by_frequency(Y: Any, S: Any, counts: NDArray[np.int64] | None) -> list[dict[str, float | None]]:
    """Return the precision and recall of the top-5 suggestions by label frequency, rarest labels first.

    The labels are divided into ten groups of equal size, up to rounding. Precision is None in groups without
    suggestions, and recall is None in groups whose labels do not occur in Y.
    """
    frequency = np.bincount(Y.indices, minlength=Y.shape[1]) if counts is None else np.asarray(counts)
    order = np.argsort(frequency, kind="stable")
    suggested, correct = _top_suggestions(Y, S, _DECILE_K)
    made = np.bincount(suggested, minlength=Y.shape[1])
    hits = np.bincount(suggested[correct], minlength=Y.shape[1])
    present = np.bincount(Y.indices, minlength=Y.shape[1])
    groups = [group for group in np.array_split(order, min(_N_GROUPS, order.size)) if group.size]
    return [
        {
            "labels": int(group.size),
            "lowest": int(frequency[group].min()),
            "highest": int(frequency[group].max()),
            "precision": _share(hits[group].sum(), made[group].sum()),
            "recall": _share(hits[group].sum(), present[group].sum()),
        }
        for group in groups
    ]


def reliability(model: Any, Y: Any, S: Any) -> dict[str, Any] | None:
    """Return the reliability of the probabilities of the top-10 suggestions, or of the scores if not calibrated."""
    return reliability_of_top_k(getattr(model, "calibration_", None), Y, S, k=TOP_K)


def describe_trees(model: Any, counts: NDArray[np.int64] | None) -> list[dict[str, Any]]:
    """Return the level sizes of each label tree and, for the first tree, the clusters of its top levels."""
    described: list[dict[str, Any]] = []
    for number, tree_model in enumerate(getattr(model, "trees_", ())):
        tree = tree_model.tree_
        described.append({"level_sizes": list(map(int, tree.level_sizes))})
        if number == 0:
            names = _label_names(model)
            described[0]["levels"] = [
                _describe_level(tree, level, counts, names)
                for level in range(1, tree.depth)
                if tree.level_sizes[level] <= _MAX_BLOCKS
            ]
    return described


def _describe_level(
    tree: Any, level: int, counts: NDArray[np.int64] | None, names: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Return the number of labels and the name of the most frequent label of each cluster in a level."""
    clusters = tree.clusters(level)  # the cluster index of each leaf
    labels = np.arange(clusters.size) if tree.leaf_labels is None else np.asarray(tree.leaf_labels)
    frequency = np.zeros(labels.size, np.int64) if counts is None else np.asarray(counts)[labels]
    order = np.lexsort((-frequency, clusters))
    first = np.searchsorted(clusters[order], np.arange(tree.level_sizes[level]))
    sizes = np.bincount(clusters, minlength=tree.level_sizes[level])
    return [
        {"labels": int(size), "name": None if names is None or not size else str(names[labels[order[start]]])}
        for size, start in zip(sizes, first, strict=True)
    ]


def _label_names(model: Any) -> Sequence[str] | None:
    """Return the label names of a text model, or the label ids of a feature model."""
    names = getattr(model, "label_names_", None)
    return getattr(model, "labels_", None) if names is None else names


def _scored_suggestions(Y: Any, S: Any, k: int) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[Any]]:
    """Return the top-k suggestions of all rows: their labels, whether they are correct, and their scores."""
    labels, correct, scores = [], [], []
    for row in range(S.shape[0]):
        begin, end = S.indptr[row], S.indptr[row + 1]
        best = begin + np.argsort(-S.data[begin:end], kind="stable")[:k]
        truth = Y.indices[Y.indptr[row] : Y.indptr[row + 1]]
        labels.append(S.indices[best])
        scores.append(S.data[best])
        correct.append(np.isin(S.indices[best], truth))
    return np.concatenate(labels), np.concatenate(correct), np.concatenate(scores)


def _top_suggestions(Y: Any, S: Any, k: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    labels, correct, _ = _scored_suggestions(Y, S, k)
    return labels, correct


def _share(part: Any, whole: Any) -> float | None:
    return float(part / whole) if whole else None


def _n_rows(queries: Any) -> int:
    if isinstance(queries, list):
        return len(queries)
    return int((queries[0] if isinstance(queries, tuple) else queries).shape[0])


def _rows(queries: Any, rows: slice) -> Any:
    return tuple(block[rows] for block in queries) if isinstance(queries, tuple) else queries[rows]


def _row(queries: Any, row: int) -> Any:
    return queries[row] if isinstance(queries, list) else _rows(queries, slice(row, row + 1))
