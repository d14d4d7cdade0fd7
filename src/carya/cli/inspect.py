"""`carya inspect`: what a saved model is made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def inspect(
    model: Annotated[Path, typer.Argument(help="The folder of a saved model.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show the layers of a saved model, how large they are and how their weights are kept.

    Every checksum is verified on the way.

    Examples:

      carya inspect model/

      carya inspect model/ --json | jq .bytes
    """
    import carya
    from carya.store import size_on_disk
    from carya.text.ranker import TextRanker

    opened = ranker = carya.load(model)
    if isinstance(ranker, TextRanker):
        opened = ranker.model_
    mixture = getattr(ranker, "weights_", None) if hasattr(ranker, "rankers_") else None
    if mixture is not None:  # of several rankers the one that counts most
        opened = ranker.rankers_[max(mixture, key=mixture.__getitem__)]
    for layer in opened.layers_:
        layer.verify()
    layers: list[dict[str, Any]] = [
        {
            "layer": level,
            "parents": opened.tree_.level_sizes[level - 1],
            "nodes": layer.n_nodes,
            "features_used": layer.weights.n_used,
            "precision": layer.weights.precision,
            "transform": layer.transform.name,
            "weight_bytes": layer.weights.n_bytes,
            "dense_bytes": layer.dense.nbytes,
            "weights": layer.weights.n_weights,
            "layout": choice.layout,
            "reason": choice.reason,
        }
        for level, (layer, choice) in enumerate(zip(opened.layers_, opened.layouts_, strict=True), 1)
    ]
    found: dict[str, Any] = {
        "labels": opened.tree_.n_labels,
        "tree": list(opened.tree_.level_sizes),
        "sparse_features": opened.widths_[0],
        "dense_features": opened.widths_[1],
        "bytes": size_on_disk(model),
        "layers": layers,
        "parameters": {name: value for name, value in opened.get_params().items() if name != "tree"},
    }
    if mixture is not None:
        found |= {"mixture": mixture, "shown": max(mixture, key=mixture.__getitem__)}
    if isinstance(ranker, TextRanker):
        terms = [int(ends.size) for _, ends, _ in ranker.vectorizer_.terms_]
        found["texts"] = {"terms": terms, "parameters": ranker.vectorizer_.get_params()}
    if as_json:
        typer.echo(json.dumps(found, indent=1, default=list))
        return

    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(
        f"{model}: {opened.tree_}, {found['sparse_features']:,} sparse and {found['dense_features']:,} dense features, "
        f"{found['bytes']:,} bytes",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    table = Table("layer", "nodes", "features used", "weights", "kept as", "bytes", "transform")
    for one in layers:
        table.add_row(
            str(one["layer"]),
            f"{one['nodes']:,}",
            f"{one['features_used']:,}",
            f"{one['weights']:,}",
            str(one["precision"]),
            f"{one['weight_bytes'] + one['dense_bytes']:,}",
            str(one["transform"]),
        )
    console.print(table)
    for one in layers:
        console.print(
            f"layer {one['layer']} is searched {one['layout']}: {one['reason']}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    if ranker is not opened:
        console.print(f"texts are read by {ranker.vectorizer_!r}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"trained as {opened!r}", highlight=False, markup=False, soft_wrap=True)
