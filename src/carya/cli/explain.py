"""`carya explain`: the contribution of each term to a label's score."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carya.cli.commands import argument, command, option
from carya.cli.options.common import json_option, load_text_ranker, model_argument
from carya.cli.options.data_options import path_exists
from carya.cli.options.rule_type import RuleType
from carya.cli.shared.terminal import printable
from carya.core.rules import Integer
from carya.errors import InputError

if TYPE_CHECKING:
    from carya.text.base import BaseTextRanker
    from carya.text.explore.views import ClusterView

_NAMES_PER_CLUSTER = 3
_MAX_EXPONENT = 700.0  # math.exp overflows for larger values


@command(
    "explain",
    examples=[
        "carya explain model/ 'a fast web server'",
        "carya explain model/ - --label nginx --json < text.txt",
    ],
)
@model_argument
@argument("text", metavar="TEXT", help="Text for which the label is scored; - for standard input.")
@option("--label", metavar="LABEL", help="Id or name of the label; by default, the label with the highest score.")
@option(
    "--tree",
    type=RuleType(Integer(1)),
    metavar="INTEGER",
    help="Number of the tree whose score is explained, starting at 1; for models with several trees.",
)
@option(
    "--terms",
    type=RuleType(Integer(1)),
    default=8,
    show_default=True,
    metavar="INTEGER",
    help="Maximum number of terms per level.",
)
@json_option
def explain(model: Path, text: str, label: str | None, tree: int | None, terms: int, as_json: bool) -> None:
    """Explain a label's score term by term.

    The output shows the contribution of each term in the text at each level of the label tree. The score is the sum or
    the product of these contributions and the score of an empty text.
    """
    ranker = load_text_ranker(model, "carya explain")
    tree_number = _tree_number(ranker, tree)
    if text == "-":
        text = _read_standard_input()
    elif path_exists(text) and Path(text).is_file():
        raise InputError(f"{text} is a file. Pass its text on standard input: carya explain {model} - < {text}")
    if label is None:
        (best,) = ranker.rank_texts([text], top_k=1)
        if not best:
            raise InputError(
                "The text contains no terms from the model's vocabulary. Pass a different text, or select a label with "
                "--label."
            )
        label = ranker.labels_[best[0][0]]
    if as_json:
        click.echo(json.dumps(ranker.explain(text, label, tree=tree_number).to_dict(), indent=1, ensure_ascii=False))
        return
    from carya.text.explore.explorer import Explorer

    explanation = Explorer(ranker).explain(text, label, tree=tree_number)
    _print(explanation, _probability(ranker, tree_number, explanation["score"]), terms, tree)


def _tree_number(ranker: BaseTextRanker[Any], tree: int | None) -> int:
    """Return the index of the tree to explain, starting at 0; raise InputError if the tree does not exist."""
    count, kind = len(ranker.trees_), ranker.model_kind_
    if not count:
        raise InputError(f"{kind} models have no label tree. Only the scores of label trees can be explained.")
    choices = "--tree 1" if count == 1 else f"--tree with a number from 1 to {count}"
    if tree is None and ranker.single_tree_ is None:
        raise InputError(
            f"Combined scores of {kind} models cannot be explained, only the scores of individual trees. Pass "
            f"{choices}."
        )
    if tree is not None and tree > count:
        raise InputError(f"--tree must be at most {count}, the number of trees in the model, got {tree}.")
    return 0 if tree is None else tree - 1


def _probability(ranker: BaseTextRanker[Any], tree: int, score: float) -> float | None:
    """Return the probability for a score; None if the ranker is not calibrated or does not use the tree's scores."""
    calibration = ranker.calibration_
    if calibration is None or ranker.trees_[tree] is not ranker.single_tree_:
        return None
    return float(calibration([score])[0])


def _read_standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"Standard input must be valid UTF-8, but byte {error.start + 1} is invalid.") from None


def _print(explanation: Mapping[str, Any], probability: float | None, max_terms: int, tree: int | None) -> None:
    """Print an explanation returned by :meth:`carya.text.explore.explorer.Explorer.explain`."""
    log_scale = explanation["log_scale"]
    label, name = explanation["label"], explanation["name"]
    title = f"{printable(name if name == label else f'{name} ({label})')}: score {explanation['score']:.4f}"
    if tree is not None:
        title += f" in tree {tree}"
    if probability is not None and explanation["terms"]:
        title += f", probability {probability:.0%}"
    click.echo(title)
    if not explanation["terms"]:
        click.echo("No term in the text affects this score; it is the score of an empty text.")
    elif log_scale:
        click.echo("Factor of each term:")
    else:
        click.echo("Contribution of each term:")
    levels = [(f"level {number}", level) for number, level in enumerate(explanation["levels"], 1)]
    if len(levels) > 1:
        levels.insert(0, ("all levels", explanation))
    for heading, level in levels:
        cluster = _describe(level["cluster"]) if level.get("cluster") else ""
        click.echo(f"  {heading}: {level['score']:.4f}, empty text {_format(level['base'], log_scale)}{cluster}")
        for term in level["terms"][:max_terms]:
            click.echo(f"    {_format(term['contribution'], log_scale):>9}  {printable(term['term'])}")
        if others := level["terms"][max_terms:]:
            total = math.fsum(term["contribution"] for term in others)
            click.echo(f"    {_format(total, log_scale):>9}  {len(others)} more")


def _describe(cluster: ClusterView) -> str:
    names = [printable(label.name) for label in cluster.labels[:_NAMES_PER_CLUSTER]]
    more = ", …" if cluster.n_labels > len(names) else ""
    return f"   cluster of {', '.join(names)}{more}"


def _format(contribution: float, log_scale: bool) -> str:
    """Format a contribution: as a factor if contributions are on a log scale, otherwise as a signed number."""
    return f"×{math.exp(min(contribution, _MAX_EXPONENT)):.3g}" if log_scale else f"{contribution:+.4f}"
