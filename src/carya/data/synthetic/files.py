"""Write synthetic data to folders, either as matrices, with file names as in libpecos, or as texts and labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from carya.core.progress import Progress, Report
from carya.data.io import text_dataset
from carya.data.io.csr_writer import CsrWriter
from carya.data.synthetic.topic_model import TopicModel

_SHORT_PARTS = {"train": "trn", "test": "tst"}

#: The names of all files in a matrix folder.
MATRIX_FILE_NAMES = frozenset(f"{symbol}.{short}.npz" for symbol in "XY" for short in _SHORT_PARTS.values()) | {
    "README.md"
}

_Block = tuple[sp.csr_array, sp.csr_array]


def write_matrices(model: TopicModel, folder: Path, progress: Progress | None = None) -> dict[str, float]:
    """Write ``{X,Y}.{trn,tst}.npz`` block by block; return the dimensions of the data set.

    Examples
    --------
    >>> import tempfile
    >>> model = TopicModel(100, 10, 500, 30, labels_per_row=2, features_per_row=20)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sizes = write_matrices(model, Path(folder))
    >>> sizes["train_rows"], sizes["features"], sizes["labels"]
    (100, 500, 30)
    """
    n_entries = np.zeros(2, np.int64)
    for part, short in _SHORT_PARTS.items():
        with (
            (progress or Progress()).stage(f"write {part} rows") as report,
            CsrWriter(folder / f"X.{short}.npz", model.n_features) as x_writer,
            CsrWriter(folder / f"Y.{short}.npz", model.n_labels) as y_writer,
        ):
            for X, Y in _report_rows(model.blocks(part), model.n_rows(part), report):
                x_writer.append(X)
                y_writer.append(Y)
                n_entries += X.nnz, Y.nnz
    return _summary(model, n_entries)


def write_texts(model: TopicModel, folder: Path, progress: Progress | None = None) -> dict[str, float]:
    """Write texts of pseudowords and the label names, block by block; return the dimensions of the data set.

    Examples
    --------
    >>> import tempfile
    >>> model = TopicModel(100, 10, 500, 30, labels_per_row=2, features_per_row=20)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_texts(model, Path(folder))
    ...     sorted(path.name for path in Path(folder).iterdir())[:2]
    ['label_names.txt.gz', 'test.labels.txt.gz']
    """
    words = np.array([model.word(column) for column in range(model.n_features)])
    names = [model.label_name(label) for label in range(model.n_labels)]
    text_dataset.write_lines(folder / "label_names.txt.gz", names)
    n_entries = np.zeros(2, np.int64)
    for part in _SHORT_PARTS:
        with (
            (progress or Progress()).stage(f"write {part} rows") as report,
            text_dataset.TextDatasetWriter(folder, part) as writer,
        ):
            for counts, Y in _report_rows(model.count_blocks(part), model.n_rows(part), report):
                tokens = words[np.repeat(counts.indices, counts.data.astype(np.int64))]
                bounds = np.concatenate([[0], np.cumsum(counts.data, dtype=np.int64)])[counts.indptr]
                writer.write(
                    (
                        " ".join(tokens[bounds[row] : bounds[row + 1]].tolist()),
                        tuple(names[label] for label in Y.indices[Y.indptr[row] : Y.indptr[row + 1]]),
                    )
                    for row in range(Y.shape[0])
                )
                n_entries += counts.nnz, Y.nnz
    return _summary(model, n_entries)


def _report_rows(blocks: Iterator[_Block], n_rows: int, report: Report) -> Iterator[_Block]:
    """Yield the blocks and report the cumulative number of rows after each block."""
    done = 0
    for block in blocks:
        yield block
        done += block[0].shape[0]
        if report is not None:
            report(done, n_rows)


def _summary(model: TopicModel, n_entries: np.ndarray[tuple[int], np.dtype[np.int64]]) -> dict[str, float]:
    n_rows = model.n_rows("train") + model.n_rows("test")
    return {
        "train_rows": model.n_rows("train"),
        "test_rows": model.n_rows("test"),
        "features": model.n_features,
        "labels": model.n_labels,
        "features_per_row": round(float(n_entries[0]) / n_rows, 2),
        "labels_per_row": round(float(n_entries[1]) / n_rows, 2),
    }
