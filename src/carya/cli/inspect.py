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
    from carya.core.storage import load as load_everything
    from carya.core.storage import size_on_disk
    from carya.text.text_ranker import TextRanker

    load_everything(model)  # verified, not only what is looked at
    opened = ranker = carya.load(model)
    if isinstance(ranker, TextRanker):
        opened = ranker.model_
    mixture: dict[str, float] = ranker.weights_ if hasattr(ranker, "rankers_") else {}
    if mixture:  # of several rankers the one that counts most
        opened = ranker.rankers_[max(mixture, key=mixture.__getitem__)]
    found = {"bytes": size_on_disk(model)} | _told(opened)
    if mixture:
        found["mixture"] = mixture
    if ranker is not opened:
        terms = [int(ends.size) for _, ends, _ in ranker.vectorizer_.terms_]
        found["texts"] = {"terms": terms, "parameters": ranker.vectorizer_.get_params()}
    if as_json:
        typer.echo(json.dumps(found, indent=1, default=_plain))
        return

    from rich.console import Console

    console = Console()
    features = f"{found['sparse_features']:,} sparse and {found['dense_features']:,} dense features"
    _say(console, f"{model}: {_title(opened)}, {features}, {found['bytes']:,} bytes")
    _show(console, found)
    if ranker is not opened:
        _say(console, f"texts are read by {ranker.vectorizer_!r}")
    _say(console, f"trained as {opened!r}")


def _say(console: Any, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def _title(opened: Any) -> str:
    return str(opened.tree_) if hasattr(opened, "tree_") else f"{type(opened).__name__}({opened.n_labels_} labels)"


def _told(opened: Any) -> dict[str, Any]:
    """What there is to tell of a model: the layers of a tree, the members of what is made of several."""
    found: dict[str, Any] = {
        "labels": opened.n_labels_,
        "sparse_features": opened.widths_[0],
        "dense_features": opened.widths_[1],
        "parameters": {
            name: value
            for name, value in opened.get_params(deep=False).items()
            if name not in ("tree", "members", "base", "ranker")
        },
    }
    if hasattr(opened, "members_"):
        found["members"] = [_told(one) for one in opened.members_]
    if not hasattr(opened, "layers_"):
        return found
    found["tree"] = list(opened.tree_.level_sizes)
    found["layers"] = [
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
    return found


def _show(console: Any, found: dict[str, Any]) -> None:
    from rich.table import Table

    for number, member in enumerate(found.get("members", ()), 1):
        _say(console, f"member {number}:")
        _show(console, member)
    if "layers" not in found:
        return
    table = Table("layer", "nodes", "features used", "weights", "kept as", "bytes", "transform")
    for one in found["layers"]:
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
    for one in found["layers"]:
        _say(console, f"layer {one['layer']} is searched {one['layout']}: {one['reason']}")


def _plain(value: Any) -> Any:
    """For JSON: lists as lists, anything else as it is written."""
    return list(value) if hasattr(value, "__iter__") else repr(value)
