"""`carya data`: data sets to try things on, real or generated."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from carya.cli.commands import LazyGroup, add
from carya.cli.data.convert import convert

if TYPE_CHECKING:
    from carya.core.progress import Progress
    from carya.data.debian import Index
    from carya.data.debian.deb822 import Problem

app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Make data sets, from Debian or generated, and convert them.",
)


def debian(
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    what: Annotated[str, typer.Option(help="The labels: deps (dependencies) or tags (debtags).")] = "deps",
    lists: Annotated[
        Path | None, typer.Option(help="A folder of package lists, as apt keeps them; the machine's own if not given.")
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch the lists from the archives that apt is set up with.")
    ] = False,
    min_rows: Annotated[int, typer.Option(help="Leave out labels of fewer packages.", min=1)] = 2,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Make a real data set of the package index of a Debian or Ubuntu machine: description to labels.

    Packages of one source are all in train or all in test. Only files are read, as any user; with --download lists are
    fetched to a temporary folder.

    Examples:

      carya data debian debian-deps/

      carya data debian debian-tags/ --what tags --download

      carya data debian debian-deps/ --lists lists/ --json
    """
    from carya.core.progress import Bars
    from carya.data.debian import dataset
    from carya.data.io import text_dataset
    from carya.data.io.atomic_folder import new_folder
    from carya.errors import InputError, ParameterError

    if what not in ("deps", "tags"):
        raise ParameterError(f"--what is {what!r}; it must be deps or tags")
    if download and lists is not None:
        raise ParameterError("--download and --lists exclude each other")
    with ExitStack() as stack:
        folder = stack.enter_context(new_folder(out, text_dataset.FILES))
        progress = stack.enter_context(Bars())
        if download:
            lists = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="carya-lists-")))
            _download(lists, progress)
        index = _index(lists)
        problems: list[Problem] = []
        data = dataset(what, index=index, min_rows=min_rows, problems=problems, progress=progress)
        if not data.train or not data.test:
            raise InputError(f"the package index gives no data set: too few of its packages have {what}")
        found = {"what": what, "suites": index.suites, **data.summary(), "skipped_stanzas": len(problems)}
        data.write(folder, _about_debian(found))
    if problems:
        print(f"carya: {len(problems):,} stanzas were skipped; the first: {problems[0]}", file=sys.stderr)
    if not index.translations and not index.installed_only:
        print("carya: there are no long descriptions in these lists; --download fetches them", file=sys.stderr)
    _show(out, found, as_json)


def synth(
    out: Annotated[Path | None, typer.Argument(help="The folder to write; LIKE-SCALE if not given.")] = None,
    like: Annotated[
        str, typer.Option(help="eurlex-4k, wiki10-31k, amazoncat-13k, wiki-500k, amazon-670k or amazon-3m.")
    ] = "eurlex-4k",
    scale: Annotated[float, typer.Option(help="Multiplies rows, features and labels.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Another seed, another world.", min=0)] = 0,
    texts: Annotated[bool, typer.Option("--texts", help="Write texts and label names instead of matrices.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Generate data of the size of a published set: its rows, features, labels, labels a row and power law.

    Rows are made and written in blocks, so memory stays small at any scale.

    Examples:

      carya data synth --like eurlex-4k

      carya data synth big/ --like amazon-670k --scale 0.1

      carya data synth texts/ --like wiki-500k --scale 0.01 --texts --json
    """
    from carya.core.progress import Bars
    from carya.data.io import text_dataset
    from carya.data.io.atomic_folder import new_folder
    from carya.data.synthetic import files
    from carya.data.synthetic.published_sizes import synthesise

    place = out or Path(f"{like}-{scale:g}")
    started = time.perf_counter()
    with ExitStack() as stack:
        world = synthesise(like, scale, seed)
        folder = stack.enter_context(new_folder(place, text_dataset.FILES if texts else files.MATRICES))
        progress = stack.enter_context(Bars())
        write = files.write_texts if texts else files.write_matrices
        found = {"like": like, "scale": scale, "seed": seed, **write(world, folder, progress)}
        (folder / "README.md").write_text(_about_synth(found), encoding="utf-8")
    _show(place, found | {"seconds": round(time.perf_counter() - started, 2)}, as_json)


def _index(lists: Path | None) -> Index:
    from carya.data.debian import FETCH, LISTS, find_index
    from carya.errors import InputError

    index = find_index(lists)
    if index is None or index.installed_only:
        raise InputError(
            f"there are no package lists in {lists or LISTS}: --download fetches them, or any user does so by\n"
            f"  {FETCH}\nand gives --lists lists"
        )
    return index


def _download(folder: Path, progress: Progress) -> None:
    from carya.data.debian.download import download

    for note in download(folder, progress=progress):
        print(f"carya: {note}", file=sys.stderr)


def _show(out: Path, found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"folder": str(out), **found}, indent=1))
        return
    width = f", {found['features']:,} features" if "features" in found else ""
    typer.echo(
        f"{out}: {found['train_rows']:,} rows to train, {found['test_rows']:,} to test{width}, "
        f"{found['labels']:,} labels, {found['labels_a_row']} a row"
    )


def _about_debian(found: dict[str, Any]) -> str:
    labels = "the packages it depends on or recommends" if found["what"] == "deps" else "its debtags"
    suites = "\n".join(f"* {suite}" for suite in found["suites"])
    return f"""# Debian packages: description to {found["what"]}

A text is a package's description; its labels are {labels}. Of alternatives only the first counts.
{found["train_rows"]:,} rows to train, {found["test_rows"]:,} to test, {found["labels"]:,} labels, \
{found["labels_a_row"]} a row. Packages of one source are all in one part.

Made by `carya data debian` on {time.strftime("%Y-%m-%d", time.gmtime())} from

{suites}

`*.texts.txt.gz` has one text a line, `*.labels.txt.gz` the labels of that row, separated by tabs.

Descriptions are by the packages' maintainers, under the licences of their packages. Debtags are by the debtags project.
"""


def _about_synth(found: dict[str, Any]) -> str:
    return f"""# A generated world of the size of {found["like"]}

Nothing in it is real: it is for measuring time, memory and file sizes.
{found["train_rows"]:,} rows to train, {found["test_rows"]:,} to test, {found["features"]:,} features, \
{found["features_a_row"]} a row, {found["labels"]:,} labels, {found["labels_a_row"]} a row.

Made by `carya data synth --like {found["like"]} --scale {found["scale"]:g} --seed {found["seed"]}`.
"""


for command in (debian, synth, convert):
    add(app, command)
