"""Draw docs/speed.svg, a chart of the training times and latencies of Carya and its peers, from benchmarks/results.

    python benchmarks/chart.py [FILE]

The script requires matplotlib. The background is transparent and all colors have medium brightness, so that the chart
is readable on light and dark pages.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from table import DATA, ROOT, load, training_ratios

TEXT = "#747d88"
#: Names and colors of the systems (Okabe and Ito's colorblind-safe palette).
SYSTEMS = {
    "carya": ("Carya", "#d55e00"),
    "libpecos": ("libpecos", "#0072b2"),
    "omikuji": ("omikuji", "#009e73"),
    "napkinxc": ("napkinXC", "#cc79a7"),
}
STYLE: Any = {
    "svg.hashsalt": "carya",  # makes the output reproducible
    "font.size": 11,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
}


def draw_bars(axes: Any, values: dict[str, dict[str, float]], unit: str) -> None:
    """Draw one group of horizontal bars per data set, with the value next to each bar."""
    position, ticks = 0.0, []
    for bars in values.values():
        first = position
        for system, value in bars.items():
            axes.barh(position, value, height=0.85, color=SYSTEMS[system][1])
            axes.annotate(
                f"{value:,.0f}{unit}",
                (value, position),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=10,
            )
            position += 1
        ticks.append((first + position - 1) / 2)
        position += 0.8
    axes.set_yticks(ticks, list(values))
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()


def draw(path: Path) -> None:
    """Draw the chart and write it to a file."""
    times = {data: {"carya": 1.0} | training_ratios(data) for data in DATA}
    latencies = {
        data: {
            system: 1e3 * values["one_row_ms"]
            for system, values in load(f"{data}-latency")["systems"].items()
            if system in SYSTEMS
        }
        for data in DATA
    }
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        draw_bars(left, times, "×")
        left.set_title("Training time relative to Carya", fontsize=12)
        left.set_xlim(0, 1.12 * max(max(bars.values()) for bars in times.values()))
        left.set_xticks([])
        left.spines["bottom"].set_visible(False)
        draw_bars(right, latencies, " µs")
        right.set_title("Single-query latency (median, log scale)", fontsize=12)
        right.set_xscale("log")
        right.set_xlim(8, 20_000)
        right.set_xticks([10, 100, 1000, 10_000], ["10 µs", "100 µs", "1 ms", "10 ms"])
        right.tick_params(axis="x", which="minor", length=0)
        handles = [mpl.patches.Patch(color=color, label=name) for name, color in SYSTEMS.values()]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(SYSTEMS), frameon=False)
        figure.savefig(path, transparent=True, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "speed.svg")
