"""`carya tune`: search for better settings, and write them to a recipe."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carya.cli.commands import command, option
from carya.cli.options.common import PATH, json_option, n_jobs_option, quiet_option
from carya.cli.options.data_options import DataOptions, data_options
from carya.cli.options.rule_type import RuleType, placeholder
from carya.cli.tuning.live_table import show_trials, trial_table
from carya.core.memory import SIZE_TEXT, parse_size
from carya.core.rules import Parsed
from carya.errors import ParameterError, SaveError
from carya.tuning.options import DURATION, METRICS, MODELS, RULES

if TYPE_CHECKING:
    from carya.tuning.results import Tuning


_Decorator = Callable[[Callable[..., None]], Callable[..., None]]


def _rule_option(name: str, *, heading: str, text: str, default: Any = None) -> _Decorator:
    return option(
        f"--{name.replace('_', '-')}",
        type=RuleType(RULES[name]),
        default=default,
        show_default=default is not None,
        metavar=placeholder(RULES[name]).replace("[INTEGER|none]", "INTEGER").replace("[NUMBER|none]", "NUMBER"),
        heading=heading,
        help=text,
    )


@command(
    "tune",
    examples=[
        "carya tune data/ --budget 10m -o recipe.json",
        "carya train data/ --recipe recipe.json -o model/",
        "carya tune train.jsonl --budget 1h --metric nDCG@5 -o recipe.json --parallel 4",
        "carya tune data/ --budget 30m --max-latency 500 --max-size 200MB -o recipe.json",
        "carya tune data/ --budget 10m -o recipe.json --front recipes/ --trials trials.jsonl",
        "carya tune data/ --budget 1h -o recipe.json --ray auto --work-dir /shared/tuning",
    ],
)
@data_options(part="train", stored=False)
@option(
    "--budget",
    type=RuleType(DURATION),
    default="10m",
    show_default=True,
    metavar="DURATION",
    heading="Search",
    help="Time budget for the search, such as 90s, 10m or 1h30m.",
)
@option(
    "--metric",
    type=RuleType(RULES["metric"]),
    default=METRICS[0],
    show_default=True,
    metavar="NAME",
    heading="Search",
    help=f"Metric to maximize on the held-out rows: {', '.join(METRICS)}.",
)
@option(
    "--models",
    default=",".join(MODELS),
    show_default=True,
    metavar="NAME,...",
    heading="Search",
    help="Types of models to try.",
)
@option(
    "--stemmers",
    metavar="LANGUAGE,...",
    heading="Search",
    help="Languages of the stemmers to try, such as english,german; none disables stemming. "
    "[default: the language of the texts]",
)
@_rule_option(
    "max_latency", heading="Search", text="Maximum latency of the resulting model, in microseconds per query."
)
@option(
    "--max-size",
    type=RuleType(Parsed(parse_size, SIZE_TEXT)),
    metavar="SIZE",
    heading="Search",
    help="Maximum size of the resulting model, such as 200MB.",
)
@_rule_option("max_trials", heading="Search", text="Maximum number of configurations to try.")
@_rule_option(
    "validation_fraction",
    heading="Search",
    default=0.15,
    text="Fraction of the rows to hold out; at most 6,000 rows are held out.",
)
@option(
    "--parallel",
    "n_parallel",
    type=RuleType(RULES["n_parallel"]),
    metavar="INTEGER",
    heading="Search",
    help="Number of trials to run in parallel. [default: one for every two threads, at most 4]",
)
@n_jobs_option
@option(
    "--ray",
    metavar="ADDRESS",
    heading="Search",
    help="Run the trials on a Ray cluster: auto for the cluster on this machine, or HOST:PORT. Requires --work-dir.",
)
@option(
    "--work-dir",
    type=PATH,
    metavar="FOLDER",
    heading="Search",
    help="Folder for temporary files; with --ray, it must be on storage that all machines share. "
    "[default: the system's temporary folder]",
)
@_rule_option("seed", heading="Search", default=0, text="Random seed of the search and of all models.")
@option("--out", "-o", type=PATH, required=True, metavar="FILE", heading="Output", help="File to write the recipe to.")
@option(
    "--front",
    type=PATH,
    metavar="FOLDER",
    heading="Output",
    help="Folder for the recipes on the Pareto front of the metric, latency and size.",
)
@option(
    "--trials", type=PATH, metavar="FILE", heading="Output", help="File (.jsonl) to write all trials to, one per line."
)
@quiet_option
@json_option
def tune(
    data: DataOptions,
    budget: str,
    metric: str,
    models: str,
    stemmers: str | None,
    max_latency: float | None,
    max_size: str | None,
    max_trials: int | None,
    validation_fraction: float,
    n_parallel: int | None,
    n_jobs: int,
    ray: str | None,
    work_dir: Path | None,
    seed: int,
    out: Path,
    front: Path | None,
    trials: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Search for better settings than the defaults.

    Some of the rows in DATA are held out. Configurations of the vectorizer, label tree, regularization, negatives,
    thresholds, ensembles and rerankers are first evaluated on a small number of rows, and the best ones on more rows,
    until the time budget is spent. The result is a recipe, from which `carya train --recipe` trains a model on all
    rows. The test part of DATA is not used.
    """
    import carya
    from carya.data.io.files import open_text_output

    for path in (out, trials):
        if path is not None and path.is_dir():
            raise SaveError(f"{path} is a folder. Pass the path of a file.")
    if front is not None and front.exists() and not front.is_dir():
        raise SaveError(f"{front} is a file. Pass the path of a folder.")
    with show_trials(quiet) as observe:
        tuning = carya.tune(
            data.open(),
            budget=budget,
            metric=metric,
            models=_names(models, "--models"),
            stemmers=None if stemmers is None else [] if stemmers == "none" else _names(stemmers, "--stemmers"),
            max_latency=max_latency,
            max_bytes=None if max_size is None else parse_size(max_size),
            max_trials=max_trials,
            validation_fraction=validation_fraction,
            n_parallel=n_parallel,
            n_jobs=n_jobs,
            seed=seed,
            observe=observe,
            engine=_make_engine(ray, n_jobs, work_dir),
            work_dir=work_dir,
        )
    tuning.recipe.save(out)
    if front is not None:
        front.mkdir(parents=True, exist_ok=True)
        for trial in tuning.front:
            tuning.recipe_of(trial.number).save(front / f"trial-{trial.number}.json")
    if trials is not None:
        with open_text_output(trials) as write:
            for trial in tuning.trials:
                write(json.dumps(trial.to_dict()) + "\n")
    if as_json:
        click.echo(json.dumps({"recipe": str(out), **tuning.to_dict()}, indent=1))
        return
    _print(data.name, out, tuning)


