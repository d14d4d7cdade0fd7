"""`carya data convert`: a data set in another form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from carya.cli.options import data_options


def convert(
    source: data_options.Source,
    target: Annotated[str, typer.Argument(help="The file or folder to write; - for standard output.")],
    from_format: Annotated[
        str | None, typer.Option("--from", help="The format of the source, if it does not tell.")
    ] = None,
    to_format: Annotated[
        str | None, typer.Option("--to", help="The format to write, if the suffix does not tell.")
    ] = None,
    part: Annotated[str, typer.Option(help="Which part of a folder: train, test or dev.")] = "train",
    labels: data_options.Labels = None,
    to_labels: Annotated[Path | None, typer.Option(help="Where to write labels, a line for each text.")] = None,
    text_column: data_options.TextColumn = "text",
    label_column: data_options.LabelColumn = "labels",
    label_separator: data_options.LabelSeparator = None,
    to_label_separator: Annotated[str | None, typer.Option(help="What is to separate labels in the target.")] = None,
    vocabulary: data_options.Names = None,
    language: data_options.Language = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Write a data set in another form; suffixes tell the formats, and .gz, .xz and .zst the compression.

    Examples:

      carya data convert data.jsonl out.csv

      carya data convert data.csv.gz out.jsonl --text-column title,abstract --label-separator '|'

      carya data convert texts.txt out.tsv --labels labels.txt --to annif

      carya data convert eurlex/train.txt pecos/
    """
    from carya.data.read_write import write_data

    data = data_options.read(
        source,
        part=part,
        data_format=from_format,
        labels=labels,
        text_column=text_column,
        label_column=label_column,
        label_separator=label_separator,
        vocabulary=vocabulary,
        language=language,
    )
    rows = write_data(
        target,
        data,
        part=part,
        format=to_format,
        labels=to_labels,
        label_separator=data_options.unescaped(to_label_separator),
    )
    if as_json:
        typer.echo(json.dumps({"target": target, "rows": rows}), err=target == "-")
    elif target != "-":
        typer.echo(f"{target}: {rows:,} rows")
