"""Charts of recorded runs, drawn with matplotlib as SVG.

The background is transparent and all colors have medium brightness, so that the charts are readable on both light and
dark pages.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from carya.core.extras import require
from carya.report.run import Run

_TEXT = "#747d88"
_BLOCK_TEXT = "#1f2328"
#: The colorblind-safe Okabe-Ito palette.
_COLORS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_STYLE: Any = {
    "svg.hashsalt": "carya",  # makes the output reproducible
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": _TEXT,
    "axes.labelcolor": _TEXT,
    "axes.edgecolor": _TEXT,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_SIZE = (7.0, 3.8)
_MAX_NAME = 24  # maximum number of characters displayed per cluster name
_CHARACTER_WIDTH = 0.0125  # as a fraction of the width of the tree diagram


def draw_charts(runs: Sequence[Run]) -> dict[str, str]:
    """Return a mapping from chart names to SVG; charts for which no run has data are omitted.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    mpl = require("matplotlib", extra="report", purpose="carya report")
    drawn = {}
    with mpl.rc_context(_STYLE):
        for name, draw in _CHARTS.items():
            figure = draw(runs)
            if figure is not None:
                drawn[name] = _svg(figure)
        for number, run in enumerate(runs, start=1):
            figure = _draw_tree(run)
            if figure is not None:
                drawn[f"tree-{number}"] = _svg(figure)
    return drawn


