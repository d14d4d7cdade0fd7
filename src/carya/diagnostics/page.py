"""Render the label report as a single HTML page."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from carya.diagnostics.charts import bars, histogram, scatter
from carya.diagnostics.shift import Change

if TYPE_CHECKING:
    from carya.diagnostics.report import DiagnosticReport

_MAX_LABELS = 2_000  # maximum number of rows in the label table
_MAX_BARS = 15
_STYLE = """:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; }
h2 { margin-top: 2.5rem; }
.scroll { overflow: auto; max-height: 40rem; }
table { border-collapse: collapse; font-size: 0.9rem; }
th { position: sticky; top: 0; background: Canvas; }
th, td { padding: 0.3rem 0.7rem; border-bottom: 1px solid #8884; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
svg { max-width: 100%; height: auto; }
p.note, figcaption { color: #747d88; font-size: 0.9rem; }
figure { margin: 1rem 0; }"""


def html_page(report: DiagnosticReport, title: str) -> str:
    """Return a self-contained page with inline charts."""
    parts = [f"<h1>{html.escape(title)}</h1>", _summary(report)]
    parts += [*_label_section(report), *_over_suggested_section(report)]
    parts += _reliability_section(report)
    parts += [*_label_shift_section(report), *_vocabulary_section(report), *_all_labels_section(report)]
    head = '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    head += f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>"
    body = "\n".join(part for part in parts if part)
    return f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def _summary(report: DiagnosticReport) -> str:
    values = " · ".join(f"{name} {100 * value:.2f}%" for name, value in report.metrics.items())
    return (
        f"<p>Rows: {report.n_rows:,}. Labels: {len(report.labels):,}. Suggestions per row: {report.k}. {values}</p>"
        f'<p class="note">Intervals have a confidence level of {100 * report.confidence:g}%.</p>'
    )


def _reliability_section(report: DiagnosticReport) -> list[str]:
    measured = report.reliability
    if measured is None:
        return []
    points = [
        (predicted, observed, f"predicted {predicted:.3f}, observed {observed:.3f}, {size:,} suggestions")
        for predicted, observed, size in measured["bins"]
    ]
    caption = (
        "Each point represents a tenth of the suggestions. "
        f"The expected calibration error is {100 * measured['error']:.2f}%."
    )
    return [
        "<h2>Reliability</h2>",
        _figure(scatter(points, x="predicted probability", y="fraction correct", diagonal=True), caption),
    ]


def _label_section(report: DiagnosticReport) -> list[str]:
    labels = report.labels
    points = [
        (support, value, f"{name}: precision {value:.2f}, {support} rows")
        for name, support, value in zip(labels.names, labels.support.tolist(), labels.precision.tolist(), strict=True)
        if support
    ]
    recalls = [value for value, count in zip(labels.recall.tolist(), labels.support.tolist(), strict=True) if count]
    return [
        "<h2>Precision and recall</h2>",
        _figure(
            scatter(points, x="rows with the label", y="precision", log_x=True),
            "One point per label. The precision of a label is the fraction of its suggestions that are correct.",
        ),
        _figure(
            histogram(recalls, x="recall", y="labels"),
            "The recall of a label is the fraction of the rows with this label for which it is suggested.",
        ),
    ]


def _over_suggested_section(report: DiagnosticReport) -> list[str]:
    records = report.over_suggested(_MAX_BARS)
    parts = ["<h2>Over-suggested labels</h2>"]
    if not records:
        return [*parts, "<p>No label is significantly over-suggested.</p>"]
    items = [(record["name"], record["suggested"], record["support"]) for record in records]
    note = (
        "Labels with a significantly larger share of the suggestions than of the relevant labels: "
        f"{len(report.labels.over_suggested):,}. The labels with the most incorrect suggestions are shown."
    )
    return [*parts, f"<p>{note}</p>", _figure(bars(items, first="suggestions", second="rows with the label"), "")]


def _label_shift_section(report: DiagnosticReport) -> list[str]:
    shift, labels = report.label_shift, report.labels
    if shift is None or labels.training_rows is None:
        return []
    total, training = max(1, labels.support.sum()), max(1, labels.training_rows.sum())
    points = [
        (before / training, after / total, name)
        for name, before, after in zip(
            labels.names, labels.training_rows.tolist(), labels.support.tolist(), strict=True
        )
    ]
    return [
        "<h2>Label shift</h2>",
        f"<p>Total variation distance from the training data: {shift.distance:.3f} (expected by chance: "
        f"{shift.expected_distance:.3f}). {100 * shift.unknown_share:.2f}% of the label assignments refer to labels "
        f"that do not occur in the training data.</p>",
        _figure(
            scatter(points, x="share in training data", y="share in new data", log_x=True, log_y=True, diagonal=True),
            "One point per label. Labels above the dashed line are more frequent in the new data than in the training "
            "data.",
        ),
        _counts_table("Labels that do not occur in the training data", "rows", shift.unknown),
        _changes_table("Labels that have become more frequent", shift.more),
        _changes_table("Labels that have become less frequent", shift.less),
    ]


def _vocabulary_section(report: DiagnosticReport) -> list[str]:
    shift = report.vocabulary_shift
    if shift is None:
        return []
    items = [(change.name, float(change.count), change.expected) for change in shift.more[:_MAX_BARS]]
    return [
        "<h2>Vocabulary shift</h2>",
        f"<p>{100 * shift.unknown_share:.2f}% of the words are unknown to the model. "
        f"{shift.texts_without_terms:,} of {shift.n_texts:,} texts contain no known terms.</p>",
        _counts_table("Unknown words", "occurrences", shift.unknown),
        _figure(bars(items, first="texts", second="expected"), "Terms that have become more frequent since training."),
        _changes_table("Terms that have become less frequent", shift.less),
    ]


def _all_labels_section(report: DiagnosticReport) -> list[str]:
    labels = report.labels
    headings = ["label", "rows", "suggested", "correct", "precision", "interval", "recall", "interval", "F1"]
    rows = []
    for position in range(min(len(labels), _MAX_LABELS)):
        record = labels.record(position)
        rows.append(
            [
                record["name"],
                *(f"{record[name]:,}" for name in ("support", "suggested", "correct")),
                f"{record['precision']:.3f}",
                f"{record['precision_low']:.3f}–{record['precision_high']:.3f}",
                f"{record['recall']:.3f}",
                f"{record['recall_low']:.3f}–{record['recall_high']:.3f}",
                f"{record['f1']:.3f}",
            ]
        )
    omitted = len(labels) - len(rows)
    note = f'<p class="note">The least frequent labels ({omitted:,}) are not shown.</p>' if omitted else ""
    return ["<h2>All labels</h2>", _table(headings, rows), note]


def _counts_table(heading: str, unit: str, counts: Sequence[tuple[str, int]]) -> str:
    if not counts:
        return ""
    return f"<h3>{heading}</h3>" + _table(["name", unit], ([name, f"{count:,}"] for name, count in counts))


def _changes_table(heading: str, changes: Sequence[Change]) -> str:
    if not changes:
        return ""
    rows = ([change.name, f"{change.count:,}", f"{change.expected:,.1f}", f"{change.z:+.1f}"] for change in changes)
    return f"<h3>{heading}</h3>" + _table(["name", "rows", "expected", "standard deviations"], rows)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in headings)
    body = "\n".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>'


def _figure(svg: str, caption: str) -> str:
    if not svg:
        return ""
    note = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return f"<figure>{svg}{note}</figure>"
