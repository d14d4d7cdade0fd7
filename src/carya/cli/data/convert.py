"""`carya data convert`: convert a data set to another format."""

from __future__ import annotations

import json
from pathlib import Path

import click

from carya.cli.commands import argument, command, option
from carya.cli.options.common import PATH, json_option
from carya.cli.options.data_options import DataOptions, data_options, reading_progress, unescape


@command(
    "convert",
    examples=[
        "carya data convert data.jsonl out.csv",
        "carya data convert data.csv.gz out.jsonl --text-column title,abstract --label-separator '|'",
        "carya data convert texts.txt out.tsv --labels labels.txt --to annif",
        "carya data convert eurlex/train.txt pecos/",
        "carya data convert LF-Amazon/trn_X_Xf.txt train.xmc.gz",
    ],
)
@data_options(part="train", format_flag="--from", stored=False)
@argument(
    "target",
    type=click.Path(allow_dash=True),
    metavar="TARGET",
    help="File or folder to write; - for standard output.",
)
@option("--to", "to_format", metavar="NAME", heading="Output", help="Format to write; that of the suffix by default.")
@option(
    "--to-labels",
    type=PATH,
    metavar="FILE",
    heading="Output",
    help="File for the labels, one line per text, or a matrix.",
)
@option("--to-label-separator", metavar="TEXT", heading="Output", help=r"Separator between labels; \t is a TAB.")
@json_option
def convert(
    data: DataOptions,
    target: str,
    to_format: str | None,
    to_labels: Path | None,
    to_label_separator: str | None,
    as_json: bool,
) -> None:
    """Convert a data set to another format.

    Formats and compression (.gz, .xz or .zst) are detected from the suffixes.
    """
    from carya.data.read_write import write_data

    dataset = data.open()
    with reading_progress():
        n_rows = write_data(
            target,
            dataset,
            part=data.part,
            format=to_format,
            labels=to_labels,
            label_separator=unescape(to_label_separator),
        )
    if as_json:
        click.echo(json.dumps({"target": target, "rows": n_rows}), err=target == "-")
    elif target != "-":
        click.echo(f"{target}: {n_rows:,} rows")