def _make_engine(address: str | None, n_jobs: int, work_dir: Path | None) -> Any:
    """Return the engine for --ray; raise ParameterError if --work-dir is missing."""
    if address is None:
        return None
    if work_dir is None:
        raise ParameterError("--ray requires --work-dir, a folder that all machines share.")
    from carya.cluster.ray_engine import RayEngine

    return RayEngine(address, threads_per_task=max(n_jobs, 1))


def _names(text: str, flag: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ParameterError(f"{flag} must be a list of names separated by commas, got {text!r}.")
    return names


def _print(source: str, out: Path, tuning: Tuning) -> None:
    from rich.console import Console

    click.echo(
        f"{source}: {len(tuning.trials)} trials in {tuning.seconds:.0f} s; {tuning.n_train_rows:,} training rows, "
        f"{tuning.n_validation_rows:,} held-out rows"
    )
    table = trial_table(tuning.front, tuning.metric)
    table.title = f"Pareto front of {tuning.metric}, latency and size"
    Console().print(table)
    best, default = tuning.best.measured, tuning.default
    assert best is not None
    line = f"{out}: trial {tuning.best.number}, {tuning.metric} {100 * best.metrics[tuning.metric]:.2f}"
    if default is not None and default.measured is not None and default.n_rows == tuning.best.n_rows:
        gain = best.metrics[tuning.metric] - default.measured.metrics[tuning.metric]
        line += f" ({100 * gain:+.2f} points compared with the default)"
    click.echo(line)
    if not tuning.best.is_complete:
        click.echo(
            "carya: The budget was too small to train on all rows; the recipe was chosen based on "
            f"{tuning.best.n_rows:,} rows. Increase --budget.",
            err=True,
        )
