"""Compare Carya and libpecos on the same matrices with the same number of threads, in alternating runs.

    python benchmarks/compare.py FEATURES --peer libpecos --peer-python PEER_VENV/bin/python

FEATURES is a folder with X.train.npz, Y.train.npz, X.test.npz and Y.test.npz (SciPy CSR). The peer runs in its own
virtual environment: libpecos 1.2.8 requires numpy<2 and scipy<1.12 (pip install --no-deps libpecos). Each run is a
separate process, and the systems alternate, with one run per seed, so that interference from other processes affects
both systems equally. The results are printed as a table and, with --out, written as JSON. With --peer-runs, only Carya
runs; the peer's results are read from the JSON file of an earlier comparison, and the new JSON file records that the
times come from different comparisons.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from launch import run_script

# (key, row heading, whether lower values are better)
ROWS = [
    ("index_s", "index, s", True),
    ("train_s", "train, s", True),
    ("total_s", "index + train, s", True),
    ("batch_ms", "batch, ms per row", True),
    ("one_row_ms", "single row, ms (median)", True),
    ("one_row_ms_p99", "single row, ms (p99)", True),
    ("load_s", "load, s", True),
    ("model_bytes", "model, bytes", True),
    ("train_peak_mb", "peak training memory, MB", True),
    ("peak_mb", "peak memory, MB", True),
    ("P@1", "P@1", False),
    ("P@3", "P@3", False),
    ("P@5", "P@5", False),
]


@dataclass(frozen=True)
class RunOptions:
    """Options shared by all runs of a comparison."""

    features: str
    threads: int
    negatives: str = "teacher"
    dense: int = 0

    def run(self, python: str, script: str, seed: int) -> dict[str, Any]:
        """Run one system with one seed and return its measurements."""
        options = {"--threads": self.threads, "--seed": seed, "--negatives": self.negatives, "--dense": self.dense}
        return run_script(python, script, self.features, *(item for pair in options.items() for item in pair))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", help="folder with the matrices")
    parser.add_argument("--peer", choices=["libpecos"], default="libpecos")
    parser.add_argument("--peer-python", required=True, help="Python interpreter of the peer's virtual environment")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3, help="number of runs per system, with seeds 0, 1, ...")
    parser.add_argument("--negatives", choices=["teacher", "both"], default="teacher")
    parser.add_argument("--dense", type=int, default=0, help="number of dense columns to add")
    parser.add_argument("--out", type=Path, help="JSON output file")
    parser.add_argument("--peer-runs", type=Path, help="JSON file of an earlier comparison whose peer runs are reused")
    arguments = parser.parse_args()
    options = RunOptions(arguments.features, arguments.threads, arguments.negatives, arguments.dense)
    earlier = json.loads(arguments.peer_runs.read_text()) if arguments.peer_runs else None

    console = Console()
    runs: dict[str, list[dict[str, Any]]] = {"carya": [], arguments.peer: []}
    for seed in range(arguments.seeds):
        runs["carya"].append(options.run(sys.executable, "run_carya.py", seed))
        runs[arguments.peer].append(
            earlier["runs"][arguments.peer][seed]
            if earlier
            else options.run(arguments.peer_python, f"run_{arguments.peer}.py", seed)
        )
        times = " ".join(f"{name} {results[-1]['total_s']:.1f} s" for name, results in runs.items())
        console.print(f"seed {seed}: {times}", highlight=False)
        summary = summarize(options, arguments.peer, runs, in_one_run=earlier is None)
        if arguments.out:  # written after every seed, so that an interrupted comparison keeps its results
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(json.dumps(summary, indent=1) + "\n")
    show(console, summary)


def summarize(
    options: RunOptions, peer: str, runs: dict[str, list[dict[str, Any]]], *, in_one_run: bool
) -> dict[str, Any]:
    """Return the median times and sizes and the mean precision over all runs."""
    middle = {
        name: {
            key: (statistics.mean if key.startswith("P@") else statistics.median)([result[key] for result in results])
            for key, _, _ in ROWS
        }
        for name, results in runs.items()
    }
    carya, other = middle["carya"], middle[peer]
    return {
        "data": Path(options.features).resolve().name,
        "peer": peer,
        "threads": options.threads,
        "negatives": options.negatives,
        "dense": options.dense,
        "seeds": len(runs["carya"]),
        "in_one_run": in_one_run,
        "summary": middle,
        "ratios": {key: other[key] / carya[key] if lower else carya[key] - other[key] for key, _, lower in ROWS},
        "runs": runs,
    }


def show(console: Console, summary: dict[str, Any]) -> None:
    title = f"{summary['data']}, {summary['negatives']}, {summary['threads']} threads, {summary['seeds']} seeds"
    if summary["dense"]:
        title += f", {summary['dense']} dense columns"
    table = Table("", "carya", summary["peer"], "ratio", title=title)
    for key, heading, lower in ROWS:
        carya, other = summary["summary"]["carya"][key], summary["summary"][summary["peer"]][key]
        digits = 0 if carya > 1000 else 2 if carya > 1 else 4
        ratio = summary["ratios"][key]
        table.add_row(
            heading,
            f"{carya:,.{digits}f}",
            f"{other:,.{digits}f}",
            f"{ratio:.1f}x" if lower else f"{ratio:+.2f}",
        )
    console.print(table)


if __name__ == "__main__":
    main()
