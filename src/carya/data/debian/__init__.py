"""A real data set from a machine's Debian package index: description to dependencies, or to debtags."""

from __future__ import annotations

import hashlib
from collections import Counter

from carya.core.progress import Progress
from carya.data.debian.deb822 import Problem
from carya.data.debian.index import FETCH, LISTS, STATUS, Index, Package, find_index, packages
from carya.data.io.text_dataset import Row, TextSet
from carya.errors import ParameterError

__all__ = ["FETCH", "LISTS", "STATUS", "Index", "Package", "dataset", "find_index", "is_test", "packages"]

_TEST = 5  # one source package in so many is tested


def dataset(
    kind: str = "deps",
    *,
    index: Index | None = None,
    min_rows: int = 2,
    problems: list[Problem] | None = None,
    progress: Progress | None = None,
) -> TextSet:
    r"""Texts and labels of a package index, split by source package: texts of one source are much alike.

    Parameters
    ----------
    kind : {"deps", "tags"}
        Labels are the packages it depends on or recommends (of alternatives the first), or its debtags.
    index : Index, optional
        By default what :func:`find_index` finds on this machine.
    min_rows : int
        Labels of fewer packages are left out, and packages without labels too.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     stanzas = (f"Package: p{i}\nDepends: libc6\nDescription: tool {i}\n\n" for i in range(10))
    ...     _ = (Path(folder) / "x_Packages").write_text("".join(stanzas))
    ...     data = dataset("deps", index=find_index(folder))
    >>> data.train[0], data.label_names
    (('tool 0', ('libc6',)), ['libc6'])
    """
    if kind not in ("deps", "tags"):
        raise ParameterError(f"kind is {kind!r}; it must be 'deps' or 'tags'")
    if min_rows < 1:
        raise ParameterError(f"min_rows is {min_rows}; it must be at least 1")
    found = packages(index, problems=problems, progress=progress)
    return _split([(one.source, one.text, one.depends if kind == "deps" else one.tags) for one in found], min_rows)


def is_test(source: str) -> bool:
    """Whether packages of a source are tested: of five sources one, by a hash of its name.

    >>> [name for name in ("glibc", "bash", "gcc-12", "hello", "zlib", "perl", "vim") if is_test(name)]
    ['gcc-12']
    """
    return int.from_bytes(hashlib.sha256(source.encode()).digest()[:8], "big") % _TEST == 0


def _split(rows: list[tuple[str, str, tuple[str, ...]]], min_rows: int) -> TextSet:
    count = Counter(label for _, _, labels in rows for label in labels)
    train: list[Row] = []
    test: list[Row] = []
    for source, text, labels in rows:
        kept = tuple(label for label in labels if count[label] >= min_rows)
        if kept and text:
            (test if is_test(source) else train).append((text, kept))
    names = {label for part in (train, test) for _, labels in part for label in labels}
    return TextSet(train, test, sorted(names))
