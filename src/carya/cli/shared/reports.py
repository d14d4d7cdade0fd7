"""Additional reports for `carya evaluate`: precision and recall per label, and the worst errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carya.cli.shared.terminal import printable
from carya.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl")
_DIGITS = 6
_MAX_LABELS = 10  # maximum number of labels and words shown in the terminal
_MAX_TEXT_LENGTH = 300  # maximum number of characters of a text shown in the terminal


@dataclass(frozen=True, eq=False)
class EvaluatedRows:
    """Rows of a data set and their labels.

    Attributes
    ----------
    Y : csr_array of shape (rows, labels)
    labels : sequence of str
        The id of each column of Y.
    names : sequence of str or None
        The names of the first columns, if the model has names; the names of the other columns are their ids.
    texts : list of str or None
    ids : list of (str or None) or None
    """

    Y: Any
    labels: Sequence[str]
    names: Sequence[str] | None = None
    texts: list[str] | None = None
    ids: list[str | None] | None = None

    def name(self, label: int) -> str:
        """Return the name of the label in a column."""
        has_name = self.names is not None and label < len(self.names)
        return self.names[label] if has_name and self.names is not None else self.labels[label]


def check_table_path(path: Path) -> None:
    """Raise InputError if a path does not have the suffix of a table format."""
    from carya.data.io.files import uncompressed_name

    suffix = Path(uncompressed_name(path)).suffix
    if suffix not in _TABLE_SUFFIXES:
        raise InputError(f'{path}: Unknown table type "{suffix}". Use {", ".join(_TABLE_SUFFIXES[:-1])} or .jsonl.')


def check_page_path(path: Path) -> None:
    """Raise InputError if a path does not have the suffix of an HTML page."""
    if path.suffix not in (".html", ".htm"):
        raise InputError(f'{path}: Unknown page type "{path.suffix}". Use .html.')


def write_report_page(
    path: Path,
    title: str,
    rows: EvaluatedRows,
    S: Any,
    k: int,
    counts: NDArray[np.int64] | None,
    n_training_rows: int,
    vectorizer: Any,
    reliability: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Write the label report to an HTML page; return its summary."""
    from carya.diagnostics.report import build_report

    names = [rows.name(label) for label in range(rows.Y.shape[1])]
    report = build_report(
        rows.Y,
        S,
        rows.labels,
        names,
        k=k,
        counts=counts,
        n_training_rows=n_training_rows,
        texts=rows.texts,
        vectorizer=vectorizer,
        reliability=reliability,
    )
    report.to_html(path, title=title)
    return report.to_dict()


