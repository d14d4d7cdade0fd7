"""Generate the tables of results in README.md and docs/ from benchmarks/results.

    python benchmarks/table.py            # print all tables
    python benchmarks/table.py --write    # replace the tables in the pages

A page contains a table between the lines ``<!-- table NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import framework
from carya.data.synthetic.published_sizes import PUBLISHED_SIZES

import scale_tables
import transformer_tables

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DATA = ("debian-deps", "tibkat-en", "yso-min3")
#: Display names of the systems, in the order in which the tables list them.
SYSTEMS = {
    "carya": "Carya, libpecos's settings",
    "carya-set": "Carya, tuned",
    "libpecos": "libpecos",
    "omikuji": "omikuji",
    "napkinxc": "napkinXC",
}
#: Display names of the servers in serve.json.
SERVERS = {
    "carya": "Carya",
    "libpecos": "FastAPI with libpecos",
    "annif": "Annif with omikuji (three trees, batches of 32)",
}


def load(name: str) -> Any:
    """Read one result file."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def precision(values: dict[str, float]) -> str:
    return " / ".join(f"{values[f'P@{k}']:.2f}" for k in (1, 3, 5))


def markdown(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]

    def padded(cell: str) -> str:
        return cell if cell == "---" else f" {cell} " if cell else " "

    return "\n".join("|" + "|".join(map(padded, line)) + "|" for line in lines)


def training_ratios(data: str) -> dict[str, float]:
    """Return the training time of each peer relative to Carya's with the same algorithm.

    The ratio for libpecos is based on wall-clock times, with teacher negatives. The ratios for omikuji (preset
    `parabel`) and napkinXC (preset `plt`) are based on CPU times, because their runs did not alternate with Carya's.
    """
    measured = load(f"{data}-framework")
    pairs = {"omikuji": ("omikuji-parabel", "parabel"), "napkinxc": ("napkinxc-plt", "plt")}
    ratios = {"libpecos": float(load(f"{data}-teacher")["ratios"]["total_s"])}
    for system, (peer, preset) in pairs.items():
        ratios[system] = measured[peer]["train_cpu_s"] / measured[preset]["train_cpu_s"]
    return ratios


def summary(data: str = "debian-deps") -> str:
    """Return the table that compares all systems on one data set."""
    ratios, latencies = training_ratios(data), load(f"{data}-latency")["systems"]
    systems = ["carya", "libpecos", "omikuji", "napkinxc"]
    columns = [latencies[system] for system in systems]
    rows = [
        ["training time relative to Carya", *(f"{ratios.get(system, 1):.0f}×" for system in systems)],
        ["single-query latency, median", *(f"{1e3 * values['one_row_ms']:,.0f} µs" for values in columns)],
        ["single-query latency, 99th percentile", *(f"{1e3 * values['one_row_ms_p99']:,.0f} µs" for values in columns)],
        ["load time, including the first query", *(f"{1e3 * values['load_s']:,.0f} ms" for values in columns)],
        ["model size", *(f"{values['model_bytes'] / 1e6:,.0f} MB" for values in columns)],
        ["P@1 / 3 / 5", *(precision(values) for values in columns)],
    ]
    return markdown([data, "Carya", "libpecos 1.2.8", "omikuji 0.5.2", "napkinXC 0.7.2"], rows)


def training() -> str:
    """Return the table of training times and precision of Carya and libpecos with the same settings."""
    rows = []
    for kind in ("teacher", "both", "teacher-dense384"):
        for data in DATA:
            result = load(f"{data}-{kind}")
            carya, other = result["summary"]["carya"], result["summary"][result["peer"]]
            setting = f"{data}, {result['negatives']}"
            if result["dense"]:
                setting += f", {result['dense']} dense columns (1 seed)"
            rows.append(
                [
                    setting,
                    *(f"{values['total_s']:.1f}" for values in (carya, other)),
                    f"{result['ratios']['total_s']:.0f}×",
                    *(precision(values) for values in (carya, other)),
                    f"{carya['train_peak_mb']:.0f}, {other['train_peak_mb']:.0f}",
                ]
            )
    headings = ["data, negatives", "Carya, s", "libpecos, s", "ratio", "Carya, P@1 / 3 / 5", "libpecos, P@1 / 3 / 5"]
    return markdown([*headings, "memory, MB"], rows)


def texts() -> str:
    """Return the table of training times from raw texts to a saved model."""
    rows = []
    for data in DATA:
        medians = load(f"{data}-texts")["medians"]
        slowest = medians["sklearn + libpecos"]["text_to_model_s"]
        for name, values in medians.items():
            command = name.replace("carya", "carya train").replace("--training-beam ", "--training-beam-width ")
            seconds = values["text_to_model_s"]
            ratio = f"{slowest / seconds:.1f}×" if name.startswith("carya") else ""
            shown = f"`{command}`" if ratio else "scikit-learn and libpecos"
            rows.append([data, shown, f"{seconds:.1f}", ratio, precision(values)])
    return markdown(["data", "command", "s", "ratio", "P@1 / 3 / 5"], rows)


