"""`carya data debian`: create a data set from a Debian package index."""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carya.cli.commands import argument, command, option
from carya.cli.data.summary import describe_sizes, print_summary
from carya.cli.options.common import PATH, json_option
from carya.cli.options.rule_type import RuleType
from carya.core.rules import Choice, Integer
from carya.errors import InputError, ParameterError

if TYPE_CHECKING:
    from carya.core.progress import Progress
    from carya.data.debian import PackageIndex
    from carya.data.debian.deb822 import SkippedStanza


@command(
    "debian",
    examples=[
        "carya data debian debian-deps/",
        "carya data debian debian-tags/ --what tags --download",
        "carya data debian debian-deps/ --lists lists/ --json",
    ],
)
@argument("out", type=PATH, metavar="FOLDER", help="Folder to write.")
@option(
    "--what",
    type=RuleType(Choice("deps", "tags")),
    default="deps",
    show_default=True,
    metavar="[deps|tags]",
    help="Labels of each package: its dependencies or its debtags.",
)
@option("--lists", type=PATH, metavar="FOLDER", help="Folder with apt package lists; by default, this machine's lists.")
@option("--download", is_flag=True, help="Download the lists from the archives configured in apt.")
@option(
    "--min-rows",
    type=RuleType(Integer(1)),
    default=2,
    show_default=True,
    metavar="INTEGER",
    help="Minimum number of packages per label; labels with fewer packages are omitted.",
)
@json_option
def debian(out: Path, what: str, lists: Path | None, download: bool, min_rows: int, as_json: bool) -> None:
    """Create a data set from a Debian or Ubuntu package index.

    Each text is the description of a package. All packages built from the same source package are in the same part,
    either training or test. The command does not modify the package index and does not require root privileges;
    --download saves the package lists to a temporary folder.
    """
    from carya.core.progress import show_progress
    from carya.data.debian import read_dataset
    from carya.data.io import text_dataset
    from carya.data.io.atomic_folder import atomic_folder

    if download and lists is not None:
        raise ParameterError("--download cannot be combined with --lists.")
    with ExitStack() as stack:
        folder = stack.enter_context(atomic_folder(out, text_dataset.FILE_NAMES))
        progress = stack.enter_context(show_progress())
        if download:
            lists = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="carya-lists-")))
            _download(lists, progress)
        index = _find_index(lists)
        skipped: list[SkippedStanza] = []
        data = read_dataset(what, index=index, min_rows=min_rows, skipped=skipped, progress=progress)
        if not data.train or not data.test:
            raise InputError(
                f"The index contains too few packages with labels (--what {what}). Decrease --min-rows, or use "
                "different lists."
            )
        summary = {
            "what": what,
            "suites": index.suites,
            **data.summary(),
            "skipped_stanzas": len(skipped),
        }
        data.write(folder, _readme(summary))
    if skipped:
        _warn(f"Number of invalid stanzas skipped: {len(skipped):,}. The first: {skipped[0]}")
    if not index.translations and not index.installed_only:
        _warn("The lists contain no long descriptions. Use --download to get them.")
    print_summary(out, summary, as_json=as_json)


def _find_index(lists: Path | None) -> PackageIndex:
    from carya.data.debian import APT_LISTS, FETCH_COMMAND, find_index

    index = find_index(lists)
    if index is None or index.installed_only:
        raise InputError(
            f"{lists or APT_LISTS} contains no package lists. Use --download, or run the following "
            f"command and pass --lists lists:\n  {FETCH_COMMAND}"
        )
    return index


def _download(folder: Path, progress: Progress) -> None:
    from carya.data.debian.download import download

    for warning in download(folder, progress=progress):
        _warn(warning)


def _warn(message: str) -> None:
    print(f"carya: {message}", file=sys.stderr)


def _readme(summary: dict[str, Any]) -> str:
    dependencies = "the package's dependencies and recommended packages (only the first of several alternatives)"
    labels = dependencies if summary["what"] == "deps" else "the package's debtags"
    suites = "\n".join(f"* {suite}" for suite in summary["suites"])
    return f"""# Debian packages: descriptions as texts, {summary["what"]} as labels

Each text is the description of a package; the labels are {labels}.
{describe_sizes(summary)}. All packages built from the same source package are in the same part.

Created by `carya data debian` on {time.strftime("%Y-%m-%d", time.gmtime())} from these suites:

{suites}

`*.texts.txt.gz` contains one text per line, and `*.labels.txt.gz` contains the tab-separated labels of each text.

The descriptions were written by the package maintainers and are covered by the packages' licenses. Debtags are
maintained by the debtags project.
"""
