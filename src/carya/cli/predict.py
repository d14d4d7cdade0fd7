"""`carya predict`: rank labels for a stream of texts."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from carya.cli.commands import argument, command, option
from carya.cli.options.common import (
    beam_width_option,
    command_progress,
    dense_option,
    min_score_option,
    model_argument,
    n_jobs_option,
    quiet_option,
    ranks_texts,
    top_k_option,
)
from carya.cli.options.data_options import DataOptions, data_options, was_passed
from carya.cli.options.rule_type import RuleType
from carya.cli.shared.inputs import TextBatch, are_texts, argument_batches, load_model, naming_input, text_batches
from carya.cli.shared.outputs import check_not_input
from carya.core.rules import Choice
from carya.errors import InputError, ParameterError, UnknownTextWarning

if TYPE_CHECKING:
    from carya.core.progress import Progress
    from carya.models.suggestions import Suggestion
    from carya.text.base import BaseTextRanker

_FORMATS = ("jsonl", "csv", "tsv")
_FORMAT_BY_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".txt": "jsonl", "": "jsonl"} | {
    ".csv": "csv",
    ".tsv": "tsv",
}
_COLUMNS = ("row", "id", "rank", "label", "name", "score", "probability")
_BATCH = 2048  # number of matrix rows ranked at a time
_DIGITS = 6  # for scores and probabilities


class _RankedLabel(NamedTuple):
    label: str | int
    name: str | None  # None if it is the label itself
    score: float
    probability: float | None


class _RankedRow(NamedTuple):
    """A row of the input and its labels, best first."""

    row: int
    id: str | None
    labels: list[_RankedLabel]


@command(
    "predict",
    examples=[
        "carya predict model/ 'a fast web server' 'a mail client'",
        "carya predict model/ texts.txt > labels.jsonl",
        "cat texts.txt | carya predict model/ - --top-k 5",
        "carya predict model/ data.csv --text-column title,abstract -o labels.csv.gz",
        "echo 'a fast web server' | carya predict model/ --output-format tsv",
    ],
)
@model_argument
@data_options(part="test", source="-", labels=False)
@argument("texts", nargs=-1, metavar="[TEXT]...", help="Texts to rank labels for, instead of DATA.")
@dense_option
@top_k_option(10)
@beam_width_option
@min_score_option
@n_jobs_option
@option(
    "--out",
    "-o",
    type=click.Path(allow_dash=True),
    default="-",
    metavar="FILE",
    heading="Output",
    help="File to write; standard output by default. .gz, .xz and .zst files are compressed.",
)
@option(
    "--output-format",
    type=RuleType(Choice(*_FORMATS)),
    metavar=f"[{'|'.join(_FORMATS)}]",
    heading="Output",
    help="Format to write; by default, determined by the suffix of --out, or else jsonl.",
)
@quiet_option
def predict(
    model: Path,
    data: DataOptions,
    texts: tuple[str, ...],
    dense: Path | None,
    out: str,
    output_format: str | None,
    n_jobs: int,
    quiet: bool,
    **limits: Any,
) -> None:
    """Rank labels for texts.

    Reads texts from standard input, one per line, unless DATA or texts are given, and ranks labels for each line as it
    arrives. JSON lines, tables with a header, and formats whose lines begin with labels are recognized; --format=lines
    disables this. An argument that is the path of an existing file or folder is treated as DATA. For a model trained on
    features, DATA must contain features, and labels without names are written as column numbers.

    The output has one line of JSON per text: {"row": …, "labels": [{"label": …, "score": …}, …]}, best first. Rows are
    numbered from 1. "id" is added if the data has ids, "name" for labels whose name differs from their id, and
    "probability" if the model is calibrated. csv and tsv have one line per label, with the columns row, id, rank,
    label, name, score and probability.
    """
    from carya.core.parameters import set_in_all
    from carya.data.io.files import open_text_output

    form = output_format or _format_of(out)
    arguments = (data.source, *texts)
    is_literal = was_passed("source") and are_texts(arguments, model)
    if is_literal:
        _check_no_data_options(arguments[0])
    check_not_input(out, data.source)
    loaded = load_model(model)
    data = data.with_model(loaded)
    set_in_all(loaded, n_jobs=n_jobs)
    with ExitStack() as stack:
        write = _write_standard_output if out == "-" else stack.enter_context(open_text_output(out))
        is_interactive = is_literal or (out == "-" and sys.stdout.isatty()) or (data.source == "-" and _is_terminal())
        progress = stack.enter_context(command_progress(quiet or is_interactive))
        if ranks_texts(loaded):
            if dense is not None:
                raise InputError(f"--dense requires a model trained on features, but {model} was trained on texts.")
            batches = argument_batches(arguments) if is_literal else text_batches(data, model)
            rows = _rank_texts(loaded, batches, limits, progress)
        elif is_literal:
            raise InputError(f"{model} was trained on features. DATA must contain features, got a text.")
        else:
            rows = _rank_features(loaded, model, data, dense, limits, progress)
        for lines in _format_lines(rows, form):
            write(lines)


def _format_of(out: str) -> str:
    """Return the output format for a path; raise InputError if its suffix is unknown."""
    from carya.data.io.files import uncompressed_name

    suffix = "" if out == "-" else Path(uncompressed_name(out)).suffix.lower()
    if suffix not in _FORMAT_BY_SUFFIX:
        raise InputError(f'{out}: Unknown output type "{suffix}". Use .jsonl, .csv or .tsv, or pass --output-format.')
    return _FORMAT_BY_SUFFIX[suffix]


def _check_no_data_options(text: str) -> None:
    """Raise ParameterError if an option for data sets was passed together with texts."""
    flags = {"uses_test": "--test", "zero_based": "--zero-based or --one-based"}
    for name in [*flags, *(field.name for field in dataclasses.fields(DataOptions) if field.name != "source")]:
        if was_passed(name):
            flag = flags.get(name, f"--{name.replace('_', '-')}")
            raise ParameterError(f"{flag} applies to a file or folder, but {text!r} is neither. Pass a path.")


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _write_standard_output(lines: str) -> None:
    sys.stdout.buffer.write(lines.encode())
    sys.stdout.buffer.flush()


def _rank_texts(
    ranker: BaseTextRanker[Any], batches: Iterable[TextBatch], limits: dict[str, Any], progress: Progress
) -> Iterator[list[_RankedRow]]:
    """Yield the ranked labels for each batch; warn about texts without known terms."""
    n_texts = n_unknown = 0
    with progress.stage("rank texts") as report:
        for batch in batches:
            rankings, unknown = _suggest(ranker, batch.texts, limits)
            if unknown and n_unknown == 0:
                # Shown at once, because standard input may stay open; the other texts are counted.
                _warn(f"Text {batch.first + unknown[0]} contains no known terms, so nothing is suggested for it.")
            n_texts += len(batch.texts)
            n_unknown += len(unknown)
            yield [
                _RankedRow(row, text_id, _ranked_labels(ranker, suggestions))
                for row, (text_id, suggestions) in enumerate(zip(batch.ids, rankings, strict=True), batch.first)
            ]
            if report is not None:
                report(n_texts, 0)
    if n_unknown > 1:
        click.echo(f"carya: warning: {n_unknown:,} of {n_texts:,} texts contain no known terms.", err=True)


def _suggest(
    ranker: BaseTextRanker[Any], texts: list[str], limits: dict[str, Any]
) -> tuple[list[list[Suggestion]], list[int]]:
    """Return the suggestions for each text, and the indices of the texts without known terms."""
    unknown: list[int] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnknownTextWarning)
        suggestions = ranker.suggest_all(texts, **limits)
    for warning in caught:
        if isinstance(warning.message, UnknownTextWarning):
            unknown += warning.message.rows
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return suggestions, unknown


def _warn(message: str) -> None:
    from carya.text.base import UNKNOWN_TEXT_ADVICE

    click.echo(f"carya: warning: {message} {UNKNOWN_TEXT_ADVICE}", err=True)


def _ranked_labels(ranker: BaseTextRanker[Any], suggestions: list[Suggestion]) -> list[_RankedLabel]:
    """Return the labels for one text, with their probabilities if the model is calibrated."""
    return [
        _RankedLabel(
            suggestion.label,
            None if suggestion.name == suggestion.label else suggestion.name,
            suggestion.score,
            probability,
        )
        for suggestion, probability in zip(suggestions, _probabilities(ranker.calibration_, suggestions), strict=True)
    ]


def _probabilities(calibration: Any, suggestions: list[Any]) -> list[float] | list[None]:
    if calibration is None:
        return [None] * len(suggestions)
    probabilities: list[float] = calibration([suggestion.score for suggestion in suggestions]).tolist()
    return probabilities


def _rank_features(
    model: Any, path: Path, data: DataOptions, dense: Path | None, limits: dict[str, Any], progress: Progress
) -> Iterator[list[_RankedRow]]:
    from carya.core.strings import NumberStrings
    from carya.data.io.matrix_files import read_matrix

    with progress.stage("read features"):
        X = _read_features(model, path, data)
        if dense is not None:
            X = (X, read_matrix(dense))
    with progress.stage("rank rows") as report:
        with naming_input(data.name):
            S = model.predict(X, **limits)
        scores = S.data.tolist()
        labels = S.indices.tolist()
        if not isinstance(model.labels_, NumberStrings):
            labels = [model.labels_[label] for label in labels]
        rows = enumerate(itertools.pairwise(S.indptr.tolist()), 1)
        while batch := list(itertools.islice(rows, _BATCH)):
            yield [
                _RankedRow(
                    row, None, [_RankedLabel(labels[entry], None, scores[entry], None) for entry in range(begin, end)]
                )
                for row, (begin, end) in batch
            ]
            if report is not None:
                report(batch[-1][0], S.shape[0])


def _read_features(model: Any, path: Path, data: DataOptions) -> Any:
    """Return the features from a matrix file, or from data in any format that contains features."""
    from carya.data.corpus import Matrices
    from carya.data.io.files import MATRIX_SUFFIXES
    from carya.data.io.matrix_files import read_matrix

    if Path(data.source).suffix in MATRIX_SUFFIXES:
        return read_matrix(data.source)
    if data.detected_format == "xmc-pair":
        from carya.data.formats.matrices.xmc_pair import read_xmc_features

        return read_xmc_features(data.source)
    matrices = data.open()
    if not isinstance(matrices, Matrices):
        raise InputError(f"{path} was trained on features. DATA must contain features, but {matrices.source} does not.")
    if not matrices.widths_known:  # trailing empty columns may be missing from the file
        matrices.X.resize((matrices.X.shape[0], max(matrices.X.shape[1], sum(model.widths_))))
    return matrices.X


def _format_lines(batches: Iterable[list[_RankedRow]], form: str) -> Iterator[str]:
    """Yield the output of each batch; in table formats, the first batch begins with the header."""
    if form == "jsonl":
        for batch in batches:
            yield "".join(json.dumps(_to_object(row), ensure_ascii=False) + "\n" for row in batch)
        return
    separator = "," if form == "csv" else "\t"
    quote = _table_quote(form)
    header = separator.join(_COLUMNS) + "\n"  # written with the first lines, so that nothing is written after an error
    for batch in batches:
        lines = (separator.join(map(quote, fields)) + "\n" for row in batch for fields in _to_fields(row))
        yield header + "".join(lines)
        header = ""
    yield header


def _to_object(row: _RankedRow) -> dict[str, Any]:
    """Return the JSON object for a row."""
    labels = []
    for label in row.labels:
        entry: dict[str, Any] = {"label": label.label, "score": round(label.score, _DIGITS)}
        if label.probability is not None:
            entry["probability"] = round(label.probability, _DIGITS)
        if label.name is not None:
            entry["name"] = label.name
        labels.append(entry)
    return {"row": row.row} | ({} if row.id is None else {"id": row.id}) | {"labels": labels}


def _to_fields(row: _RankedRow) -> Iterator[tuple[str, ...]]:
    """Yield the fields of each output line for a row; there is one line per label."""
    for rank, label in enumerate(row.labels, 1):
        probability = "" if label.probability is None else str(round(label.probability, _DIGITS))
        name = str(label.label) if label.name is None else label.name
        score = str(round(label.score, _DIGITS))
        yield str(row.row), row.id or "", str(rank), str(label.label), name, score, probability


def _table_quote(form: str) -> Callable[[str], str]:
    """Return the function that formats a field; TSV fields are not quoted."""
    from carya.data.formats.columns import TAB, check_one_line
    from carya.data.formats.tables.delimited import quote_field

    if form == "csv":
        return quote_field
    return lambda field: check_one_line(field, "The output", TAB)
