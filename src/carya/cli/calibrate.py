"""`carya calibrate`: what the scores of a saved model are worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from carya.cli.options import data_options


def calibrate(
    model: Annotated[Path, typer.Argument(help="The folder of a model of texts.", show_default=False)],
    source: data_options.Source,
    part: Annotated[str, typer.Option(help="Which part of a folder: train, test or dev.")] = "dev",
    data_format: data_options.Format = None,
    labels: data_options.Labels = None,
    text_column: data_options.TextColumn = "text",
    label_column: data_options.LabelColumn = "labels",
    label_separator: data_options.LabelSeparator = None,
    vocabulary: data_options.Names = None,
    language: data_options.Language = "en",
    top_k: Annotated[int, typer.Option(help="How many suggestions of each text are looked at.", min=1)] = 20,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder to save to; the model's own if not given.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Learn how often suggestions of a score are right, and save it with the model.

    The texts must be others than the model was trained on: those it knows too well. The explorer of `carya serve` then
    shows chances beside scores.

    Examples:

      carya calibrate model/ data/ --part dev

      carya calibrate model/ held-out.jsonl -o calibrated/
    """
    import carya
    from carya.core.storage import check_place
    from carya.data.corpus import Matrices
    from carya.errors import InputError
    from carya.text.text_ranker import TextRanker

    opened = carya.load(model)
    if not isinstance(opened, TextRanker):
        raise InputError(f"{model} was trained on matrices: only a model of texts can be calibrated")
    check_place(model if out is None else out)
    data = data_options.read(
        source,
        part=part,
        data_format=data_format,
        labels=labels,
        text_column=text_column,
        label_column=label_column,
        label_separator=label_separator,
        vocabulary=vocabulary,
        language=language,
    )
    if isinstance(data, Matrices):
        raise InputError(f"{source} holds features, the model was trained on texts")
    texts, theirs = data_options.gather(data)
    opened.calibrate(texts, theirs, top_k=top_k)
    found = _measured(opened, texts, theirs, top_k)
    opened.save(model if out is None else out)
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    typer.echo(f"{found['suggestions']:,} suggestions for {found['texts']:,} texts, {found['right']:.1%} of them right")
    typer.echo("what a score is worth:")
    for score, chance in found["worth"]:
        typer.echo(f"  {score:10.4g}  {chance:6.1%}")
    if found["error"] is not None:
        typer.echo(
            f"learned on every other text, chances of the rest are off by {100 * found['error']:.1f} points on "
            f"average; scores taken as chances would be by {100 * found['error_of_scores']:.1f}"
        )


def _measured(ranker: Any, texts: list[str], labels: list[tuple[str, ...]], top_k: int) -> dict[str, Any]:
    """What was learned, and how far it is off on texts that it was not learned from."""
    from carya.text.calibration import Calibration, error

    learned = ranker.calibration_
    steps = sorted({round(i * (learned.scores.size - 1) / 9) for i in range(10)})
    (seen, said), (scores, right) = (ranker.suggested(texts[half::2], labels[half::2], top_k=top_k) for half in (0, 1))
    chances = Calibration.learn(seen, said)(scores) if seen.size and scores.size else None
    return {
        "texts": len(texts),
        "suggestions": int(seen.size + scores.size),
        "right": float(said.sum() + right.sum()) / (seen.size + scores.size),
        "worth": [(float(learned.scores[i]), float(learned.chances[i])) for i in steps],
        "error": None if chances is None else error(chances, right),
        "error_of_scores": None if chances is None else error(scores.clip(0, 1), right),
    }
