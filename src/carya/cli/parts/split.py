"""`carya split`: divide a model into parts for several machines."""

from __future__ import annotations

import json
from pathlib import Path

import click

from carya.cli.commands import argument, command, option
from carya.cli.options.common import PATH, force_option, json_option, model_argument, n_jobs_option
from carya.cli.options.rule_type import RuleType
from carya.core.rules import Integer
from carya.errors import SaveError


@command(
    "split",
    examples=[
        "carya split model/ parts/ --parts 4",
        "carya serve parts/part-0 --port 9000    # one server per part, on any machine",
        "carya serve parts/top --part http://127.0.0.1:9000 --part http://127.0.0.1:9001 …",
    ],
)
@model_argument
@argument("target", type=PATH, metavar="TARGET", help="Folder to write.")
@option(
    "--parts",
    "n_parts",
    type=RuleType(Integer(1)),
    required=True,
    metavar="INTEGER",
    help="Number of parts, at most the number of leaf clusters.",
)
@n_jobs_option
@force_option
@json_option
def split(model: Path, target: Path, n_parts: int, n_jobs: int, force: bool, as_json: bool) -> None:
    """Split a model into parts for several machines.

    TARGET/top contains the vocabulary, the label names and all levels of the tree except the last one, and
    TARGET/part-0, part-1, … contain the label rankers. The results of the split model are identical to those of
    MODEL. Only one part at a time is held in memory.
    """
    from carya.models.routed.split import split_model

    if target.exists() and any(target.iterdir() if target.is_dir() else [target]) and not force:
        raise SaveError(f"{target} already exists. Choose a different path, or pass --force to replace it.")
    summaries = split_model(model, target, n_parts=n_parts, n_jobs=n_jobs)
    if as_json:
        rows = [
            {"folder": str(part.path), "bytes": part.bytes, "clusters": part.clusters, "labels": part.labels}
            for part in summaries
        ]
        click.echo(json.dumps({"parts": rows[:-1], "top": rows[-1]}, indent=1))
        return
    for part in summaries[:-1]:
        click.echo(f"{part.path}: {part.clusters:,} clusters, {part.labels:,} labels, {part.bytes:,} bytes")
    click.echo(f"{summaries[-1].path}: {summaries[-1].bytes:,} bytes")
