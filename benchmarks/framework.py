"""Every preset and component of the framework on folders of texts, and the paper's ablations: a table.

    python benchmarks/framework.py DATA … [--only NAME …] [--peer-python PYTHON --features FEATURES] [--out FOLDER]

Each configuration runs in a process of its own; a result that is in the folder already is kept unless it is named in
--only. FEATURES has the peers' features, one folder for each of DATA and called like it.
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

from run_framework import metrics

import measure
from launch import HERE, run_script

PEERS = ("libpecos-tfn-3", "libpecos-tfn+man-3", "omikuji-parabel", "omikuji-bonsai", "napkinxc-plt")


def line(name: str, one: dict[str, Any]) -> str:
    """One row of the table. Times are those of all threads together; what has them by the clock only is marked."""
    if "over_s" in one:
        return f"| {name} | not within {one['over_s'] / 60:.0f} minutes | | | | |"
    precision = " / ".join(f"{one[f'P@{k}']:.2f}" for k in (1, 3, 5))
    propensity = " / ".join(f"{one[f'PSP@{k}']:.1f}" for k in (1, 3, 5)) if "PSP@1" in one else "–"
    recall = f"{one['R@10']:.1f}" if "R@10" in one else "–"
    if "train_cpu_s" in one:
        times = f"{one['train_cpu_s']:.1f} | {one['batch_cpu_ms']:.3f}"
    else:
        times = f"{one['train_s']:.1f}* | {one['batch_ms']:.3f}*" if "train_s" in one else "– | –"
    return f"| {name} | {precision} | {recall} | {propensity} | {times} |"


def table(group: str, results: dict[str, dict[str, dict[str, Any]]], names: list[str]) -> str:
    """The rows of one group, data set by data set."""
    lines = [f"### {group}", ""]
    for data, found in results.items():
        if not any(name in found for name in names):
            continue
        lines += [f"| {data} | P@1 / 3 / 5 | R@10 | PSP@1 / 3 / 5 | train, s | ms a row |", "|---|---|---|---|---|---|"]
        lines += [line(name, found[name]) for name in names if name in found]
        lines.append("")
    return "\n".join(lines)


def ask_ours(data: Path, name: str, threads: int, limit: float | None) -> dict[str, Any]:
    """One row of ours, or that it took too long."""
    try:
        return run_script(sys.executable, "run_framework.py", data, name, "--threads", threads, limit=limit)
    except subprocess.TimeoutExpired:
        return {"over_s": limit}


def ask_peer(python: str, features: Path, name: str, threads: int) -> dict[str, Any]:
    """One row of a peer, whose scores are judged by the same code as ours."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "scores.npz"
        result = run_script(python, "run_framework_peer.py", features, name, file, "--threads", threads)
        S = sp.load_npz(file)
    _, Y, _, Yt = measure.load(features)
    return result | metrics(Y, Yt, S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--only", nargs="*", help="names of configurations, peers or groups to run, again if need be")
    parser.add_argument("--peer-python")
    parser.add_argument("--features", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=float, help="seconds after which a configuration of ours is given up")
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    groups = run_script(sys.executable, "run_framework.py", arguments.data[0])
    groups["peers"] = list(PEERS) if arguments.peer_python else []
    results: dict[str, dict[str, dict[str, Any]]] = {}
    for data in arguments.data:
        file = arguments.out / f"{data.name}-framework.json"
        found = results[data.name] = json.loads(file.read_text()) if file.exists() else {}
        for group, names in groups.items():
            for name in names:
                chosen = arguments.only is None or {name, group} & {*arguments.only}
                if not chosen or (arguments.only is None and name in found):
                    continue
                if group == "peers":
                    made = ask_peer(arguments.peer_python, arguments.features / data.name, name, arguments.threads)
                else:
                    made = ask_ours(data, name, arguments.threads, arguments.limit)
                found[name] = made
                print(f"{data.name}, {name}: {json.dumps(made)}", file=sys.stderr, flush=True)
                file.write_text(json.dumps(found, indent=1) + "\n")
    for group, names in (groups | {"peers": list(PEERS)}).items():
        print(table(group, results, names))


if __name__ == "__main__":
    main()
