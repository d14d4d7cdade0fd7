"""Reproduce the experiments of the PECOS paper on its six data sets, including the tables and figures.

    python benchmarks/paper.py DATASET_DIR [--out paper-results] [--encoder NAME_OR_FOLDER ...]
    python benchmarks/paper.py generated/ --synthesize --encoder random

DATASET_DIR contains one folder per data set (Eurlex-4K, Wiki10-31K, AmazonCat-13K, Wiki-500K, Amazon-670K, Amazon-3M),
in any of the formats in which they are published: PECOS archives, AttentionXML folders, or files from the Extreme
Classification Repository. Missing data sets are skipped or, with --synthesize, generated with their published sizes
multiplied by a scale. Every configuration is measured in its own process, and its result is written to
OUT/DATA/CELL.json together with the machine, the versions and the commit. An interrupted run continues with the first
missing result. OUT/README.md shows the results next to those in the paper, and OUT/results.json contains all of them.

The transformers (X-Transformer and XR-Transformer) are measured if --encoder is given. Its value is a folder, a name on
the Hugging Face Hub, or `random` for a small encoder with random weights, which is sufficient to measure times. With
several encoders, the paper's ensembles are also trained.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from launch import run_script
from provenance import provenance
from published import figures, tables
from published.experiments import LAYOUT_MODEL, Cell, cells_of
from published.random_encoder import save_random_encoder
from published.sources import FOLDER_NAMES, Source, find_sources, prepare, read_description

#: Scales of the generated data, chosen so that measuring all cells takes about half an hour on two cores.
SCALES = {
    "eurlex-4k": 0.3,
    "wiki10-31k": 0.1,
    "amazoncat-13k": 0.01,
    "wiki-500k": 0.005,
    "amazon-670k": 0.02,
    "amazon-3m": 0.003,
}
_RANDOM = "random"


def main() -> None:
    arguments = parse_arguments()
    if arguments.synthesize is not None:
        synthesize(arguments.folder, arguments.synthesize or [f"{name}:{scale}" for name, scale in SCALES.items()])
    sources = find_sources(arguments.folder)
    if arguments.data:
        sources = {name: source for name, source in sources.items() if name in arguments.data}
    if not sources:
        raise SystemExit(
            f"{arguments.folder} contains none of the data sets {', '.join(FOLDER_NAMES)}. Pass a folder that contains "
            "at least one of them, or pass --synthesize."
        )
    results: tables.Results = {}
    failed = []
    for name, source in sources.items():
        prepared = prepare(source, arguments.out / "prepared" / name)
        results[name] = {}
        for cell in cells_of(name, transformers=bool(arguments.encoder) and source.texts is not None):
            try:
                result = measured(cell, source, prepared, arguments)
            except SystemExit as error:  # the cell failed; the other cells are still measured
                print(f"{name}, {cell.name}: {error}", file=sys.stderr, flush=True)
                failed.append(f"{name}, {cell.name}")
                continue
            if result is not None:
                results[name][cell.name] = result
        write_pages(results, sources, arguments)
    print(arguments.out / "README.md")
    if failed:
        raise SystemExit("Failed: " + "; ".join(failed))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DATASET_DIR")
    parser.add_argument("--out", type=Path, default=Path("paper-results"), help="folder for results and tables")
    parser.add_argument("--data", nargs="*", choices=list(FOLDER_NAMES), help="data sets to use (default: all)")
    parser.add_argument("--cells", nargs="*", help="cells to measure, e.g. layouts, even if they already have results")
    parser.add_argument("--synthesize", nargs="*", metavar="NAME:SCALE", help="generate missing data sets")
    parser.add_argument("--encoder", action="append", default=[], help="encoder folder or name, or `random`")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="a transformer parameter")
    parser.add_argument("--threads", type=int, default=-1, help="number of threads; -1 means all cores")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--queries", type=int, default=10_000, help="number of test rows used as single queries")
    parser.add_argument("--limit", type=float, help="time limit per cell, in seconds")
    parser.add_argument("--tables-only", action="store_true", help="only write the tables, using existing results")
    return parser.parse_args()


def synthesize(folder: Path, sizes: list[str]) -> None:
    """Generate the missing data sets, as texts that consist of pseudowords."""
    from carya.data.synthetic.published_sizes import PUBLISHED_SIZES

    folder.mkdir(parents=True, exist_ok=True)
    for size in sizes:
        name, _, scale = size.partition(":")
        if name not in PUBLISHED_SIZES:
            raise SystemExit(f"{size} does not have the form NAME:SCALE with a NAME from {', '.join(PUBLISHED_SIZES)}.")
        if name not in find_sources(folder):
            command = [sys.executable, "-c", "from carya.cli import main; main()", "data", "synth", str(folder / name)]
            options = ["--texts", "--like", name, "--scale", scale or str(SCALES[name])]
            subprocess.run([*command, *options], check=True)


def measured(cell: Cell, source: Source, prepared: Path, arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Return the result of a cell: the existing result if it has the same settings, otherwise a new one.

    Returns None if there is no usable result and the cell is not selected for measurement.
    """
    file = arguments.out / source.name / cell.file_name
    key = settings_key(cell, prepared, arguments)
    selected = arguments.cells is None or cell.name in arguments.cells
    if file.exists():
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if arguments.tables_only or (result["key"] == key and not (selected and arguments.cells)):
            return result
    if arguments.tables_only or not selected:
        return None
    model = arguments.out / "prepared" / source.name / "model"
    options: list[object] = ["--threads", arguments.threads, "--seed", arguments.seed, "--queries", arguments.queries]
    if cell.name == LAYOUT_MODEL or cell.kind == "layouts":
        options += ["--model", model]
        if cell.kind == "layouts" and not model.exists():  # LAYOUT_MODEL has a result, but its model was deleted
            run_cell(LAYOUT_MODEL, source, prepared, options, arguments)
    if cell.kind == "transformer":
        for encoder in arguments.encoder:
            options += ["--encoder", random_encoder(source, prepared) if encoder == _RANDOM else encoder]
        options += [item for setting in arguments.set for item in ("--set", setting)]
    print(f"{source.name}, {cell.name} …", file=sys.stderr, flush=True)
    values = run_cell(cell.name, source, prepared, options, arguments)
    result = {"data": source.name, "cell": cell.name, "key": key, **values, "provenance": provenance()}
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    temporary.replace(file)
    return result


