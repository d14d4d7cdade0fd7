"""`carya data convert`: a data set in another form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def convert(
    source: Annotated[str, typer.Argument(help="A file or folder of data; - for standard input.")],
    target: Annotated[str, typer.Argument(help="The file or folder to write; - for standard output.")],
    from_format: Annotated[
        str | None, typer.Option("--from", help="The format of the source, if it does not tell.")
    ] = None,
    to_format: Annotated[
        str | None, typer.Option("--to", help="The format to write, if the suffix does not tell.")
    ] = None,
    part: Annotated[str, typer.Option(help="Which part of a folder: train, test or dev.")] = "train",
    labels: Annotated[Path | None, typer.Option(help="The labels of the source, a line for each of its lines.")] = None,
    to_labels: Annotated[Path | None, typer.Option(help="Where to write labels, a line for each text.")] = None,
    text_column: Annotated[str, typer.Option(help="The column of the text, or several: title,abstract.")] = "text",
    label_column: Annotated[str, typer.Option(help="The column of the labels.")] = "labels",
    label_separator: Annotated[
        str | None, typer.Option(help="What separates labels in the source; \\t is a TAB.")
    ] = None,
    to_label_separator: Annotated[str | None, typer.Option(help="What is to separate labels in the target.")] = None,
    vocabulary: Annotated[Path | None, typer.Option(help="The labels there are: .txt, .tsv, .csv or SKOS.")] = None,
    language: Annotated[str, typer.Option(help="The language of their names.")] = "en",
) -> None:
    """Write a data set in another form; suffixes tell the formats, and .gz, .xz and .zst the compression.

    Examples:

      carya data convert data.jsonl out.csv

      carya data convert data.csv.gz out.jsonl --text-column title,abstract --label-separator '|'

      carya data convert texts.txt out.tsv --labels labels.txt --to annif

      carya data convert eurlex/train.txt pecos/
    """
    from carya.data.formats import open_data, write_data
    from carya.data.vocabularies import read_vocabulary

    data = open_data(
        source,
        part=part,
        format=from_format,
        labels=labels,
        text_column=text_column,
        label_column=label_column,
        label_separator=_unescaped(label_separator),
        vocabulary=None if vocabulary is None else read_vocabulary(vocabulary, language=language),
    )
    rows = write_data(
        target,
        data,
        part=part,
        format=to_format,
        labels=to_labels,
        label_separator=_unescaped(to_label_separator),
    )
    if target != "-":
        typer.echo(f"{target}: {rows:,} rows")


def _unescaped(separator: str | None) -> str | None:
    """A TAB is hard to type in most shells."""
    return None if separator is None else separator.replace("\\t", "\t")
