"""A generative topic model that draws data sets of any size in blocks of rows.

Each label is assigned an interval within [0, 1], the length of which is proportional to the label's target frequency.
Topics recursively divide [0, 1] into sixteenths, so that a common label covers a broad topic, and rare labels share a
narrow one. Each row is a point in [0, 1]: its first label is the one whose interval contains the point, and additional
labels are drawn from the topics that contain the point. The actual frequency of a label is therefore also proportional
to the length of its interval, and labels that occur together have nearby intervals. The words of a row are drawn from
the words of its labels, from the words of their topics, and at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from carya.data.synthetic.words import pseudoword

_IntArray = NDArray[np.int64]

_PARTS = ("train", "test")
_BRANCHING = 16
_WORDS_PER_LABEL = 24
_WORDS_PER_TOPIC = 64
_BLOCK_WORDS = 1 << 21  # words drawn per block of rows
_PILOT_ROWS = 4096  # rows drawn to calibrate the means
_CALIBRATION_STEPS = 6
_GOLDEN_RATIO = 0.6180339887498949  # the fractional parts of its multiples fill [0, 1] evenly
_TOPIC_PROBABILITIES = (0.6, 0.25, 0.1, 0.05)  # for additional labels; one per level, narrowest topics first


class TopicModel:
    """Generator of rows with a topic hierarchy and power-law label frequencies; the same seed gives the same data.

    Parameters
    ----------
    n_train, n_test, n_features, n_labels : int
    labels_per_row, features_per_row : float
        Mean numbers of distinct labels and features per row, accurate to within a few percent.
    exponent, offset : float
        The frequency of the label of rank r is proportional to ``(r + offset) ** -exponent``.
    signal : float
        The share of words that indicate a label of the row.
    seed : int

    Examples
    --------
    >>> model = TopicModel(1000, 100, 5000, 300, labels_per_row=3, features_per_row=30)
    >>> [X.shape for X, Y in model.blocks("test")]
    [(100, 5000)]
    >>> model.label_name(0)
    'topic 0 · vuno 0'
    """

    def __init__(
        self,
        n_train: int,
        n_test: int,
        n_features: int,
        n_labels: int,
        *,
        labels_per_row: float,
        features_per_row: float,
        exponent: float = 1.0,
        offset: float = 3.0,
        signal: float = 0.25,
        seed: int = 0,
    ) -> None:
        self.n_features, self.n_labels = n_features, n_labels
        self._n_rows = dict(zip(_PARTS, (n_train, n_test), strict=True))
        self._signal, self._seed = signal, seed
        rng = np.random.default_rng([seed, 2])
        frequency = (np.arange(1, n_labels + 1) + offset) ** -exponent
        interval_ends = np.cumsum(rng.permutation(frequency))
        self._interval_ends = interval_ends / interval_ends[-1]
        depth = max(1, round(np.log(max(n_labels / 32, 2)) / np.log(_BRANCHING)))
        self._topic_counts = _BRANCHING ** np.arange(depth, -1, -1)  # topics per level, narrowest first
        self._hash_key = rng.integers(1, 2**63, 2, dtype=np.uint64)
        self._calibrate(min(_PILOT_ROWS, n_train), labels_per_row, features_per_row)

    def n_rows(self, part: str) -> int:
        """Return the number of rows in a split, ``"train"`` or ``"test"``."""
        return self._n_rows[part]

    def blocks(self, part: str) -> Iterator[tuple[sp.csr_array, sp.csr_array]]:
        """Yield the features and labels of a split, a few thousand rows at a time.

        Features are TF-IDF weights; every row has Euclidean norm 1.
        """
        for X, Y in self.count_blocks(part):
            X.data = (1 + np.log(X.data)) * self._idf[X.indices]
            squared_norms = np.add.reduceat(X.data.astype(np.float64) ** 2, X.indptr[:-1])
            X.data = (X.data / np.repeat(np.sqrt(squared_norms), np.diff(X.indptr))).astype(np.float32)
            yield X, Y

    def count_blocks(self, part: str) -> Iterator[tuple[sp.csr_array, sp.csr_array]]:
        """Yield the word counts and labels of a split, a few thousand rows at a time."""
        n_rows, offset = self._n_rows[part], 0 if part == "train" else self._n_rows["train"]
        for start in range(0, n_rows, self._block_rows):
            rng = np.random.default_rng([self._seed, _PARTS.index(part), start])
            points = self._points(offset + start, min(self._block_rows, n_rows - start))
            Y = self._draw_labels(points, self._mean_further_labels, rng)
            yield self._draw_words(Y, self._mean_words, rng), Y

    def matrices(self, part: str) -> tuple[sp.csr_array, sp.csr_array]:
        """Return all features and labels of a split."""
        X, Y = zip(*self.blocks(part), strict=True)
        return sp.vstack(X, format="csr"), sp.vstack(Y, format="csr")

    def word(self, column: int) -> str:
        """Return the pronounceable pseudoword for a feature."""
        return pseudoword(column)

    def label_name(self, label: int) -> str:
        """Return a name for a label: its narrowest topic, the first of its words, and its index."""
        topic = int(self._topics_of(np.array([label]), self._topic_counts[0])[0])
        return f"topic {topic} · {self.word(int(self._hash_word(np.array([label]), np.array([0]), 0)[0]))} {label}"

    def _calibrate(self, n_rows: int, labels_per_row: float, features_per_row: float) -> None:
        """Estimate the Poisson means and the IDF weights from pilot rows."""
        new_rng = np.random.default_rng  # reseeded, so that all candidate means use the same draws
        points = self._points(0, n_rows)
        self._mean_further_labels = _solve_mean(
            labels_per_row - 1,
            lambda mean: self._draw_labels(points, mean, new_rng([self._seed, 3])).nnz / points.size - 1,
        )
        Y = self._draw_labels(points, self._mean_further_labels, new_rng([self._seed, 3]))
        sample = Y[: min(512, points.size)]
        self._mean_words = _solve_mean(
            features_per_row,
            lambda mean: self._draw_words(sample, mean, new_rng([self._seed, 4])).nnz / sample.shape[0],
        )
        document_frequency = np.zeros(self.n_features)
        for start in range(0, points.size, self._block_rows):
            counts = self._draw_words(
                Y[start : start + self._block_rows], self._mean_words, new_rng([self._seed, 5, start])
            )
            document_frequency += np.bincount(counts.indices, minlength=self.n_features)
        self._idf = (np.log((1 + points.size) / (1 + document_frequency)) + 1).astype(np.float32)

    @property
    def _block_rows(self) -> int:
        return max(64, int(_BLOCK_WORDS / max(self._mean_words, 1)))

    def _points(self, first: int, n_rows: int) -> NDArray[np.float64]:
        """Return the points in [0, 1] that represent the rows."""
        points: NDArray[np.float64] = np.mod((first + 1 + np.arange(n_rows)) * _GOLDEN_RATIO, 1.0)
        return points

    def _topics_of(self, labels: _IntArray, n_topics: _IntArray | np.int64) -> _IntArray:
        """Return the topic of each label at the level with `n_topics` topics."""
        begins = np.where(labels > 0, self._interval_ends[labels - 1], 0.0)
        topics: _IntArray = ((self._interval_ends[labels] + begins) / 2 * n_topics).astype(np.int64)
        return topics

    def _draw_labels(self, points: NDArray[np.float64], mean_further: float, rng: np.random.Generator) -> sp.csr_array:
        """Draw the label at each point and additional labels from the surrounding topics."""
        rows = np.repeat(np.arange(points.size), rng.poisson(mean_further, points.size))
        level = np.searchsorted(np.cumsum(_TOPIC_PROBABILITIES[:-1]), rng.random(rows.size), side="right")
        n_topics = self._topic_counts[np.minimum(level, self._topic_counts.size - 1)]
        nearby = (np.floor(points[rows] * n_topics) + rng.random(rows.size)) / n_topics
        labels = np.searchsorted(self._interval_ends, np.concatenate([points, nearby]), side="right")
        labels = np.minimum(labels, self.n_labels - 1)
        shape = (points.size, self.n_labels)
        return _count_pairs(np.concatenate([np.arange(points.size), rows]), labels, shape, binary=True)

    def _draw_words(self, Y: sp.csr_array, mean_words: float, rng: np.random.Generator) -> sp.csr_array:
        """Draw words for rows with these labels; return the word counts per row."""
        rows = np.repeat(np.arange(Y.shape[0]), 1 + rng.poisson(mean_words, Y.shape[0]))
        entries = Y.indptr[rows] + (rng.random(rows.size) * np.diff(Y.indptr)[rows]).astype(np.int64)
        labels = Y.indices[entries].astype(np.int64)
        kind, uniform = rng.random(rows.size), rng.random(rows.size)
        words = (uniform * self.n_features).astype(np.int64)  # noise: half of these words are drawn uniformly
        topic_share = self._signal + 0.25
        is_common = kind > (1 + topic_share) / 2  # the other half of the noise: mostly common words
        words[is_common] = (self.n_features ** uniform[is_common]).astype(np.int64) % self.n_features
        of_label = kind < self._signal
        number = (uniform[of_label] ** 2 * _WORDS_PER_LABEL).astype(np.int64)
        words[of_label] = self._hash_word(labels[of_label], number, 0)
        of_topic = (kind >= self._signal) & (kind < topic_share)
        level = rng.integers(0, self._topic_counts.size, int(of_topic.sum()))
        topics = self._topics_of(labels[of_topic], self._topic_counts[level])
        number = (uniform[of_topic] ** 2 * _WORDS_PER_TOPIC).astype(np.int64)
        words[of_topic] = self._hash_word(topics, number, 1 + level)
        return _count_pairs(rows, words, (Y.shape[0], self.n_features))

    def _hash_word(self, owners: _IntArray, number: _IntArray, level: _IntArray | int) -> _IntArray:
        """Return word `number` of each owner, a label (level 0) or a topic; words are computed from a hash
        (SplitMix64).
        """
        x = owners.astype(np.uint64) * np.uint64(2048) + number.astype(np.uint64) * np.uint64(8)
        x = (x + np.asarray(level, np.uint64)) * np.uint64(0x9E3779B97F4A7C15) + self._hash_key[0]
        x ^= x >> np.uint64(30)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        x ^= (x >> np.uint64(27)) ^ self._hash_key[1]
        x *= np.uint64(0x94D049BB133111EB)
        word: _IntArray = ((x >> np.uint64(32)) * np.uint64(self.n_features) >> np.uint64(32)).astype(np.int64)
        return word


def _count_pairs(rows: _IntArray, columns: _IntArray, shape: tuple[int, int], *, binary: bool = False) -> sp.csr_array:
    """Return a matrix with the number of occurrences of each (row, column) pair or, if `binary`, with ones."""
    keys = rows * shape[1] + columns
    keys.sort()
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    row, column = np.divmod(keys[first], shape[1])
    values = np.ones(first.size, np.float32) if binary else np.diff(first, append=keys.size).astype(np.float32)
    indptr = np.searchsorted(row, np.arange(shape[0] + 1))
    return sp.csr_array((values, column.astype(np.int32), indptr), shape=shape)


def _solve_mean(target: float, distinct: Callable[[float], float]) -> float:
    """Return the Poisson mean for which the expected number of distinct values equals the target."""
    mean = target
    for _ in range(_CALIBRATION_STEPS):
        mean *= min(max(target / max(distinct(mean), 1e-9), 0.5), 2.0)
    return mean
