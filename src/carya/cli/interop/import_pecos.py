"""`carya import-pecos`: convert a libpecos model."""

from __future__ import annotations

import json
from pathlib import Path

import click

from carya.cli.commands import argument, command
from carya.cli.options.common import PATH, force_option, json_option
from carya.cli.shared.outputs import check_model_output


@command("import-pecos", examples=["carya import-pecos pecos-model/ model/"])
@argument("source", type=PATH, metavar="SOURCE", help="Folder of an XR-Linear model saved by libpecos.")
@argument("target", type=PATH, metavar="TARGET", help="Folder to write.")
@force_option
@json_option
def import_pecos(source: Path, target: Path, force: bool, as_json: bool) -> None:
    """Convert a libpecos XR-Linear model to a Carya model.

    The converted model returns the same rankings.
    """
    from carya.models.xr_linear.import_pecos import import_pecos as read_pecos_model

    check_model_output(target, force=force)
    model = read_pecos_model(source)
    model.save(target)
    if as_json:
        sizes = {"labels": model.n_labels_, "features": model.n_features_in_, "beam_width": model.beam_width}
        click.echo(json.dumps({"model": str(target), **sizes}, indent=1))
        return
    click.echo(f"{target}: {model.tree_}, {model.n_features_in_:,} features, beam width {model.beam_width}")
