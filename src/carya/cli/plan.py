"""`carya plan`: estimate the training time, memory, model size and latency."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from carya.cli.commands import Option, command, option
from carya.cli.options.common import command_progress, json_option, quiet_option
from carya.cli.options.data_options import DataOptions, data_options
from carya.cli.options.rule_type import RuleType
from carya.cli.shared.tree_models import build_text_ranker, preset_option, tree_options, trees_option
from carya.core.memory import SIZE_TEXT, parse_size
from carya.core.progress import format_duration
from carya.core.rules import Integer, Parsed
from carya.errors import ParameterError

if TYPE_CHECKING:
    from carya.data.corpus import Corpus, Matrices
    from carya.planning.plan import Plan


def _generate_options() -> list[Option]:
    """Return the options for model parameters, except those that do not affect the estimates."""
    return [generated for generated in tree_options() if generated.name not in ("checkpoint_dir", "memory")]


@command(
    "plan",
    generate_options=_generate_options,
    examples=[
        "carya plan data/",
        "carya plan data/ --threads 8 --memory 16GB",
        "carya plan train.jsonl --preset fast --json",
        "carya plan data/ --trees 3 --negatives teacher --max-leaf-size 50",
        "carya plan data/ --nodes 20 --cpus 16 --memory 64GB",
    ],
)
@data_options(part="train", stored=False)
@preset_option("Named settings for a tree or an ensemble of trees; see `carya train --help`.")
@trees_option("Number of trees.")
@option(
    "--nodes", type=RuleType(Integer(1)), metavar="INTEGER", heading="Machines", help="Number of machines in a cluster."
)
@option(
    "--cpus",
    type=RuleType(Integer(1)),
    metavar="INTEGER",
    heading="Machines",
    help="Number of CPUs per machine; by default, the number of threads. Requires --nodes.",
)
@option(
    "--memory",
    type=RuleType(Parsed(parse_size, SIZE_TEXT)),
    metavar="SIZE",
    heading="Machines",
    help="Memory of each machine, such as 64GB; a warning is printed if it is not sufficient.",
)
@quiet_option
@json_option
@click.pass_context
def plan(
    context: click.Context,
    /,
    data: DataOptions,
    preset: str | None,
    trees: int | None,
    nodes: int | None,
    cpus: int | None,
    memory: str | None,
    quiet: bool,
    as_json: bool,
    **_parameters: Any,
) -> None:
    """Estimate training time, memory and model size.

    Accepts the same data and options as `carya train`. A pilot model is trained on a sample of the data to measure the
    speed of this machine, which takes a few seconds. The estimates are for otherwise idle machines with the same CPUs.
    """
    from carya.planning.plan import plan as make_plan

    if cpus is not None and nodes is None:
        raise ParameterError("--cpus requires --nodes, the number of machines. For one machine, pass --threads.")
    ranker = build_text_ranker(context, preset, trees, verbose=False)
    ranker.check_parameters()
    with command_progress(quiet) as progress:
        with progress.stage("read data"):
            dataset = _open(data)
        with progress.stage("train pilot"):
            planned = make_plan(
                dataset, ranker.model, vectorizer=ranker.vectorizer, nodes=nodes, cpus=cpus, memory=memory
            )
    if as_json:
        click.echo(json.dumps(planned.to_dict(), indent=1))
        return
    _print_plan(data.name, planned)


def _open(data: DataOptions) -> Corpus | Matrices:
    """Open the data; matrices in PECOS format are memory-mapped, because only a sample of their rows is used."""
    if data.detected_format != "pecos":
        return data.open()
    from carya.data.formats.matrices.pecos import read_pecos

    return read_pecos(data.source, part=data.part, vocabulary=data.read_vocabulary(), mapped=True)


def _print_plan(source: str, planned: Plan) -> None:
    from rich.console import Console
    from rich.table import Table

    from carya.core.memory import format_size

    sizes = planned.sizes
    tree = " → ".join(f"{nodes:,}" for nodes in planned.levels)
    click.echo(
        f"{source}: {sizes.rows:,} rows, {sizes.features + sizes.dense_features:,} features "
        f"({sizes.features_per_row + sizes.dense_features:.1f} per row), {sizes.labels:,} labels "
        f"({sizes.labels_per_row:.1f} per row)"
    )
    trees = "label tree" if planned.trees == 1 else f"{planned.trees} label trees"
    click.echo(f"{trees}: {tree} labels; {planned.threads} threads")
    table = Table("stage", "time", "CPU time", "memory")
    for column in table.columns[1:]:
        column.justify = "right"
    for stage in planned.stages:
        table.add_row(
            stage.stage, _seconds(stage.seconds), _seconds(stage.cpu_seconds), format_size(stage.memory_bytes)
        )
    table.add_section()
    table.add_row("total", _seconds(planned.seconds), _seconds(planned.cpu_seconds), format_size(planned.peak_bytes))
    Console().print(table)
    click.echo(f"model: {format_size(planned.model_bytes)}; one query: {planned.query_us:.0f} µs on one thread")
    cluster = planned.cluster
    if cluster is not None:
        click.echo(
            f"cluster of {cluster.nodes} x {cluster.cpus} CPUs: {_seconds(cluster.seconds)}, {cluster.tasks:,} tasks; "
            f"memory: {format_size(cluster.worker_bytes)} per machine, {format_size(cluster.driver_bytes)} for the "
            f"driver; {format_size(cluster.network_bytes)} read from and written to the shared folder"
        )
    for message in planned.warnings:
        click.echo(f"carya: warning: {message}", err=True)


def _seconds(seconds: float) -> str:
    """Format a duration, with tenths of a second if it is less than a minute.

    >>> _seconds(3.14), _seconds(92)
    ('3.1 s', '1:32')
    """
    return f"{seconds:.1f} s" if seconds < 60 else format_duration(seconds)
