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
from pathlib import Path
from typing import Any

from launch import HERE, run_script

PEERS = ("libpecos-tfn-3", "libpecos-tfn+man-3", "omikuji-parabel", "omikuji-bonsai", "napkinxc-plt")
COLUMNS = ("P@1", "P@3", "P@5", "R@10", "PSP@1", "PSP@3", "PSP@5")


def table(group: str, results: dict[str, dict[str, dict[str, Any]]], names: list[str]) -> str:
    """The rows of one group, data set by data set."""
    lines = [f"### {group}", ""]
    for data, found in results.items():
        if not any(name in found for name in names):
            continue
        lines += [f"| {data} | P@1 / 3 / 5 | R@10 | PSP@1 / 3 / 5 | train, s | ms a row |", "|---|---|---|---|---|---|"]
        for name in names:
            if name in found:
                one = found[name]
                if "over_s" in one:
                    lines.append(f"| {name} | not within {one['over_s'] / 60:.0f} minutes | | | | |")
                    continue
                recall = f"{one['R@10']:.1f}" if "R@10" in one else "–"
                propensity = " / ".join(f"{one[f'PSP@{k}']:.1f}" for k in (1, 3, 5)) if "PSP@1" in one else "–"
                precision = " / ".join(f"{one[f'P@{k}']:.2f}" for k in (1, 3, 5))
                times = f"{one['train_s']:.1f} | {one['batch_ms']:.3f}" if "train_s" in one else "– | –"
                lines.append(f"| {name} | {precision} | {recall} | {propensity} | {times} |")
        lines.append("")
    return "\n".join(lines)


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
                    features = arguments.features / data.name
                    made = run_script(
                        arguments.peer_python, "run_framework_peer.py", features, name, "--threads", arguments.threads
                    )
                else:
                    try:
                        made = run_script(
                            sys.executable,
                            "run_framework.py",
                            data,
                            name,
                            "--threads",
                            arguments.threads,
                            limit=arguments.limit,
                        )
                    except subprocess.TimeoutExpired:
                        made = {"over_s": arguments.limit}
                found[name] = made
                print(f"{data.name}, {name}: {json.dumps(made)}", file=sys.stderr, flush=True)
                file.write_text(json.dumps(found, indent=1) + "\n")
    for group, names in (groups | {"peers": list(PEERS)}).items():
        print(table(group, results, names))


if __name__ == "__main__":
    main()
