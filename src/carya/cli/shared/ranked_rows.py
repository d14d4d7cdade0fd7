"""Output rows of `carya predict`: ranked labels with their scores, and the output formats."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from carya.cli.shared.inputs import TextBatch
from carya.errors import UnknownTextWarning

if TYPE_CHECKING:
    from carya.models.suggestions import Suggestion
    from carya.text.base import BaseTextRanker

#: Names of the output formats.
OUTPUT_FORMATS = ("jsonl", "csv", "tsv")

_COLUMNS = ("row", "id", "rank", "label", "name", "score", "probability")
_DIGITS = 6  # for scores and probabilities


class RankedLabel(NamedTuple):
    """A label with its score.

    Attributes
    ----------
    label : str or int
    name : str or None
        None if the name equals the label.
    score : float
    probability : float or None
    is_new : bool or None
        Whether the label is a phrase that is not in the label list; None if only known labels were ranked.
    """

    label: str | int
    name: str | None
    score: float
    probability: float | None
    is_new: bool | None = None


class RankedRow(NamedTuple):
    """A row of the input, numbered from 1, and its labels, best first."""

    row: int
    id: str | None
    labels: list[RankedLabel]


class FormattedRows(NamedTuple):
    """Consecutive rows of the output.

    Attributes
    ----------
    lines : str
    n_rows : int
    unknown : list of int
        The numbers of the texts without known terms.
    """

    lines: str
    n_rows: int
    unknown: list[int]


def rank_texts(
    ranker: BaseTextRanker[Any], batch: TextBatch, limits: dict[str, Any]
) -> tuple[list[RankedRow], list[int]]:
    """Return the ranked labels for each text, and the numbers of the texts without known terms."""
    unknown: list[int] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnknownTextWarning)
        rankings = (ranker.assign if "decide" in limits else ranker.suggest_all)(batch.texts, **limits)
    for warning in caught:
        if isinstance(warning.message, UnknownTextWarning):
            unknown += [batch.first + index for index in warning.message.rows]
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    rows = [
        RankedRow(row, text_id, _ranked_labels(suggestions, has_new="open_vocabulary" in limits))
        for row, (text_id, suggestions) in enumerate(zip(batch.ids, rankings, strict=True), batch.first)
    ]
    return rows, unknown


def _ranked_labels(suggestions: list[Suggestion], *, has_new: bool) -> list[RankedLabel]:
    """Return the labels for one text, with their probabilities if the model is calibrated."""
    return [
        RankedLabel(
            suggestion.label,
            None if suggestion.name == suggestion.label else suggestion.name,
            suggestion.score,
            suggestion.probability,
            suggestion.is_new if has_new else None,
        )
        for suggestion in suggestions
    ]


def assigned_rows(model: Any, assigned: Iterable[list[Suggestion]]) -> Iterator[RankedRow]:
    """Yield the output rows for the labels that a feature model assigns."""
    from carya.core.strings import NumberStrings

    to_label = int if isinstance(model.labels_, NumberStrings) else str
    for row, suggestions in enumerate(assigned, 1):
        labels = [RankedLabel(to_label(found.label), None, found.score, found.probability) for found in suggestions]
        yield RankedRow(row, None, labels)


def ranked_rows(model: Any, S: Any, first: int = 1) -> Iterator[RankedRow]:
    """Yield the output rows for the predictions of a feature model; `first` is the number of the first row."""
    from carya.core.strings import NumberStrings

    scores = S.data.tolist()
    labels = S.indices.tolist()
    calibration = getattr(model, "calibration_", None)
    probabilities: list[Any] = [None] * len(labels)
    if calibration is not None:
        probabilities = calibration.of_rankings(S.indptr, S.indices, S.data).tolist()
    if not isinstance(model.labels_, NumberStrings):
        labels = [model.labels_[label] for label in labels]
    for row, (begin, end) in enumerate(itertools.pairwise(S.indptr.tolist()), first):
        yield RankedRow(
            row,
            None,
            [RankedLabel(labels[entry], None, scores[entry], probabilities[entry]) for entry in range(begin, end)],
        )


def header(form: str, *, has_new: bool = False) -> str:
    """Return the first line of the output, or an empty string for JSON lines."""
    columns = (*_COLUMNS, "new") if has_new else _COLUMNS
    return "" if form == "jsonl" else _separator(form).join(columns) + "\n"


def format_rows(rows: Iterable[RankedRow], form: str) -> str:
    """Return the output lines for rows, without the header."""
    if form == "jsonl":
        return "".join(json.dumps(_to_object(row), ensure_ascii=False) + "\n" for row in rows)
    separator, quote = _separator(form), _table_quote(form)
    return "".join(separator.join(map(quote, fields)) + "\n" for row in rows for fields in _to_fields(row))


def _separator(form: str) -> str:
    return "," if form == "csv" else "\t"


def _to_object(row: RankedRow) -> dict[str, Any]:
    """Return the JSON object for a row."""
    labels = []
    for label in row.labels:
        entry: dict[str, Any] = {"label": label.label, "score": round(label.score, _DIGITS)}
        if label.probability is not None:
            entry["probability"] = round(label.probability, _DIGITS)
        if label.name is not None:
            entry["name"] = label.name
        if label.is_new:
            entry["new"] = True
        labels.append(entry)
    return {"row": row.row} | ({} if row.id is None else {"id": row.id}) | {"labels": labels}


def _to_fields(row: RankedRow) -> Iterator[tuple[str, ...]]:
    """Yield the fields of each output line for a row; there is one line per label."""
    for rank, label in enumerate(row.labels, 1):
        probability = "" if label.probability is None else str(round(label.probability, _DIGITS))
        name = str(label.label) if label.name is None else label.name
        score = str(round(label.score, _DIGITS))
        new = () if label.is_new is None else ("true" if label.is_new else "false",)
        yield str(row.row), row.id or "", str(rank), str(label.label), name, score, probability, *new


def _table_quote(form: str) -> Callable[[str], str]:
    """Return the function that formats a field; TSV fields are not quoted."""
    from carya.data.formats.columns import TAB, check_one_line
    from carya.data.formats.tables.delimited import quote_field

    if form == "csv":
        return quote_field
    return lambda field: check_one_line(field, "The output", TAB)
