"""`carya calibrate`: learn a mapping from a saved model's scores to probabilities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carya.cli.commands import command, option
from carya.cli.options.common import (
    PATH,
    command_progress,
    force_option,
    json_option,
    load_text_ranker,
    model_argument,
    quiet_option,
    top_k_option,
)
from carya.cli.options.data_options import DataOptions, data_options, texts_and_labels
from carya.cli.shared.inputs import check_common_labels, counted
from carya.cli.shared.outputs import check_model_output
from carya.errors import InputError

if TYPE_CHECKING:
    from carya.text.base import BaseTextRanker

_TABLE_ROWS = 10


@command(
    "calibrate",
    examples=[
        "carya calibrate model/ data/ --part dev",
        "carya calibrate model/ held-out.jsonl -o calibrated/",
    ],
)
@model_argument
@data_options(part="dev", features=False)
@top_k_option(20)
@option("--out", "-o", type=PATH, metavar="FOLDER", heading="Output", help="Folder to save to; MODEL by default.")
@force_option
@quiet_option
@json_option
def calibrate(
    model: Path, data: DataOptions, top_k: int, out: Path | None, force: bool, quiet: bool, as_json: bool
) -> None:
    """Calibrate the scores of a model on held-out texts.

    Calibration maps each score to the probability that the suggested label is correct. The mapping is saved with the
    model; `carya predict` and the explorer of `carya serve` show the probabilities next to the scores. The model must
    not have been trained on these texts, because its scores for training texts are too high; training texts are
    refused. `carya train --calibrate` requires no additional texts.
    """
    ranker = load_text_ranker(model, "carya calibrate")
    target = model if out is None else out
    check_model_output(target, force=force or out is None)  # without -o, the model is updated in place
    data = data.with_model(ranker)
    with command_progress(quiet) as progress:
        with progress.stage("read texts") as report:
            texts, labels = texts_and_labels(counted(data.open_texts(model), report))
        if not texts:
            raise InputError(f"{data.name} contains no rows. At least one is required.")
        check_common_labels(ranker, labels, data.name, model)
    ranker.calibrate(texts, labels, top_k=top_k)
    result = _measure(ranker, texts, labels, top_k)
    ranker.save(target)
    if as_json:
        click.echo(json.dumps(result, indent=1))
    else:
        _print(result)


def _measure(
    ranker: BaseTextRanker[Any], texts: list[str], labels: list[tuple[str, ...]], top_k: int
) -> dict[str, Any]:
    """Return the learned probabilities and the calibration error.

    The error is measured with a separate calibration, which is learned from one half of the texts and tested on the
    other half.
    """
    from carya.models.calibration.calibration import Calibration, expected_calibration_error

    calibration = ranker.calibration_
    assert calibration is not None  # set by ranker.calibrate
    count = calibration.scores.size
    knots = sorted({round(i * (count - 1) / (_TABLE_ROWS - 1)) for i in range(_TABLE_ROWS)})
    (scores, correct), (test_scores, test_correct) = (
        ranker.suggestion_scores(texts[half::2], labels[half::2], top_k=top_k) for half in (0, 1)
    )
    n_suggestions = int(scores.size + test_scores.size)
    calibrated_error = uncalibrated_error = None
    if scores.size and test_scores.size:
        probabilities = Calibration.learn(scores, correct)(test_scores)
        calibrated_error = expected_calibration_error(probabilities, test_correct)
        uncalibrated_error = expected_calibration_error(test_scores.clip(0, 1), test_correct)
    return {
        "texts": len(texts),
        "suggestions": n_suggestions,
        "precision": float(correct.sum() + test_correct.sum()) / n_suggestions,
        "probabilities": [
            {"score": float(calibration.scores[i]), "probability": float(calibration.probabilities[i])} for i in knots
        ],
        "calibration_error": calibrated_error,
        "uncalibrated_error": uncalibrated_error,
    }


def _print(result: dict[str, Any]) -> None:
    click.echo(
        f"{result['suggestions']:,} suggestions for {result['texts']:,} texts, {result['precision']:.1%} correct"
    )
    click.echo(f"{'score':>12}  probability")
    for knot in result["probabilities"]:
        click.echo(f"{knot['score']:12.4g}  {knot['probability']:11.1%}")
    if result["calibration_error"] is not None:
        click.echo(
            f"expected calibration error on held-out texts: {result['calibration_error']:.1%} "
            f"(without calibration: {result['uncalibrated_error']:.1%})"
        )
