"""Measure how training time scales with the number of features, and with the number of labels and rows.

    python benchmarks/scaling.py [--peer-python PEER_VENV/bin/python] [--out FILE]

The data is generated. The tables also show the size of the training problem: the number of nonzeros in the training
rows of each node, summed over all nodes. Any solver reads each of these nonzeros once per pass, so the time per nonzero
should be constant. With --peer-python, libpecos runs on the same matrices, after Carya.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from rich.console import Console
from rich.table import Table

import carya
from carya.core import validation
from carya.data import make_world
from carya.indexing.clustering import cluster
from carya.indexing.representations import pifa
from carya.matching import level_targets
from compare import RunOptions

TEST_ROWS = 1000
FEATURES = [20_000, 500_000, 2_000_000]
LABELS = [10_000, 30_000, 100_000, 300_000]


def write_data(
    folder: str, *, rows: int, labels: int, features_per_row: int, n_features: int | None
) -> dict[str, float]:
    """Generate data, write the matrices to a folder, and return their sizes."""
    X, Y = make_world(rows + TEST_ROWS, labels, n_features=n_features, features_per_row=features_per_row, seed=1)
    for part, selected in (("train", slice(0, rows)), ("test", slice(rows, None))):
        for kind, matrix in (("X", X), ("Y", Y)):
            sp.save_npz(Path(folder) / f"{kind}.{part}.npz", sp.csr_matrix(matrix[selected]), compressed=False)
    return {
        "rows": rows,
        "labels": labels,
        "features": X.shape[1],
        "nonzeros": int(X[:rows].nnz),
        "problem_nonzeros": problem_nonzeros(X[:rows], Y[:rows]),
    }


def problem_nonzeros(X: Any, Y: Any) -> int:
    """Return the number of nonzeros that a solver reads per pass with teacher negatives and the default tree."""
    features, labels = validation.check_training_data(X, Y)
    tree = cluster(pifa(features, labels, keep=carya.XRLinear().index_features, threads=2), threads=2)
    lengths = np.diff(X.indptr)
    total = int(lengths.sum()) * tree.level_sizes[1]
    for level, targets in enumerate(level_targets(labels, tree)[:-1], start=1):
        children = np.diff(tree.children(level + 1)[1])
        row = np.repeat(np.arange(targets.rows), np.diff(targets.indptr))
        total += int((lengths[row].astype(np.int64) * children[targets.indices]).sum())
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="Python interpreter of an environment with libpecos")
    parser.add_argument(
        "--peer-max-labels", type=int, default=100_000, help="maximum number of labels for which the peer runs"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="number of Carya runs; the fastest is reported")
    parser.add_argument("--features", dest="feature_counts", type=int, nargs="*", default=FEATURES)
    parser.add_argument("--labels", type=int, nargs="*", default=LABELS)
    parser.add_argument("--out", type=Path, help="JSON output file")
    arguments = parser.parse_args()

    console = Console(width=140)
    series: dict[str, list[dict[str, Any]]] = {"features": [], "labels": []}
    sizes: list[tuple[str, dict[str, Any]]] = [
        ("features", {"rows": 100_000, "labels": 20_000, "features_per_row": 60, "n_features": count})
        for count in arguments.feature_counts
    ]
    sizes += [
        ("labels", {"rows": count, "labels": count, "features_per_row": 40, "n_features": None})
        for count in arguments.labels
    ]
    for name, size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            result: dict[str, Any] = write_data(folder, **size)
            options = RunOptions(folder, arguments.threads)
            runs = [options.run(sys.executable, "run_carya.py", seed) for seed in range(arguments.repeats)]
            result["carya"] = min(runs, key=lambda run: run["train_s"])
            if arguments.peer_python and size["labels"] <= arguments.peer_max_labels:
                result["libpecos"] = options.run(arguments.peer_python, "run_libpecos.py", 0)
        series[name].append(result)
        shown = f"{result['rows']:,} rows, {result['labels']:,} labels, {result['features']:,} features"
        console.print(f"{shown}: done", highlight=False)

    for name, results in series.items():
        if results:
            show(console, f"increasing number of {name}, {arguments.threads} threads", results)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(series, indent=1) + "\n")


def show(console: Console, title: str, results: list[dict[str, Any]]) -> None:
    headings = ["features", "labels", "nonzeros", "problem, M", "index, s", "train, s", "ns per nonzero"]
    table = Table(*headings, "libpecos, s", "", title=title)
    for result in results:
        carya_run, peer = result["carya"], result.get("libpecos")
        table.add_row(
            f"{result['features']:,}",
            f"{result['labels']:,}",
            f"{result['nonzeros']:,}",
            f"{result['problem_nonzeros'] / 1e6:,.0f}",
            f"{carya_run['index_s']:.2f}",
            f"{carya_run['train_s']:.2f}",
            f"{carya_run['train_s'] * 1e9 / result['problem_nonzeros']:.2f}",
            f"{peer['train_s']:.1f}" if peer else "",
            f"{peer['train_s'] / carya_run['train_s']:.0f}x" if peer else "",
        )
    console.print(table)


if __name__ == "__main__":
    main()
