"""Folders as used by PECOS, X-Transformer and AttentionXML: matrices, raw texts, or both."""

from __future__ import annotations

from pathlib import Path

from carya.data.corpus import Corpus, Matrices
from carya.data.formats.content import is_label_matrix
from carya.data.formats.folder_files import (
    SHORT_PARTS,
    check_no_conflict,
    find_file,
    read_numbered_names,
    require_file,
)
from carya.data.formats.texts.text_files import corpus_with_label_matrix, label_names_written, read_pair
from carya.data.formats.vocabularies import read_vocabulary
from carya.data.io.files import PathLike, open_output
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError

_NAMED_LABELS, _PLAIN_LABELS = "label_names.tsv", "output-items.txt"
_LABEL_FILES = (_NAMED_LABELS, _PLAIN_LABELS, "label_map.txt", "label_names.txt", "Y.txt")


def has_matrices(folder: Path, part: str) -> bool:
    """Return whether a folder, or one of its subfolders, contains the feature matrix of a split."""
    return bool(_find_features(folder, part))


def has_raw_texts(folder: Path, part: str) -> bool:
    """Return whether a folder contains the raw texts of a split."""
    return find_file(folder, _text_names(part)) is not None


def read_pecos(
    folder: PathLike, *, part: str = "train", vocabulary: Vocabulary | None = None, mapped: bool = False
) -> Matrices:
    """Read the features and labels of one split: ``X.trn.npz`` (or ``.npy``) and ``Y.trn.npz``.

    As in the archives of PECOS, the features can be in a subfolder, such as ``tfidf-attnxml``. If `folder` is that
    subfolder, the labels and their names are read from its parent folder.

    Parameters
    ----------
    folder : path
    part : str
    vocabulary : Vocabulary, optional
        The labels; by default, they are read from ``label_names.tsv`` (``id<TAB>name``) or from ``output-items.txt``,
        ``label_map.txt``, ``label_names.txt`` or ``Y.txt``, which contain one label per line.
    mapped : bool
        Whether to memory-map the matrices without validation instead of reading them into memory.
    """
    from carya.data.io.matrix_files import map_matrix, read_matrix

    root = Path(folder)
    found = _find_features(root, part)
    if not found:
        raise InputError(f"{root} contains no {' or '.join(_matrix_names('X', part))}.")
    if len(found) > 1:
        folders = ", ".join(str(file.parent) for file in found)
        raise InputError(f"{root} contains the features of several vectorizers. Pass one of these folders: {folders}.")
    (X,) = found
    others = [folder for folder in (root, X.parent.parent) if folder != X.parent]
    Y = next(filter(None, (find_file(folder, _matrix_names("Y", part)) for folder in (X.parent, *others))), None)
    if Y is None:
        raise InputError(f"Neither {X.parent} nor its parent folder contains {' or '.join(_matrix_names('Y', part))}.")
    if vocabulary is None:
        vocabulary = _read_label_names(X.parent) or _read_label_names(Y.parent)
    if mapped:
        return Matrices(map_matrix(X), map_matrix(Y), vocabulary, str(root))
    return Matrices.of(read_matrix(X), read_matrix(Y), vocabulary, str(root), names=(str(X), str(Y)))


def read_raw_texts(
    folder: PathLike, *, part: str = "train", label_separator: str | None = None, vocabulary: Vocabulary | None = None
) -> Corpus:
    """Open the raw texts of one split: ``train_texts.txt``, with labels from ``train_labels.txt`` or ``Y.trn.npz``.

    Labels in a text file are separated by spaces by default. If there is no file with the column names of a label
    matrix, labels are identified by their column indices, starting at 0.
    """
    root = Path(folder)
    texts = require_file(root, _text_names(part))
    short_names = [f"{name}_X_Y.txt" for name in SHORT_PARTS[part]]
    labels = require_file(root, [f"{part}_labels.txt", *_matrix_names("Y", part), *short_names])
    if vocabulary is None:
        vocabulary = _read_label_names(root)
    if is_label_matrix(labels):
        return corpus_with_label_matrix(texts, labels, vocabulary)
    return Corpus(
        lambda: read_pair(texts, labels, label_separator=label_separator or " "),
        source=str(root),
        vocabulary=vocabulary,
    )


def write_pecos(folder: PathLike, matrices: Matrices, *, part: str = "train") -> int:
    """Write ``X.trn.npz`` (or ``.npy`` if dense), ``Y.trn.npz`` and the label names; return the number of rows."""
    import numpy as np
    import scipy.sparse as sp

    root = Path(folder)
    short_part = SHORT_PARTS[part][0]
    is_sparse = sp.issparse(matrices.X)
    X = root / f"X.{short_part}.{'npz' if is_sparse else 'npy'}"
    check_no_conflict(root, f"X.{short_part}.{'npy' if is_sparse else 'npz'}")
    names = label_names_written(root, matrices.vocabulary, existing=_read_label_names(root), plain_file=_PLAIN_LABELS)
    with names, open_output(X) as x_stream, open_output(root / f"Y.{short_part}.npz") as y_stream:
        if is_sparse:
            sp.save_npz(x_stream, sp.csr_matrix(matrices.X))  # PECOS expects csr_matrix, not csr_array
        else:
            np.save(x_stream, matrices.X)
        sp.save_npz(y_stream, sp.csr_matrix(matrices.Y))
    return int(matrices.Y.shape[0])


def _matrix_names(symbol: str, part: str) -> list[str]:
    return [f"{symbol}.{name}.{suffix}" for name in SHORT_PARTS[part] for suffix in ("npz", "npy")]


def _text_names(part: str) -> list[str]:
    own = [f"X.{name}.txt" for name in SHORT_PARTS[part]] + [f"{name}_X.txt" for name in SHORT_PARTS[part]]
    return [f"{part}_texts.txt", f"{part}_raw_texts.txt", *own]


def _find_features(folder: Path, part: str) -> list[Path]:
    """Return the path of the feature matrix in a folder or, if there is none, the paths of those in its subfolders."""
    names = _matrix_names("X", part)
    file = find_file(folder, names)
    if file is not None:
        return [file]
    subfolders = sorted(entry for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    return [file for subfolder in subfolders if (file := find_file(subfolder, names)) is not None]


def _read_label_names(folder: Path) -> Vocabulary | None:
    """Return the labels listed in a file of the folder, or None if there is no such file.

    PECOS, X-Transformer and AttentionXML identify labels by index and allow repeated lines. If lines are repeated, the
    indices are used as ids and the lines as names.
    """
    file = find_file(folder, _LABEL_FILES)
    if file is None:
        return None
    if file.name.startswith(_NAMED_LABELS):
        return read_vocabulary(file)
    return read_numbered_names(file)
