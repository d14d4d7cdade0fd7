"""`carya evaluate`: how well a saved model ranks, and what its precision costs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from carya.models.xr_linear import XRLinear

_KS = (1, 3, 5, 10)


def evaluate(
    model: Annotated[Path, typer.Argument(help="The folder of a saved model.")],
    features: Annotated[Path, typer.Argument(help="The features of test rows: .npz of SciPy or .npy of NumPy.")],
    labels: Annotated[Path, typer.Argument(help="Their labels, rows x labels: .npz or .npy.")],
    dense: Annotated[Path | None, typer.Option(help="Dense features beside the sparse ones: .npy.")] = None,
    beam_width: Annotated[
        int | None, typer.Option(help="Nodes kept at each level; the model's own if not given.")
    ] = None,
    precisions: Annotated[bool, typer.Option(help="Also show the model with its weights kept in fewer bits.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Rank test rows and compare with their labels: precision, recall, nDCG, coverage, and speed.

    Examples:

      carya evaluate model/ X.test.npz Y.test.npz

      carya evaluate model/ X.test.npz Y.test.npz --precisions

      carya evaluate model/ X.test.npz Y.test.npz --json | jq '.["P@1"]'
    """
    import carya
    from carya.data.files import read_matrix

    opened = carya.load(model)
    X: Any = read_matrix(features)
    if dense is not None:
        X = (X, read_matrix(dense))
    Y = read_matrix(labels)
    found = _measured(opened, X, Y, beam_width)
    if precisions:
        found["precisions"] = {
            name: {"weight_bytes": size, **_measured(one, X, Y, beam_width)}
            for name, size, one in _kept_otherwise(opened)
        }
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    else:
        _show(model, found)


def _measured(model: XRLinear, X: Any, Y: Any, beam_width: int | None) -> dict[str, Any]:
    from carya import metrics

    started = time.perf_counter()
    S = model.predict(X, top_k=max(_KS), beam_width=beam_width)
    took = time.perf_counter() - started
    rows = S.shape[0]
    return {"rows": rows, "microseconds_a_row": 1e6 * took / max(rows, 1), **metrics.report(Y, S, k=_KS)}


def _kept_otherwise(model: XRLinear) -> Iterator[tuple[str, int, XRLinear]]:
    """The model with its weights in each precision that is no finer than its own: finer bits would tell nothing."""
    from carya.layer import PRECISIONS

    finest = min(PRECISIONS.index(layer.weights.precision) for layer in model.layers_)
    for name in PRECISIONS[finest:]:
        one = model.with_precision(name)
        yield name, sum(layer.weights.n_bytes for layer in one.layers_), one


def _show(model: Path, found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"{model} on {found['rows']:,} rows:", highlight=False, soft_wrap=True)
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
