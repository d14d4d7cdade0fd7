"""Charts: Figure 1 of the paper, precision against training time, and latency."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from chart import STYLE

from published.experiments import BRANCHING, NEGATIVES, TREES, linear_name
from published.tables import PAPER, Results

_COLORS = {"TFN": "#d55e00", "TFN + MAN": "#0072b2"}
_MARKERS = {2: "^", 8: "s", 32: "o"}
_GRID: Any = {"color": "#747d88", "alpha": 0.2}
_STYLE = STYLE | {"axes.spines.left": True}


def draw_label_distribution(results: Results, path: Path) -> None:
    """Draw the number of training rows per label and per cluster, with one column of panels per data set."""
    name = "label distribution"
    measured = {data: cells[name] for data, cells in results.items() if "labels_curve" in cells.get(name, {})}
    if not measured:
        return
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(3.2 * len(measured), 5.4), layout="constrained")
        axes = figure.subplots(2, len(measured), squeeze=False)
        for column, (data, cell) in enumerate(measured.items()):
            for row, kind in enumerate(("labels", "clusters")):
                ranks, rows = zip(*cell[f"{kind}_curve"], strict=True)
                own = axes[row, column]
                share = cell[f"{kind}_above_100"]
                own.loglog(ranks, [max(count, 0.5) for count in rows], color=("#d55e00", "#0072b2")[row])
                own.axhline(100, color="#747d88", linestyle="--", linewidth=1)
                own.set_title(f"{data}, {kind}: {share:.1f}% above 100" if row == 0 else f"{share:.1f}% above 100")
                own.set_xlabel(f"{kind} by rank" if row == 0 else f"{cell['clusters']:,} clusters by rank")
                own.grid(**_GRID)
                if column == 0:
                    own.set_ylabel("training rows")
        _save(figure, path)


def draw_time_against_precision(results: Results, path: Path) -> None:
    """Draw P@1 against training time for every configuration of the ablation, with one panel per data set."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(3.4 * min(len(results), 3), 3 * -(-len(results) // 3)), layout="constrained")
        axes = figure.subplots(-(-len(results) // 3), min(len(results), 3), squeeze=False)
        for own, (data, cells) in zip(axes.flat, results.items(), strict=False):
            for negatives in NEGATIVES:
                for n_trees in TREES:
                    for branching in BRANCHING:
                        cell = cells.get(linear_name(n_trees, branching, negatives))
                        if cell is not None and "P@1" in cell:
                            own.scatter(
                                cell["train_s"],
                                cell["P@1"],
                                color=_COLORS[negatives],
                                marker=_MARKERS[branching],
                                s=20 * n_trees,
                                label=f"{negatives}, B = {branching}, T = {n_trees}",
                            )
            own.set_xscale("log")
            own.set_title(data)
            own.set_xlabel("training time, s")
            own.set_ylabel("P@1, %")
            own.grid(**_GRID)
        for own in list(axes.flat)[len(results) :]:
            own.set_visible(False)
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
        _save(figure, path)


def draw_latency(results: Results, path: Path) -> None:
    """Draw the single-query latency of the paper's systems and of Carya."""
    measured = {data: cells["layouts"] for data, cells in results.items() if "one_row_ms" in cells.get("layouts", {})}
    if not measured:
        return
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10, 4), layout="constrained")
        axes = figure.subplots()
        reported = {method: values for method, values in PAPER["realtime"].items() if "Transformer" not in method}
        series = {f"{method} (paper)": values for method, values in reported.items()}
        series["Carya, XR-Linear"] = {data: cell["one_row_ms"] for data, cell in measured.items()}
        width = 0.8 / len(series)
        colors = ("#009e73", "#cc79a7", "#0072b2", "#d55e00")
        for number, (title, values) in enumerate(series.items()):
            places = [place + (number - (len(series) - 1) / 2) * width for place in range(len(measured))]
            axes.bar(places, [values[data] for data in measured], width=width, label=title, color=colors[number])
        axes.set_xticks(range(len(measured)), list(measured))
        axes.set_yscale("log")
        axes.set_ylabel("ms per query, log scale")
        axes.grid(axis="y", **_GRID)
        figure.legend(loc="outside lower center", ncols=4, frameon=False)
        _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, transparent=True, metadata={"Date": None} if path.suffix == ".svg" else None)


#: The figures by file name.
FIGURES = {
    "label-distribution": draw_label_distribution,
    "time-against-precision": draw_time_against_precision,
    "latency": draw_latency,
}
