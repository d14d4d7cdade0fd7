"""`carya predict`: rank labels for a stream of texts."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    ray_option,
    top_k_option,
)
from carya.cli.options.data_options import DataOptions, data_options, was_passed
from carya.cli.options.rule_type import RuleType
from carya.cli.shared.inputs import (
    BATCH_SIZE,
    TextBatch,
    are_texts,
    argument_batches,
    load_model,
    naming_input,
    read_features,
    text_batches,
)
from carya.cli.shared.outputs import check_not_input
from carya.cli.shared.ranked_rows import (
    OUTPUT_FORMATS,
    FormattedRows,
    assigned_rows,
    format_rows,
    header,
    rank_texts,
    ranked_rows,
)
from carya.core.rules import Choice
from carya.errors import InputError, ParameterError

if TYPE_CHECKING:
    from carya.core.progress import Progress
    from carya.text.base import BaseTextRanker

_FORMAT_BY_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".txt": "jsonl", "": "jsonl"} | {
    ".csv": "csv",
    ".tsv": "tsv",
}


@command(
    "predict",
    examples=[
        "carya predict model/ 'a fast web server' 'a mail client'",
        "carya predict model/ texts.txt > labels.jsonl",
        "cat texts.txt | carya predict model/ - --top-k 5",
        "carya predict model/ data.csv --text-column title,abstract -o labels.csv.gz",
        "echo 'a fast web server' | carya predict model/ --output-format tsv",
        "carya predict model/ texts.txt --open-vocabulary",
        "carya predict model/ texts.txt --decide 'precision>=0.8'",
        "carya predict /shared/model /shared/texts.jsonl -o labels.jsonl --ray auto",
    ],
)
@model_argument
@data_options(part="test", source="-", labels=False)
@argument("texts", nargs=-1, metavar="[TEXT]...", help="Texts for which to rank labels, instead of DATA.")
@dense_option
@top_k_option(10)
@beam_width_option
@min_score_option
@option(
    "--open-vocabulary",
    is_flag=True,
    heading="Search",
    help="Also propose phrases that occur in the texts but not in the label list; they are marked as new.",
)
@option(
    "--decide",
    metavar="RULE",
    heading="Search",
    help="Assign labels with cut-offs learned by `carya train --calibrate`: f1, precision>=0.8, macro-f1@5, or a "
    "number of labels.",
)
@n_jobs_option
@ray_option
@option(
    "--out",
    "-o",
    type=click.Path(allow_dash=True),
    default="-",
    metavar="FILE",
    heading="Output",
    help="File to write, compressed if it ends with .gz, .xz or .zst; by default, standard output.",
)
@option(
    "--output-format",
    type=RuleType(Choice(*OUTPUT_FORMATS)),
    metavar=f"[{'|'.join(OUTPUT_FORMATS)}]",
    heading="Output",
    help="Output format; by default, determined by the suffix of --out (jsonl without --out).",
)
@quiet_option
def predict(
    model: Path,
    data: DataOptions,
    texts: tuple[str, ...],
    dense: Path | None,
    open_vocabulary: bool,
    decide: str | None,
    out: str,
    output_format: str | None,
    n_jobs: int,
    ray: str | None,
    quiet: bool,
    **limits: Any,
) -> None:
    """Rank labels for texts.

    Texts are read from standard input, one per line, unless DATA or texts are given; labels are ranked for each line as
    it arrives. JSON lines, tables with a header, and formats whose lines begin with labels are recognized;
    --format=lines disables this detection. An argument that is the path of an existing file or folder is treated as
    DATA. For a model trained on features, DATA must contain features, and labels without names are written as column
    numbers.

    The output has one line of JSON per text: {"row": …, "labels": [{"label": …, "score": …}, …]}, best first. Rows are
    numbered from 1. "id" is added if the data has ids, "name" for labels whose name differs from their id, and
    "probability" if the model is calibrated. With --open-vocabulary, phrases that are not in the label list have
    "new": true. The csv and tsv formats have one line per label, with the columns row, id, rank, label, name, score and
    probability, plus new with --open-vocabulary.
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
    if open_vocabulary:
        _check_open_vocabulary(loaded, model, ray)
        limits["open_vocabulary"] = True
    if decide is not None:
        limits = _decision_options(decide, limits, ray)
    with ExitStack() as stack:
        write = _write_standard_output if out == "-" else stack.enter_context(open_text_output(out))
        is_interactive = is_literal or (out == "-" and sys.stdout.isatty()) or (data.source == "-" and _is_terminal())
        progress = stack.enter_context(command_progress(quiet or is_interactive))
        if dense is not None and ranks_texts(loaded):
            raise InputError(f"--dense requires a model trained on features, but {model} was trained on texts.")
        if is_literal and not ranks_texts(loaded):
            raise InputError(f"{model} was trained on features. DATA must contain features, got a text.")
        parts: Iterator[FormattedRows]
        n_rows = 0  # unknown
        if ray is not None:
            from carya.cli.shared.cluster import Request, format_on_cluster

            request = Request(model, data, arguments if is_literal else None, dense, limits, form)
            parts, n_rows = format_on_cluster(ray, n_jobs, loaded, request, progress)
        elif ranks_texts(loaded):
            batches = argument_batches(arguments) if is_literal else text_batches(data, model)
            parts = _rank_texts(loaded, batches, limits, form)
        else:
            with progress.stage("read features"):
                X = read_features(data, sum(loaded.widths_), model, dense)
            parts = _rank_features(loaded, X, data, limits, form)
        for lines in _with_reports(parts, n_rows, header(form, has_new=open_vocabulary), progress):
            write(lines)


