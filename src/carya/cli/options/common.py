"""Arguments, options and model-loading functions shared by several commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carya.cli.commands import argument, option
from carya.cli.options.rule_type import NUMBER, RuleType
from carya.core.rules import Choice, Either, Integer
from carya.errors import InputError

if TYPE_CHECKING:
    from carya.core.progress import Progress
    from carya.text.base import BaseTextRanker

#: Parameter type for the path of a file or folder.
PATH = click.Path(path_type=Path)

model_argument = argument("model", type=PATH, metavar="MODEL", help="Folder of a saved model.")

json_option = option("--json", "as_json", is_flag=True, heading="Output", help="Print JSON.")

quiet_option = option("--quiet", "-q", is_flag=True, heading="Output", help="Do not show progress on standard error.")

force_option = option("--force", is_flag=True, heading="Output", help="Replace an existing model.")

dense_option = option(
    "--dense",
    type=PATH,
    metavar="FILE",
    heading="Data",
    help="File (.npy) with dense features, in addition to the sparse features in DATA.",
)

beam_width_option = option(
    "--beam-width",
    type=RuleType(Integer(1)),
    metavar="INTEGER",
    heading="Search",
    help="Number of nodes kept per level during search; by default, the model's setting.",
)

min_score_option = option(
    "--min-score",
    type=RuleType(NUMBER),
    metavar="NUMBER",
    heading="Search",
    help="Minimum score; labels with lower scores are omitted.",
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

ray_option = option(
    "--ray",
    metavar="ADDRESS",
    heading="Search",
    help="Rank on a Ray cluster: auto for the cluster on this machine, or HOST:PORT. The model and the data must be on "
    "storage that all machines share.",
)


def record_option(help_text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option for the folder in which a run is recorded."""
    return option("--record", type=PATH, metavar="RUN", heading="Output", help=help_text)


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


@contextmanager
def command_progress(quiet: bool) -> Iterator[Progress]:
    """Show the progress of a command, including the reading of large files, unless --quiet is given."""
    from carya.core.progress import show_progress
    from carya.data.io.reading_progress import showing_progress

    progress = show_progress(not quiet)
    with showing_progress(progress):
        yield progress


def load_text_ranker(path: Path, command: str) -> BaseTextRanker[Any]:
    """Open a model; raise InputError if it is not a text model."""
    import carya

    model: BaseTextRanker[Any] = carya.load(path)
    if not ranks_texts(model):
        raise InputError(
            f"{command} requires a text model, but {path} contains a model of kind {type(model).__name__}. "
            "Train a text model with: carya train TEXTS -o MODEL"
        )
    return model


def ranks_texts(model: Any) -> bool:
    """Return whether a model accepts texts instead of features."""
    from carya.text.base import BaseTextRanker

    return isinstance(model, BaseTextRanker)
