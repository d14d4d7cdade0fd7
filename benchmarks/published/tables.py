"""Markdown tables with the results of the paper and of Carya next to each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from published.experiments import BRANCHING, HARD_MODEL, MAIN_MODEL, NEGATIVES, TREES, linear_name

PAPER: dict[str, Any] = json.loads((Path(__file__).parent / "paper.json").read_text(encoding="utf-8"))
KS = (1, 3, 5)
#: The results of all cells by data set and cell name.
Results = dict[str, dict[str, dict[str, Any]]]

_EMPTY = "–"
_LAYOUT_TITLES = {
    "packed": "packed (Carya)",
    "by-label": "label-indexed",
    "by-feature": "feature-indexed",
    "hash": "doubly sparse, hash table",
    "search": "doubly sparse, sorted list",
}


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    if any(len(row) != len(headings) for row in rows):
        raise ValueError("Every row of a table must have one cell per heading.")
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float | None, digits: int = 2) -> str:
    """Format a number; missing values are shown as a dash."""
    return _EMPTY if value is None else f"{value:,.{digits}f}"


def triple(values: Sequence[float | None] | None, digits: int = 2) -> str:
    """Format the values of a metric at k = 1, 3 and 5."""
    if values is None or all(value is None for value in values):
        return _EMPTY
    return " / ".join(number(value, digits) for value in values)


def seconds(cell: dict[str, Any] | None, key: str, digits: int = 2) -> str:
    """Format one of the times of a cell; if the cell exceeded the time limit, format the limit."""
    if cell is not None and "over_s" in cell:
        return f"> {cell['over_s']:,.0f}"
    return number((cell or {}).get(key), digits)


def at_ks(cell: dict[str, Any] | None, metric: str) -> list[float | None] | None:
    """Return a metric of a cell at k = 1, 3 and 5, or None if the cell was not measured."""
    return None if cell is None else [cell.get(f"{metric}@{k}") for k in KS]


def statistics(results: Results) -> str:
    """Return the table of data statistics."""
    columns = {
        "n_train": ("training rows", 0),
        "n_test": ("test rows", 0),
        "train_words": ("training words", 0),
        "test_words": ("test words", 0),
        "n_features": ("features", 0),
        "n_labels": ("labels", 0),
        "labels_per_row": ("labels per row", 2),
        "rows_per_label": ("rows per label", 2),
    }
    rows = []
    for data, cells in results.items():
        for source, values in (("paper", PAPER["data"][data]), ("this run", cells.get("statistics"))):
            shown = [number((values or {}).get(key), digits) for key, (_, digits) in columns.items()]
            rows.append([data if source == "paper" else "", source, *shown])
    return markdown(["data set", "", *(title for title, _ in columns.values())], rows)


def main_results(results: Results) -> str:
    """Return the table of precision and recall of Carya and of all methods in the paper."""
    ours = {
        MAIN_MODEL: "**Carya, XR-Linear (T = 3, B = 32, TFN)**",
        "Carya, default settings": "**Carya, default settings (one tree)**",
        "X-Transformer": "**Carya, X-Transformer**",
        "XR-Transformer": "**Carya, XR-Transformer**",
    }
    recalls = {"XR-Linear": "XR-Linear, TFN", "X-Transformer": "X-Transformer", "XR-Transformer": "XR-Transformer"}
    blocks = []
    for data, cells in results.items():
        rows = []
        for method, precision in PAPER["main"][data].items():
            recall = PAPER["cost"][data][recalls[method]][3:6] if method in recalls else None
            rows.append([f"{method} (paper)", triple(precision), triple(recall)])
        for name, title in ours.items():
            cell = cells.get(name)
            rows.append([title, triple(at_ks(cell, "P")), triple(at_ks(cell, "R"))])
        blocks.append(markdown([data, "P@1 / 3 / 5", "R@1 / 3 / 5"], rows))
    return "\n\n".join(blocks)


def training_cost(results: Results) -> str:
    """Return the table of training times and precision of XR-Linear and transformers, measured and from the paper."""
    cells_of = {
        "XR-Transformer": "XR-Transformer",
        "X-Transformer": "X-Transformer",
        "XR-Linear, TFN": MAIN_MODEL,
        "XR-Linear, TFN + MAN": HARD_MODEL,
    }
    rows = []
    for data, cells in results.items():
        for method, reported in PAPER["cost"][data].items():
            cell = cells.get(cells_of[method])
            rows.append(
                [
                    data if method == "XR-Transformer" else "",
                    method,
                    triple(reported[:3]),
                    triple(at_ks(cell, "P")),
                    triple(reported[3:6]),
                    triple(at_ks(cell, "R")),
                    number(reported[6], 1),
                    seconds(cell, "train_s", 1),
                    number((cell or {}).get("train_cpu_s"), 1),
                    number((cell or {}).get("train_peak_mb"), 0),
                ]
            )
    headings = [
        "data set",
        "method",
        "P@1 / 3 / 5, paper",
        "Carya",
        "R@1 / 3 / 5, paper",
        "Carya",
        "training, s, paper",
    ]
    return markdown([*headings, "Carya", "Carya, CPU s", "Carya, peak MB"], rows)


def realtime(results: Results) -> str:
    """Return the table of single-query latencies, in milliseconds."""
    rows = [
        [f"{method} (paper)", *(number(values.get(data)) for data in results)]
        for method, values in PAPER["realtime"].items()
    ]

    def latencies(title: str, values: Sequence[dict[str, Any] | None]) -> list[str]:
        shown = [
            f"{number((own or {}).get('one_row_ms'), 3)}, {number((own or {}).get('one_row_ms_p99'), 3)}"
            for own in values
        ]
        return [f"**{title}**", *(_EMPTY if text == f"{_EMPTY}, {_EMPTY}" else text for text in shown)]

    searches = [cells.get("layouts") for cells in results.values()]
    rows.append(latencies("Carya, XR-Linear (median, p99)", searches))
    hashes = [(cell or {}).get("layouts", {}).get("hash") for cell in searches]
    rows.append(latencies("Carya, XR-Linear with the paper's layout", hashes))
    for name in ("X-Transformer", "XR-Transformer"):
        rows.append(latencies(f"Carya, {name}", [cells.get(name) for cells in results.values()]))
    return markdown(["ms per input", *results], rows)


def ablation(results: Results) -> str:
    """Return the ablation tables for the number of trees, the branching factor and the negative sampling scheme."""
    blocks = []
    for data, cells in results.items():
        rows = []
        names = [
            (n_trees, branching, name, linear_name(n_trees, branching, name))
            for name in NEGATIVES
            for n_trees in reversed(TREES)
            for branching in BRANCHING
        ]
        for n_trees, branching, negatives, cell_name in names:
            reported = PAPER["ablation"][data].get(f"T={n_trees}, B={branching}") if negatives == "TFN" else None
            title = [str(n_trees), str(branching), negatives]
            rows.append(title + _ablation_row(reported, cells.get(cell_name)))
        if "random tree" in cells:
            reported = [None, *PAPER["random_tree"][data], *[None] * 5]
            rows.append(["3", "32", "TFN, random tree", *_ablation_row(reported, cells["random tree"])])
        headings = ["T", "B", f"{data}: negatives", "D, paper", "Carya", "P@1 / 3 / 5, paper", "Carya"]
        headings += ["R@1 / 3 / 5, paper", "Carya", "training, s, paper", "Carya", "prediction, s, paper", "Carya"]
        blocks.append(markdown([*headings, "Carya, model MB"], rows))
    return "\n\n".join(blocks)


def _ablation_row(reported: Sequence[float | None] | None, cell: dict[str, Any] | None) -> list[str]:
    values, own = [None] * 9 if reported is None else list(reported), cell or {}
    return [
        number(values[0], 0),
        number(own.get("depth"), 0),
        triple(values[1:4]),
        triple(at_ks(cell, "P")),
        triple(values[4:7]),
        triple(at_ks(cell, "R")),
        number(values[7], 1),
        seconds(cell, "train_s"),
        number(values[8]),
        number(own.get("predict_s")),
        number(own["model_bytes"] / 1e6, 1) if "model_bytes" in own else _EMPTY,
    ]


def layouts(results: Results) -> str:
    """Return the table of latency, batch time and memory for each memory layout of the weights."""
    rows = []
    for data, cells in results.items():
        cell = cells.get("layouts")
        if cell is None or "layouts" not in cell:
            rows.append([data, *[_EMPTY] * 6])
            continue
        packed = cell["layouts"]["packed"]
        for layout, title in _LAYOUT_TITLES.items():
            values = cell["layouts"][layout]
            rows.append(
                [
                    data if layout == "packed" else "",
                    title,
                    number(1e3 * values["one_row_ms"], 1),
                    number(1e3 * values["one_row_ms_p99"], 1),
                    number(1e3 * values["batch_ms"], 1),
                    number(values["memory_mb"], 1),
                    f"{values['one_row_ms'] / packed['one_row_ms']:.1f}×",
                ]
            )
    headings = ["data set", "layout", "one query, µs, median", "p99", "batch, µs per row", "memory, MB"]
    return markdown([*headings, "time relative to packed"], rows)


def label_distribution(results: Results) -> str:
    """Return the table of the shares of labels and clusters with more than 100 training rows."""
    rows = []
    for data, cells in results.items():
        reported = PAPER["label_distribution"].get(data, {})
        cell = cells.get("label distribution", {})
        rows.append([data])
        for key, digits, unit in (("clusters", 0, ""), ("labels_above_100", 1, "%"), ("clusters_above_100", 1, "%")):
            for value in (reported.get(key), cell.get(key)):
                rows[-1].append(_EMPTY if value is None else number(value, digits) + unit)
    headings = ["data set", "clusters, paper", "Carya", "labels with more than 100 rows, paper", "Carya"]
    return markdown([*headings, "clusters with more than 100 rows, paper", "Carya"], rows)
