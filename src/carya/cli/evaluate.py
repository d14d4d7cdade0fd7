"""`carya evaluate`: ranking metrics and speed of a saved model."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carya.cli.commands import argument, command, option
from carya.cli.options.common import PATH, beam_width_option, json_option, model_argument, ranks_texts
from carya.cli.options.data_options import DataOptions, data_options
from carya.errors import InputError

if TYPE_CHECKING:
    from carya.models.xr_linear.model import XRLinear

_KS = (1, 3, 5, 10)
#: The table rows and the corresponding metric names in :func:`carya.metrics.report`.
_METRICS = {"precision": "P", "recall": "R", "nDCG": "nDCG", "coverage": "coverage"}


@command(
    "evaluate",
    examples=[
        "carya evaluate model/ data/",
        """carya evaluate model/ test.jsonl --json | jq '.["P@1"]'""",
        "carya evaluate model/ X.test.npz Y.test.npz --weight-dtypes",
    ],
)
@model_argument
@data_options(part="test")
@argument(
    "label_matrix",
    type=PATH,
    required=False,
    metavar="[LABEL_MATRIX]",
    help="Labels of a feature matrix, rows x labels: .npz or .npy.",
)
@option(
    "--dense",
    type=PATH,
    metavar="FILE",
    heading="Data",
    help="Dense features in addition to the sparse ones of DATA: .npy.",
)
@beam_width_option
@option(
    "--weight-dtypes",
    is_flag=True,
    heading="Output",
    help="Compare the data types in which the weights can be stored.",
)
@json_option
def evaluate(
    model: Path,
    data: DataOptions,
    label_matrix: Path | None,
    dense: Path | None,
    beam_width: int | None,
    weight_dtypes: bool,
    as_json: bool,
) -> None:
    """Measure precision, recall, nDCG, coverage and speed.

    Labels that do not occur in the training data count as missed.
    """
    import carya
    from carya.text.base import warn_unknown_texts
    from carya.text.text_ranker import TextRanker

    loaded = carya.load(model)
    data = data.with_model(loaded)
    if ranks_texts(loaded):
        if label_matrix is not None or dense is not None:
            raise InputError(f"{model} was trained on texts. Pass texts and their labels instead of matrices.")
        X, Y = _read_texts(loaded, data, model)
        if isinstance(loaded, TextRanker):
            X, loaded = loaded.vectorizer_.transform(X), loaded.model_
            warn_unknown_texts(X.indptr)
    else:
        X, Y = _read_matrices(loaded, data, model, label_matrix, dense)
    if Y.shape[0] == 0:
        raise InputError(f"{data.source} contains no rows. At least one is required.")
    if weight_dtypes and not hasattr(loaded, "with_weight_dtype"):
        raise InputError(
            f"--weight-dtypes requires a model with a single tree, but {model} contains {type(loaded).__name__}."
        )
    result = _measure(loaded, X, Y, beam_width)
    if weight_dtypes:
        result["weight_dtypes"] = {
            dtype: {"weight_bytes": size, **_measure(converted, X, Y, beam_width)}
            for dtype, size, converted in _smaller_weight_dtypes(loaded)
        }
    if as_json:
        click.echo(json.dumps(result, indent=1))
    else:
        _print(model, result)


def _read_texts(ranker: Any, data: DataOptions, model: Path) -> tuple[list[str], Any]:
    """Return the texts and the label matrix, with additional columns for labels that are unknown to the ranker."""
    from carya.text.labels import label_matrix

    texts, labels = data.read_texts(model)
    Y, _ = label_matrix(labels, ranker.labels_, keep_unknown=True)
    if Y.nnz and Y.indices.min() >= len(ranker.labels_):
        first = next(label for row in labels for label in row)
        raise InputError(
            f"{data.source} and {model} have no label in common: the first label of the data is {first!r}, that of "
            f"the model is {ranker.labels_[0]!r}. Train and evaluate with the same --vocabulary."
        )
    return texts, Y


def _read_matrices(
    model: Any, data: DataOptions, path: Path, label_matrix: Path | None, dense: Path | None
) -> tuple[Any, Any]:
    """Return the features and the label matrix."""
    from carya.data.corpus import Matrices
    from carya.data.io.files import MATRIX_SUFFIXES
    from carya.data.io.matrix_files import read_matrix

    if label_matrix is not None and data.labels is not None:
        raise InputError("Pass the labels either as LABEL_MATRIX or with --labels, not both.")
    if label_matrix is not None:
        X, Y = read_matrix(data.source), read_matrix(label_matrix)
    elif Path(data.source).suffix in MATRIX_SUFFIXES and data.labels is None:
        raise InputError(
            f"{data.source} contains features only. Pass their labels, too: carya evaluate {path} {data.source} Y.npz"
        )
    else:
        matrices = data.open()
        if not isinstance(matrices, Matrices):
            raise InputError(f"{data.source} contains texts, but {path} was trained on features. Pass features.")
        X, Y = matrices.X, matrices.Y
        if not matrices.widths_known:  # empty columns at the end may be missing in the file
            X.resize((X.shape[0], max(X.shape[1], sum(model.widths_))))
            Y.resize((Y.shape[0], max(Y.shape[1], model.n_labels_)))
    return X if dense is None else (X, read_matrix(dense)), Y


def _measure(model: Any, X: Any, Y: Any, beam_width: int | None) -> dict[str, Any]:
    from carya import metrics

    started = time.perf_counter()
    S = model.predict(X, top_k=max(_KS), beam_width=beam_width)
    seconds = time.perf_counter() - started
    n_rows = S.shape[0]
    if Y.shape[1] > S.shape[1]:  # labels that the model does not know
        S.resize((n_rows, Y.shape[1]))
    return {"rows": n_rows, "microseconds_per_row": 1e6 * seconds / n_rows, **metrics.report(Y, S, k=_KS)}


def _smaller_weight_dtypes(model: XRLinear) -> Iterator[tuple[str, int, XRLinear]]:
    """Yield each weight type up to the model's own, the size of the weights in bytes, and the converted model."""
    from carya.trees.layer import WEIGHT_DTYPES

    largest = min(WEIGHT_DTYPES.index(layer.weights.dtype) for layer in model.layers_)
    for dtype in WEIGHT_DTYPES[largest:]:
        converted = model.with_weight_dtype(dtype)
        yield dtype, sum(layer.weights.n_bytes for layer in converted.layers_), converted


def _print(model: Path, result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    click.echo(f"{model} on {result['rows']:,} rows:")
    table = Table("%", *(f"@{k}" for k in _KS))
    for name, key in _METRICS.items():
        table.add_row(name, *(f"{100 * result[f'{key}@{k}']:.2f}" for k in _KS))
    console.print(table)
    click.echo(f"{result['microseconds_per_row']:.1f} µs per row in a batch")
    if "weight_dtypes" not in result:
        return
    first = next(iter(result["weight_dtypes"].values()))
    keys = ("P@1", "P@3", "P@5")
    table = Table("weights", "bytes", *keys, "µs per row", title="Data types of the weights, and the change of P@k")
    for dtype, measured in result["weight_dtypes"].items():
        table.add_row(
            dtype,
            f"{measured['weight_bytes']:,}",
            *(f"{100 * measured[key]:.2f} {100 * (measured[key] - first[key]):+.2f}" for key in keys),
            f"{measured['microseconds_per_row']:.1f}",
        )
    console.print(table)
