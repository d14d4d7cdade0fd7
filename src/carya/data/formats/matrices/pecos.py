"""Folders in the layouts of PECOS, X-Transformer and AttentionXML: matrices, optionally with the raw texts."""

from __future__ import annotations

from pathlib import Path

from carya.data.corpus import Corpus, Matrices
from carya.data.formats.folder_files import check_no_conflict, find_file, require_file
from carya.data.formats.texts.text_files import corpus_with_label_matrix, label_names_written, read_pair
from carya.data.formats.vocabularies import read_vocabulary
from carya.data.io.files import PathLike, open_output, read_lines
from carya.data.vocabulary import Vocabulary

#: The names of the parts in these projects.
_PART_NAMES = {"train": ("trn", "tr", "train"), "test": ("tst", "ts", "test"), "dev": ("dev", "val", "valid")}
_NAMED_LABELS, _PLAIN_LABELS = "label_names.tsv", "output-items.txt"
_LABEL_FILES = (_NAMED_LABELS, _PLAIN_LABELS, "label_map.txt", "label_names.txt")


def has_matrices(folder: Path, part: str) -> bool:
    """Return whether a folder contains the feature matrix of a part."""
    return find_file(folder, _matrix_names("X", part)) is not None


def has_raw_texts(folder: Path, part: str) -> bool:
    """Return whether a folder contains the raw texts of a part."""
    return find_file(folder, _text_names(part)) is not None


def read_pecos(folder: PathLike, *, part: str = "train", vocabulary: Vocabulary | None = None) -> Matrices:
    """Read the features and labels of one part: ``X.trn.npz`` (or ``.npy``) and ``Y.trn.npz``.

    Parameters
    ----------
    folder : path
    part : str
    vocabulary : Vocabulary, optional
        Used instead of ``label_names.tsv`` (``id<TAB>name``) and instead of ``output-items.txt``, ``label_map.txt`` or
        ``label_names.txt``, which list one label per line.
    """
    from carya.data.io.matrix_files import read_matrix

    root = Path(folder)
    X, Y = (require_file(root, _matrix_names(symbol, part)) for symbol in "XY")
    if vocabulary is None:
        vocabulary = _read_label_names(root)
    return Matrices.of(read_matrix(X), read_matrix(Y), vocabulary, str(root), names=(str(X), str(Y)))


def read_raw_texts(
    folder: PathLike, *, part: str = "train", label_separator: str | None = None, vocabulary: Vocabulary | None = None
) -> Corpus:
    """Open the raw texts of one part, ``train_texts.txt``, with labels from ``train_labels.txt`` or ``Y.trn.npz``.

    Labels in a text file are separated by spaces by default. If no file names the columns of a label matrix, labels
    are identified by their column numbers, starting at 0.
    """
    root = Path(folder)
    texts = require_file(root, _text_names(part))
    labels = require_file(root, [f"{part}_labels.txt", *_matrix_names("Y", part)])
    if vocabulary is None:
        vocabulary = _read_label_names(root)
    if labels.suffix in (".npz", ".npy"):
        return corpus_with_label_matrix(texts, labels, _column_numbers(labels) if vocabulary is None else vocabulary)
    return Corpus(
        lambda: read_pair(texts, labels, label_separator=label_separator or " "),
        source=str(root),
        vocabulary=vocabulary,
    )


def write_pecos(folder: PathLike, matrices: Matrices, *, part: str = "train") -> int:
    """Write ``X.trn.npz`` (dense: ``.npy``), ``Y.trn.npz`` and the label names; return the number of rows."""
    import numpy as np
    import scipy.sparse as sp

    root = Path(folder)
    short_part = _PART_NAMES[part][0]
    is_sparse = sp.issparse(matrices.X)
    X = root / f"X.{short_part}.{'npz' if is_sparse else 'npy'}"
    check_no_conflict(root, f"X.{short_part}.{'npy' if is_sparse else 'npz'}")
    names = label_names_written(root, matrices.vocabulary, existing=_read_label_names(root), plain_file=_PLAIN_LABELS)
    with names, open_output(X) as x_stream, open_output(root / f"Y.{short_part}.npz") as y_stream:
        if is_sparse:
            sp.save_npz(x_stream, sp.csr_matrix(matrices.X))  # the class that those projects expect
        else:
            np.save(x_stream, matrices.X)
        sp.save_npz(y_stream, sp.csr_matrix(matrices.Y))
    return int(matrices.Y.shape[0])


def _matrix_names(symbol: str, part: str) -> list[str]:
    return [f"{symbol}.{name}.{suffix}" for name in _PART_NAMES[part] for suffix in ("npz", "npy")]


def _text_names(part: str) -> list[str]:
    return [f"{part}_texts.txt", f"{part}_raw_texts.txt", *(f"X.{name}.txt" for name in _PART_NAMES[part])]


def _read_label_names(folder: Path) -> Vocabulary | None:
    """Return the labels listed in a folder.

    These projects identify labels by number and allow repeated lines; in this case, the numbers are used as ids and
    the lines as names.
    """
    file = find_file(folder, _LABEL_FILES)
    if file is None:
        return None
    if file.name.startswith(_NAMED_LABELS):
        return read_vocabulary(file)
    lines = list(read_lines(file))
    ids = lines if len(set(lines)) == len(lines) else [str(number) for number in range(len(lines))]
    return Vocabulary(ids, lines, source=str(file))


def _column_numbers(labels: Path) -> Vocabulary:
    from carya.data.io.matrix_files import read_matrix

    return Vocabulary(map(str, range(read_matrix(labels).shape[1])), source=str(labels))
