"""Measure one cell of paper.py: python run_paper.py PREPARED NAME CELL; the result is printed as one line of JSON.

PREPARED is the folder with the matrices of the data set. Each cell runs in its own process, so that its peak memory is
that of one model.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import itertools
import math
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import carya
from carya import _core
from carya.core import validation
from carya.core.progress import Progress
from carya.indexing import Indexer
from carya.trees.beam_search import BeamSearcher
from carya.trees.layout_choice import LAYOUTS

import measure
from published.experiments import Cell, find_cell
from published.sources import Source, find_sources, read_description

#: Labels per cluster in Figure 1 of the paper: 501,070 labels in 8,192 clusters.
LABELS_PER_CLUSTER = 501_070 / 8192
#: A label or a cluster has enough data, according to the paper, if it has more than this number of training rows.
ENOUGH_ROWS = 100
_CURVE_POINTS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("name", help="name of the data set")
    parser.add_argument("cell")
    parser.add_argument("--threads", type=int, default=-1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--queries", type=int, default=10_000, help="number of test rows used as single queries")
    parser.add_argument("--model", type=Path, help="folder of the model that is measured with every layout")
    parser.add_argument("--encoder", action="append", default=[], help="encoder folder or name; can be repeated")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="a transformer parameter")
    arguments = parser.parse_args()
    cell = find_cell(arguments.name, arguments.cell)
    measures = {
        "statistics": measure_statistics,
        "labels": measure_label_distribution,
        "linear": measure_linear,
        "layouts": measure_layouts,
        "transformer": measure_transformer,
    }
    measure.emit(measures[cell.kind](cell, arguments))


def source_of(arguments: argparse.Namespace) -> Source:
    """Return the source from which the data was prepared."""
    return find_sources(Path(read_description(arguments.prepared)["folder"]))[arguments.name]


def read(arguments: argparse.Namespace, part: str) -> tuple[Any, Any]:
    X, Y = (sp.csr_array(sp.load_npz(arguments.prepared / f"{kind}.{part}.npz")) for kind in "XY")
    return X, Y


def measure_statistics(_: Cell, arguments: argparse.Namespace) -> dict[str, Any]:
    """Compute the statistics that the paper lists for each data set; words are counted if texts are available."""
    (X, Y), (_, Yt) = (read(arguments, part) for part in ("train", "test"))
    result = {
        "n_train": Y.shape[0],
        "n_test": Yt.shape[0],
        "n_features": X.shape[1],
        "n_labels": Y.shape[1],
        "labels_per_row": Y.nnz / Y.shape[0],
        "rows_per_label": Y.nnz / Y.shape[1],
        "features_per_row": X.nnz / X.shape[0],
    }
    source = source_of(arguments)
    if source.texts is not None:
        for part in ("train", "test"):
            result[f"{part}_words"] = sum(len(text.split()) for text in source.read_texts(part)[0])
    return result


def measure_label_distribution(_: Cell, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the numbers of training rows per label and per cluster, as in Figure 1 of the paper."""
    X, Y = read(arguments, "train")
    n_clusters = 2 ** max(1, round(math.log2(Y.shape[1] / LABELS_PER_CLUSTER)))
    indexer = Indexer(
        branching=2,
        max_leaf_size=math.ceil(Y.shape[1] / n_clusters),
        max_depth=None,
        representation="pifa",
        alpha=0.5,
        index_features=None,
        clustering="spherical",
        balanced=True,
        bisect=True,
        seed=arguments.seed,
    )
    features, labels = validation.check_features(X), validation.check_labels(Y, "Y")
    threads = _core.thread_count(arguments.threads)
    tree = indexer.build(features, labels, threads=threads, progress=Progress())
    level = tree.level_sizes.index(n_clusters)
    clusters = tree.clusters(level)
    members = sp.csr_array((np.ones(clusters.size), (np.arange(clusters.size), clusters)))
    rows = {
        "labels": np.bincount(Y.indices, minlength=Y.shape[1]),
        "clusters": np.bincount((Y @ members).indices, minlength=n_clusters),
    }
    return {
        "clusters": n_clusters,
        **{f"{kind}_above_100": 100 * float((counts > ENOUGH_ROWS).mean()) for kind, counts in rows.items()},
        **{f"{kind}_curve": _curve(counts) for kind, counts in rows.items()},
    }


def _curve(counts: Any) -> list[list[int]]:
    """Sort the counts in descending order, and return (rank, count) pairs at logarithmically spaced ranks."""
    ordered = np.sort(counts)[::-1]
    ranks = np.unique(np.geomspace(1, ordered.size, _CURVE_POINTS).astype(int))
    return [[int(rank), int(ordered[rank - 1])] for rank in ranks]


def quality(Y: Any, S: Any) -> dict[str, float]:
    """Return P@k and R@k for k = 1, 3, 5, in percent."""
    report = carya.metrics.report(Y, S, k=measure.KS)
    return {f"{metric}@{k}": 100 * report[f"{metric}@{k}"] for metric in "PR" for k in measure.KS}