def vectorizers() -> str:
    """Return the table of vectorizer times."""
    rows = []
    names = {"carya": "`carya.Tfidf`", "sklearn": "scikit-learn", "libpecos": "libpecos"}
    for data in ("debian-deps", "tibkat-en"):
        medians = load(f"{data}-vectorizers")["medians"]
        for name, values in medians.items():
            ratio = values["fit_transform_s"] / medians["carya"]["fit_transform_s"]
            rows.append(
                [
                    data,
                    names[name],
                    f"{values['fit_transform_s']:.2f}",
                    f"{ratio:.1f}×" if name != "carya" else "",
                    f"{values['transform_s']:.2f}",
                    f"{1e3 * values['short_text_one_row_ms']:.0f}",
                ]
            )
    headings = [
        "data",
        "vectorizer",
        "fit_transform on train, s",
        "ratio",
        "transform on test, s",
        "one short text, µs",
    ]
    return markdown(headings, rows)


def latency() -> str:
    """Return the table of latency, model size and memory use of all systems."""
    rows = []
    for data in DATA:
        systems = load(f"{data}-latency")["systems"]
        for system, name in SYSTEMS.items():
            if values := systems.get(system):
                rows.append(
                    [
                        data,
                        name,
                        f"{1e3 * values['one_row_ms']:.0f}, {1e3 * values['one_row_ms_p99']:.0f}",
                        f"{1e3 * values['batch_ms']:.1f}" if "batch_ms" in values else "–",
                        f"{1e3 * values['load_s']:.0f}",
                        f"{values['model_bytes'] / 1e6:.0f}",
                        f"{values['resident_mb']:.0f}",
                        precision(values),
                    ]
                )
    headings = ["data", "system", "single row, µs (median, p99)", "batch, µs per row", "load, ms", "model, MB"]
    return markdown([*headings, "resident, MB", "P@1 / 3 / 5"], rows)


def beams() -> str:
    """Return the table of recall and latency of the tuned models by beam width."""
    results = [load(f"{data}-latency")["beams"] for data in DATA]
    rows = [
        [
            str(values[0]["beam_width"]),
            *(f"{own['recall@10']:.1f}, {own['P@1']:.1f}, {1e3 * own['batch_1_ms']:.0f}" for own in values),
        ]
        for values in zip(*results, strict=True)
    ]
    return markdown(["beam width", *DATA], rows)


def layouts() -> str:
    """Return the table of batch times of the tuned models by layout and weight type."""
    results = [load(f"{data}-latency")["layouts"] for data in DATA]
    rows = [
        [f"`{values[0]['layout']}`", values[0]["precision"], *(f"{1e3 * own['batch_1_ms']:.0f}" for own in values)]
        for values in zip(*results, strict=True)
    ]
    return markdown(["layout", "weights", *DATA], rows)


def scaling() -> str:
    """Return the table of training times on generated data of increasing size."""
    rows = []
    for series in load("scaling").values():
        for values in series:
            carya, other = values["carya"], values.get("libpecos")
            rows.append(
                [
                    f"{values['rows']:,}",
                    f"{values['features']:,}",
                    f"{values['labels']:,}",
                    f"{values['problem_nonzeros'] / 1e6:,.0f}",
                    f"{carya['index_s']:.2f}",
                    f"{carya['train_s']:.2f}",
                    f"{carya['train_s'] * 1e9 / values['problem_nonzeros']:.2f}",
                    f"{other['train_s']:.1f}" if other else "–",
                ]
            )
    headings = ["rows", "features", "labels", "nonzeros per pass, M", "indexing, s", "training, s"]
    return markdown([*headings, "ns per nonzero", "libpecos training, s"], rows)


def ensemble_cost() -> str:
    """Return the table of training and search times of three trees relative to one tree."""
    rows = []
    for data in DATA:
        values = load(f"{data}-ensembles")
        keys = [f"{quantity}, three to one" for quantity in ("train cpu s", "train s", "rank cpu s", "rank s")]
        rows.append([data, *(f"{values[key]:.1f}×" for key in keys)])
    return markdown(
        ["data", "training, CPU time", "training, wall time", "search, CPU time", "search, wall time"], rows
    )


def serving() -> str:
    """Return the table of throughput, latency and memory use of the servers."""
    measured = load("serve")
    rows = []
    for server, name in SERVERS.items():
        values = measured[server]
        one, batch, half = (values[load] for load in ("one", "batch", "half"))
        cpu_us = (f"{load['server_cpu_us_per_text']:,.0f}" for load in (batch, one))
        rows.append(
            [
                name,
                f"{batch['texts_per_second']:,.0f}",
                f"{one['per_second']:,.0f}",
                f"{half['p99_ms']:.{1 if half['p99_ms'] < 10 else 0}f}",
                ", ".join(cpu_us),
                f"{values['memory_mb']:,.0f}",
            ]
        )
    headings = [measured["data"], "texts/s, batches of 64", "requests/s, one text", "p99 at half load, ms"]
    return markdown([*headings, "server CPU time per text, µs (batch, single)", "memory, MB"], rows)