def print_report(summary: dict[str, Any]) -> None:
    """Print a summary of the label report: over-suggested labels, label shift and vocabulary shift."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if summary["over_suggested"]:
        table = Table(
            "label", "rows", "suggested", "correct", "precision", "95% interval", title="Over-suggested labels"
        )
        for record in summary["over_suggested"][:_MAX_LABELS]:
            interval = f"{100 * record['precision_low']:.1f}–{100 * record['precision_high']:.1f}"
            counts = (str(record[name]) for name in ("support", "suggested", "correct"))
            table.add_row(printable(record["name"]), *counts, f"{100 * record['precision']:.1f}", interval)
        console.print(table)
    else:
        click.echo("No label is significantly over-suggested.")
    labels, words = summary["label_shift"], summary["vocabulary_shift"]
    if labels is not None:
        click.echo(
            f"label shift: distance {labels['distance']:.3f} (expected by chance: {labels['expected_distance']:.3f}); "
            f"{100 * labels['unknown_share']:.2f}% of the labels do not occur in the training data"
        )
    if words is not None:
        unknown = ", ".join(word for word, _ in words["unknown"][:_MAX_LABELS])
        click.echo(
            f"vocabulary shift: {100 * words['unknown_share']:.2f}% of the words are unknown; "
            f"{words['texts_without_terms']:,} of {words['n_texts']:,} texts contain no known terms"
            + (f"; most frequent unknown words: {printable(unknown)}" if unknown else "")
        )


def write_label_report(path: Path, rows: EvaluatedRows, S: Any, k: int, counts: NDArray[np.int64] | None) -> int:
    """Write the metrics at k of each label to a table, with 95% confidence intervals; return the number of labels.

    The metrics are support, precision, recall and F1. Labels that are neither relevant nor suggested for any row are
    omitted. The most frequent labels come first.
    """
    from carya.data.formats.columns import TAB, check_one_line
    from carya.data.formats.tables.delimited import quote_field
    from carya.data.io.files import open_text_output, uncompressed_name
    from carya.diagnostics.label_quality import label_quality

    names = [rows.name(label) for label in range(rows.Y.shape[1])]
    quality = label_quality(rows.Y, S, rows.labels, names, k=k, training_rows=counts)
    suffix = Path(uncompressed_name(path)).suffix
    with open_text_output(path) as write:
        for number in range(len(quality)):
            record = quality.record(number, digits=_DIGITS)
            if suffix == ".jsonl":
                write(json.dumps(record, ensure_ascii=False) + "\n")
                continue
            if number == 0:
                write(("," if suffix == ".csv" else TAB).join(record) + "\n")
            fields = map(str, record.values())
            if suffix == ".csv":
                write(",".join(map(quote_field, fields)) + "\n")
            else:
                write(TAB.join(check_one_line(field, str(path), TAB) for field in fields) + "\n")
    return len(quality)


def worst_errors(rows: EvaluatedRows, S: Any, k: int, count: int) -> list[dict[str, Any]]:
    """Return the rows with the lowest nDCG@k, lowest first.

    Ties are broken by the score of the highest-ranked incorrect label, highest first.
    """
    from carya import metrics

    ndcg = metrics.row_ndcg(rows.Y, S, k)
    wrong = {row: _best_wrong_score(rows.Y, S, row) for row, value in enumerate(ndcg.tolist()) if value < 1}
    worst = sorted(wrong, key=lambda row: (ndcg.item(row), -wrong[row], row))[:count]
    return [_describe_row(rows, S, row, k) | {f"nDCG@{k}": round(ndcg.item(row), _DIGITS)} for row in worst]


def print_errors(errors: Sequence[dict[str, Any]]) -> None:
    """Print the rows of :func:`worst_errors`."""
    if not errors:
        click.echo("No errors: in every row, all relevant labels are ranked first.")
    for error in errors:
        title = f"row {error['row']}" + (f", id {error['id']}" if "id" in error else "")
        metric = next(key for key in error if key.startswith("nDCG"))
        click.echo(f"\n{printable(title)}: {metric} {100 * error[metric]:.2f}%")
        if "text" in error:
            text = " ".join(error["text"].split())
            shown_text = text if len(text) <= _MAX_TEXT_LENGTH else text[: _MAX_TEXT_LENGTH - 2] + " …"
            click.echo(f"  text: {printable(shown_text)}")
        labels = ", ".join(label.get("name", label["label"]) for label in error["labels"])
        click.echo(f"  labels: {printable(labels)}")
        shown = (
            f"{label.get('name', label['label'])} {label['score']:.3f}{' (correct)' if label['correct'] else ''}"
            for label in error["suggestions"]
        )
        click.echo(f"  suggestions: {printable(', '.join(shown)) or 'none'}")


def _entries(matrix: Any, row: int) -> Iterator[tuple[int, float]]:
    begin, end = matrix.indptr[row], matrix.indptr[row + 1]
    yield from zip(matrix.indices[begin:end].tolist(), matrix.data[begin:end].tolist(), strict=True)


def _best_wrong_score(Y: Any, S: Any, row: int) -> float:
    relevant = {label for label, _ in _entries(Y, row)}
    return max((score for label, score in _entries(S, row) if label not in relevant), default=float("-inf"))


def _describe_row(rows: EvaluatedRows, S: Any, row: int, k: int) -> dict[str, Any]:
    relevant = {label for label, _ in _entries(rows.Y, row)}
    described: dict[str, Any] = {"row": row + 1}
    if rows.ids is not None and rows.ids[row] is not None:
        described["id"] = rows.ids[row]
    if rows.texts is not None:
        described["text"] = rows.texts[row]
    described["labels"] = [_describe_label(rows, label) for label in sorted(relevant)]
    ranked = sorted(_entries(S, row), key=lambda entry: -entry[1])[:k]
    described["suggestions"] = [
        _describe_label(rows, label) | {"score": round(score, _DIGITS), "correct": label in relevant}
        for label, score in ranked
    ]
    return described


def _describe_label(rows: EvaluatedRows, label: int) -> dict[str, Any]:
    name = rows.name(label)
    return {"label": rows.labels[label]} | ({"name": name} if name != rows.labels[label] else {})
