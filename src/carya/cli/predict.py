"""`carya predict`: rank labels for a stream of texts."""

from __future__ import annotations

import itertools
import json
import select
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carya.cli.commands import command, option
from carya.cli.options.common import (
    beam_width_option,
    min_score_option,
    model_argument,
    n_jobs_option,
    ranks_texts,
    top_k_option,
)
from carya.cli.options.data_options import DataOptions, data_options
from carya.errors import InputError, UnknownTextWarning

if TYPE_CHECKING:
    from carya.models.suggestions import Suggestion
    from carya.text.base import BaseTextRanker

_BATCH = 2048  # texts ranked at a time


@command(
    "predict",
    examples=[
        "carya predict model/ texts.txt > labels.jsonl",
        "cat texts.txt | carya predict model/ - --top-k 5",
        "echo 'a fast web server' | carya predict model/",
        "carya predict model/ data.csv --text-column title,abstract -o labels.jsonl.gz",
    ],
)
@model_argument
@data_options(part="test", source="-", labels=False)
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
    help="File to write; standard output by default.",
)
def predict(model: Path, data: DataOptions, out: str, n_jobs: int, **limits: Any) -> None:
    """Rank labels for texts, one line of JSON per text.

    Reads texts from standard input, one per line, unless DATA is given, and answers each line as it arrives. A line of
    the output is {"labels": [{"label": …, "score": …}, …]}, best first; "name" is added for labels whose name differs
    from their id. JSON lines, and formats that begin with labels, are recognized; `--format lines` disables this. For a
    model trained on features, DATA contains features, and labels are column numbers.
    """
    import carya
    from carya.core.parameters import set_in_all
    from carya.data.io.files import open_text_output

    loaded = carya.load(model)
    data = data.with_model(loaded)
    set_in_all(loaded, n_jobs=n_jobs)
    if ranks_texts(loaded):
        lines = _rank_texts(loaded, _text_batches(data, model), limits)
    else:
        lines = _rank_features(loaded, model, data, limits)
    if out == "-":
        for batch in lines:
            sys.stdout.buffer.write(batch.encode())
            sys.stdout.buffer.flush()
        return
    with open_text_output(out) as write:
        for batch in lines:
            write(batch)


def _text_batches(data: DataOptions, model: Path) -> Iterator[list[str]]:
    """Yield batches of texts; texts from standard input are yielded as soon as they arrive."""
    from carya.data.formats.content import text_lines

    if Path(data.source).is_dir() and data.format is None:
        texts = _file_of_texts(data)
        if texts is not None:
            return _batches(text_lines(texts))
    corpus = data.open_texts(model)
    return _batches((example.text for example in corpus), is_stream=data.source == "-")


def _file_of_texts(data: DataOptions) -> Path | None:
    """Return the file of texts of a folder; no labels are needed, so none have to exist."""
    from carya.data.formats.folder_files import find_file

    return find_file(Path(data.source), [f"{data.part}.texts.txt"])


def _batches(texts: Iterable[str], *, is_stream: bool = False) -> Iterator[list[str]]:
    """Group texts into batches; a batch from a stream ends when no more input is available yet."""
    batch = []
    for text in texts:
        batch.append(text)
        if len(batch) == _BATCH or (is_stream and not select.select([sys.stdin], [], [], 0)[0]):
            yield batch
            batch = []
    if batch:
        yield batch


def _rank_texts(ranker: BaseTextRanker[Any], batches: Iterable[list[str]], limits: dict[str, Any]) -> Iterator[str]:
    """Yield the output lines of each batch; warn about texts without known terms."""
    n_texts = n_unknown = 0
    for batch in batches:
        suggestions_of_batch, unknown = _suggest(ranker, batch, limits)
        if unknown and n_unknown == 0:
            # Shown at once, because standard input may stay open; the other texts are counted.
            _warn(f"Text {n_texts + unknown[0] + 1} contains no known terms, so nothing is suggested for it.")
        n_texts += len(batch)
        n_unknown += len(unknown)
        yield _to_lines(
            [
                {"label": suggestion.label, "score": round(suggestion.score, 6)}
                | ({"name": suggestion.name} if suggestion.name != suggestion.label else {})
                for suggestion in suggestions
            ]
            for suggestions in suggestions_of_batch
        )
    if n_unknown > 1:
        click.echo(f"carya: warning: {n_unknown:,} of {n_texts:,} texts contain no known terms.", err=True)


def _suggest(
    ranker: BaseTextRanker[Any], texts: list[str], limits: dict[str, Any]
) -> tuple[list[list[Suggestion]], list[int]]:
    """Return the suggestions for each text and the numbers of the texts without known terms."""
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


def _rank_features(model: Any, path: Path, data: DataOptions, limits: dict[str, Any]) -> Iterator[str]:
    S = model.predict(_read_features(model, path, data), **limits)
    yield _to_lines(
        [
            {"label": label, "score": round(score, 6)}
            for label, score in zip(S.indices[begin:end].tolist(), S.data[begin:end].tolist(), strict=True)
        ]
        for begin, end in itertools.pairwise(S.indptr)
    )


def _read_features(model: Any, path: Path, data: DataOptions) -> Any:
    """Return the features of a matrix file, or of data in any format that contains features."""
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
    if not matrices.widths_known:  # the last columns can be empty, and so missing in the file
        matrices.X.resize((matrices.X.shape[0], max(matrices.X.shape[1], sum(model.widths_))))
    return matrices.X


def _to_lines(rankings: Iterable[list[dict[str, Any]]]) -> str:
    return "".join(json.dumps({"labels": labels}, ensure_ascii=False) + "\n" for labels in rankings)