def paper_generated() -> str:
    """Return the table of execution times on generated data, measured by paper.py."""
    rows = []
    for data, run in load("paper-generated")["data"].items():
        cells = run["cells"]
        search, sizes = cells["layouts"], cells["statistics"]
        trainings = (cells[f"T=3, B=32, {negatives}"]["train_s"] for negatives in ("TFN", "TFN + MAN"))
        layouts = (1e3 * search["layouts"][layout]["one_row_ms"] for layout in ("packed", "hash", "search"))
        rows.append(
            [
                f"{data} × {run['scale']}",
                f"{sizes['n_train']:,}",
                f"{sizes['n_labels']:,}",
                ", ".join(f"{seconds:.2f}" for seconds in trainings),
                ", ".join(f"{microseconds:.0f}" for microseconds in layouts),
                f"{cells['XR-Transformer']['train_s']:.0f}",
                f"{cells['XR-Transformer']['one_row_ms']:.1f}",
            ]
        )
    headings = ["generated data", "training rows", "labels", "XR-Linear training, s (TFN, TFN + MAN)"]
    headings += ["one query, µs (packed, hash, search)", "XR-Transformer training, s", "one query, ms"]
    return markdown(headings, rows)


def new_labels() -> str:
    """Return the table that compares adding labels with retraining."""
    results, rows = load("new-labels"), []
    methods = {
        "retrained": "retrain",
        "held-out labels, new rows": "`add_labels`, rows with new labels",
        "held-out labels, all rows": "`add_labels`, all rows",
    }
    for data in DATA:
        for key, name in methods.items():
            measured = results[data][key]
            precisions = [f"{measured[f'{part}_P@5']:.2f}" for part in ("new", "other")]
            rows.append([data if key == "retrained" else "", name, f"{measured['cpu_s']:.2f}", *precisions])
    return markdown(["data set", "method", "CPU time, s", "P@5, rows with new labels", "P@5, other rows"], rows)


def published_sizes() -> str:
    """Return the table of the sizes of the published data sets."""
    rows = [
        [
            size.name,
            f"{size.n_train:,} / {size.n_test:,}",
            f"{size.n_features:,}",
            f"{size.features_per_row:g}",
            f"{size.n_labels:,}",
            f"{size.labels_per_row:.2f}",
        ]
        for size in PUBLISHED_SIZES.values()
    ]
    headings = ["`--like`", "train / test", "features", "features per row (approximate)", "labels", "labels per row"]
    return markdown(headings, rows)


def transformers() -> dict[str, str]:
    """Return the tables of precision and throughput of transformers."""
    names = [f"{data}-{model}" for data in ("debian-deps", "tibkat-en") for model in transformer_tables.MODELS]
    runs = {name: load(f"transformers-{name}") for name in names}
    return {
        "transformer precision": markdown(*transformer_tables.precision(runs)),
        "transformer propensity-scored precision": markdown(*transformer_tables.propensity_scored(runs)),
        "transformer throughput": markdown(*transformer_tables.throughput(load("transformers-speed"))),
    }


def recorded() -> dict[str, str]:
    """Return the tables whose cells were recorded by hand."""
    return {name: markdown(table["headings"], table["rows"]) for name, table in load("experiments")["tables"].items()}


def all_tables() -> dict[str, str]:
    """Return all tables by name."""
    return {
        "summary": summary(),
        "training": training(),
        "texts": texts(),
        "vectorizers": vectorizers(),
        "latency": latency(),
        "beams": beams(),
        "layouts": layouts(),
        "scaling": scaling(),
        "ensemble cost": ensemble_cost(),
        **framework.tables({data: load(f"{data}-framework") for data in DATA}),
        "scale": markdown(*scale_tables.costs(load("scale"))),
        "scale plans": markdown(*scale_tables.plans(load("scale"))),
        "cluster simulation": markdown(*scale_tables.simulation(load("cluster-simulation"))),
        "serve": serving(),
        "new labels": new_labels(),
        "published sizes": published_sizes(),
        "paper on generated data": paper_generated(),
        **transformers(),
        **recorded(),
    }


def pages() -> list[Path]:
    """Return the paths of all pages that contain generated tables."""
    paths = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in paths if "<!-- table " in path.read_text(encoding="utf-8")]


def fill(page: str, tables: dict[str, str]) -> str:
    """Return a page with its tables replaced."""

    def replacement(match: re.Match[str]) -> str:
        return f"<!-- table {match[1]} -->\n{tables[match[1]]}\n<!-- end -->"

    return re.sub(r"<!-- table (.*?) -->\n.*?<!-- end -->", replacement, page, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the tables in the pages")
    arguments = parser.parse_args()
    tables = all_tables()
    if not arguments.write:
        for name, table in tables.items():
            print(f"## {name}\n\n{table}\n")
        return
    for path in pages():
        path.write_text(fill(path.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    main()
