"""Generated worlds as folders: matrices under the names that libpecos uses, or texts and labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from carya.core.progress import Progress, Report
from carya.data.io import text_dataset
from carya.data.io.csr_writer import CsrFile
from carya.data.synthetic.topic_model import TopicWorld

_PARTS = {"train": "trn", "test": "tst"}

#: The files of a folder of matrices.
MATRICES = frozenset(f"{what}.{short}.npz" for what in "XY" for short in _PARTS.values()) | {"README.md"}

_Block = tuple[sp.csr_array, sp.csr_array]


def write_matrices(world: TopicWorld, folder: Path, progress: Progress | None = None) -> dict[str, float]:
    """Write ``{X,Y}.{trn,tst}.npz``, a block of rows at a time; gives measured sizes.

    Examples
    --------
    >>> import tempfile
    >>> world = TopicWorld(100, 10, 500, 30, labels_per_row=2, features_per_row=20)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     sizes = write_matrices(world, Path(place))
    >>> sizes["train_rows"], sizes["features"], sizes["labels"]
    (100, 500, 30)
    """
    entries = np.zeros(2, np.int64)
    for part, short in _PARTS.items():
        with (
            (progress or Progress()).stage(f"write {part} rows") as report,
            CsrFile(folder / f"X.{short}.npz", world.n_features) as features,
            CsrFile(folder / f"Y.{short}.npz", world.n_labels) as labels,
        ):
            for X, Y in _told(world.blocks(part), world.n_rows(part), report):
                features.append(X)
                labels.append(Y)
                entries += X.nnz, Y.nnz
    return _sizes(world, entries)


def write_texts(world: TopicWorld, folder: Path, progress: Progress | None = None) -> dict[str, float]:
    """Write rows as texts of made-up words and labels as names, a block of rows at a time; gives measured sizes.

    Examples
    --------
    >>> import tempfile
    >>> world = TopicWorld(100, 10, 500, 30, labels_per_row=2, features_per_row=20)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     _ = write_texts(world, Path(place))
    ...     sorted(path.name for path in Path(place).iterdir())[:2]
    ['label_names.txt.gz', 'test.labels.txt.gz']
    """
    words = np.array([world.word(column) for column in range(world.n_features)])
    names = [world.label_name(label) for label in range(world.n_labels)]
    text_dataset.write_lines(folder / "label_names.txt.gz", names)
    entries = np.zeros(2, np.int64)
    for part in _PARTS:
        with (
            (progress or Progress()).stage(f"write {part} rows") as report,
            text_dataset.TextWriter(folder, part) as file,
        ):
            for counts, Y in _told(world.counted(part), world.n_rows(part), report):
                spoken = words[np.repeat(counts.indices, counts.data.astype(np.int64))]
                ends = np.concatenate([[0], np.cumsum(counts.data, dtype=np.int64)])[counts.indptr]
                file.write(
                    (
                        " ".join(spoken[ends[row] : ends[row + 1]].tolist()),
                        tuple(names[label] for label in Y.indices[Y.indptr[row] : Y.indptr[row + 1]]),
                    )
                    for row in range(Y.shape[0])
                )
                entries += counts.nnz, Y.nnz
    return _sizes(world, entries)


def _told(blocks: Iterator[_Block], rows: int, report: Report) -> Iterator[_Block]:
    done = 0
    for block in blocks:
        yield block
        done += block[0].shape[0]
        if report is not None:
            report(done, rows)


def _sizes(world: TopicWorld, entries: np.ndarray[tuple[int], np.dtype[np.int64]]) -> dict[str, float]:
    rows = world.n_rows("train") + world.n_rows("test")
    return {
        "train_rows": world.n_rows("train"),
        "test_rows": world.n_rows("test"),
        "features": world.n_features,
        "labels": world.n_labels,
        "features_a_row": round(float(entries[0]) / rows, 2),
        "labels_a_row": round(float(entries[1]) / rows, 2),
    }
