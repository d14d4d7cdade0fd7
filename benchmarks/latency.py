"""How fast models answer: Carya, libpecos, omikuji and napkinXC on the same queries, in turn, in one run.

    python benchmarks/latency.py FEATURES --peer-python PEER_VENV/bin/python --out results/NAME-latency.json

FEATURES is a folder as for compare.py. Each system trains once (the models are kept in --models and used again), then
opens its model and answers in processes of its own, in turn, several rounds; medians are shown. Then Carya's layouts,
precisions and beam widths. With matplotlib there, a plot of recall against latency is written beside the JSON.

Carya trains with the settings of libpecos, and with --set once more with others, as "carya-set":

    ... --set branching=256 cost=0.5 threshold=0.3 'threshold_by="effect"'

Ratios, layouts, precisions and beam widths are then those of "carya-set".
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

# (what, how it is printed)
ROWS = [
    ("one_row_ms", "one row, ms (median)"),
    ("one_row_ms_p99", "one row, ms (p99)"),
    ("p99_to_median", "one row, p99 / median"),
    ("batch_1_ms", "batch, one thread, ms a row"),
    ("batch_ms", "batch, all threads, ms a row"),
    ("threads_gain", "batch, one thread / all"),
    ("load_s", "load to first answer, s"),
    ("model_bytes", "model, bytes"),
    ("resident_mb", "resident set while serving, MB"),
    ("P@1", "P@1"),
    ("P@3", "P@3"),
    ("P@5", "P@5"),
]
PLAIN = {"p99_to_median", "threads_gain", "P@1", "P@3", "P@5"}  # not compared with those of others


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", help="folder with the matrices")
    parser.add_argument("--peer-python", help="python of the peers' virtual environment; without it Carya runs alone")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS)
    parser.add_argument("--set", nargs="+", default=[], help="other settings for Carya, as name=JSON")
    parser.add_argument("--models", type=Path, help="folder to keep trained models in")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="file for the JSON; the plot gets the same name with .svg")
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
    places = {system: models / f"{data}-{system}" for system in pythons}
    if settings:
        told = json.dumps(settings, sort_keys=True).encode()
        places[ours] = places[ours].with_name(f"{places[ours].name}-{zlib.crc32(told):08x}")
    for system, place in places.items():
        if not place.exists():
            begun = place.with_name(f"{place.name}.begun")  # a training that was stopped is not taken for a model
            options = [module_of(system), arguments.features, begun, "--train", "--threads", arguments.threads]
            options += ["--set", *arguments.set] if system == ours else []
            done = run_script(pythons[system], "run_latency.py", *options)
            begun.rename(place)
            console.print(f"{system}: trained in {done['train_s']:.1f} s", highlight=False)
    runs: dict[str, list[dict[str, Any]]] = {system: [] for system in pythons}
    for number in range(arguments.rounds):
        for system, python in pythons.items():
            options = [module_of(system), arguments.features, places[system], "--threads", arguments.threads]
            options += ["--precision"] * (number == 0)
            runs[system].append(run_script(python, "run_latency.py", *options))
        console.print(f"round {number + 1} of {arguments.rounds}", highlight=False)
    middle = {
        system: {key: statistics.median(one[key] for one in done if key in one) for key, _ in ROWS if key in done[0]}
        for system, done in runs.items()
    }
    result = {
        "data": data,
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "set": settings,
        "ours": ours,
        "systems": middle,
        "ratios": {
            system: {key: one[key] / middle[ours][key] for key, _ in ROWS if key in one and key not in PLAIN}
            for system, one in middle.items()
            if system != ours
        },
        **run_script(sys.executable, "run_layouts.py", arguments.features, places[ours]),
        "runs": runs,
    }
    show(console, result)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
        plot(result, arguments.out.with_suffix(".svg"), console)


def module_of(system: str) -> str:
    return system.removesuffix("-set")


def show(console: Console, result: dict[str, Any]) -> None:
    systems = result["systems"]
    table = Table("", *systems, title=f"{result['data']}, {result['threads']} threads, {result['rounds']} rounds")
    for key, text in ROWS:
        cells = []
        for system, one in systems.items():
            ratio = result["ratios"].get(system, {}).get(key)
            value = "–" if key not in one else f"{one[key]:,.0f}" if one[key] > 1000 else f"{one[key]:.4g}"
            cells.append(f"{value} ({ratio:.1f}x)" if ratio else value)
        table.add_row(text, *cells)
    console.print(table)
    table = Table(
        "layout", "weights", "one row, ms", "p99", "batch, ms a row", title="Layouts and precisions, one thread"
    )
    for one in result["layouts"]:
        times = [f"{one[key]:.4f}" for key in ("one_row_ms", "one_row_ms_p99", "batch_1_ms")]
        table.add_row(one["layout"], one["precision"], *times)
    console.print(table)
    table = Table("beam", "recall@10", "P@1", "P@5", "one row, ms", "batch, ms a row", title="Recall against latency")
    for one in result["beams"]:
        shown = [f"{one[key]:.2f}" for key in ("recall@10", "P@1", "P@5")]
        table.add_row(str(one["beam_width"]), *shown, *(f"{one[key]:.4f}" for key in ("one_row_ms", "batch_1_ms")))
    console.print(table)


def plot(result: dict[str, Any], path: Path, console: Console) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        console.print("no plot: matplotlib is not installed")
        return
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    systems = result["systems"]
    left.barh(list(systems), [one["one_row_ms"] for one in systems.values()])
    left.invert_yaxis()
    left.set_xscale("log")
    left.set_xlabel("one row, ms (median)")
    left.set_title(result["data"])
    right.plot([one["one_row_ms"] for one in result["beams"]], [one["recall@10"] for one in result["beams"]], "o-")
    for one in result["beams"]:
        right.annotate(f"beam {one['beam_width']}", (one["one_row_ms"], one["recall@10"]))
    right.set_xlabel("one row, ms (median)")
    right.set_ylabel("recall@10, %")
    right.set_title("Carya: recall against latency")
    figure.savefig(path)


if __name__ == "__main__":
    main()