def _axes(x: str, y: str) -> tuple[Any, Any]:
    figure = require("matplotlib.figure", extra="report", purpose="carya report").Figure(_SIZE, layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(color=_TEXT, alpha=0.2)
    return figure, axes


def _scale_x(axes: Any) -> None:
    """Use a logarithmic axis if the values span more than one order of magnitude."""
    low, high = axes.dataLim.intervalx
    if low > 0 and high > 10 * low:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")


def _color(number: int) -> str:
    return _COLORS[number % len(_COLORS)]


def _svg(figure: Any) -> str:
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    return file.getvalue()


def _draw_time_against_precision(runs: Sequence[Run]) -> Any:
    """Plot P@1 against training time or, if no run recorded it, against the time per row in batch prediction."""
    trained = [run for run in runs if run.training is not None and "seconds" in run.training]
    shown = trained or list(runs)
    figure, axes = _axes("training time, s" if trained else "batch prediction time, µs per row", "P@1, %")
    for run in shown:
        training = run.training or {}
        x = training["seconds"] if trained else run.evaluation["metrics"]["microseconds_per_row"]
        y = 100 * run.evaluation["metrics"]["P@1"]
        axes.scatter(x, y, s=60, color=_color(runs.index(run)), zorder=3)
        axes.annotate(run.name, (x, y), xytext=(6, 6), textcoords="offset points")
    axes.margins(0.25)
    _scale_x(axes)
    return figure


def _draw_latency(runs: Sequence[Run]) -> Any:
    """Draw a histogram of the single-query latencies of each run."""
    import numpy as np

    figure, axes = _axes("single-query latency, ms", "queries, %")
    values = [np.asarray(run.evaluation["latency_ms"], float) for run in runs]
    low, high = min(own.min() for own in values), max(own.max() for own in values)
    bins = np.geomspace(max(low * 0.95, 1e-6), max(high * 1.05, 2e-6), 41)
    for number, (run, own) in enumerate(zip(runs, values, strict=True)):
        weights = np.full(own.size, 100 / own.size)
        axes.hist(own, bins, weights=weights, histtype="stepfilled", alpha=0.35, color=_color(number))
        axes.hist(own, bins, weights=weights, histtype="step", color=_color(number), label=run.name)
        axes.axvline(float(np.median(own)), color=_color(number), linestyle="--", linewidth=1)
    _scale_x(axes)
    axes.legend(frameon=False)
    return figure


def _draw_beam_widths(runs: Sequence[Run]) -> Any:
    """Plot recall against the time per row, with one point per beam width."""
    shown = [run for run in runs if run.evaluation.get("beam_widths")]
    if not shown:
        return None
    figure, axes = _axes("batch prediction time, µs per row", "R@10, %")
    for run in shown:
        points = run.evaluation["beam_widths"]
        x, y = [point["microseconds"] for point in points], [100 * point["recall"] for point in points]
        axes.plot(x, y, marker="o", color=_color(runs.index(run)), label=run.name)
        for point, own_x, own_y in zip(points, x, y, strict=True):
            offset = (5, -12)
            axes.annotate(str(point["beam_width"]), (own_x, own_y), xytext=offset, textcoords="offset points", size=9)
    _scale_x(axes)
    axes.legend(frameon=False, loc="lower right")
    return figure


def _draw_deciles(runs: Sequence[Run]) -> Any:
    """Plot the precision of each group of labels, from the rarest to the most frequent labels."""
    figure, axes = _axes(
        "label-frequency decile, from the rarest to the most frequent", "precision of the top-5 suggestions, %"
    )
    for number, run in enumerate(runs):
        deciles = run.evaluation["deciles"]
        points = [
            (place, 100 * own["precision"]) for place, own in enumerate(deciles, 1) if own["precision"] is not None
        ]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", color=_color(number), label=run.name)
    axes.set_xticks(range(1, 1 + max(len(run.evaluation["deciles"]) for run in runs)))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return figure


def _draw_reliability(runs: Sequence[Run]) -> Any:
    """Plot the observed fraction of correct suggestions against the predicted probability."""
    shown = [run for run in runs if run.evaluation.get("reliability")]
    if not shown:
        return None
    figure, axes = _axes("predicted probability", "fraction of correct suggestions")
    axes.plot([0, 1], [0, 1], color=_TEXT, linestyle="--", linewidth=1)
    for run in shown:
        measured = run.evaluation["reliability"]
        x, y, _ = zip(*measured["bins"], strict=True)
        kind = "" if measured["is_calibrated"] else ", scores"
        label = f"{run.name}{kind} (error {100 * measured['error']:.1f}%)"
        axes.plot(x, y, marker="o", color=_color(runs.index(run)), label=label)
    axes.legend(frameon=False, loc="upper left")
    return figure


def _draw_tree(run: Run) -> Any:
    """Draw the first label tree: one row per level and one block per cluster, as wide as its share of the labels."""
    trees = run.evaluation.get("trees") or []
    if not trees:
        return None
    levels = trees[0].get("levels") or []
    figure, axes = _axes("", "")
    axes.axis("off")
    axes.set_xlim(0, 1)
    sizes = trees[0]["level_sizes"]
    n_rows = len(levels) + 2  # the root and the labels
    axes.set_ylim(n_rows, 0)
    _draw_block(axes, 0, 0, 1, "root", _TEXT, alpha=0.35)
    for depth, level in enumerate(levels, 1):
        total = sum(cluster["labels"] for cluster in level) or 1
        left = 0.0
        for number, cluster in enumerate(level):
            width = cluster["labels"] / total
            _draw_block(axes, left, depth, width, cluster["name"] or "", _color(number), alpha=0.55)
            left += width
    omitted = len(sizes) - 2 - len(levels)
    text = f"{sizes[-1]:,} labels" + (f" (cluster levels not shown: {omitted})" if omitted else "")
    _draw_block(axes, 0, n_rows - 1, 1, text, _TEXT, alpha=0.2)
    return figure


def _draw_block(axes: Any, left: float, row: int, width: float, text: str, color: str, *, alpha: float) -> None:
    from matplotlib.colors import to_rgb

    # Opaque light colors, on which the dark text is legible on pages with a light or a dark background.
    tint = [1 - alpha * (1 - channel) for channel in to_rgb(color)]
    axes.barh(row + 0.5, width, 0.94, left=left, color=tint, edgecolor="white", linewidth=0.4)
    n_characters = min(int(width / _CHARACTER_WIDTH), _MAX_NAME) if row else 80
    if n_characters >= 3 and text:
        shown = text if len(text) <= n_characters else text[: n_characters - 1] + "…"
        axes.text(left + width / 2, row + 0.5, shown, ha="center", va="center", size=9, color=_BLOCK_TEXT)


_CHARTS = {
    "time-against-precision": _draw_time_against_precision,
    "latency": _draw_latency,
    "recall-latency": _draw_beam_widths,
    "deciles": _draw_deciles,
    "reliability": _draw_reliability,
}
