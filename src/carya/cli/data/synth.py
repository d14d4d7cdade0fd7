"""`carya data synth`: generate a data set with the dimensions of a published one."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from carya.cli.commands import argument, command, option
from carya.cli.data.summary import describe_sizes, print_summary
from carya.cli.options.common import PATH, json_option
from carya.cli.options.rule_type import NUMBER, RuleType
from carya.core.rules import Integer


@command(
    "synth",
    examples=[
        "carya data synth --like eurlex-4k",
        "carya data synth big/ --like amazon-670k --scale 0.1",
        "carya data synth texts/ --like wiki-500k --scale 0.01 --texts --json",
    ],
)
@argument(
    "out",
    type=PATH,
    required=False,
    metavar="[FOLDER]",
    help="Output folder; by default, named after --like and --scale, such as eurlex-4k-1.",
)
@option(
    "--like",
    default="eurlex-4k",
    show_default=True,
    metavar="NAME",
    help="Published data set: eurlex-4k, wiki10-31k, amazoncat-13k, wiki-500k, amazon-670k or amazon-3m.",
)
@option(
    "--scale",
    type=RuleType(NUMBER),
    default=1.0,
    show_default=True,
    metavar="NUMBER",
    help="Scale factor for the numbers of rows, features and labels.",
)
@option("--seed", type=RuleType(Integer(0)), default=0, show_default=True, metavar="INTEGER", help="Random seed.")
@option("--texts", is_flag=True, help="Write texts and label names instead of matrices.")
@json_option
def synth(out: Path | None, like: str, scale: float, seed: int, texts: bool, as_json: bool) -> None:
    """Generate a data set with the dimensions of a published one.

    The generated data has the same numbers of rows, features and labels, multiplied by --scale, and the same number of
    labels per row. Its label frequencies follow a power law. Rows are generated and written in blocks, so little memory
    is required at any scale.
    """
    from carya.core.progress import show_progress
    from carya.data.io import text_dataset
    from carya.data.io.atomic_folder import atomic_folder
    from carya.data.synthetic import files
    from carya.data.synthetic.published_sizes import synthesize

    target = out or Path(f"{like}-{scale:g}")
    started = time.perf_counter()
    with ExitStack() as stack:
        topic_model = synthesize(like, scale, seed)
        folder = stack.enter_context(
            atomic_folder(target, text_dataset.FILE_NAMES if texts else files.MATRIX_FILE_NAMES)
        )
        progress = stack.enter_context(show_progress())
        write = files.write_texts if texts else files.write_matrices
        summary = {"like": like, "scale": scale, "seed": seed, **write(topic_model, folder, progress)}
        (folder / "README.md").write_text(_readme(summary), encoding="utf-8")
    summary["seconds"] = round(time.perf_counter() - started, 2)
    print_summary(target, summary, as_json=as_json)


def _readme(summary: dict[str, Any]) -> str:
    return f"""# Generated data with the size of {summary["like"]}

The data is randomly generated and intended for measuring time, memory usage and file sizes.
{describe_sizes(summary)}.

Created by `carya data synth --like {summary["like"]} --scale {summary["scale"]:g} --seed {summary["seed"]}`.
"""
