"""`carya predict`: rank labels for a stream of texts."""

from __future__ import annotations

import io
import itertools
import json
import select
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

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
from carya.cli.options.data_options import MATRIX_SUFFIXES, DataOptions, data_options
from carya.errors import InputError

if TYPE_CHECKING:
    from carya.text.text_ranker import TextRanker

_BATCH = 2048  # texts ranked at a time
_READ_SIZE = 1 << 20
_LINE_SUFFIXES = (".txt", "")  # files with one text per line


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
    from their id. For a model trained on features, DATA is a .npz or .npy file, and labels are column numbers.
    """
    import carya
    from carya.data.io.files import open_text_output
    from carya.text.text_ranker import TextRanker

    loaded = carya.load(model)
    for part in (loaded.vectorizer_, loaded.model_) if isinstance(loaded, TextRanker) else (loaded,):
        part.set_params(n_jobs=n_jobs)
    if ranks_texts(loaded):
        lines = _rank_texts(loaded, _text_batches(data, model), limits)
    else:
        lines = _rank_features(loaded, model, data.source, limits)
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
    from carya.data.io.files import read_lines

    if data.format is None and data.source == "-":
        return _standard_input_batches()
    path = _file_of_lines(data)
    if path is not None:
        return _batches(read_lines(path))
    texts = (example.text for example in data.open_texts(model))
    return _batches(texts, is_stream=data.source == "-")


def _file_of_lines(data: DataOptions) -> Path | None:
    """Return the path if the data is a file with one text per line, which does not require labels."""
    from carya.data.formats.folder_files import find_file
    from carya.data.io.files import uncompressed_name

    path = Path(data.source)
    if data.format is not None:
        return None
    if path.is_dir():
        return find_file(path, [f"{data.part}.texts.txt"])
    return path if Path(uncompressed_name(data.source)).suffix in _LINE_SUFFIXES else None


def _standard_input_batches() -> Iterator[list[str]]:
    """Yield the complete lines in each block of input."""
    n_read = 0
    incomplete: list[bytes] = []  # parts of an incomplete line
    stream = cast(io.BufferedReader, sys.stdin.buffer)
    while block := stream.read1(_READ_SIZE):
        if b"\n" not in block:
            incomplete.append(block)
            continue
        *lines, rest = b"".join([*incomplete, block]).split(b"\n")
        incomplete = [rest] if rest else []
        for first in range(0, len(lines), _BATCH):
            numbered = enumerate(lines[first : first + _BATCH], n_read + first + 1)
            yield [_decode(line, number) for number, line in numbered]
        n_read += len(lines)
    if incomplete:
        yield [_decode(b"".join(incomplete), n_read + 1)]


def _decode(line: bytes, number: int) -> str:
    try:
        return line.removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise InputError(f"Standard input must be UTF-8, but byte {error.start + 1} of line {number} is not.") from None


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


def _rank_texts(ranker: TextRanker, batches: Iterable[list[str]], limits: dict[str, Any]) -> Iterator[str]:
    """Yield the output lines of each batch."""
    for batch in batches:
        yield _to_lines(
            [
                {"label": suggestion.label, "score": round(suggestion.score, 6)}
                | ({"name": suggestion.name} if suggestion.name != suggestion.label else {})
                for suggestion in suggestions
            ]
            for suggestions in ranker.suggest_all(batch, **limits)
        )


def _rank_features(model: Any, path: Path, source: str, limits: dict[str, Any]) -> Iterator[str]:
    from carya.data.io.matrix_files import read_matrix

    if Path(source).suffix not in MATRIX_SUFFIXES:
        name = "standard input" if source == "-" else source
        raise InputError(f"{path} was trained on features. DATA must be a .npz or .npy file, got {name}.")
    S = model.predict(read_matrix(source), **limits)
    yield _to_lines(
        [
            {"label": label, "score": round(score, 6)}
            for label, score in zip(S.indices[begin:end].tolist(), S.data[begin:end].tolist(), strict=True)
        ]
        for begin, end in itertools.pairwise(S.indptr)
    )


def _to_lines(rankings: Iterable[list[dict[str, Any]]]) -> str:
    return "".join(json.dumps({"labels": labels}, ensure_ascii=False) + "\n" for labels in rankings)
