"""`carya evaluate`: how well a saved model ranks, and what its precision costs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carya.cli.options import data_options
from carya.errors import InputError

if TYPE_CHECKING:
    from carya.data.corpus import Corpus, Matrices
    from carya.models.xr_linear.model import XRLinear
    from carya.text.text_ranker import TextRanker

_KS = (1, 3, 5, 10)


def evaluate(
    model: Annotated[Path, typer.Argument(help="The folder of a saved model.", show_default=False)],
    source: data_options.Source,
    matrix: Annotated[
        Path | None, typer.Argument(help="For features in a file: their labels, rows x labels, .npz or .npy.")
    ] = None,
    part: Annotated[str, typer.Option(help="Which part of a folder: train, test or dev.")] = "test",
    data_format: data_options.Format = None,
    labels: data_options.Labels = None,
    text_column: data_options.TextColumn = "text",
    label_column: data_options.LabelColumn = "labels",
    label_separator: data_options.LabelSeparator = None,
    vocabulary: data_options.Names = None,
    language: data_options.Language = "en",
    dense: Annotated[Path | None, typer.Option(help="Dense features beside the sparse ones: .npy.")] = None,
    beam_width: Annotated[
        int | None, typer.Option(help="Nodes kept at each level; the model's own if not given.")
    ] = None,
    precisions: Annotated[bool, typer.Option(help="Also show the model with its weights kept in fewer bits.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Rank test rows and compare with their labels: precision, recall, nDCG, coverage, and speed.

    Labels that the model has never seen count as missed.

    Examples:

      carya evaluate model/ data/

      carya evaluate model/ test.jsonl --json | jq '.["P@1"]'

      carya evaluate model/ X.test.npz Y.test.npz --precisions
    """
    import carya
    from carya.text.text_ranker import TextRanker

    opened = carya.load(model)
    if hasattr(opened, "suggest_all"):
        if matrix is not None or dense is not None:
            raise InputError(f"{model} was trained on texts: give the texts and their labels, no matrices")
        data = data_options.read(
            source,
            part=part,
            data_format=data_format,
            labels=labels,
            text_column=text_column,
            label_column=label_column,
            label_separator=label_separator,
            vocabulary=vocabulary,
            language=language,
        )
        X, Y = _read_texts(opened, data, source)
        if isinstance(opened, TextRanker):
            X, opened = opened.vectorizer_.transform(X), opened.model_
        elif precisions:
            raise InputError(f"{model} is of several models: their precisions cannot be compared here")
    else:
        X, Y = _read_matrices(opened, source, matrix, dense, part, data_format)
    if Y.shape[0] == 0:
        raise InputError(f"{source}: there are no rows to evaluate on")
    found = _measured(opened, X, Y, beam_width)
    if precisions and not hasattr(opened, "with_precision"):
        raise InputError(f"--precisions is for one tree, {model} holds a model of kind {type(opened).__name__}")
    if precisions:
        found["precisions"] = {
            name: {"weight_bytes": size, **_measured(one, X, Y, beam_width)}
            for name, size, one in _kept_otherwise(opened)
        }
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    else:
        _show(model, found)


def _read_texts(ranker: TextRanker, data: Corpus | Matrices, source: str) -> tuple[Any, Any]:
    """Texts and their labels, with columns for those the ranker does not know."""
    from carya.data.corpus import Matrices
    from carya.text.labels import label_matrix

    if isinstance(data, Matrices):
        raise InputError(f"{source} holds features, the model was trained on texts")
    texts, labels = data_options.gather(data)
    Y, _ = label_matrix(labels, ranker.labels_, others=True)
    if Y.nnz and Y.indices.min() >= len(ranker.labels_):
        raise InputError(
            f"{source}: the model knows none of its labels; it knows {ranker.labels_[0]!r} and others, the data have "
            f"{next(label for row in labels for label in row)!r} (train and evaluate with the same --vocabulary)"
        )
    return texts, Y


def _read_matrices(
    model: Any, source: str, labels: Path | None, dense: Path | None, part: str, data_format: str | None
) -> tuple[Any, Any]:
    from carya.data.corpus import Matrices
    from carya.data.io.matrix_files import read_matrix

    if labels is None:
        data = data_options.read(source, part=part, data_format=data_format)
        if not isinstance(data, Matrices):
            raise InputError(f"{source} holds texts, the model was trained on features")
        X, Y = data.X, data.Y
        if not data.widths_known:
            X.resize((X.shape[0], max(X.shape[1], sum(model.widths_))))
            Y.resize((Y.shape[0], max(Y.shape[1], model.n_labels_)))
    else:
        X, Y = read_matrix(source), read_matrix(labels)
    return X if dense is None else (X, read_matrix(dense)), Y


def _measured(model: Any, X: Any, Y: Any, beam_width: int | None) -> dict[str, Any]:
    from carya import metrics

    started = time.perf_counter()
    S = model.predict(X, top_k=max(_KS), beam_width=beam_width)
    took = time.perf_counter() - started
    rows = S.shape[0]
    if Y.shape[1] > S.shape[1]:  # labels that the model has never seen
        S.resize((rows, Y.shape[1]))
    return {"rows": rows, "microseconds_a_row": 1e6 * took / max(rows, 1), **metrics.report(Y, S, k=_KS)}


def _kept_otherwise(model: XRLinear) -> Iterator[tuple[str, int, XRLinear]]:
    """The model with its weights in each precision that is no finer than its own: finer bits would tell nothing."""
    from carya.trees.layer import PRECISIONS

    finest = min(PRECISIONS.index(layer.weights.precision) for layer in model.layers_)
    for name in PRECISIONS[finest:]:
        one = model.with_precision(name)
        yield name, sum(layer.weights.n_bytes for layer in one.layers_), one


def _show(model: Path, found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"{model} on {found['rows']:,} rows:", highlight=False, markup=False, soft_wrap=True)
    table = Table("metric", *(f"@{k}" for k in _KS))
    for name in ("P", "R", "nDCG", "coverage"):
        table.add_row(name, *(f"{100 * found[f'{name}@{k}']:.2f}" for k in _KS))
    console.print(table)
    console.print(f"{found['microseconds_a_row']:.1f} µs a row in batch", highlight=False)
    if "precisions" not in found:
        return
    first = next(iter(found["precisions"].values()))
    table = Table("weights as", "bytes", "P@1", "P@3", "P@5", "µs a row", title="What precision costs")
    for name, one in found["precisions"].items():
        table.add_row(
            name,
            f"{one['weight_bytes']:,}",
            *(f"{100 * one[key]:.2f} ({100 * (one[key] - first[key]):+.2f})" for key in ("P@1", "P@3", "P@5")),
            f"{one['microseconds_a_row']:.1f}",
        )
    console.print(table)