def measure_linear(cell: Cell, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train a linear model, rank labels for the test rows in one batch, and return the measurements."""
    training = read(arguments, "train")
    tree = carya.XRLinear(n_jobs=arguments.threads, seed=arguments.seed, **cell.settings)
    model: Any = tree
    if cell.n_trees > 1:
        model = carya.Ensemble(tree, n_trees=cell.n_trees, n_jobs=arguments.threads, seed=arguments.seed)
    measure.reset_peak()
    _, train_s, train_cpu_s = measure.timed(lambda: model.fit(*training))
    label_tree = model.trees_[0].tree_
    result: dict[str, Any] = {
        "train_s": train_s,
        "train_cpu_s": train_cpu_s,
        "train_peak_mb": measure.peak_since_reset_mb(),
        "depth": label_tree.depth,
        "level_sizes": list(label_tree.level_sizes),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.model or Path(folder) / "model"
        model.save(path)
        result["model_bytes"] = measure.folder_bytes(path)
    Xt, Yt = read(arguments, "test")
    model.predict(Xt[:50])
    S, predict_s, predict_cpu_s = measure.timed(
        lambda: model.predict(Xt, top_k=measure.TOP_K, beam_width=measure.BEAM_WIDTH)
    )
    return result | {"predict_s": predict_s, "predict_cpu_s": predict_cpu_s} | quality(Yt, S)


def measure_layouts(_: Cell, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the single-query latency, the batch time and the memory of every layout, with one thread."""
    model = carya.load(arguments.model)
    Xt, _Yt = read(arguments, "test")
    rng = np.random.default_rng(arguments.seed)
    Xt = Xt[np.sort(rng.permutation(Xt.shape[0])[: arguments.queries])]
    batch = validation.check_features_like(Xt, model.widths_)
    no_dense = np.zeros(0, np.float32)
    rows = [
        (Xt.indices[first:last].astype(np.int32), Xt.data[first:last], no_dense)
        for first, last in itertools.pairwise(Xt.indptr)
    ]
    limits: dict[str, Any] = {"top_k": measure.TOP_K, "beam_width": measure.BEAM_WIDTH}
    layouts: dict[str, Any] = {}
    searchers = []  # kept alive, so that the memory of one layout is not reused for the next
    for layout in LAYOUTS:
        before = _settled_mb()
        searcher = BeamSearcher(model.layers_, layout)
        memory_mb = _settled_mb() - before
        if layout == "packed":  # not copied to memory, but searched in the memory-mapped file
            memory_mb = sum(layer.weights.n_bytes for layer in model.layers_) / 2**20
        searchers.append(searcher)
        single = measure.latency(partial(_rank_row, searcher, rows, limits), len(rows), len(rows))
        batch_s = measure.seconds(partial(searcher.predict, batch, threads=1, **limits), 1)
        layouts[layout] = single | {"batch_ms": 1e3 * batch_s / len(rows), "memory_mb": memory_mb}
    queries = [Xt[[row]] for row in range(len(rows))]
    interface = measure.latency(lambda row: model.rank(queries[row], **limits), len(rows), len(rows))
    n_weights = sum(layer.weights.n_weights for layer in model.layers_)
    sizes = {"queries": len(rows), "features_per_query": Xt.nnz / len(rows), "weights": n_weights}
    return sizes | interface | {"layouts": layouts}


def _rank_row(searcher: BeamSearcher, rows: list[Any], limits: dict[str, Any], row: int) -> object:
    return searcher.rank(*rows[row], **limits)


def _settled_mb() -> float:
    """Release unused memory to the operating system and return the resident set size."""
    gc.collect()
    with contextlib.suppress(AttributeError):  # only glibc has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)
    return measure.resident_mb()


def measure_transformer(cell: Cell, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train a transformer, or the paper's ensemble if there are several encoders, and return the measurements."""
    source = source_of(arguments)
    (texts, labels), (test_texts, test_labels) = (source.read_texts(part) for part in ("train", "test"))
    model_class: Any = carya.XRTransformer if cell.name == "XR-Transformer" else carya.XTransformer
    options = {"n_jobs": arguments.threads, "seed": arguments.seed} | measure.settings(arguments.set)
    model = (
        model_class(encoder=arguments.encoder[0], **options)
        if len(arguments.encoder) == 1
        else model_class.recipe(arguments.encoder, **options)
    )
    measure.reset_peak()
    _, train_s, train_cpu_s = measure.timed(lambda: model.fit(texts, labels))
    result = {"train_s": train_s, "train_cpu_s": train_cpu_s, "train_peak_mb": measure.peak_since_reset_mb()}
    Yt, _ = model.label_matrix_and_ids(test_labels)
    S, predict_s, _ = measure.timed(lambda: model.predict(test_texts, top_k=measure.TOP_K))
    S.resize(Yt.shape)
    queries = np.random.default_rng(arguments.seed).permutation(len(test_texts))[: arguments.queries]
    single = measure.latency(
        lambda number: model.suggest(test_texts[queries[number]], top_k=measure.TOP_K), queries.size, queries.size
    )
    encoders = [Path(encoder).name for encoder in arguments.encoder]
    return result | {"predict_s": predict_s, "encoders": encoders, "device": _device()} | quality(Yt, S) | single


def _device() -> str:
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else "CPU"


if __name__ == "__main__":
    main()
