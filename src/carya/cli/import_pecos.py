"""`carya import-pecos`: a libpecos model as a Carya model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def import_pecos(
    source: Annotated[Path, typer.Argument(help="The folder that libpecos saved an XR-Linear model in.")],
    target: Annotated[Path, typer.Argument(help="The folder to write.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Turn an XR-Linear model of libpecos into a Carya model that ranks the same.

    Examples:

      carya import-pecos pecos-model/ model/
    """
    from carya.models.xr_linear.import_pecos import import_pecos as read

    model = read(source)
    model.save(target)
    if as_json:
        sizes = {"labels": model.tree_.n_labels, "features": model.n_features_in_, "beam_width": model.beam_width}
        typer.echo(json.dumps({"model": str(target), **sizes}, indent=1))
        return
    typer.echo(f"{target}: {model.tree_}, {model.n_features_in_:,} features, beam width {model.beam_width}")
