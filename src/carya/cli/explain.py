"""`carya explain`: which words speak for a label, and which against it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from carya.text.explaining import TermShare, TextExplanation


def explain(
    model: Annotated[Path, typer.Argument(help="The folder of a model of texts.", show_default=False)],
    text: Annotated[str, typer.Argument(help="The text.", show_default=False)],
    label: Annotated[str | None, typer.Option(help="The label, by id or name; the best one if not given.")] = None,
    terms: Annotated[int, typer.Option(help="The most terms to show at a level.", min=1)] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Show what each term of a text adds to a label's score, level by level of the tree; it adds up to the score.

    Examples:

      carya explain model/ 'a fast web server'

      carya explain model/ 'a fast web server' --label nginx --json
    """
    import carya
    from carya.errors import InputError
    from carya.text.ranker import TextRanker

    opened = carya.load(model)
    if not isinstance(opened, TextRanker):
        raise InputError(f"{model} was trained on matrices: only a model of texts knows words")
    if label is None:
        best = opened.suggest(text, top_k=1)
        if not best:
            raise InputError("the model knows no term of the text")
        label = best[0].label
    why = opened.explain(text, label)
    if as_json:
        typer.echo(json.dumps(why.to_dict(), indent=1, ensure_ascii=False))
        return
    from rich.console import Console

    show(Console(), why, terms)


def show(console: Console, why: TextExplanation, terms: int) -> None:
    """Print an explanation."""
    name = why.name if why.name == why.label else f"{why.name} ({why.label})"
    console.print(f"{name}: {why.score:.4f}", highlight=False, markup=False, emoji=False, soft_wrap=True)
    if why.in_logs:
        console.print("what each term multiplies the score by, and at which level of the tree:", highlight=False)
    for at, level in enumerate(why.levels, 1):
        console.print(
            f"  level {at}: {level.score:.4f}, without any term {_factor(level.base, why.in_logs)}",
            highlight=False,
        )
        for one in level.terms[:terms]:
            console.print("    " + _line(one, why.in_logs), highlight=False, markup=False, emoji=False)
        rest = level.terms[terms:]
        if rest:
            left = math.fsum(one.share for one in rest)
            console.print(f"    {_factor(left, why.in_logs):>9}  {len(rest)} more", highlight=False)


def _line(one: TermShare, in_logs: bool) -> str:
    return f"{_factor(one.share, in_logs):>9}  {one.term}"


def _factor(share: float, in_logs: bool) -> str:
    return f"×{math.exp(min(share, 700.0)):.3g}" if in_logs else f"{share:+.4f}"
