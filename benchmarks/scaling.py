"""How training time grows: with the number of features at equal nonzeros, and with the number of labels.

    python benchmarks/scaling.py [--peer-python PEER_VENV/bin/python] [--out FILE]

Worlds are generated, so this needs no data. Next to the seconds stand the nonzeros of the training problem, in the
millions: for every node the nonzeros of the rows it is trained on, the sum that any solver has to walk through once a
pass. Seconds per nonzero should not grow. With a peer, both run on the same matrices, in turn.
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
from compare import run

TEST_ROWS = 1000
FEATURES = [20_000, 500_000, 2_000_000]
LABELS = [10_000, 30_000, 100_000, 300_000]


def write_world(folder: str, rows: int, labels: int, words: int, n_features: int | None) -> dict[str, float]:
    """Writes the matrices of a world and says what they hold."""
    X, Y = make_world(rows + TEST_ROWS, labels, n_features=n_features, features_per_row=words, seed=1)
    for part, chosen in (("train", slice(0, rows)), ("test", slice(rows, None))):
        for kind, matrix in (("X", X), ("Y", Y)):
            sp.save_npz(Path(folder) / f"{kind}.{part}.npz", sp.csr_matrix(matrix[chosen]), compressed=False)
    return {
        "rows": rows,
        "labels": labels,
        "features": X.shape[1],
        "nonzeros": int(X[:rows].nnz),
        "problem_nonzeros": problem_nonzeros(X[:rows], Y[:rows]),
    }


def problem_nonzeros(X: sp.csr_array, Y: sp.csr_array) -> int:
    """What one pass over all training problems reads, with teacher negatives and the default tree."""
    features, labels = validation.training_pair(X, Y)
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
    parser.add_argument("--peer-python", help="python of an environment with libpecos")
    parser.add_argument("--peer-most-labels", type=int, default=100_000, help="leave the peer out above that")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="runs of Carya; the fastest counts")
    parser.add_argument("--features", dest="feature_counts", type=int, nargs="*", default=FEATURES)
    parser.add_argument("--labels", type=int, nargs="*", default=LABELS)
    parser.add_argument("--out", type=Path, help="file for the JSON")
    arguments = parser.parse_args()
    arguments.negatives, arguments.dense = "teacher", 0

    console = Console(width=140)
    series: dict[str, list[dict[str, Any]]] = {"features": [], "labels": []}
    settings = [("features", 100_000, 20_000, 60, d) for d in arguments.feature_counts]
    settings += [("labels", n, n, 40, None) for n in arguments.labels]
    for name, rows, labels, words, n_features in settings:
        with tempfile.TemporaryDirectory() as folder:
            result: dict[str, Any] = write_world(folder, rows, labels, words, n_features)
            arguments.features = folder
            runs = [run(sys.executable, "run_carya.py", arguments, seed) for seed in range(arguments.repeats)]
            result["carya"] = min(runs, key=lambda one: one["train_s"])
            if arguments.peer_python and labels <= arguments.peer_most_labels:
                result["libpecos"] = run(arguments.peer_python, "run_libpecos.py", arguments, 0)
        series[name].append(result)
        console.print(f"{rows:,} rows, {labels:,} labels, {result['features']:,} features: done", highlight=False)

    for name, results in series.items():
        if not results:
            continue
        table = Table(
            "features", "labels", "nonzeros", "problem, M", "index, s", "train, s", "ns a nonzero", "libpecos, s", "",
            title=f"growing {name}, {arguments.threads} threads",
        )  # fmt: skip
        for one in results:
            ours, peer = one["carya"], one.get("libpecos")
            table.add_row(
                f"{one['features']:,}",
                f"{one['labels']:,}",
                f"{one['nonzeros']:,}",
                f"{one['problem_nonzeros'] / 1e6:,.0f}",
                f"{ours['index_s']:.2f}",
                f"{ours['train_s']:.2f}",
                f"{ours['train_s'] * 1e9 / one['problem_nonzeros']:.2f}",
                f"{peer['train_s']:.1f}" if peer else "",
                f"{peer['train_s'] / ours['train_s']:.0f}x" if peer else "",
            )
        console.print(table)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(series, indent=1) + "\n")


if __name__ == "__main__":
    main()
