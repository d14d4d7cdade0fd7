"""`carya explain`: which words speak for a label, and which against it."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from carya.text.explore.views import ClusterNote
    from carya.text.text_ranker import TextRanker

_NAMES = 3  # labels of a cluster


def explain(
    model: Annotated[Path, typer.Argument(help="The folder of a model of texts.", show_default=False)],
    text: Annotated[str, typer.Argument(help="The text; - reads it from standard input.", show_default=False)],
    label: Annotated[str | None, typer.Option(help="The label, by id or name; the best one if not given.")] = None,
    tree: Annotated[
        int | None, typer.Option(help="Which tree is to explain its own score, from 1; for models of several.", min=1)
    ] = None,
    terms: Annotated[int, typer.Option(help="The most terms to show at a level.", min=1)] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show what each term of a text adds to a label's score, level by level of the tree; it adds up to the score.

    Examples:

      carya explain model/ 'a fast web server'

      carya explain model/ - --label nginx --json < text.txt
    """
    import carya
    from carya.errors import InputError
    from carya.text.explore.explorer import Explorer
    from carya.text.text_ranker import TextRanker

    opened = carya.load(model)
    if not isinstance(opened, TextRanker):
        raise InputError(f"{model} is a model of kind {type(opened).__name__}: only a TextRanker explains texts")
    number = _tree(opened, tree)
    if text == "-":
        text = _standard_input()
    if label is None:
        best = opened.suggest(text, top_k=1)
        if not best:
            raise InputError("the model knows no term of the text")
        label = best[0].label
    if as_json:
        typer.echo(json.dumps(opened.explain(text, label, tree=number).to_dict(), indent=1, ensure_ascii=False))
        return
    from rich.console import Console

    show(Console(), Explorer(opened).explain(text, label, tree=number), terms, tree)


def _tree(ranker: TextRanker, tree: int | None) -> int:
    """Which tree explains, from 0; raises InputError that tells of the flag."""
    from carya.errors import InputError

    count, kind = len(ranker.trees_), type(ranker.model_).__name__
    if not count:
        raise InputError(f"the model is of kind {kind}, which has no label tree: only trees explain their scores")
    if tree is None and ranker.model_ is not ranker.trees_[0]:
        raise InputError(
            f"the model is of kind {kind}: its score cannot be explained, but those of its {count} "
            f"tree{'s' * (count > 1)} can: give --tree 1{f' to --tree {count}' * (count > 1)}"
        )
    if tree is not None and tree > count:
        raise InputError(f"--tree is {tree}, the model has {count} tree{'s' * (count > 1)}")
    return 0 if tree is None else tree - 1


def _standard_input() -> str:
    from carya.errors import InputError

    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"standard input: not UTF-8 (byte {error.start + 1})") from None


def show(console: Console, why: dict[str, Any], terms: int, tree: int | None = None) -> None:
    """Print an explanation, as :meth:`carya.text.explore.explorer.Explorer.explain` gives it."""

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False, emoji=False, soft_wrap=True)

    in_logs = why["in_logs"]
    name = why["name"] if why["name"] == why["label"] else f"{why['name']} ({why['label']})"
    known = why["chance"] is not None and why["terms"]
    chance = f"; labels of such a score are right in {why['chance']:.0%} of cases" if known else ""
    say(f"{name}: {why['score']:.4f}{'' if tree is None else f' by tree {tree}'}{chance}")
    if not why["terms"]:
        say("no term of the text changes this score: it is that of a text without any known term")
    elif in_logs:
        say("what each term multiplies the score by:")
    else:
        say("what each term adds to the score:")
    levels = [("all levels", why), *((f"level {at}", level) for at, level in enumerate(why["levels"], 1))]
    for title, level in levels if len(levels) > 2 else levels[1:]:
        where = _name(level["cluster"]) if level.get("cluster") else ""
        say(f"  {title}: {level['score']:.4f}, without any term {_factor(level['base'], in_logs)}{where}")
        for one in level["terms"][:terms]:
            say(f"    {_factor(one['share'], in_logs):>9}  {one['term']}")
        rest = level["terms"][terms:]
        if rest:
            left = math.fsum(one["share"] for one in rest)
            say(f"    {_factor(left, in_logs):>9}  {len(rest)} more")


def _name(cluster: ClusterNote) -> str:
    names = [one.name for one in cluster.labels[:_NAMES]]
    more = ", …" if cluster.n_labels > len(names) else ""
    return f"   cluster of {', '.join(names)}{more}"


def _factor(share: float, in_logs: bool) -> str:
    return f"×{math.exp(min(share, 700.0)):.3g}" if in_logs else f"{share:+.4f}"
