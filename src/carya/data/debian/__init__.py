"""Create a data set from a Debian package index: package descriptions labeled with dependencies or debtags."""

from __future__ import annotations

import hashlib
from collections import Counter

from carya.core.progress import Progress
from carya.data.debian.deb822 import SkippedStanza
from carya.data.debian.index import (
    APT_LISTS,
    DPKG_STATUS,
    FETCH_COMMAND,
    Package,
    PackageIndex,
    find_index,
    read_packages,
)
from carya.data.io.text_dataset import LabeledText, TextDataset
from carya.errors import ParameterError

__all__ = [
    "APT_LISTS",
    "DPKG_STATUS",
    "FETCH_COMMAND",
    "Package",
    "PackageIndex",
    "find_index",
    "is_test",
    "read_dataset",
    "read_packages",
]

_TEST_SHARE = 5  # one in five source packages is in the test set


def read_dataset(
    kind: str = "deps",
    *,
    index: PackageIndex | None = None,
    min_rows: int = 2,
    skipped: list[SkippedStanza] | None = None,
    progress: Progress | None = None,
) -> TextDataset:
    r"""Read a data set from a package index, split by source package so that similar texts end up in the same split.

    Parameters
    ----------
    kind : {"deps", "tags"}
        The labels of a package: ``"deps"`` means its dependencies and recommended packages (only the first of several
        alternatives), and ``"tags"`` means its debtags.
    index : PackageIndex, optional
        The package index to read; by default, the result of :func:`find_index`.
    min_rows : int
        The minimum number of packages per label; rarer labels are omitted, as are packages that have no labels left.
    skipped : list of SkippedStanza, optional
        A list to which skipped stanzas are appended.
    progress : Progress, optional

    Raises
    ------
    MissingExtraError
        If the package lists are LZ4-compressed and lz4 is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stanzas = (f"Package: p{i}\nDepends: libc6\nDescription: tool {i}\n\n" for i in range(10))
    ...     _ = (Path(folder) / "x_Packages").write_text("".join(stanzas))
    ...     data = read_dataset("deps", index=find_index(folder))
    >>> data.train[0], data.label_names
    (('tool 0', ('libc6',)), ['libc6'])
    """
    if kind not in ("deps", "tags"):
        raise ParameterError(f"kind must be 'deps' or 'tags', got {kind!r}.")
    if min_rows < 1:
        raise ParameterError(f"min_rows must be an integer >= 1, got {min_rows}.")
    packages = read_packages(index, skipped=skipped, progress=progress)
    rows = [(package.source, package.text, package.depends if kind == "deps" else package.tags) for package in packages]
    return _split(rows, min_rows)


def is_test(source: str) -> bool:
    """Return whether a source package is in the test set; a hash of the name selects one in five source packages.

    >>> [name for name in ("glibc", "bash", "gcc-12", "hello", "zlib", "perl", "vim") if is_test(name)]
    ['gcc-12']
    """
    return int.from_bytes(hashlib.sha256(source.encode()).digest()[:8], "big") % _TEST_SHARE == 0


def _split(rows: list[tuple[str, str, tuple[str, ...]]], min_rows: int) -> TextDataset:
    """Split (source, text, labels) rows by source package, and omit rare labels."""
    counts = Counter(label for _, _, labels in rows for label in labels)
    train: list[LabeledText] = []
    test: list[LabeledText] = []
    for source, text, labels in rows:
        frequent = tuple(label for label in labels if counts[label] >= min_rows)
        if frequent and text:
            (test if is_test(source) else train).append((text, frequent))
    names = {label for part in (train, test) for _, labels in part for label in labels}
    return TextDataset(train, test, sorted(names))
