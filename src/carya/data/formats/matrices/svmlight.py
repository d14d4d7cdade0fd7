"""The svmlight format with any number of labels per row, as in libsvm's multi-label files."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.data.corpus import Matrices
from carya.data.formats.matrices.sparse_lines import Limits, RowCollector, format_rows, parse_block, to_csr
from carya.data.io.files import PathLike, display_name, open_output, read_blocks
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError

#: Without limits on inferred numbers of columns, a single large index in a damaged file could exhaust the memory,
#: because models allocate memory for every column.
_MAX_DERIVED_COLUMNS = 10_000_000
_MAX_COLUMNS_PER_ENTRY = 100


def read_svmlight(
    path: PathLike,
    *,
    zero_based: bool | None = None,
    n_features: int | None = None,
    n_labels: int | None = None,
    vocabulary: Vocabulary | None = None,
) -> Matrices:
    r"""Read matrices from a file with ``label,label feature:value …`` lines.

    Comments (``#``) and blank lines are ignored.

    Parameters
    ----------
    path : path
    zero_based : bool, optional
        Whether features are numbered from 0 instead of 1. By default, features are assumed to be numbered from 0 only
        if feature 0 occurs, so a zero-based file without feature 0 is misread. The `read_options` of the result contain
        the value that was used.
    n_features, n_labels : int, optional
        The numbers of columns. By default, they are inferred from the largest indices that occur, except that the
        number of labels is taken from the vocabulary if one is given. Labels are numbered from 0.
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
    name = display_name(path)
    collector = RowCollector()
    limits = Limits(first_feature=1 if zero_based is False else 0)
    line = 1
    for block in read_blocks(path):
        collector.add(parse_block(block, line, name, limits, skip_blank=True))
        line += block.count(b"\n")
    features, labels = collector.take("features"), collector.take("labels")
    is_stated = zero_based is not None
    if zero_based is None:
        zero_based = bool(features.size) and int(features.min()) == 0
    if not zero_based:
        features = features - np.int32(1)
    if n_labels is None and vocabulary is not None:
        n_labels = len(vocabulary)
    X = to_csr(
        collector.take("feature_counts"),
        features,
        collector.take("values"),
        _n_columns(features, n_features, "features", name),
    )
    Y = to_csr(collector.take("label_counts"), labels, None, _n_columns(labels, n_labels, "labels", name))
    return Matrices(
        X,
        Y,
        vocabulary,
        name,
        widths_known=n_features is not None and n_labels is not None,
        read_options={"zero_based": zero_based},
        is_guessed=not (is_stated or zero_based) and features.size > 0,
    )


def write_svmlight(path: PathLike, matrices: Matrices) -> int:
    """Write matrices with features numbered from 1; return the number of rows.

    The format does not store the numbers of columns, so trailing empty columns are lost.
    """
    with open_output(path) as stream:
        for line in format_rows(matrices.X, matrices.Y, first_feature=1):
            if line == " \n":
                raise InputError(f"{path}: svmlight cannot represent a row with neither labels nor features.")
            stream.write(line.encode())
    return int(matrices.Y.shape[0])


def _n_columns(columns: NDArray[Any], stated: int | None, content: str, name: str) -> int:
    occurring = int(columns.max()) + 1 if columns.size else 0
    if stated is not None and occurring > stated:
        raise InputError(f"{name}: There are {occurring} {content}, but at most {stated} are expected.")
    if stated is None and occurring > max(_MAX_DERIVED_COLUMNS, _MAX_COLUMNS_PER_ENTRY * columns.size):
        raise InputError(
            f"{name}: The {content} are numbered up to {occurring - 1}, but there are only {columns.size} "
            f"entries. If this is correct, pass n_{content}={occurring}; otherwise, number the {content} consecutively."
        )
    return occurring if stated is None else stated
