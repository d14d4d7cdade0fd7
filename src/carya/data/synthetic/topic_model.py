"""Generated worlds of any size, made by blocks of rows.

Labels stand on the line from 0 to 1, each on a stretch as long as it is common. Topics divide that line in sixteenths,
and those in sixteenths again: a common label is a broad topic, rare labels share a narrow one. A row has a point on the
line; its labels are drawn from there and from the topics around it, so every label occurs as often as its stretch is
long, and labels that occur together are close. Words are drawn for the labels of the row, for their topics, and for
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

_Array = NDArray[np.int64]

_PARTS = ("train", "test")
_BRANCHING = 16
_OWN_WORDS = 24
_TOPIC_WORDS = 64
_TOKENS = 1 << 21  # drawn at a time
_PILOT_ROWS = 4096
_STEPS = 6
_GOLDEN = 0.6180339887498949  # multiples of it fill the line evenly, however many there are
_NEAR = (0.6, 0.25, 0.1, 0.05)  # how often a further label is from the narrowest topic, the next, ...
_SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


class TopicWorld:
    """Rows, features and labels with a topic hierarchy and a power law, the same for the same seed.

    Parameters
    ----------
    n_train, n_test, n_features, n_labels : int
    labels_per_row, features_per_row : float
        On average; met within a few percent.
    exponent, head : float
        The label of rank r occurs in proportion to ``(r + head) ** -exponent``.
    signal : float
        The share of words that speak for a label of the row.
    seed : int

    Examples
    --------
    >>> world = TopicWorld(1000, 100, 5000, 300, labels_per_row=3, features_per_row=30)
    >>> [X.shape for X, Y in world.blocks("test")]
    [(100, 5000)]
    >>> world.label_name(0)
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
        head: float = 3.0,
        signal: float = 0.25,
        seed: int = 0,
    ) -> None:
        self.n_features, self.n_labels = n_features, n_labels
        self._rows = dict(zip(_PARTS, (n_train, n_test), strict=True))
        self._signal, self._seed = signal, seed
        rng = np.random.default_rng([seed, 2])
        frequency = (np.arange(1, n_labels + 1) + head) ** -exponent
        ends = np.cumsum(rng.permutation(frequency))
        self._ends = ends / ends[-1]
        depth = max(1, round(np.log(max(n_labels / 32, 2)) / np.log(_BRANCHING)))
        self._topics = _BRANCHING ** np.arange(depth, -1, -1)  # how many there are, narrowest first
        self._key = rng.integers(1, 2**63, 2, dtype=np.uint64)

        pilot = self._points(0, min(_PILOT_ROWS, n_train))
        again = np.random.default_rng  # the same draws for every mean that is tried
        self._further = _solve(
            labels_per_row - 1, lambda mean: self._labels(pilot, mean, again([seed, 3])).nnz, pilot.size, least=1
        )
        Y = self._labels(pilot, self._further, again([seed, 3]))
        few = Y[: min(512, pilot.size)]
        self._words = _solve(
            features_per_row, lambda mean: self._counts(few, mean, again([seed, 4])).nnz, few.shape[0], least=0
        )
        documents = np.zeros(n_features)
        step = self._block_rows
        for at in range(0, pilot.size, step):
            found = self._counts(Y[at : at + step], self._words, again([seed, 5, at]))
            documents += np.bincount(found.indices, minlength=n_features)
        self._idf = (np.log((1 + pilot.size) / (1 + documents)) + 1).astype(np.float32)

    def n_rows(self, part: str) -> int:
        """The rows of ``"train"`` or ``"test"``."""
        return self._rows[part]

    def blocks(self, part: str) -> Iterator[tuple[sp.csr_array, sp.csr_array]]:
        """Features (TF-IDF, rows of length 1) and labels of ``"train"`` or ``"test"``, some thousand rows at a time."""
        for counts, Y in self.counted(part):
            X = counts
            X.data = (1 + np.log(X.data)) * self._idf[X.indices]
            squares = np.add.reduceat(X.data.astype(np.float64) ** 2, X.indptr[:-1])
            X.data = (X.data / np.repeat(np.sqrt(squares), np.diff(X.indptr))).astype(np.float32)
            yield X, Y

    def counted(self, part: str) -> Iterator[tuple[sp.csr_array, sp.csr_array]]:
        """How often each word is in each row, and labels."""
        rows, before = self._rows[part], 0 if part == "train" else self._rows["train"]
        for at in range(0, rows, self._block_rows):
            rng = np.random.default_rng([self._seed, _PARTS.index(part), at])
            Y = self._labels(self._points(before + at, min(self._block_rows, rows - at)), self._further, rng)
            yield self._counts(Y, self._words, rng), Y

    def matrices(self, part: str) -> tuple[sp.csr_array, sp.csr_array]:
        """All features and labels of a part."""
        X, Y = zip(*self.blocks(part), strict=True)
        return sp.vstack(X, format="csr"), sp.vstack(Y, format="csr")

    def word(self, column: int) -> str:
        """A pronounceable name for a word."""
        number, out = column + len(_SYLLABLES), ""
        while number:
            number, digit = divmod(number, len(_SYLLABLES))
            out += _SYLLABLES[digit]
        return out

    def label_name(self, label: int) -> str:
        """A name for a label: its narrowest topic, and its own first word and number."""
        topic = int(self._topic(np.array([label]), self._topics[0])[0])
        return f"topic {topic} · {self.word(int(self._hashed(np.array([label]), np.array([0]), 0)[0]))} {label}"

    @property
    def _block_rows(self) -> int:
        return max(64, int(_TOKENS / max(self._words, 1)))

    def _points(self, first: int, rows: int) -> NDArray[np.float64]:
        points: NDArray[np.float64] = np.mod((first + 1 + np.arange(rows)) * _GOLDEN, 1.0)
        return points

    def _topic(self, labels: _Array, topics: _Array | np.int64) -> _Array:
        """Of so many topics, the one that each label stands in."""
        middle = (self._ends[labels] + np.where(labels > 0, self._ends[labels - 1], 0.0)) / 2
        topic: _Array = (middle * topics).astype(np.int64)
        return topic

    def _labels(self, points: NDArray[np.float64], further: float, rng: np.random.Generator) -> sp.csr_array:
        rows = np.repeat(np.arange(points.size), rng.poisson(further, points.size))
        level = np.searchsorted(np.cumsum(_NEAR[:-1]), rng.random(rows.size), side="right")
        topics = self._topics[np.minimum(level, self._topics.size - 1)]
        around = (np.floor(points[rows] * topics) + rng.random(rows.size)) / topics
        labels = np.searchsorted(self._ends, np.concatenate([points, around]), side="right")
        labels = np.minimum(labels, self.n_labels - 1)
        return _counted(np.concatenate([np.arange(points.size), rows]), labels, (points.size, self.n_labels), once=True)

    def _counts(self, Y: sp.csr_array, words: float, rng: np.random.Generator) -> sp.csr_array:
        rows = np.repeat(np.arange(Y.shape[0]), 1 + rng.poisson(words, Y.shape[0]))
        label = Y.indices[Y.indptr[rows] + (rng.random(rows.size) * np.diff(Y.indptr)[rows]).astype(np.int64)]
        label = label.astype(np.int64)
        kind, uniform = rng.random(rows.size), rng.random(rows.size)
        out = (uniform * self.n_features).astype(np.int64)  # words that mean nothing: half rare ones, ...
        topical = self._signal + 0.25
        common = kind > (1 + topical) / 2  # ... half common ones
        out[common] = (self.n_features ** uniform[common]).astype(np.int64) % self.n_features
        own = kind < self._signal
        out[own] = self._hashed(label[own], (uniform[own] ** 2 * _OWN_WORDS).astype(np.int64), 0)
        broad = (kind >= self._signal) & (kind < topical)
        level = rng.integers(0, self._topics.size, int(broad.sum()))
        topic = self._topic(label[broad], self._topics[level])
        out[broad] = self._hashed(topic, (uniform[broad] ** 2 * _TOPIC_WORDS).astype(np.int64), 1 + level)
        return _counted(rows, out, (Y.shape[0], self.n_features))

    def _hashed(self, of: _Array, number: _Array, level: _Array | int) -> _Array:
        """The word of that number of labels (level 0) or topics, without a table: a mixed-up product."""
        x = of.astype(np.uint64) * np.uint64(2048) + number.astype(np.uint64) * np.uint64(8)
        x = (x + np.asarray(level, np.uint64)) * np.uint64(0x9E3779B97F4A7C15) + self._key[0]
        x ^= x >> np.uint64(30)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        x ^= (x >> np.uint64(27)) ^ self._key[1]
        x *= np.uint64(0x94D049BB133111EB)
        word: _Array = ((x >> np.uint64(32)) * np.uint64(self.n_features) >> np.uint64(32)).astype(np.int64)
        return word


def _counted(rows: _Array, columns: _Array, shape: tuple[int, int], *, once: bool = False) -> sp.csr_array:
    """The matrix of how often each pair occurs, or of ones."""
    keys = rows * shape[1] + columns
    keys.sort()
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    row, column = np.divmod(keys[first], shape[1])
    values = np.ones(first.size, np.float32) if once else np.diff(first, append=keys.size).astype(np.float32)
    indptr = np.searchsorted(row, np.arange(shape[0] + 1))
    return sp.csr_array((values, column.astype(np.int32), indptr), shape=shape)


def _solve(target: float, entries: Callable[[float], int], rows: int, least: int) -> float:
    """What mean to draw with so that the mean of different ones, above ``least``, is as wanted."""
    mean = target
    for _ in range(_STEPS):
        got = entries(mean) / rows - least
        mean *= min(max(target / max(got, 1e-9), 0.5), 2.0)
    return mean
