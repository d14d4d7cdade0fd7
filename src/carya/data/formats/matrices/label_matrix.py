"""Label matrices in separate files: SciPy's ``.npz``, NumPy's ``.npy``, or sparse text such as ``trn_X_Y.txt``."""

from __future__ import annotations

from pathlib import Path

from carya.core.matrices import Csr
from carya.data.io.files import MATRIX_SUFFIXES, PathLike, display_name


def read_label_matrix(path: PathLike) -> Csr:
    """Read a label matrix, rows x labels; raise InputError if it is invalid."""
    if Path(path).suffix in MATRIX_SUFFIXES:
        from carya.data.io.matrix_files import read_labels

        return read_labels(path)
    from carya.core import validation
    from carya.data.formats.matrices.sparse_text import read_sparse_text  # deferred, because it imports SciPy

    return validation.check_labels(read_sparse_text(path, "label"), display_name(path))
