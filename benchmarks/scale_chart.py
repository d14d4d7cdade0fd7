"""Draw docs/scale.svg, which plots training time, memory, model size and query time, from results/scale.json.

    python benchmarks/scale_chart.py [FILE]

The script requires matplotlib. As in chart.py, the colors are readable on light and dark pages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from chart import STYLE
from table import ROOT, load

#: Colors of the data sets (Okabe and Ito's colorblind-safe palette).
COLORS = {
    "amazon-670k": "#d55e00",
    "amazon-3m": "#0072b2",
    "wiki-500k": "#009e73",
    "wiki10-31k": "#cc79a7",
    "amazoncat-13k": "#e69f00",
    "eurlex-4k": "#56b4e9",
}
#: For each panel: the title, the function that returns the value of a run, and whether the axis is logarithmic.
PANELS: list[tuple[str, Callable[[dict[str, Any]], float], bool]] = [
    ("Training, CPU s per million nonzeros of X", lambda run: 1e6 * run["cpu_s"] / _nonzeros(run), False),
    ("Peak memory, bytes per nonzero of X and Y", lambda run: run["peak_mb"] * 2**20 / _entries(run), False),
    ("Model, kB per label", lambda run: run["model_bytes"] / run["labels"] / 1e3, True),
    ("Single query, CPU µs per 100 features", lambda run: 100 * run["one_row_cpu_us"] / run["features_per_row"], False),
]


def _nonzeros(run: dict[str, Any]) -> float:
    return float(run["rows"] * run["features_per_row"])


def _entries(run: dict[str, Any]) -> float:
    return float(run["rows"] * (run["features_per_row"] + run["labels_per_row"]))


def draw(path: Path) -> None:
    """Draw the chart and write it to a file."""
    runs = sorted(load("scale")["runs"], key=lambda run: run["labels"])
    with mpl.rc_context(STYLE | {"axes.spines.left": True}):
        figure = Figure(figsize=(10, 7), layout="constrained")
        for axes, (title, value, is_log) in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
            for data, color in COLORS.items():
                points = [(run["labels"], value(run)) for run in runs if run["data"] == data]
                if points:
                    axes.plot(*zip(*points, strict=True), marker="o", color=color, label=data)
            axes.set_xscale("log")
            axes.set_xlabel("labels")
            axes.set_title(title, fontsize=12)
            if is_log:
                axes.set_yscale("log")
            else:
                axes.set_ylim(bottom=0)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        figure.savefig(path, transparent=True, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "scale.svg")
