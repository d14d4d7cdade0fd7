"""`carya data feedback`: export the feedback of users as a corpus."""

from __future__ import annotations

import json
from pathlib import Path

import click

from carya.cli.commands import argument, command, option
from carya.cli.options.common import PATH


@command(
    "feedback",
    examples=[
        "carya serve model/ --feedback-file feedback.db",
        "carya data feedback feedback.db corpus.jsonl",
        "carya data feedback feedback.db corpus.jsonl --model english --rejected rejected.jsonl",
    ],
)
@argument("database", type=PATH, metavar="DATABASE", help="The file that was passed to carya serve --feedback-file.")
@argument("target", type=PATH, metavar="TARGET", help="JSON Lines file to write: one text and its labels per line.")
@option("--model", metavar="NAME", help="Export only the feedback on this model; by default, on all models.")
@option(
    "--rejected",
    type=PATH,
    metavar="FILE",
    help="JSON Lines file to write the texts with their rejected labels to.",
)
def feedback(database: Path, target: Path, model: str | None, rejected: Path | None) -> None:
    """Export the feedback collected by `carya serve` as a corpus.

    The corpus contains each text once, with the labels that users accepted. If a label was both accepted and rejected,
    the latest feedback counts. Texts without accepted labels are not exported. The server can keep running during the
    export.
    """
    from carya.core.atomic import atomic_file
    from carya.serve.feedback import FeedbackStore

    rows = list(FeedbackStore(database, must_exist=True).rows(model))
    accepted = [{"text": row.text, "labels": row.accepted} for row in rows if row.accepted]
    for path, objects in (
        (target, accepted),
        (rejected, [{"text": row.text, "labels": row.rejected} for row in rows if row.rejected]),
    ):
        if path is not None:
            with atomic_file(path) as file:
                for content in objects:
                    file.write(json.dumps(content, ensure_ascii=False).encode() + b"\n")
    labels = sum(len(row.accepted) for row in rows)
    click.echo(f"{target}: {len(accepted):,} text{'s' * (len(accepted) != 1)}, {labels:,} labels")
