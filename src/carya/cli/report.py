"""`carya report`: compare recorded runs."""

from __future__ import annotations

from pathlib import Path

import click

from carya.cli.commands import argument, command, option
from carya.cli.options.common import PATH
from carya.errors import InputError


@command(
    "report",
    examples=[
        "carya train data/ -o model/ --record runs/default",
        "carya evaluate model/ data/ --record runs/default",
        "carya report runs/default",
        "carya report runs/* -o report/ --title 'Trees and neighbors'",
    ],
)
@argument("runs", type=PATH, nargs=-1, required=True, metavar="RUN...", help="Folders of recorded runs.")
@option("--out", "-o", type=PATH, default=Path("report"), show_default=True, metavar="FOLDER", help="Folder to write.")
@option("--title", default="Results", show_default=True, metavar="TEXT", help="Title of the report.")
def report(runs: tuple[Path, ...], out: Path, title: str) -> None:
    """Compare recorded runs on one page.

    A run is a folder in which `carya train --record` and `carya evaluate --record` store their measurements. The report
    is written as an HTML page and as Markdown. It compares metrics, training times and latencies, and shows the recall
    at each beam width, the precision by label frequency, the reliability of probabilities, and the label trees.
    """
    from carya.report.page import write_report
    from carya.report.run import read_run

    loaded = [read_run(run) for run in runs]
    names = [run.name for run in loaded]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(
            f"Two runs are named {twice[0]!r}. Runs are named after their folders, so rename one of the folders."
        )
    write_report(out, loaded, title=title)
    click.echo(out / "report.html")
