"""The svmlight format with any number of labels: a line a row, as libsvm's multi-label files have it."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from carya.data.corpus import Matrices
from carya.data.formats.matrices.sparse_lines import Gathered, Limits, format_rows, matrix, parse
from carya.data.io.files import PathLike, read_blocks, shown, writing
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError


def read_svmlight(
    path: PathLike,
    *,
    zero_based: bool | Literal["auto"] = "auto",
    n_features: int | None = None,
    n_labels: int | None = None,
    vocabulary: Vocabulary | None = None,
) -> Matrices:
    r"""The matrices of a file of ``label,label feature:value …`` lines. Comments (``#``) and blank lines are skipped.

    Parameters
    ----------
    path : path
    zero_based : bool or "auto"
        Whether features are counted from 0; ``"auto"`` says so if one has that number.
    n_features, n_labels : int, optional
        How many columns to make; as many as occur if not given. Labels are counted from 0; a vocabulary says how many.
    vocabulary : Vocabulary, optional

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "train.svm")
    ...     _ = file.write_text("0,3 1:0.5 3:1  # the first\n 2:2\n")
    ...     read_svmlight(file).X.toarray().tolist()
    [[0.5, 0.0, 1.0], [0.0, 2.0, 0.0]]
    """
    name = shown(path)
    gathered = Gathered()
    line = 1
    for block in read_blocks(path):
        gathered.add(parse(block, line, name, Limits(), skip_blank=True))
        line += block.count(b"\n")
    counts, features, values = (gathered.column(one) for one in ("feature_counts", "features", "values"))
    labels = gathered.column("labels")
    if zero_based == "auto":
        zero_based = features.size > 0 and features.min() == 0
    if not zero_based:
        if features.size and features.min() == 0:
            raise InputError(f"{name}: a feature has the number 0, and features are counted from 1")
        features = features - np.int32(1)
    if n_labels is None and vocabulary is not None:
        n_labels = len(vocabulary)
    X = matrix(counts, features, values, _width(features, n_features, "features", name))
    Y = matrix(gathered.column("label_counts"), labels, None, _width(labels, n_labels, "labels", name))
    return Matrices(X, Y, vocabulary, name, widths_known=n_features is not None and n_labels is not None)


def write_svmlight(path: PathLike, matrices: Matrices) -> int:
    """Write matrices, features counted from 1; gives the number of rows.

    The format does not say how many columns there are: empty ones at the end are not read again.
    """
    with writing(path) as stream:
        for line in format_rows(matrices.X, matrices.Y, shift=1):
            if line == " \n":
                raise InputError(f"{path}: a row without labels and features cannot be written as svmlight")
            stream.write(line.encode())
    return int(matrices.Y.shape[0])


def _width(columns: NDArray[Any], given: int | None, what: str, name: str) -> int:
    needed = int(columns.max()) + 1 if columns.size else 0
    if given is not None and needed > given:
        raise InputError(f"{name}: there are {needed} {what}, at most {given} are expected")
    return needed if given is None else given
