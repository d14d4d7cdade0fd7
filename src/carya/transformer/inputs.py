"""What a user gives to transformer models: texts, labels by name or as a matrix, and texts to choose by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core import validation
from carya.core.matrices import Csr
from carya.errors import InputError
from carya.text.labels import label_matrix

#: Labels of each text by name, or a matrix of texts x labels.
Labels = Iterable[Iterable[str]] | Any


@dataclass(frozen=True, eq=False)
class Texts:
    """Texts and their labels, and others to choose by."""

    texts: list[str]
    labels: Csr
    dev: tuple[list[str], Csr] | None
    about: LabelTexts | None = None


@dataclass(frozen=True, eq=False)
class LabelTexts:
    """What is written about labels.

    Attributes
    ----------
    columns : ndarray of int32
        Which labels, ascending.
    texts : list of str
    n_labels : int
    """

    columns: NDArray[np.int32]
    texts: list[str]
    n_labels: int

    @classmethod
    def of(cls, texts: Mapping[str, str] | None, ids: Sequence[str]) -> LabelTexts | None:
        """Those of known labels that say something; None if there are none."""
        known = {} if texts is None else texts
        found = [(at, known[label]) for at, label in enumerate(ids) if known.get(label, "").strip()]
        if not found:
            return None
        columns, written = zip(*found, strict=True)
        return cls(np.array(columns, np.int32), list(written), len(ids))

    def targets(self, passes: int) -> Csr:
        """Each text, several times over, with its own label."""
        columns = np.tile(self.columns, passes)
        return Csr.of(
            np.arange(columns.size + 1, dtype=np.int64), columns, np.ones(columns.size, np.float32), self.n_labels
        )


def checked(texts: Iterable[str], labels: Labels) -> tuple[list[str], Csr, list[str]]:
    """Texts, their labels as a matrix, and what the labels are called."""
    if isinstance(texts, str):
        raise InputError("texts is one string, it must be a list of them")
    gathered = list(texts)
    for row, text in enumerate(gathered):
        if not isinstance(text, str):
            raise InputError(f"text {row} must be a string, got {type(text).__name__}")
    if sp.issparse(labels):
        Y = validation.labels(labels, "labels")
        ids = [str(number) for number in range(Y.cols)]
    else:
        matrix, ids = label_matrix(labels)
        Y = Csr.of_scipy(matrix)
    if len(gathered) != Y.rows:
        raise InputError(f"there are {len(gathered)} texts but labels for {Y.rows}")
    if not gathered or Y.values.size == 0:
        raise InputError("no text has a label: there is nothing to learn")
    return gathered, Y, ids


def checked_dev(dev: Any, ids: list[str], rows: int) -> tuple[list[str], Csr] | NDArray[np.int64] | None:
    """Dev texts and their labels, or numbers of the training texts that are to be such."""
    if dev is None:
        return None
    if isinstance(dev, np.ndarray):
        unique = np.unique(dev) if dev.dtype.kind in "iu" and dev.ndim == 1 else np.zeros(0, np.int64)
        if unique.size != dev.size or not 0 < unique.size < rows or unique[0] < 0 or unique[-1] >= rows:
            raise InputError(f"dev must be different numbers of texts, between 0 and {rows - 1}, and not all of them")
        return unique.astype(np.int64)
    if not isinstance(dev, tuple) or len(dev) != 2:
        raise InputError("dev must be a pair of texts and labels, or an array of numbers of texts")
    texts = list(dev[0])
    if sp.issparse(dev[1]):
        Y = validation.labels(dev[1], "the labels of dev")
        if Y.cols != len(ids):
            raise InputError(f"the labels of dev have {Y.cols} columns, those of training {len(ids)}")
    else:
        Y = Csr.of_scipy(label_matrix(dev[1], ids)[0])
    if not texts or len(texts) != Y.rows:
        raise InputError(f"dev has {len(texts)} texts and labels for {Y.rows}; they must be as many, and at least one")
    if not Y.values.size:
        raise InputError("no dev text has a label that a training text has: nothing can be chosen by them")
    return texts, Y
