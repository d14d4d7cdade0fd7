"""Data sets of labeled texts, in memory and as folders.

A folder contains ``{train,test}.texts.txt.gz`` with one text per line, ``{train,test}.labels.txt.gz`` with the
tab-separated labels of each text, ``label_names.txt.gz``, and a ``README.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carya.data.io.files import open_text_output

#: A text and its labels.
LabeledText = tuple[str, tuple[str, ...]]

#: The names of all files in a folder of labeled texts.
FILE_NAMES = frozenset(
    (
        *(f"{part}.{content}.txt.gz" for part in ("train", "test") for content in ("texts", "labels")),
        "label_names.txt.gz",
        "README.md",
    )
)


@dataclass(frozen=True, eq=False)
class TextDataset:
    """Labeled texts, split into a training set and a test set.

    Attributes
    ----------
    train, test : list of (str, tuple of str)
        Texts and their labels.
    label_names : list of str
        All labels, sorted.

    Examples
    --------
    >>> data = TextDataset([("a red fruit", ("apple",))], [], ["apple"])
    >>> data.summary()
    {'train_rows': 1, 'test_rows': 0, 'labels': 1, 'labels_per_row': 1.0, 'words_per_row': 3.0}
    """

    train: list[LabeledText]
    test: list[LabeledText]
    label_names: list[str]

    def summary(self) -> dict[str, Any]:
        """Return the numbers of rows and labels, and the mean numbers of labels and words per row."""
        rows = self.train + self.test
        return {
            "train_rows": len(self.train),
            "test_rows": len(self.test),
            "labels": len(self.label_names),
            "labels_per_row": round(sum(len(labels) for _, labels in rows) / max(len(rows), 1), 2),
            "words_per_row": round(sum(text.count(" ") + 1 for text, _ in rows) / max(len(rows), 1), 1),
        }

    def write(self, folder: Path, readme: str) -> None:
        """Write the files of the data set to an existing folder."""
        for part, rows in (("train", self.train), ("test", self.test)):
            with TextDatasetWriter(folder, part) as writer:
                writer.write(rows)
        write_lines(folder / "label_names.txt.gz", self.label_names)
        (folder / "README.md").write_text(readme, encoding="utf-8")


class TextDatasetWriter:
    r"""Writer for one split of a data folder; rows are written in batches.

    >>> import gzip, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with TextDatasetWriter(Path(folder), "train") as writer:
    ...         writer.write([("two words", ("a", "b"))])
    ...     gzip.decompress((Path(folder) / "train.labels.txt.gz").read_bytes())
    b'a\tb\n'
    """

    def __init__(self, folder: Path, part: str) -> None:
        self._files = ExitStack()
        self._write_text, self._write_labels = (
            self._files.enter_context(open_text_output(folder / f"{part}.{content}.txt.gz"))
            for content in ("texts", "labels")
        )

    def __enter__(self) -> TextDatasetWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        """Close the files."""
        self._files.__exit__(*error)

    def write(self, rows: Iterable[LabeledText]) -> None:
        """Append rows."""
        for text, labels in rows:
            self._write_text(f"{text}\n")
            self._write_labels("\t".join(labels) + "\n")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    r"""Write lines to a compressed file; the same lines result in the same bytes.

    >>> import gzip, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_lines(Path(folder) / "x.gz", ["a", "b"])
    ...     gzip.decompress((Path(folder) / "x.gz").read_bytes())
    b'a\nb\n'
    """
    with open_text_output(path) as write:
        for line in lines:
            write(f"{line}\n")