def _decision_options(decide: str, limits: dict[str, Any], ray: str | None) -> dict[str, Any]:
    """Return the options for assigning labels; raise an error if other options conflict with --decide."""
    from carya.models.calibration.assignment import pool_size

    pool_size(decide)  # raises ParameterError if the rule is invalid
    conflicts = [flag for flag in ("top_k", "min_score", "open_vocabulary") if was_passed(flag)]
    conflicts += [] if ray is None else ["ray"]
    if conflicts:
        raise ParameterError(f"--{conflicts[0].replace('_', '-')} cannot be combined with --decide. Omit one of them.")
    return {"decide": decide, "beam_width": limits["beam_width"]}


def _check_open_vocabulary(loaded: Any, model: Path, ray: str | None) -> None:
    """Raise an error if the model or the other options do not support new labels."""
    if ray is not None:
        raise ParameterError(
            "--open-vocabulary cannot be combined with --ray. Omit --ray to propose new labels on this machine."
        )
    if not ranks_texts(loaded):
        raise InputError(f"--open-vocabulary requires a model trained on texts, but {model} was trained on features.")


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
    ranker: BaseTextRanker[Any], batches: Iterable[TextBatch], limits: dict[str, Any], form: str
) -> Iterator[FormattedRows]:
    for batch in batches:
        rows, unknown = rank_texts(ranker, batch, limits)
        yield FormattedRows(format_rows(rows, form), len(rows), unknown)


def _rank_features(model: Any, X: Any, data: DataOptions, limits: dict[str, Any], form: str) -> Iterator[FormattedRows]:
    with naming_input(data.name):
        if "decide" in limits:
            rows = assigned_rows(model, model.assign(X, **limits))
        else:
            rows = ranked_rows(model, model.predict(X, **limits))
    while batch := list(itertools.islice(rows, BATCH_SIZE)):
        yield FormattedRows(format_rows(batch, form), len(batch), [])


def _with_reports(parts: Iterable[FormattedRows], total: int, first_line: str, progress: Progress) -> Iterator[str]:
    """Yield the lines to write, beginning with the header; warn about texts without known terms."""
    n_rows = n_unknown = 0
    # The header is written with the first rows, so that an early error leaves the output empty.
    with progress.stage("rank rows") as report:
        for part in parts:
            if part.unknown and n_unknown == 0:
                # Report the first text without known terms immediately, because standard input may stay open. Only
                # count further texts without known terms.
                _warn(f"Text {part.unknown[0]} contains no known terms, so nothing is suggested for it.")
            n_rows += part.n_rows
            n_unknown += len(part.unknown)
            yield first_line + part.lines
            first_line = ""
            if report is not None:
                report(n_rows, total)
    if first_line:
        yield first_line
    if n_unknown > 1:
        click.echo(f"carya: warning: {n_unknown:,} of {n_rows:,} texts contain no known terms.", err=True)


def _warn(message: str) -> None:
    from carya.text.base import UNKNOWN_TEXT_ADVICE

    click.echo(f"carya: warning: {message} {UNKNOWN_TEXT_ADVICE}", err=True)
