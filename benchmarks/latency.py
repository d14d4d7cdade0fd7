"""Compare the inference latency of Carya, libpecos, omikuji and napkinXC on the same queries, in alternating runs.

    python benchmarks/latency.py FEATURES --peer-python PEER_VENV/bin/python --out results/NAME-latency.json

FEATURES is a feature folder, as for compare.py. Each system trains one model; models in the --models folder are reused.
The systems then alternate for several rounds, each loading its model and ranking labels in a separate process; the
table shows medians. Finally, Carya is measured with every layout, weight type and beam width. If matplotlib is
installed, a plot of recall against latency is written next to the JSON file.

Carya is trained with libpecos's settings. With --set, a second Carya model, "carya-set", is trained with other
settings:

    ... --set branching=256 C=0.5 threshold=0.3 'threshold_by="effect"'

The ratios, and the results by layout, weight type and beam width, then refer to "carya-set".
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import measure
from launch import run_script

PEERS = ("libpecos", "omikuji", "napkinxc")

# (key, heading)
ROWS = [
    ("one_row_ms", "single row, ms (median)"),
    ("one_row_ms_p99", "single row, ms (p99)"),
    ("p99_to_median", "single row, p99 / median"),
    ("batch_1_ms", "batch, one thread, ms per row"),
    ("batch_ms", "batch, all threads, ms per row"),
    ("threads_gain", "batch, one thread / all"),
    ("load_s", "load time to first result, s"),
    ("model_bytes", "model, bytes"),
    ("resident_mb", "resident set while serving, MB"),
    ("P@1", "P@1"),
    ("P@3", "P@3"),
    ("P@5", "P@5"),
]
WITHOUT_RATIO = {"p99_to_median", "threads_gain", "P@1", "P@3", "P@5"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", help="folder with the matrices")
    parser.add_argument(
        "--peer-python", help="Python interpreter of the peers' environment; without it, only Carya runs"
    )
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS)
    parser.add_argument("--set", nargs="+", default=[], help="settings of the second Carya model, as name=JSON")
    parser.add_argument("--models", type=Path, help="folder for the trained models; existing models are reused")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="JSON output file; the plot has the same name with the extension .svg")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        measure_all(arguments, arguments.models or Path(scratch), Console())


def measure_all(arguments: argparse.Namespace, models: Path, console: Console) -> None:
    settings = measure.settings(arguments.set)
    ours = "carya-set" if settings else "carya"
    pythons = dict.fromkeys(("carya", ours), sys.executable)
    if arguments.peer_python:
        pythons |= dict.fromkeys(arguments.peers, arguments.peer_python)
    data = Path(arguments.features).resolve().name
    folders = {system: models / f"{data}-{system}" for system in pythons}
    if settings:
        digest = zlib.crc32(json.dumps(settings, sort_keys=True).encode())
        folders[ours] = folders[ours].with_name(f"{folders[ours].name}-{digest:08x}")
    for system, folder in folders.items():
        if not folder.exists():
            # The temporary name prevents the output of an interrupted training run from being used as a model.
            incomplete = folder.with_name(f"{folder.name}.incomplete")
            options = [module_of(system), arguments.features, incomplete, "--train", "--threads", arguments.threads]
            options += ["--set", *arguments.set] if system == ours else []
            trained = run_script(pythons[system], "run_latency.py", *options)
            incomplete.rename(folder)
            console.print(f"{system}: trained in {trained['train_s']:.1f} s", highlight=False)
    runs: dict[str, list[dict[str, Any]]] = {system: [] for system in pythons}
    for number in range(arguments.rounds):
        for system, python in pythons.items():
            options = [module_of(system), arguments.features, folders[system], "--threads", arguments.threads]
            options += ["--precision"] * (number == 0)
            runs[system].append(run_script(python, "run_latency.py", *options))
        console.print(f"round {number + 1} of {arguments.rounds}", highlight=False)
    middle = {
        system: {
            key: statistics.median(result[key] for result in results if key in result)
            for key, _ in ROWS
            if key in results[0]
        }
        for system, results in runs.items()
    }
    result = {
        "data": data,
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "set": settings,
        "ours": ours,
        "systems": middle,
        "ratios": {
            system: {
                key: values[key] / middle[ours][key] for key, _ in ROWS if key in values and key not in WITHOUT_RATIO
            }
            for system, values in middle.items()
            if system != ours
        },
        **run_script(sys.executable, "run_layouts.py", arguments.features, folders[ours]),
        "runs": runs,
    }
    show(console, result)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
        plot(result, arguments.out.with_suffix(".svg"), console)


def module_of(system: str) -> str:
    """Return the name of the module in the `rankers` package that runs a system."""
    return system.removesuffix("-set")


def show(console: Console, result: dict[str, Any]) -> None:
    systems = result["systems"]
    table = Table("", *systems, title=f"{result['data']}, {result['threads']} threads, {result['rounds']} rounds")
    for key, heading in ROWS:
        cells = []
        for system, values in systems.items():
            ratio = result["ratios"].get(system, {}).get(key)
            value = "–" if key not in values else f"{values[key]:,.0f}" if values[key] > 1000 else f"{values[key]:.4g}"
            cells.append(f"{value} ({ratio:.1f}x)" if ratio else value)
        table.add_row(heading, *cells)
    console.print(table)
    table = Table(
        "layout", "weights", "single row, ms", "p99", "batch, ms per row", title="Layouts and weight types, one thread"
    )
    for values in result["layouts"]:
        times = [f"{values[key]:.4f}" for key in ("one_row_ms", "one_row_ms_p99", "batch_1_ms")]
        table.add_row(values["layout"], values["precision"], *times)
    console.print(table)
    table = Table("beam", "recall@10", "P@1", "P@5", "single row, ms", "batch, ms per row", title="Recall and latency")
    for values in result["beams"]:
        quality = [f"{values[key]:.2f}" for key in ("recall@10", "P@1", "P@5")]
        times = [f"{values[key]:.4f}" for key in ("one_row_ms", "batch_1_ms")]
        table.add_row(str(values["beam_width"]), *quality, *times)
    console.print(table)


def plot(result: dict[str, Any], path: Path, console: Console) -> None:
    """Plot the latency of all systems, and Carya's recall against its latency."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        console.print("The plot was skipped because matplotlib is not installed.")
        return
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    systems, beams = result["systems"], result["beams"]
    left.barh(list(systems), [values["one_row_ms"] for values in systems.values()])
    left.invert_yaxis()
    left.set_xscale("log")
    left.set_xlabel("single row, ms (median)")
    left.set_title(result["data"])
    right.plot([values["one_row_ms"] for values in beams], [values["recall@10"] for values in beams], "o-")
    for values in beams:
        right.annotate(f"beam {values['beam_width']}", (values["one_row_ms"], values["recall@10"]))
    right.set_xlabel("single row, ms (median)")
    right.set_ylabel("recall@10, %")
    right.set_title("Carya: recall against latency")
    figure.savefig(path)


if __name__ == "__main__":
    main()
