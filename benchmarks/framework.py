"""Measure every preset and component of the framework, and the paper's ablations, on text folders.

    python benchmarks/framework.py DATA … [--only NAME …] [--peer-python PYTHON --features FEATURES] [--out FOLDER]

Each configuration runs in its own process. Configurations with results in the output folder do not run again unless
they are selected with --only. FEATURES contains the features for the peers: one folder per data set, with the same name
as the text folder. The results are printed as Markdown tables.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import scipy.sparse as sp

from run_framework import ROWS, metrics

import measure
from launch import HERE, run_script

PEERS = ("libpecos-tfn-3", "libpecos-tfn+man-3", "omikuji-parabel", "omikuji-bonsai", "napkinxc-plt")

#: Display names of the rows whose keys in the results are abbreviations or use earlier parameter names.
TITLES = {
    "graph of labels of the same rows": "co-occurrence graph",
    "beam 2": "beam width 2",
    "beam 2, overlapping (copies=3)": "beam width 2, clusters_per_label=3",
    "overlapping (copies=3)": "clusters_per_label=3",
    "L1, cost 8": "L1 penalty, C=8",
    "weighted clusters (relevance=induce)": "relevance=induce",
    "trees and neighbours, learned weights": "trees and neighbors, learned weights",
    "libpecos-tfn-3": "*libpecos*, 3 trees, TFN",
    "libpecos-tfn+man-3": "*libpecos*, 3 trees, TFN + MAN",
    "omikuji-parabel": "*omikuji*, Parabel",
    "omikuji-bonsai": "*omikuji*, Bonsai",
    "napkinxc-plt": "*napkinXC*, PLT",
}
#: Rows with the same configuration as another row; the tables omit them.
REPEATED = ("TFN",)


def table_row(name: str, values: dict[str, Any]) -> str:
    """Format one table row with CPU times, or with wall-clock times marked with * where no CPU times were measured."""
    name = TITLES.get(name, name)
    if "over_s" in values:
        return f"| {name} | exceeded {values['over_s'] / 60:.0f} minutes | | | | |"
    precision = " / ".join(f"{values[f'P@{k}']:.2f}" for k in (1, 3, 5))
    propensity = " / ".join(f"{values[f'PSP@{k}']:.1f}" for k in (1, 3, 5)) if "PSP@1" in values else "–"
    recall = f"{values['R@10']:.1f}" if "R@10" in values else "–"
    if "train_cpu_s" in values:
        times = f"{values['train_cpu_s']:.1f} | {values['batch_cpu_ms']:.3f}"
    else:
        times = f"{values['train_s']:.1f}* | {values['batch_ms']:.3f}*" if "train_s" in values else "– | –"
    return f"| {name} | {precision} | {recall} | {propensity} | {times} |"


def tables(results: dict[str, dict[str, dict[str, Any]]]) -> dict[str, str]:
    """Return the tables of each group as Markdown, one table per data set; the peers are listed with the presets."""
    groups = {group: list(rows) for group, rows in ROWS.items()}
    groups["presets"] += PEERS
    texts = {}
    for group, names in groups.items():
        blocks = []
        for data, measured in results.items():
            lines = [f"| {data} | P@1 / 3 / 5 | R@10 | PSP@1 / 3 / 5 | training, s | ms per row |"]
            lines.append("|---|---|---|---|---|---|")
            rows = [table_row(name, measured[name]) for name in names if name in measured and name not in REPEATED]
            if rows:
                blocks.append("\n".join(lines + rows))
        texts[group] = "\n\n".join(blocks)
    return texts


def run_carya(data: Path, name: str, threads: int, limit: float | None) -> dict[str, Any]:
    """Run one Carya configuration; if it exceeds the time limit, return only the limit."""
    try:
        return run_script(sys.executable, "run_framework.py", data, name, "--threads", threads, limit=limit)
    except subprocess.TimeoutExpired:
        return {"over_s": limit}


def run_peer(python: str, features: Path, name: str, threads: int) -> dict[str, Any]:
    """Run one peer and evaluate its scores with the code that evaluates Carya's."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "scores.npz"
        result = run_script(python, "run_framework_peer.py", features, name, file, "--threads", threads)
        S = sp.load_npz(file)
    _, Y, _, Yt = measure.load(features)
    return result | metrics(Y, Yt, S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument(
        "--only", nargs="*", help="configurations, peers or groups to run, even if they already have results"
    )
    parser.add_argument(
        "--peer-python", help="Python interpreter of the peers' environment; without it, only Carya runs"
    )
    parser.add_argument("--features", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=float, help="time limit per Carya configuration, in seconds")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    groups = {group: list(rows) for group, rows in ROWS.items()}
    if arguments.peer_python:
        groups["peers"] = list(PEERS)
    results: dict[str, dict[str, dict[str, Any]]] = {}
    for data in arguments.data:
        file = arguments.out / f"{data.name}-framework.json"
        measured = results[data.name] = json.loads(file.read_text()) if file.exists() else {}
        for group, names in groups.items():
            for name in names:
                selected = arguments.only is None or {name, group} & {*arguments.only}
                if not selected or (arguments.only is None and name in measured):
                    continue
                if group == "peers":
                    values = run_peer(arguments.peer_python, arguments.features / data.name, name, arguments.threads)
                else:
                    values = run_carya(data, name, arguments.threads, arguments.limit)
                measured[name] = values
                print(f"{data.name}, {name}: {json.dumps(values)}", file=sys.stderr, flush=True)
                file.write_text(json.dumps(measured, indent=1) + "\n")
    for group, text in tables(results).items():
        print(f"### {group}\n\n{text}\n")


if __name__ == "__main__":
    main()
