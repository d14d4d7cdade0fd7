"""Sample of the labels of a data set, with all of their rows, and extrapolation from the sample to all rows."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core import validation
from carya.core.matrices import Csr, Features
from carya.errors import InputError
from carya.planning.sizes import DataSizes

if TYPE_CHECKING:
    from carya.data.corpus import Corpus, Example, Matrices

#: Maximum number of texts in a sample. They are vectorized to estimate the number of features.
MAX_TEXTS = 20_000


@dataclass(frozen=True, eq=False)
class DataSample:
    """Rows and labels from which a pilot run draws its training problems.

    Attributes
    ----------
    sizes : DataSizes
        The sizes of the complete data.
    X : csr_array or ndarray, rows x features
        The features of all rows or, for texts, of the sampled rows.
    Y : csr_array, rows x labels
        The labels of these rows; for each label, the sample contains either all of its rows or none.
    vectorize_seconds : float
        Estimated CPU time for converting all texts to features; 0 if the data contains features.
    text_bytes : float
        The size of all texts; 0 if the data contains features.
    """

    sizes: DataSizes
    X: Any
    Y: Any
    vectorize_seconds: float = 0.0
    text_bytes: float = 0.0

    @classmethod
    def of_matrices(cls, matrices: Matrices) -> DataSample:
        """Return a sample that contains all rows of the matrices. Memory-mapped matrices are not read into memory."""
        X, Y = matrices.X, sp.csr_array(matrices.Y)
        if X.shape[0] == 0 or Y.nnz == 0:
            raise InputError(f"{matrices.source} has no labeled rows. A plan requires at least one.")
        rows = X.shape[0]
        is_sparse = sp.issparse(X)
        sizes = DataSizes(
            rows=rows,
            features=X.shape[1] if is_sparse else 0,
            labels=Y.shape[1],
            features_per_row=X.nnz / rows if is_sparse else 0.0,
            labels_per_row=Y.nnz / rows,
            dense_features=0 if is_sparse else X.shape[1],
        )
        return cls(sizes, X, Y)

    @classmethod
    def of_corpus(cls, corpus: Corpus, vectorizer: Any) -> DataSample:
        """Read all texts once and vectorize a sample of them: all texts of a random subset of the labels."""
        import time

        collected = _LabelSample(MAX_TEXTS)
        for example in corpus:
            collected.add(example)
        if not collected.n_labeled:
            raise InputError(f"{corpus.source} has no labeled texts. A plan requires at least one.")
        texts = [example.text for example in collected.examples]
        started = time.process_time()
        X = vectorizer.fit(texts).transform(texts)
        seconds = time.process_time() - started
        share = sum(map(_n_bytes, texts)) / collected.n_bytes
        X = sp.csr_array(X[0] if isinstance(X, tuple) else X)
        sizes = DataSizes(
            rows=collected.n_rows,
            features=_extrapolate_features(X, collected.n_rows),
            labels=len(corpus.vocabulary) if corpus.vocabulary is not None else len(collected.counts),
            features_per_row=X.nnz / X.shape[0],
            labels_per_row=sum(collected.counts.values()) / collected.n_rows,
        )
        return cls(sizes, X, collected.label_matrix(), seconds / share, float(collected.n_bytes))

    def draw_labels(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw labels uniformly from those that have rows, and return them in ascending order."""
        with_rows = np.flatnonzero(np.bincount(self.Y.indices, minlength=self.Y.shape[1]))
        return np.sort(rng.choice(with_rows, min(count, with_rows.size), replace=False))

    def take(self, rows: NDArray[np.int64]) -> Features:
        """Return the features of the given rows, which must be in ascending order."""
        return validation.check_features(self.X[rows])

    def labels_of(self, rows: NDArray[np.int64], labels: NDArray[np.int64]) -> Csr:
        """Return the label matrix of the given rows, with one column per given label."""
        return select_columns(self.Y, labels, rows)


def select_columns(Y: Any, labels: NDArray[np.int64], rows: NDArray[np.int64] | None = None) -> Csr:
    """Return the columns of the given labels, which must be in ascending order, for the given rows (default: all rows).

    All values of the result are 1.
    """
    selected = sp.csr_array(Y if rows is None else Y[rows])
    column = np.full(Y.shape[1], -1, np.int64)
    column[labels] = np.arange(labels.size)
    columns = column[selected.indices]
    kept = columns >= 0
    counts = np.concatenate([[0], np.cumsum(kept)])[selected.indptr]
    return Csr.of(
        counts.astype(np.int64), columns[kept].astype(np.int32), np.ones(int(kept.sum()), np.float32), labels.size
    )


class _LabelSample:
    """A sample that consists of all texts of the labels with the lowest hash values.

    When there are too many texts, the labels with the highest hash values are removed from the sample, so a single pass
    over the data is enough.
    """

    def __init__(self, max_texts: int) -> None:
        self._max_texts = max_texts
        self._limit = 1 << 32
        self.examples: list[Example] = []
        self.counts: Counter[str] = Counter()
        self.n_rows = self.n_labeled = self.n_bytes = 0

    def add(self, example: Example) -> None:
        """Count an example, and add it to the sample if it has a sampled label."""
        self.n_rows += 1
        self.n_labeled += bool(example.labels)
        self.n_bytes += _n_bytes(example.text)
        self.counts.update(example.labels)
        if self._is_kept(example.labels):
            self.examples.append(example)
            while len(self.examples) > self._max_texts and self._limit > 1:
                self._limit //= 2
                kept = [other for other in self.examples if self._is_kept(other.labels)]
                if not kept:  # a single label exceeds the limit on its own
                    kept = self.examples[: self._max_texts // 2]
                self.examples = kept

    def _is_kept(self, labels: Iterable[str]) -> bool:
        return any(zlib.crc32(label.encode()) < self._limit for label in labels)

    def label_matrix(self) -> Any:
        """Return the label matrix of the sampled texts, with one column per sampled label."""
        columns: dict[str, int] = {}
        indices: list[int] = []
        ends = [0]
        for example in self.examples:
            own = [label for label in dict.fromkeys(example.labels) if self._is_kept([label])]
            indices += sorted(columns.setdefault(label, len(columns)) for label in own)
            ends.append(len(indices))
        values = np.ones(len(indices), np.float32)
        return sp.csr_array((values, np.array(indices, np.int32), np.array(ends)), shape=(len(ends) - 1, len(columns)))


def _n_bytes(text: str) -> int:
    return len(text)  # an approximation, which is exact for ASCII texts


def _extrapolate_features(X: Any, rows: int) -> int:
    """Estimate the number of features in all rows by Heaps' law: a power function of the number of rows."""
    if rows <= X.shape[0]:
        return int(X.shape[1])
    half = X[: X.shape[0] // 2]
    used, used_half = (max(np.unique(part.indices).size, 1) for part in (X, half))
    exponent = min(max(np.log2(used / used_half), 0.0), 1.0)
    return int(X.shape[1] * (rows / X.shape[0]) ** exponent)
