"""Two SciPy or NumPy matrix files: one with features, and one with the labels of the same rows."""

from __future__ import annotations

from pathlib import Path

from carya.data.corpus import Matrices
from carya.data.formats.content import is_label_matrix
from carya.data.formats.matrices.label_matrix import read_label_matrix
from carya.data.io.files import PathLike, display_name, open_output
from carya.data.io.matrix_files import read_matrix
from carya.data.vocabulary import Vocabulary
from carya.errors import InputError, ParameterError


def read_matrix_pair(
    path: PathLike, *, labels: PathLike | None = None, vocabulary: Vocabulary | None = None
) -> Matrices:
    """Read features from an ``.npz`` or ``.npy`` file, and labels from any label-matrix file."""
    if labels is None:
        raise InputError(f"{display_name(path)} contains features only. Pass the label matrix as labels (--labels).")
    if not is_label_matrix(labels):
        raise InputError(
            f"{display_name(labels)} is not a matrix file. The labels of a feature matrix must be in an .npz or .npy "
            "file, or in a sparse text file such as trn_X_Y.txt."
        )
    X, Y = read_matrix(path), read_label_matrix(labels)
    return Matrices.of(X, Y, vocabulary, display_name(path), names=(display_name(path), display_name(labels)))


def write_matrix_pair(path: PathLike, matrices: Matrices, *, labels: PathLike | None = None) -> int:
    """Write features (``.npz``, or ``.npy`` if dense) and labels to two files; return the number of rows."""
    import numpy as np
    import scipy.sparse as sp

    if labels is None:
        raise ParameterError(
            f"{path}: The format 'npz' requires a second file for the labels. Pass labels (--to-labels)."
        )
    if Path(labels).suffix != ".npz":
        raise ParameterError(f"{labels}: The labels must be written to an .npz file.")
    if Path(path).absolute() == Path(labels).absolute():
        raise ParameterError(f"{path} cannot store both features and labels. Pass two different files.")
    is_sparse = sp.issparse(matrices.X)
    if (Path(path).suffix == ".npz") != is_sparse:
        raise InputError(
            f"{path}: {'Sparse' if is_sparse else 'Dense'} features must be written to "
            f"{'an .npz' if is_sparse else 'an .npy'} file."
        )
    with open_output(path) as x_stream, open_output(labels) as y_stream:
        if is_sparse:
            sp.save_npz(x_stream, sp.csr_matrix(matrices.X))
        else:
            np.save(x_stream, matrices.X)
        sp.save_npz(y_stream, sp.csr_matrix(matrices.Y))
    return int(matrices.Y.shape[0])