def settings_key(cell: Cell, prepared: Path, arguments: argparse.Namespace) -> str:
    """Return a hash of the settings and data that a result depends on; the code version is not included."""
    description = read_description(prepared)
    settings: dict[str, Any] = {
        "source": [description["fingerprint"], description["features"]],
        "settings": cell.settings,
        "trees": cell.n_trees,
        "threads": arguments.threads,
        "seed": arguments.seed,
    }
    if cell.kind in ("layouts", "transformer"):
        settings["queries"] = arguments.queries
    if cell.kind == "transformer":
        settings |= {"encoder": arguments.encoder, "set": arguments.set}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def run_cell(
    name: str, source: Source, prepared: Path, options: list[object], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Measure a cell; if it exceeds the time limit, return only the limit."""
    try:
        return run_script(sys.executable, "run_paper.py", prepared, source.name, name, *options, limit=arguments.limit)
    except subprocess.TimeoutExpired:
        return {"over_s": arguments.limit}


def random_encoder(source: Source, prepared: Path) -> Path:
    """Return the folder of the randomly initialized encoder for a data set; create the encoder if necessary."""
    folder = prepared / "random-encoder"
    return folder if folder.exists() else save_random_encoder(source.read_texts("train")[0], folder)


def write_pages(results: tables.Results, sources: dict[str, Source], arguments: argparse.Namespace) -> None:
    """Write README.md and the figures."""
    folder = arguments.out / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in figures.FIGURES.items():
        draw(results, folder / f"{name}.svg")
    (arguments.out / "README.md").write_text(page(results, sources), encoding="utf-8")
    scales = {name: source.scale for name, source in sources.items()}
    (arguments.out / "results.json").write_text(json.dumps(merged(results, scales), indent=1) + "\n", encoding="utf-8")


def merged(results: tables.Results, scales: dict[str, str | None]) -> dict[str, Any]:
    """Return the results of all cells, without curve data; the scale is null for published data."""
    left_out = ("data", "cell", "key", "provenance", "labels_curve", "clusters_curve")
    provenances = [cell["provenance"] for cells in results.values() for cell in cells.values()]
    return {
        "provenance": max(provenances, key=lambda record: record["measured"], default=None),
        "data": {
            data: {
                "scale": scales[data],
                "cells": {
                    name: {key: value for key, value in cell.items() if key not in left_out}
                    for name, cell in cells.items()
                },
            }
            for data, cells in results.items()
        },
    }


def page(results: tables.Results, sources: dict[str, Source]) -> str:
    """Return the page with all tables."""
    cells = [cell for values in results.values() for cell in values.values()]
    records = [cell["provenance"] for cell in cells]
    machines = sorted({_describe(record["machine"]) for record in records})
    commits = sorted({record["commit"] for record in records})
    versions = sorted({f"Carya {record['versions']['carya']}" for record in records})
    devices = sorted({f"{cell['device']}, {', '.join(cell['encoders'])}" for cell in cells if "device" in cell})
    generated = [name for name in results if sources[name].is_generated]
    notes = [f"* Machine: {'; '.join(machines)}", f"* Code: {', '.join(versions)}, commit {', '.join(commits)}"]
    if devices:
        notes.append(f"* Transformers: {'; '.join(devices)}")
    for name in results:
        source = sources[name]
        form = f"features: {source.features or 'TF-IDF of the texts'}" + (
            f", texts: {source.texts}" if source.texts else ""
        )
        command = f"`carya data synth --like {name} --scale {source.scale} --texts`"
        notes.append(f"* {name}: {command if source.is_generated else form}")
    warning = ""
    if generated:
        warning = (
            f"**{', '.join(generated)}: data generated by `carya data synth`, not the published data.** Only times and "
            "sizes are meaningful; precision and recall cannot be compared with the values in the paper.\n\n"
        )
    sections = {
        "Data": tables.statistics(results),
        "Label distribution": tables.label_distribution(results)
        + "\n\n![Training rows per label and per cluster](figures/label-distribution.svg)",
        "Main results": tables.main_results(results),
        "Training time and precision": tables.training_cost(results)
        + "\n\n![Precision against training time](figures/time-against-precision.svg)",
        "Real-time inference": tables.realtime(results) + "\n\n![Single-query latency](figures/latency.svg)",
        "Ablation": tables.ablation(results),
        "Time and memory by layout": tables.layouts(results),
    }
    text = "\n\n".join(f"## {title}\n\n{content}" for title, content in sections.items())
    intro = (
        "Generated by `benchmarks/paper.py`. The paper's numbers are from arXiv:2010.05878. In the paper, XR-Linear "
        "ran on 96 cores, transformers on 8 V100 GPUs, and single queries on one core or one V100."
    )
    return f"# Reproduction of the PECOS paper\n\n{intro}\n\n{warning}" + "\n".join(notes) + f"\n\n{text}\n"


def _describe(machine: dict[str, Any]) -> str:
    return f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB"


if __name__ == "__main__":
    main()
