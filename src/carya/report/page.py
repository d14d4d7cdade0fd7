"""Write a report on recorded runs as a single HTML page and as Markdown."""

from __future__ import annotations

import base64
import html
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from carya.data.io.atomic_folder import atomic_folder
from carya.report.charts import draw_charts
from carya.report.run import Run

#: A table: headings and rows.
Table = tuple[list[str], list[list[str]]]

_METRICS = ("P@1", "P@3", "P@5", "R@1", "R@3", "R@5", "R@10", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")
_CHART_TITLES = {
    "time-against-precision": "Precision and time",
    "latency": "Latency",
    "recall-latency": "Recall and latency by beam width",
    "deciles": "Precision by label frequency",
    "reliability": "Reliability",
}
_CAPTIONS = {
    "time-against-precision": "P@1 against training time or, if no training was recorded, batch prediction time.",
    "latency": "Time to rank a single row in Python. The dashed lines are medians.",
    "recall-latency": "The numbers next to the points are beam widths.",
    "deciles": "Labels are sorted by their number of training rows and divided into ten groups of equal size. "
    "Groups without suggestions have no point.",
    "reliability": "The closer a curve is to the dashed line, the more reliable the probabilities. The error is the "
    "expected calibration error of the top-10 suggestions per row.",
}
_TREE_CAPTION = "Each row shows one level. Each block is a cluster, named after its most frequent label."
_STYLE = """:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; }
h2 { margin-top: 2.5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid #8884; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1rem 0; overflow-x: auto; }
img { min-width: min(34rem, 150vw); max-width: 100%; }
figcaption { color: #747d88; font-size: 0.9rem; }"""
_MAX_TREES = 1000
#: The names of all files in a report; tree diagrams are named tree-1.svg, tree-2.svg, …
FILE_NAMES = frozenset(
    ["report.html", "report.md", *(f"{name}.svg" for name in _CHART_TITLES)]
    + [f"tree-{number}.svg" for number in range(1, _MAX_TREES)]
)


def write_report(folder: str | os.PathLike[str], runs: Sequence[Run], *, title: str) -> None:
    """Write report.html, which is self-contained, and report.md with one SVG file per chart.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    SaveError
        If the folder cannot be written or contains files that do not belong to a report.
    """
    charts = draw_charts(runs)
    with atomic_folder(folder, FILE_NAMES) as temporary:
        (temporary / "report.html").write_text(html_page(runs, charts, title=title), encoding="utf-8")
        (temporary / "report.md").write_text(markdown_page(runs, charts, title=title), encoding="utf-8")
        for name, svg in charts.items():
            (temporary / f"{name}.svg").write_text(svg, encoding="utf-8")


def markdown_page(runs: Sequence[Run], charts: dict[str, str], *, title: str) -> str:
    """Return the report as Markdown, with links to the SVG files."""
    parts = [f"# {_escape_markdown(title)}"]
    for heading, table in _tables(runs).items():
        headings, rows = ([_escape_markdown(cell) for cell in table[0]], table[1])
        lines = [headings, ["---", *["--:"] * (len(headings) - 1)]]
        lines += [[_escape_markdown(cell) for cell in row] for row in rows]
        parts.append(f"## {heading}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines))
    for name, heading, caption in _figures(runs, charts):
        parts.append(f"## {_escape_markdown(heading)}\n\n![{_escape_markdown(heading)}]({name}.svg)\n\n{caption}")
    return "\n\n".join(parts) + "\n"


def html_page(runs: Sequence[Run], charts: dict[str, str], *, title: str) -> str:
    """Return the report as a self-contained HTML page with inline charts."""
    parts = [f"<h1>{html.escape(title)}</h1>"]
    for heading, (headings, rows) in _tables(runs).items():
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in headings)
        body = "\n".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        table = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        parts.append(f'<h2>{heading}</h2>\n<div class="scroll">{table}</div>')
    for name, heading, caption in _figures(runs, charts):
        image = base64.b64encode(charts[name].encode()).decode()
        source = f'<img alt="{html.escape(heading)}" src="data:image/svg+xml;base64,{image}">'
        parts.append(
            f"<h2>{html.escape(heading)}</h2>\n<figure>{source}\n<figcaption>{html.escape(caption)}</figcaption></figure>"
        )
    head = '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    head += f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>"
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n'
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _figures(runs: Sequence[Run], charts: dict[str, str]) -> list[tuple[str, str, str]]:
    """Return the name, heading and caption of each chart."""
    figures = [(name, title, _CAPTIONS[name]) for name, title in _CHART_TITLES.items() if name in charts]
    for number, run in enumerate(runs, start=1):
        if f"tree-{number}" in charts:
            trees = run.evaluation["trees"]
            levels = " → ".join(f"{size:,}" for size in trees[0]["level_sizes"])
            count = f"{len(trees)} trees; the first one has" if len(trees) > 1 else "One tree with"
            figures.append(
                (f"tree-{number}", f"Label tree of {run.name}", f"{count} level sizes {levels}. {_TREE_CAPTION}")
            )
    return figures


def _tables(runs: Sequence[Run]) -> dict[str, Table]:
    return {"Metrics": _results(runs), "Time and size": _costs(runs), "Setup": _setup(runs)}


def _results(runs: Sequence[Run]) -> Table:
    shown = [name for name in _METRICS if any(name in run.evaluation["metrics"] for run in runs)]
    rows = [[run.name, *(_percent(run.evaluation["metrics"].get(name)) for name in shown)] for run in runs]
    return ["%", *shown], rows


def _costs(runs: Sequence[Run]) -> Table:
    rows = []
    for run in runs:
        training, latencies = run.training or {}, np.asarray(run.evaluation["latency_ms"], float)
        rows.append(
            [
                run.name,
                _number(training.get("seconds"), 1),
                _number(run.evaluation["metrics"].get("microseconds_per_row"), 1),
                _number(float(np.median(latencies)), 3),
                _number(float(np.percentile(latencies, 99)), 3),
                _number(run.evaluation["bytes"] / 1e6 if "bytes" in run.evaluation else None, 1),
            ]
        )
    headings = ["run", "training, s", "batch, µs per row", "median single-query latency, ms", "p99, ms", "model, MB"]
    return headings, rows


def _setup(runs: Sequence[Run]) -> Table:
    rows = []
    for run in runs:
        environment = run.evaluation["environment"]
        machine, versions = environment["machine"], environment["versions"]
        rows.append(
            [
                run.name,
                str(run.evaluation["model"]),
                str(run.evaluation.get("data", "–")),
                f"{run.evaluation['rows']:,}",
                _number((run.training or {}).get("rows"), 0),
                _number(run.evaluation.get("labels"), 0),
                f"{machine['processor']}, {machine['cores']} cores",
                str(versions["carya"]),
            ]
        )
    return ["run", "model", "test data", "test rows", "training rows", "labels", "machine", "Carya"], rows


def _percent(value: Any) -> str:
    return "–" if value is None else f"{100 * value:.2f}"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _escape_markdown(text: str) -> str:
    """Escape characters that would end a table cell or start markup."""
    return "".join(f"\\{character}" if character in "\\|*_`[]<>" else character for character in text)
