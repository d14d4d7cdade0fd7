"""Folders as PECOS, X-Transformer and AttentionXML have them: matrices, and sometimes the texts beside them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from carya.data.corpus import Corpus, Matrices
from carya.data.formats.folder_files import needed, piece, refuse
from carya.data.formats.texts.text_files import naming, read_pair, with_label_matrix
from carya.data.formats.vocabularies import read_vocabulary
from carya.data.io.files import PathLike, read_lines, writing
from carya.data.vocabulary import Vocabulary

#: What those projects call the parts.
_SHORT = {"train": ("trn", "tr", "train"), "test": ("tst", "ts", "test"), "dev": ("dev", "val", "valid")}
_NAMES = ("label_names.tsv", "output-items.txt", "label_map.txt", "label_names.txt")


def has_matrices(folder: Path, part: str) -> bool:
    """Whether a folder holds features of that part."""
    return piece(folder, _matrix_names("X", part)) is not None


def has_raw_texts(folder: Path, part: str) -> bool:
    """Whether a folder holds texts of that part in the form of this module."""
    return piece(folder, _text_names(part)) is not None


def read_pecos(folder: PathLike, *, part: str = "train", vocabulary: Vocabulary | None = None) -> Matrices:
    """The features and labels of one part: ``X.trn.npz`` (or ``.npy``) and ``Y.trn.npz``.

    Parameters
    ----------
    folder : path
    part : str
    vocabulary : Vocabulary, optional
        Stands for ``output-items.txt``, ``label_map.txt`` or ``label_names.txt``, which list the labels, one a line,
        and for ``label_names.tsv``, ``id<TAB>name``.
    """
    from carya.data.io.matrix_files import read_matrix

    place = Path(folder)
    X, Y = (needed(place, _matrix_names(what, part)) for what in "XY")
    if vocabulary is None:
        vocabulary = _names(place)
    return checked_matrices(read_matrix(X), read_matrix(Y), vocabulary, str(place), (str(X), str(Y)))


def read_raw_texts(
    folder: PathLike, *, part: str = "train", label_separator: str | None = None, vocabulary: Vocabulary | None = None
) -> Corpus:
    """The texts of one part, ``train_texts.txt``, with labels from ``train_labels.txt`` or ``Y.trn.npz``.

    Labels in a text file are separated by spaces, if `label_separator` says nothing else. Where they are in a matrix
    and no file says what its columns are called, they are called by their numbers, from 0.
    """
    place = Path(folder)
    texts = needed(place, _text_names(part))
    labels = needed(place, [f"{part}_labels.txt", *_matrix_names("Y", part)])
    if vocabulary is None:
        vocabulary = _names(place)
    if labels.suffix in (".npz", ".npy"):
        return with_label_matrix(texts, labels, _numbers(labels) if vocabulary is None else vocabulary)
    return Corpus(
        lambda: read_pair(texts, labels, label_separator=label_separator or " "),
        source=str(place),
        vocabulary=vocabulary,
    )


def write_pecos(folder: PathLike, matrices: Matrices, *, part: str = "train") -> int:
    """Write ``X.trn.npz`` (``.npy`` if it is dense), ``Y.trn.npz``, and what labels are called; gives the rows."""
    import numpy as np
    import scipy.sparse as sp

    place = Path(folder)
    short = _SHORT[part][0]
    sparse = sp.issparse(matrices.X)
    X = place / f"X.{short}.{'npz' if sparse else 'npy'}"
    refuse(place, f"X.{short}.{'npy' if sparse else 'npz'}")
    names = naming(place, matrices.vocabulary, _names(place), _NAMES[1])
    with names, writing(X) as x, writing(place / f"Y.{short}.npz") as y:
        if sparse:
            sp.save_npz(x, sp.csr_matrix(matrices.X))  # the older class is what those projects know
        else:
            np.save(x, matrices.X)
        sp.save_npz(y, sp.csr_matrix(matrices.Y))
    return int(matrices.Y.shape[0])


def checked_matrices(
    X: Any, Y: Any, vocabulary: Vocabulary | None, source: str, names: tuple[str, str] = ("X", "Y")
) -> Matrices:
    """Matrices that passed the one door for input; messages call them by `names`."""
    from carya.core import validation

    features = validation.features(X, names[0])
    kept = features.dense if features.widths[1] else features.sparse.to_scipy()
    return Matrices(kept, validation.labels(Y, names[1]).to_scipy(), vocabulary, source)


def _matrix_names(what: str, part: str) -> list[str]:
    return [f"{what}.{short}.{suffix}" for short in _SHORT[part] for suffix in ("npz", "npy")]


def _text_names(part: str) -> list[str]:
    return [f"{part}_texts.txt", f"{part}_raw_texts.txt", *(f"X.{short}.txt" for short in _SHORT[part])]


def _names(place: Path) -> Vocabulary | None:
    """The labels as the folder lists them. Those projects know a label by its number, so lines may be the same: then
    the numbers are the ids, and the lines the names.
    """
    listed = piece(place, _NAMES)
    if listed is None:
        return None
    if listed.name.startswith(_NAMES[0]):
        return read_vocabulary(listed)
    lines = list(read_lines(listed))
    ids = lines if len(set(lines)) == len(lines) else [str(row) for row in range(len(lines))]
    return Vocabulary(ids, lines, source=os.fspath(listed))


def _numbers(labels: Path) -> Vocabulary:
    from carya.data.io.matrix_files import read_matrix

    return Vocabulary(map(str, range(read_matrix(labels).shape[1])), source=str(labels))
