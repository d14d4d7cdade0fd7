"""Arguments and options shared by several commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from carya.cli.commands import argument, option
from carya.cli.options.rule_type import NUMBER, RuleType
from carya.core.rules import Choice, Either, Integer

#: Parameter type for the path of a file or folder.
PATH = click.Path(path_type=Path)

model_argument = argument("model", type=PATH, metavar="MODEL", help="Folder of a saved model.")

json_option = option("--json", "as_json", is_flag=True, heading="Output", help="Print JSON.")

beam_width_option = option(
    "--beam-width",
    type=RuleType(Integer(1)),
    metavar="INTEGER",
    heading="Search",
    help="Number of nodes kept per level during search; the model's own by default.",
)

min_score_option = option(
    "--min-score",
    type=RuleType(NUMBER),
    metavar="NUMBER",
    heading="Search",
    help="Leave out labels with lower scores.",
)

n_jobs_option = option(
    "--n-jobs",
    "--threads",
    "n_jobs",
    type=RuleType(Either(Choice(-1), Integer(1))),
    default=-1,
    show_default=True,
    metavar="INTEGER",
    heading="Search",
    help="Number of threads; -1 means all cores.",
)


def top_k_option(default: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option for the number of labels per text."""
    return option(
        "--top-k",
        type=RuleType(Integer(1)),
        default=default,
        show_default=True,
        metavar="INTEGER",
        heading="Search",
        help="Number of labels per text.",
    )
