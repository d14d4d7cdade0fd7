"""Separate feature and label files of the Extreme Classification Repository, ``trn_X_Xf.txt`` and ``trn_X_Y.txt``.

A folder from the repository contains these two files for each of the splits ``trn`` and ``tst``, or one file per split
that contains both features and labels.
"""

from __future__ import annotations

import re
from pathlib import Path

import scipy.sparse as sp

from carya.data.corpus import Matrices
from carya.data.formats.folder_files import SHORT_PARTS, check_no_conflict, find_file, require_file
from carya.data.formats.matrices.label_matrix import read_label_matrix
from carya.data.formats.matrices.sparse_text import read_sparse_text, write_sparse_text
from carya.data.formats.matrices.xmc import looks_like_xmc, read_xmc
from carya.data.io.files import PathLike, display_name, uncompressed_name
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError, ParameterError

_FEATURES = re.compile(r"(.*)_Xf(\.\w+)?")
_LABELS = re.compile(r"(.*)_Y(\.\w+)?")


def read_xmc_pair(path: PathLike, *, labels: PathLike | None = None, vocabulary: Vocabulary | None = None) -> Matrices:
    """Read a feature file (``rows features``, then ``feature:value …`` lines) and a label file in the same format.

    Parameters
    ----------
    path : path
        The feature file, ``…_Xf.txt``, or the label file, ``…_Y.txt``.
    labels : path, optional
        The other file; by default, the file with the corresponding name in the same folder. Labels can also be an
        ``.npz`` file.
    vocabulary : Vocabulary, optional
    """
    name = uncompressed_name(path)
    if _LABELS.fullmatch(name) and (labels is None or _FEATURES.fullmatch(uncompressed_name(labels))):
        features, labels = (_partner(path, name, _LABELS, "_Xf") if labels is None else labels), path
    else:
        features, labels = path, (_partner(path, name, _FEATURES, "_Y") if labels is None else labels)
    X, Y = read_sparse_text(features), read_label_matrix(labels)
    if X.shape[0] != Y.rows:
        raise InputError(
            f"{display_name(features)} has {X.shape[0]} rows, but {display_name(labels)} has {Y.rows} rows."
        )
    return Matrices(X, Y.to_scipy(), vocabulary, display_name(features))


def read_xmc_features(path: PathLike) -> sp.csr_array:
    """Read the features from a pair of files; the label file is optional."""
    name = uncompressed_name(path)
    return read_sparse_text(_partner(path, name, _LABELS, "_Xf") if _LABELS.fullmatch(name) else path)


def write_xmc_pair(path: PathLike, matrices: Matrices, *, labels: PathLike | None = None) -> int:
    """Write a feature file and a label file; return the number of rows.

    If `labels` is not given, the file name without its extension must end in ``_Xf``; the label file has the same name
    with ``_Y`` instead.
    """
    name = Path(path).name
    if labels is None:
        match = re.fullmatch(r"(.*)_Xf(\..*)?", name)
        if match is None:
            raise ParameterError(
                f"{path}: The format 'xmc-pair' requires a second file. Pass labels (--to-labels), or a name such as "
                "trn_X_Xf.txt."
            )
        labels = Path(path).with_name(f"{match[1]}_Y{match[2] or ''}")
    if Path(path).absolute() == Path(labels).absolute():
        raise ParameterError(f"{path} cannot store both features and labels. Pass two different files.")
    write_sparse_text(path, matrices.X)
    write_sparse_text(labels, matrices.Y)
    return int(matrices.Y.shape[0])


def has_xmc_files(folder: Path, part: str) -> bool:
    """Return whether a folder contains the files of a split."""
    if find_file(folder, _feature_names(part)) is not None:
        return True
    file = find_file(folder, _complete_names(part)) or _find_named_file(folder, part)
    return file is not None and looks_like_xmc(file)


def read_xmc_folder(folder: PathLike, *, part: str = "train", vocabulary: Vocabulary | None = None) -> Matrices:
    """Read one split from a folder: ``trn_X_Xf.txt`` and ``trn_X_Y.txt``, or ``train.txt`` with features and labels.

    The name ``train.txt`` can be prefixed with the name of the data set, as in ``eurlex_train.txt``.
    """
    root = Path(folder)
    features = find_file(root, _feature_names(part))
    if features is not None:
        return read_xmc_pair(features, vocabulary=vocabulary)
    names = [*_complete_names(part), *_feature_names(part)[:1]]
    file = find_file(root, names) or _find_named_file(root, part) or require_file(root, names)
    return read_xmc(file, vocabulary=vocabulary)


def write_xmc_folder(folder: PathLike, matrices: Matrices, *, part: str = "train") -> int:
    """Write ``trn_X_Xf.txt`` and ``trn_X_Y.txt``; return the number of rows."""
    root = Path(folder)
    name = _feature_names(part)[0]
    for file in (name, name.replace("_Xf", "_Y")):
        check_no_conflict(root, file, replaced=file)
    return write_xmc_pair(root / name, matrices)


def _feature_names(part: str) -> list[str]:
    return [f"{name}_X_Xf.txt" for name in SHORT_PARTS[part]]


def _complete_names(part: str) -> list[str]:
    """Return the possible names of a file with both features and labels; AttentionXML uses ``train_v1.txt``."""
    return [f"{name}{ending}.txt" for name in (part, *SHORT_PARTS[part]) for ending in ("", "_v1", "_data")]


def _find_named_file(folder: Path, part: str) -> Path | None:
    """Return the file prefixed with a data set's name, as in ``eurlex_train.txt``; None unless there is exactly one."""
    pattern = re.compile(rf"\w[\w-]*_{part}\.txt")
    files = [path for path in folder.iterdir() if pattern.fullmatch(uncompressed_name(path)) and path.is_file()]
    return files[0] if len(files) == 1 else None


def _partner(path: PathLike, name: str, pattern: re.Pattern[str], ending: str) -> Path:
    """Return the other file of a pair, which can be compressed."""
    match = pattern.fullmatch(name)
    folder = Path(path).parent
    partner = None if match is None else find_file(folder, [f"{match[1]}{ending}{match[2] or ''}"])
    if partner is not None:
        return partner
    expected = "" if match is None else f" There is no {match[1]}{ending}{match[2] or ''} in the same folder."
    content = "features" if ending == "_Y" else "labels"
    other = "label" if ending == "_Y" else "feature"
    raise InputError(
        f"{display_name(path)} contains a sparse matrix of {content} and requires a {other} file.{expected} Pass the "
        "feature file as the path, and the label file as labels (--labels)."
    )
