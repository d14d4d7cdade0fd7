"""`carya data convert`: convert a data set to another format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from carya.cli.commands import argument, command, option
from carya.cli.options.common import PATH, command_progress, json_option, quiet_option
from carya.cli.options.data_options import DataOptions, data_options, unescape, was_passed
from carya.cli.shared.outputs import check_not_input
from carya.errors import ParameterError

if TYPE_CHECKING:
    from carya.data.corpus import Corpus, Matrices
    from carya.data.formats.registry import Content


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
@data_options(part="train", format_flag="--from", stored=False, writes_part=True)
@argument(
    "target",
    type=click.Path(allow_dash=True),
    metavar="TARGET",
    help="File or folder to write; - for standard output.",
)
@option(
    "--to",
    "to_format",
    metavar="NAME",
    heading="Output",
    help="Output format; by default, determined by the file suffix.",
)
@option(
    "--to-labels",
    type=PATH,
    metavar="FILE",
    heading="Output",
    help="File to write the labels to: a text file with one line per text, or a label matrix.",
)
@option("--to-label-separator", metavar="TEXT", heading="Output", help=r"Separator between labels; \t is a tab.")
@quiet_option
@json_option
def convert(
    data: DataOptions,
    target: str,
    to_format: str | None,
    to_labels: Path | None,
    to_label_separator: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Convert a data set to another format.

    Formats and compression (.gz, .xz or .zst) are detected from the suffixes.
    """
    from carya.data.read_write import write_data

    check_not_input(target, data.source)
    with command_progress(quiet):
        dataset = data.open()
        _check_part(data, dataset, target, to_format, to_labels)
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


def _check_part(
    data: DataOptions, dataset: Corpus | Matrices, target: str, to_format: str | None, to_labels: Path | None
) -> None:
    """Raise ParameterError if a part was selected, but neither the source nor the target is a folder."""
    from carya.data.corpus import Corpus
    from carya.data.formats.detection import choose_format
    from carya.data.formats.registry import FORMATS

    if not (was_passed("part") or was_passed("uses_test")) or Path(data.source).is_dir():
        return
    content: Content = "texts" if isinstance(dataset, Corpus) else "features"
    form = FORMATS.get(to_format or choose_format(target, content, to_labels))
    if form is not None and not form.is_folder:
        flag = "--part" if was_passed("part") else "--test"
        raise ParameterError(f"{flag} selects a part of a folder, but neither {data.name} nor {target} is a folder.")
