"""`carya inspect`: show the contents of a saved model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carya.cli.commands import command
from carya.cli.options.common import json_option, model_argument
from carya.cli.shared.inputs import load_model
from carya.cli.shared.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console

_NESTED_MODELS = ("tree", "members", "base", "ranker")  # parameters that are models or trees
_SHOWN_LABELS = 5


@command("inspect", examples=["carya inspect model/", "carya inspect model/ --json | jq .bytes"])
@model_argument
@json_option
def inspect(model: Path, as_json: bool) -> None:
    """Show the layers, sizes and parameters of a saved model.

    All checksums are verified.
    """
    from carya.core import storage
    from carya.core.strings import NumberStrings

    storage.load(model)  # reads, and therefore verifies, all data
    saved = load_model(model)
    if not hasattr(saved, "rankers_") and _text_members(saved):
        _inspect_text_members(model, saved, as_json)
        return
    ranker, rest = _main_ranker(saved)
    description = {"bytes": storage.size_on_disk(model), **_describe(ranker), **rest}
    if not isinstance(saved.labels_, NumberStrings):
        description["first_labels"] = list(saved.labels_[:_SHOWN_LABELS])
    if saved.data_options_:
        description["data_options"] = dict(saved.data_options_)
    if as_json:
        click.echo(json.dumps(description, indent=1, default=_to_json))
        return

    from rich.console import Console

    features = f"{description['sparse_features']:,} sparse and {description['dense_features']:,} dense features"
    title = str(ranker.tree_) if hasattr(ranker, "tree_") else f"{type(ranker).__name__}({ranker.n_labels_} labels)"
    click.echo(f"{model}: {title}, {features}, {description['bytes']:,} bytes")
    _print_layers(Console(), description)
    if "first_labels" in description:
        more = ", …" if len(saved.labels_) > _SHOWN_LABELS else ""
        click.echo(f"labels: {printable(', '.join(description['first_labels']))}{more}")
    if ranker is not saved and saved.vectorizers_:
        click.echo(f"vectorizer: {saved.vectorizers_[0]!r}")
    click.echo(f"model: {ranker!r}")
    if saved.data_options_:
        click.echo(f"options for reading data: {', '.join(f'{name}={v!r}' for name, v in saved.data_options_.items())}")


def _text_members(model: Any) -> list[Any]:
    """Return the text models nested in a text model: its members or its base model."""
    from carya.text.base import BaseTextRanker

    if not isinstance(model, BaseTextRanker):
        return []
    return [*getattr(model, "members_", ())] or [getattr(model, "base_", None)] * hasattr(model, "base_")


def _inspect_text_members(path: Path, model: Any, as_json: bool) -> None:
    """Print the members of an ensemble of text models, or the base model of a reranker."""
    from rich.console import Console

    from carya.core import storage

    description = {"bytes": storage.size_on_disk(path), **_describe_text_model(model)}
    if as_json:
        click.echo(json.dumps(description, indent=1, default=_to_json))
        return
    click.echo(f"{path}: {type(model).__name__}({len(model.labels_)} labels), {description['bytes']:,} bytes")
    _print_text_members(Console(), description, "")


def _print_text_members(console: Console, description: dict[str, Any], prefix: str) -> None:
    for number, member in enumerate(description["text_members"], 1):
        weight = f", weight {member['weight']:g}" if "weight" in member else ""
        click.echo(f"member {prefix}{number}: {member['kind']}{weight}")
        if "text_members" in member:
            _print_text_members(console, member, f"{prefix}{number}.")
        else:
            _print_layers(console, member)


def _describe_text_model(model: Any) -> dict[str, Any]:
    """Return the kind, the parameters and the nested models of a text model."""
    members = _text_members(model)
    if not members or hasattr(model, "rankers_"):
        ranker, rest = _main_ranker(model)
        return {"kind": model.model_kind_, **_describe(ranker), **rest}
    parameters = model.get_params(deep=False)
    description: dict[str, Any] = {
        "kind": type(model).__name__,
        "labels": len(model.labels_),
        "parameters": {name: value for name, value in parameters.items() if name not in _NESTED_MODELS},
        "text_members": [_describe_text_model(member) for member in members],
    }
    if hasattr(model, "weights_"):
        for member, weight in zip(description["text_members"], model.weights_.tolist(), strict=True):
            member["weight"] = weight
    if hasattr(model, "ranker_"):
        description["ranker"] = model.ranker_.name
    return description


def _main_ranker(model: Any) -> tuple[Any, dict[str, Any]]:
    """Return the feature model (in a mixture, the one with the largest weight) and a description of the other parts."""
    from carya.text.text_ranker import TextRanker

    surroundings: dict[str, Any] = {}
    ranker = model
    if isinstance(model, TextRanker):
        ranker = model.model_
    elif hasattr(model, "rankers_"):
        surroundings["mixture"] = model.weights_
        if model.weights_:
            ranker = model.rankers_[max(model.weights_, key=model.weights_.__getitem__)]
    if ranker is not model and model.vectorizers_:
        (vectorizer,) = model.vectorizers_
        terms = [int(ends.size) for _, ends, _ in vectorizer.terms_]
        surroundings["vectorizer"] = {"terms": terms, "parameters": vectorizer.get_params()}
    return ranker, surroundings


def _describe(model: Any) -> dict[str, Any]:
    """Return the sizes and parameters of a feature model, the layers of its tree, and its members."""
    parameters = model.get_params(deep=False)
    description: dict[str, Any] = {
        "labels": model.n_labels_,
        "sparse_features": model.widths_[0],
        "dense_features": model.widths_[1],
        "parameters": {name: value for name, value in parameters.items() if name not in _NESTED_MODELS},
    }
    if hasattr(model, "members_"):
        description["members"] = [_describe(member) for member in model.members_]
    if hasattr(model, "layers_"):
        description["tree"] = list(model.tree_.level_sizes)
        description["layers"] = [
            {
                "layer": number,
                "parents": model.tree_.level_sizes[number - 1],
                "nodes": layer.n_nodes,
                "features_used": layer.weights.n_used,
                "weight_dtype": layer.weights.dtype,
                "transform": layer.transform.name,
                "weight_bytes": layer.weights.n_bytes,
                "dense_bytes": layer.dense.nbytes,
                "weights": layer.weights.n_weights,
                "layout": choice.layout,
                "reason": choice.reason,
            }
            for number, (layer, choice) in enumerate(zip(model.layers_, model.layouts_, strict=True), 1)
        ]
    return description


def _print_layers(console: Console, description: dict[str, Any]) -> None:
    from rich.table import Table

    for number, member in enumerate(description.get("members", ()), 1):
        click.echo(f"member {number}:")
        _print_layers(console, member)
    layers = description.get("layers", ())
    if not layers:
        return
    table = Table("layer", "nodes", "features used", "weights", "data type", "bytes", "transform")
    for layer in layers:
        table.add_row(
            str(layer["layer"]),
            f"{layer['nodes']:,}",
            f"{layer['features_used']:,}",
            f"{layer['weights']:,}",
            layer["weight_dtype"],
            f"{layer['weight_bytes'] + layer['dense_bytes']:,}",
            layer["transform"],
        )
    console.print(table)
    for layer in layers:
        click.echo(f"layer {layer['layer']} has the {layer['layout']} layout: {layer['reason']}")


def _to_json(value: Any) -> Any:
    """Convert a parameter value that is not JSON-serializable."""
    return list(value) if hasattr(value, "__iter__") else repr(value)
