"""The summary that commands print after writing a data set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


def print_summary(folder: Path, summary: dict[str, Any], *, as_json: bool) -> None:
    """Print the sizes of a data set, as a sentence or as JSON."""
    if as_json:
        click.echo(json.dumps({"folder": str(folder), **summary}, indent=1))
    else:
        click.echo(f"{folder}: {describe_sizes(summary)}")


def describe_sizes(summary: dict[str, Any]) -> str:
    """Return a sentence that describes the sizes of a data set.

    >>> describe_sizes({"train_rows": 2000, "test_rows": 500, "labels": 70, "labels_per_row": 2.5})
    '2,000 training rows, 500 test rows, 70 labels, 2.5 labels per row'
    """
    sizes = [f"{summary['train_rows']:,} training rows", f"{summary['test_rows']:,} test rows"]
    for name in ("features", "labels"):
        if name in summary:
            sizes += [f"{summary[name]:,} {name}", f"{summary[f'{name}_per_row']} {name} per row"]
    return ", ".join(sizes)
