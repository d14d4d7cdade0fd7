"""Data sets of texts and labels, in memory and as folders.

A folder holds ``{train,test}.texts.txt.gz``, one text a line, ``{train,test}.labels.txt.gz``, the labels of a row
separated by tabs, ``label_names.txt.gz``, and a ``README.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carya.data.io.files import writing_text

#: A text and its labels.
Row = tuple[str, tuple[str, ...]]

#: The files of such a folder.
FILES = frozenset(
    (*(f"{part}.{what}.txt.gz" for part in ("train", "test") for what in ("texts", "labels")), "label_names.txt.gz")
) | {"README.md"}


@dataclass(frozen=True, eq=False)
class TextSet:
    """Rows to train and to test with, and the names of all labels in order.

    Examples
    --------
    >>> data = TextSet([("a red fruit", ("apple",))], [], ["apple"])
    >>> data.summary()
    {'train_rows': 1, 'test_rows': 0, 'labels': 1, 'labels_a_row': 1.0, 'words_a_row': 3.0}
    """

    train: list[Row]
    test: list[Row]
    label_names: list[str]

    def summary(self) -> dict[str, Any]:
        """Sizes, and means over all rows."""
        rows = self.train + self.test
        return {
            "train_rows": len(self.train),
            "test_rows": len(self.test),
            "labels": len(self.label_names),
            "labels_a_row": round(sum(len(labels) for _, labels in rows) / max(len(rows), 1), 2),
            "words_a_row": round(sum(text.count(" ") + 1 for text, _ in rows) / max(len(rows), 1), 1),
        }

    def write(self, folder: Path, readme: str) -> None:
        """Write the files of the set into a folder that is there."""
        for part, rows in (("train", self.train), ("test", self.test)):
            with TextWriter(folder, part) as file:
                file.write(rows)
        write_lines(folder / "label_names.txt.gz", self.label_names)
        (folder / "README.md").write_text(readme, encoding="utf-8")


class TextWriter:
    r"""Writes rows of one part to a folder, as many at a time as there are.

    >>> import gzip, tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     with TextWriter(Path(name), "train") as file:
    ...         file.write([("two words", ("a", "b"))])
    ...     gzip.decompress((Path(name) / "train.labels.txt.gz").read_bytes())
    b'a\tb\n'
    """

    def __init__(self, folder: Path, part: str) -> None:
        self._files = ExitStack()
        self._text, self._labels = (
            self._files.enter_context(writing_text(folder / f"{part}.{what}.txt.gz")) for what in ("texts", "labels")
        )

    def __enter__(self) -> TextWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        """Close the files."""
        self._files.__exit__(*error)

    def write(self, rows: Iterable[Row]) -> None:
        """Append rows."""
        for text, labels in rows:
            self._text(f"{text}\n")
            self._labels("\t".join(labels) + "\n")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    r"""A compressed file of lines; the same lines give the same bytes.

    >>> import gzip, tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     write_lines(Path(name) / "x.gz", ["a", "b"])
    ...     gzip.decompress((Path(name) / "x.gz").read_bytes())
    b'a\nb\n'
    """
    with writing_text(path) as write:
        for line in lines:
            write(f"{line}\n")
