"""Measure training time, peak memory, model size and query latency for thousands to millions of labels.

    python benchmarks/scale.py --out benchmarks/results/scale.json
    python benchmarks/scale.py --sizes amazon-3m:1 --out benchmarks/results/scale.json

Each size consists of a published data set and a scale, e.g. amazon-670k:0.1, as in `carya data synth --like amazon-670k
--scale 0.1`. The data is generated, and every run is a separate process. Existing data can be measured instead:
amazon-670k:1=FOLDER. New results are added to the file and replace earlier results for the same size. Other processes
on the machine distort wall-clock times, so CPU times are also recorded; on an idle machine, the training time is little
more than the CPU time divided by the number of threads. Even CPU times depend on the machine's load, because processes
compete for caches and memory bandwidth. Therefore, `carya plan` runs before and after each training run, and the table
shows the mean of both estimates.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from carya.data.synthetic import files
from carya.data.synthetic.published_sizes import synthesize

from launch import run_script
from scale_tables import planned

SIZES = [
    "amazon-670k:0.015",
    "amazon-670k:0.05",
    "amazon-670k:0.15",
    "amazon-670k:0.5",
    "amazon-670k:1",
    "eurlex-4k:1",
    "wiki10-31k:0.3",
    "wiki10-31k:1",
    "amazoncat-13k:0.1",
    "amazoncat-13k:0.3",
    "wiki-500k:0.02",
    "wiki-500k:0.05",
    "wiki-500k:0.15",
    "amazon-3m:0.01",
    "amazon-3m:0.03",
    "amazon-3m:0.1",
]

#: The estimates that are recorded from each plan.
PLANNED = ("seconds", "cpu_seconds", "peak_bytes", "model_bytes", "query_us", "stages")


def measure_size(size: str, threads: int, settings: list[str]) -> dict[str, Any]:
    """Generate data of the given size, unless `size` specifies a folder, and return the measurements."""
    size, _, existing = size.partition("=")
    like, _, scale = size.partition(":")
    options: list[object] = ["--threads", threads, *(item for setting in settings for item in ("--set", setting))]
    with tempfile.TemporaryDirectory() as folder:
        if not existing:
            files.write_matrices(synthesize(like, float(scale or 1)), Path(folder))
        scripts = ("run_plan.py", "run_scale.py", "run_plan.py")
        before, result, after = (run_script(sys.executable, name, existing or folder, *options) for name in scripts)
    plans = [{name: plan[name] for name in PLANNED} for plan in (before, after)]
    return {"data": like, "scale": float(scale or 1)} | result | {"plans": plans}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", default=SIZES, metavar="NAME:SCALE[=FOLDER]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="a parameter of XRLinear")
    parser.add_argument("--out", type=Path, help="JSON output file")
    arguments = parser.parse_args()
    console = Console(width=140)
    runs: list[dict[str, Any]] = []
    if arguments.out and arguments.out.exists():
        runs = json.loads(arguments.out.read_text())["runs"]
    for size in arguments.sizes:
        run = measure_size(size, arguments.threads, arguments.set)
        key = ("data", "scale", "threads", "parameters")
        runs = [other for other in runs if any(other[name] != run[name] for name in key)] + [run]
        console.print(f"{size}: {run['cpu_s']:.1f} CPU s, {run['peak_mb']:,.0f} MB", highlight=False)
        if arguments.out:  # written after every run, so that an interrupted benchmark keeps its results
            machine = platform.processor() or platform.machine()
            arguments.out.write_text(json.dumps({"machine": machine, "runs": runs}, indent=1) + "\n")
    show(console, runs)


def show(console: Console, runs: list[dict[str, Any]]) -> None:
    headings = ["data", "labels", "wall, s", "CPU, s", "planned", "peak, MB", "planned", "model, MB", "planned"]
    table = Table(*headings, "one query, CPU µs", "planned")
    for run in runs:
        table.add_row(
            f"{run['data']} x {run['scale']:g}",
            f"{run['labels']:,}",
            f"{run['wall_s']:.1f}",
            f"{run['cpu_s']:.1f}",
            f"{planned(run, 'cpu_seconds') / run['cpu_s']:.2f}x",
            f"{run['peak_mb']:,.0f}",
            f"{planned(run, 'peak_bytes') / 2**20 / run['peak_mb']:.2f}x",
            f"{run['model_bytes'] / 1e6:,.1f}",
            f"{planned(run, 'model_bytes') / run['model_bytes']:.2f}x",
            f"{run['one_row_cpu_us']:.0f}",
            f"{planned(run, 'query_us') / run['one_row_cpu_us']:.2f}x",
        )
    console.print(table)


if __name__ == "__main__":
    main()
