"""Carya and a peer on the same matrices and threads, in turn, in one run.

    python benchmarks/compare.py FEATURES --peer libpecos --peer-python PEER_VENV/bin/python

FEATURES is a folder with X.train.npz, Y.train.npz, X.test.npz and Y.test.npz (SciPy CSR). The peer runs in its own
virtual environment: libpecos 1.2.8 wants numpy<2 and scipy<1.12 (pip install --no-deps libpecos). Each run is a process
of its own; runs alternate, one a seed, so that a busy machine is busy for both. Prints a table and writes JSON. With
--peer-runs only Carya runs; the JSON then says that the times are not of one run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from launch import run_script

# (what, how it is printed, whether less is better)
ROWS = [
    ("index_s", "index, s", True),
    ("train_s", "train, s", True),
    ("total_s", "index + train, s", True),
    ("batch_ms", "batch, ms a row", True),
    ("one_row_ms", "one row, ms (median)", True),
    ("one_row_ms_p99", "one row, ms (p99)", True),
    ("load_s", "load, s", True),
    ("model_bytes", "model, bytes", True),
    ("train_peak_mb", "peak memory of training, MB", True),
    ("peak_mb", "peak memory, MB", True),
    ("P@1", "P@1", False),
    ("P@3", "P@3", False),
    ("P@5", "P@5", False),
]


def run(python: str, script: str, arguments: argparse.Namespace, seed: int) -> dict[str, Any]:
    return run_script(
        python,
        script,
        arguments.features,
        "--threads",
        arguments.threads,
        "--seed",
        seed,
        "--negatives",
        arguments.negatives,
        "--dense",
        arguments.dense,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", help="folder with the matrices")
    parser.add_argument("--peer", choices=["libpecos"], default="libpecos")
    parser.add_argument("--peer-python", required=True, help="python of the peer's virtual environment")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each, with seeds 0, 1, ...")
    parser.add_argument("--negatives", choices=["teacher", "both"], default="teacher")
    parser.add_argument("--dense", type=int, default=0, help="dense columns to put beside the sparse ones")
    parser.add_argument("--out", type=Path, help="file for the JSON")
    parser.add_argument(
        "--peer-runs",
        type=Path,
        help="JSON of an earlier comparison to take the peer's runs from instead of repeating them",
    )
    arguments = parser.parse_args()
    earlier = json.loads(arguments.peer_runs.read_text()) if arguments.peer_runs else None

    console = Console()
    runs: dict[str, list[dict[str, Any]]] = {"carya": [], arguments.peer: []}
    for seed in range(arguments.seeds):
        runs["carya"].append(run(sys.executable, "run_carya.py", arguments, seed))
        runs[arguments.peer].append(
            earlier["runs"][arguments.peer][seed]
            if earlier
            else run(arguments.peer_python, f"run_{arguments.peer}.py", arguments, seed)
        )
        times = " ".join(f"{name} {done[-1]['total_s']:.1f} s" for name, done in runs.items())
        console.print(f"seed {seed}: {times}", highlight=False)
        summary = summarise(arguments, runs)
        if arguments.out:  # after every seed: a run that is stopped keeps what it has
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(json.dumps(summary, indent=1) + "\n")
    show(console, summary)


def summarise(arguments: argparse.Namespace, runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    # Times by median, precision by mean: the one is disturbed by the machine, the other by the seed.
    middle = {
        name: {
            key: (statistics.mean if key.startswith("P@") else statistics.median)([one[key] for one in done])
            for key, _, _ in ROWS
        }
        for name, done in runs.items()
    }
    ours, theirs = middle["carya"], middle[arguments.peer]
    return {
        "data": Path(arguments.features).resolve().name,
        "peer": arguments.peer,
        "threads": arguments.threads,
        "negatives": arguments.negatives,
        "dense": arguments.dense,
        "seeds": len(runs["carya"]),
        "in_one_run": arguments.peer_runs is None,
        "summary": middle,
        "ratios": {key: theirs[key] / ours[key] if less else ours[key] - theirs[key] for key, _, less in ROWS},
        "runs": runs,
    }


def show(console: Console, summary: dict[str, Any]) -> None:
    title = f"{summary['data']}, {summary['negatives']}, {summary['threads']} threads, {summary['seeds']} seeds"
    if summary["dense"]:
        title += f", {summary['dense']} dense columns"
    table = Table("", "carya", summary["peer"], "ratio", title=title)
    for key, text, less in ROWS:
        ours, theirs = summary["summary"]["carya"][key], summary["summary"][summary["peer"]][key]
        digits = 0 if ours > 1000 else 2 if ours > 1 else 4
        ratio = summary["ratios"][key]
        table.add_row(
            text,
            f"{ours:,.{digits}f}",
            f"{theirs:,.{digits}f}",
            f"{ratio:.1f}x" if less else f"{ratio:+.2f}",
        )
    console.print(table)


if __name__ == "__main__":
    main()
