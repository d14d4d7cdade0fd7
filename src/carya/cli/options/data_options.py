"""The options of every verb that reads data, and the reading."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from carya.data.corpus import Corpus, Matrices

Source = Annotated[str, typer.Argument(help="A file or folder of data; - for standard input.", show_default=False)]
Format = Annotated[str | None, typer.Option("--format", help="The format of the data, if it does not tell.")]
Labels = Annotated[Path | None, typer.Option(help="The labels, a line for each line of the data.")]
TextColumn = Annotated[str, typer.Option(help="The column of the text, or several: title,abstract.")]
LabelColumn = Annotated[str, typer.Option(help="The column of the labels.")]
LabelSeparator = Annotated[str | None, typer.Option(help="What separates labels; \\t is a TAB.")]
Names = Annotated[Path | None, typer.Option("--vocabulary", help="The labels there are: .txt, .tsv, .csv or SKOS.")]
Threads = Annotated[int, typer.Option(help="Threads; -1 is all cores.")]
Language = Annotated[str, typer.Option(help="The language of their names.")]


def unescaped(separator: str | None) -> str | None:
    """A TAB is hard to type in most shells."""
    return None if separator is None else separator.replace("\\t", "\t")


def read(
    source: str,
    *,
    part: str,
    data_format: str | None = None,
    labels: Path | None = None,
    text_column: str = "text",
    label_column: str | None = "labels",
    label_separator: str | None = None,
    vocabulary: Path | None = None,
    language: str = "en",
) -> Corpus | Matrices:
    """Open data as the options say."""
    from carya.data.formats.vocabularies import read_vocabulary
    from carya.data.read_write import open_data

    return open_data(
        source,
        part=part,
        format=data_format,
        labels=labels,
        text_column=text_column,
        label_column=label_column,
        label_separator=unescaped(label_separator),
        vocabulary=None if vocabulary is None else read_vocabulary(vocabulary, language=language),
    )


def gather(data: Corpus) -> tuple[list[str], list[tuple[str, ...]]]:
    """All texts, and the labels of each."""
    texts: list[str] = []
    labels: list[tuple[str, ...]] = []
    for example in data:
        texts.append(example.text)
        labels.append(example.labels)
    return texts, labels
