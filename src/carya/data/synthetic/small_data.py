"""Generate small data sets in memory, with known topics and known indicative words for each label.

Every label belongs to a topic. A row has a few labels, mostly from one topic. The words of a row are drawn from the
words of its labels, from the words of their topic, and at random. Label frequencies follow a power law, as in real
data: a few labels are common, most are rare.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from carya.core.rules import Integer, check
from carya.data.synthetic.words import pseudoword

_WORDS_PER_LABEL = 12
_WORDS_PER_TOPIC = 40


@dataclass(frozen=True, eq=False)
class SyntheticData:
    """A generated data set and its underlying structure.

    Attributes
    ----------
    X : csr_array, rows x words
        TF-IDF features; every row has Euclidean norm 1.
    Y : csr_array, rows x labels
    topics : ndarray of int, shape (labels,)
        The topic of each label; a label tree should recover these topics.
    label_words : ndarray of int, shape (labels, 12)
        The words that indicate each label.

    Examples
    --------
    >>> data = generate_data(100, 20, seed=7)
    >>> data.label_words.shape
    (20, 12)
    >>> data.label_name(0).startswith("topic 0 · ")
    True
    """

    X: sp.csr_array
    Y: sp.csr_array
    topics: NDArray[np.int64]
    label_words: NDArray[np.int64]

    def word(self, column: int) -> str:
        """Return the pronounceable pseudoword for a feature."""
        return pseudoword(column)

    def label_name(self, label: int) -> str:
        """Return a name for a label: its topic and the first word that indicates the label."""
        return f"topic {self.topics[label]} · {self.word(self.label_words[label][0])}"


def make_world(
    n_rows: int = 2000,
    n_labels: int = 200,
    *,
    n_features: int | None = None,
    labels_per_row: float = 3.0,
    features_per_row: int = 40,
    seed: int = 0,
) -> tuple[sp.csr_array, sp.csr_array]:
    """Return the features and labels of a generated data set; see :func:`generate_data` for the parameters.

    >>> X, Y = make_world(100, 20, seed=7)
    >>> X.shape[0], Y.shape
    (100, (100, 20))
    """
    data = generate_data(
        n_rows,
        n_labels,
        n_features=n_features,
        labels_per_row=labels_per_row,
        features_per_row=features_per_row,
        seed=seed,
    )
    return data.X, data.Y


def generate_data(
    n_rows: int,
    n_labels: int,
    *,
    n_features: int | None = None,
    labels_per_row: float = 3.0,
    features_per_row: int = 40,
    seed: int = 0,
) -> SyntheticData:
    """Generate a data set, its topics and the words that indicate its labels; the same seed gives the same data.

    Parameters
    ----------
    n_rows, n_labels : int
    n_features : int, optional
        The number of distinct words; by default, it grows with the number of labels.
    labels_per_row : float
        The mean number of labels per row; every row has at least one.
    features_per_row : int
        The number of words drawn per row, including repeated ones.
    seed : int

    Examples
    --------
    >>> generate_data(100, 20, labels_per_row=2.0, seed=7).Y.shape
    (100, 20)
    """
    given = {"n_rows": n_rows, "n_labels": n_labels, "features_per_row": features_per_row, "n_features": n_features}
    for name, value in given.items():
        if value is not None:
            check(name, value, Integer(1))
    rng = np.random.default_rng(seed)
    n_topics = max(1, round(np.sqrt(n_labels) / 2))
    n_words = n_features or 50 * n_topics + 6 * n_labels + 500
    topics = np.sort(rng.integers(0, n_topics, n_labels))
    label_words = rng.integers(0, n_words, (n_labels, _WORDS_PER_LABEL))
    topic_words = rng.integers(0, n_words, (n_topics, _WORDS_PER_TOPIC))
    main_label, Y = _draw_labels(rng, n_rows, topics, n_topics, labels_per_row)

    # Half of the words indicate labels of the row, and a quarter indicate its topic; the rest are mostly common words.
    size = (n_rows, features_per_row)
    entry = Y.indptr[:-1, None] + (rng.random(size) * np.diff(Y.indptr)[:, None]).astype(np.int64)
    from_label = label_words[Y.indices[entry], rng.integers(0, _WORDS_PER_LABEL, size)]
    from_topic = topic_words[topics[main_label][:, None], rng.integers(0, _WORDS_PER_TOPIC, size)]
    noise = (n_words ** rng.random(size)).astype(np.int64) % n_words
    kind = rng.random(size)
    words = np.where(kind < 0.5, from_label, np.where(kind < 0.75, from_topic, noise))
    counts = sp.csr_array(
        (np.ones(words.size, np.float32), words.ravel(), np.arange(0, words.size + 1, features_per_row)),
        shape=(n_rows, n_words),
    )
    counts.sum_duplicates()
    return SyntheticData(_tf_idf(counts), Y, topics, label_words)


def _draw_labels(
    rng: np.random.Generator, n_rows: int, topics: NDArray[np.int64], n_topics: int, labels_per_row: float
) -> tuple[NDArray[np.int64], sp.csr_array]:
    """Return the main label of each row, and all labels as a matrix of shape (rows, labels)."""
    n_labels = topics.size
    frequency = 1.0 / np.arange(3, n_labels + 3)
    by_frequency = rng.permutation(n_labels)
    main_label = by_frequency[rng.choice(n_labels, n_rows, p=frequency / frequency.sum())]
    topic_starts = np.searchsorted(topics, np.arange(n_topics + 1))
    rows, labels = [np.arange(n_rows)], [main_label]
    n_further = rng.poisson(max(labels_per_row - 1, 0), n_rows)
    for drawn in range(int(n_further.max(initial=0))):
        remaining = np.flatnonzero(n_further > drawn)
        topic = topics[main_label[remaining]]
        topic_size = topic_starts[topic + 1] - topic_starts[topic]
        same_topic = topic_starts[topic] + (rng.random(remaining.size) * topic_size).astype(np.int64)
        any_topic = by_frequency[rng.choice(n_labels, remaining.size, p=frequency / frequency.sum())]
        rows.append(remaining)
        labels.append(np.where(rng.random(remaining.size) < 0.8, same_topic, any_topic))
    row, label = np.concatenate(rows), np.concatenate(labels)
    Y = sp.csr_array((np.ones(row.size, np.float32), (row, label)), shape=(n_rows, n_labels))
    Y.sum_duplicates()
    Y.data[:] = 1
    return main_label, Y


def _tf_idf(counts: sp.csr_array) -> sp.csr_array:
    """Convert word counts to L2-normalized TF-IDF weights with sublinear term frequency, in place."""
    n_rows, n_words = counts.shape
    document_frequency = np.bincount(counts.indices, minlength=n_words)
    idf = np.log((1 + n_rows) / (1 + document_frequency)) + 1
    counts.data = ((1 + np.log(counts.data)) * idf[counts.indices]).astype(np.float32)
    norm = np.sqrt(np.add.reduceat(counts.data.astype(np.float64) ** 2, counts.indptr[:-1]))
    counts.data /= np.repeat(norm, np.diff(counts.indptr)).astype(np.float32)
    return counts
