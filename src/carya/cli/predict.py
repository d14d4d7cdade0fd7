"""`carya predict`: labels for texts, as they come."""

from __future__ import annotations

import io
import itertools
import json
import select
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from carya.cli.options import data_options
from carya.errors import InputError

if TYPE_CHECKING:
    from carya.text.text_ranker import TextRanker

_BATCH = 2048
_LINES = (".txt", "")  # one text a line


def predict(
    model: Annotated[Path, typer.Argument(help="The folder of a saved model.", show_default=False)],
    source: Annotated[str, typer.Argument(help="Texts, one a line, or any data; - for standard input.")] = "-",
    out: Annotated[str, typer.Option("--out", "-o", help="The file to write; - for standard output.")] = "-",
    top_k: Annotated[int, typer.Option(help="The most labels of a text.", min=1)] = 10,
    beam_width: Annotated[
        int | None, typer.Option(help="Nodes kept at each level; the model's own if not given.")
    ] = None,
    min_score: Annotated[float | None, typer.Option(help="Leave out labels below this score.")] = None,
    data_format: data_options.Format = None,
    part: Annotated[str, typer.Option(help="Which part of a folder: train, test or dev.")] = "test",
    text_column: data_options.TextColumn = "text",
    threads: data_options.Threads = -1,
) -> None:
    """Rank labels for texts: a line of JSON for each, while they come in.

    A line is {"labels": [{"label": …, "score": …}, …]}, best first, with "name" where a label has another name than its
    id. A model that was trained on matrices takes a .npz or .npy file and gives numbers of labels.

    Examples:

      carya predict model/ texts.txt > labels.jsonl

      cat texts.txt | carya predict model/ - --top-k 5

      echo 'a fast web server' | carya predict model/

      carya predict model/ data.csv --text-column title,abstract -o labels.jsonl.gz
    """
    import carya
    from carya.data.io.files import writing_text
    from carya.text.text_ranker import TextRanker

    opened = carya.load(model)
    asked = {"top_k": top_k, "beam_width": beam_width, "min_score": min_score}
    if hasattr(opened, "suggest_all"):
        parts = (opened.vectorizer_, opened.model_) if isinstance(opened, TextRanker) else (opened,)
        for one in parts:
            one.set_params(n_jobs=threads).check_parameters()
        answers = _for_texts(opened, _texts(source, data_format, part, text_column), asked)
    else:
        opened.set_params(n_jobs=threads).check_parameters()
        answers = _for_rows(opened, source, asked)
    if out == "-":
        for lines in answers:
            sys.stdout.buffer.write(lines.encode())
            sys.stdout.buffer.flush()
        return
    with writing_text(out) as write:
        for lines in answers:
            write(lines)


def _texts(source: str, data_format: str | None, part: str, text_column: str) -> Iterator[list[str]]:
    """Batches of texts; of standard input what is there, so that answers follow at once."""
    from carya.data.corpus import Matrices
    from carya.data.formats.folder_files import piece
    from carya.data.io.files import bare_name, read_lines

    if data_format is None and source == "-":
        yield from _lines_as_they_come()
        return
    if data_format is None and not Path(source).is_dir() and Path(bare_name(source)).suffix in _LINES:
        yield from _batches(read_lines(source))
        return
    place = Path(source)
    if data_format is None and place.is_dir() and (texts := piece(place, [f"{part}.texts.txt"])) is not None:
        yield from _batches(read_lines(texts))
        return
    data = data_options.read(source, part=part, data_format=data_format, text_column=text_column, label_column=None)
    if isinstance(data, Matrices):
        raise InputError(f"{source} holds features, the model was trained on texts")
    yield from _batches((example.text for example in data), waiting=source == "-")


def _lines_as_they_come() -> Iterator[list[str]]:

    number = 0
    begun: list[bytes] = []  # of a line whose end has not come yet
    stream = cast(io.BufferedReader, sys.stdin.buffer)
    while block := stream.read1(1 << 20):
        if b"\n" not in block:
            begun.append(block)
            continue
        *lines, rest = b"".join([*begun, block]).split(b"\n")
        begun = [rest] if rest else []
        for first in range(0, len(lines), _BATCH):
            some = enumerate(lines[first : first + _BATCH], number + first)
            yield [_decoded(line, at) for at, line in some]
        number += len(lines)
    if begun:
        yield [_decoded(b"".join(begun), number)]


def _decoded(line: bytes, number: int) -> str:
    try:
        return line.removesuffix(b"\r").decode()
    except UnicodeDecodeError as problem:
        raise InputError(f"standard input, line {number + 1}: not UTF-8 (byte {problem.start + 1})") from None


def _batches(texts: Iterable[str], *, waiting: bool = False) -> Iterator[list[str]]:
    """Many texts at a time; if `waiting` for standard input, no more than have come."""
    batch = []
    for text in texts:
        batch.append(text)
        if len(batch) == _BATCH or (waiting and not select.select([sys.stdin], [], [], 0)[0]):
            yield batch
            batch = []
    if batch:
        yield batch


def _for_texts(ranker: TextRanker, batches: Iterable[list[str]], asked: dict[str, Any]) -> Iterator[str]:
    """The answers of each batch."""
    for batch in batches:
        yield _lines(
            [
                {"label": one.label, "score": round(one.score, 6)}
                | ({"name": one.name} if one.name != one.label else {})
                for one in best
            ]
            for best in ranker.suggest_all(batch, **asked)
        )


def _for_rows(model: Any, source: str, asked: dict[str, Any]) -> Iterator[str]:
    from carya.data.io.matrix_files import read_matrix

    if Path(source).suffix not in (".npz", ".npy"):
        raise InputError(f"the model was trained on features: {source} must be a .npz or .npy file of them")
    S = model.predict(read_matrix(source), **asked)
    yield _lines(
        [
            {"label": label, "score": round(score, 6)}
            for label, score in zip(S.indices[begin:end].tolist(), S.data[begin:end].tolist(), strict=True)
        ]
        for begin, end in itertools.pairwise(S.indptr)
    )


def _lines(answers: Iterable[list[dict[str, Any]]]) -> str:
    return "".join(json.dumps({"labels": labels}, ensure_ascii=False) + "\n" for labels in answers)
