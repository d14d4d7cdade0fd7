"""Generated worlds: texts about topics, with labels whose words are known.

Labels belong to topics. A row has a few labels, mostly of one topic, and words of those labels, of their topic, and of
no meaning. A few labels are common and most are rare, as in real data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

_SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
_OWN_WORDS = 12
_TOPIC_WORDS = 40


@dataclass(frozen=True, eq=False)
class World:
    """A generated data set.

    Attributes
    ----------
    X : csr_array, rows x words, TF-IDF with rows of length 1
    Y : csr_array, rows x labels
    topics : ndarray of int, shape (labels,)
        The topic of each label: the tree that indexing should find.
    label_words : ndarray of int, shape (labels, 12)
        The words that speak for each label.

    Examples
    --------
    >>> world = generate(100, 20, seed=7)
    >>> world.label_words.shape
    (20, 12)
    >>> world.label_name(0).startswith("topic 0 · ")
    True
    """

    X: sp.csr_array
    Y: sp.csr_array
    topics: NDArray[np.int64]
    label_words: NDArray[np.int64]

    def word(self, column: int) -> str:
        """A pronounceable name for a word."""
        base = len(_SYLLABLES)
        out = ""
        number = int(column) + base
        while number:
            number, digit = divmod(number, base)
            out += _SYLLABLES[digit]
        return out

    def label_name(self, label: int) -> str:
        """A name for a label: its topic and its own first word."""
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
    """Features and labels of a generated world.

    >>> X, Y = make_world(100, 20, seed=7)
    >>> X.shape[0], Y.shape
    (100, (100, 20))
    """
    world = generate(
        n_rows,
        n_labels,
        n_features=n_features,
        labels_per_row=labels_per_row,
        features_per_row=features_per_row,
        seed=seed,
    )
    return world.X, world.Y


def generate(
    n_rows: int,
    n_labels: int,
    *,
    n_features: int | None = None,
    labels_per_row: float = 3.0,
    features_per_row: int = 40,
    seed: int = 0,
) -> World:
    """A generated world with its topics and the words of its labels.

    Parameters
    ----------
    n_features : int, optional
        The number of words; by default as many as the labels need.
    labels_per_row : float
        On average; every row has at least one.
    features_per_row : int
        Words drawn for a row; some are the same.

    Examples
    --------
    >>> generate(100, 20, labels_per_row=2.0, seed=7).Y.shape
    (100, 20)
    """
    rng = np.random.default_rng(seed)
    n_topics = max(1, round(np.sqrt(n_labels) / 2))
    vocabulary = n_features or 50 * n_topics + 6 * n_labels + 500
    topics = np.sort(rng.integers(0, n_topics, n_labels))
    label_words = rng.integers(0, vocabulary, (n_labels, _OWN_WORDS))
    topic_words = rng.integers(0, vocabulary, (n_topics, _TOPIC_WORDS))

    frequency = 1.0 / np.arange(3, n_labels + 3)
    popular = rng.permutation(n_labels)
    first = popular[rng.choice(n_labels, n_rows, p=frequency / frequency.sum())]
    starts = np.searchsorted(topics, np.arange(n_topics + 1))
    rows, labels = [np.arange(n_rows)], [first]
    more = rng.poisson(max(labels_per_row - 1, 0), n_rows)
    for turn in range(int(more.max(initial=0))):
        has = np.flatnonzero(more > turn)
        topic = topics[first[has]]
        near = starts[topic] + (rng.random(has.size) * (starts[topic + 1] - starts[topic])).astype(np.int64)
        far = popular[rng.choice(n_labels, has.size, p=frequency / frequency.sum())]
        rows.append(has)
        labels.append(np.where(rng.random(has.size) < 0.8, near, far))
    row, label = np.concatenate(rows), np.concatenate(labels)
    Y = sp.csr_array((np.ones(row.size, np.float32), (row, label)), shape=(n_rows, n_labels))
    Y.sum_duplicates()
    Y.data[:] = 1

    # Words: half from the labels of the row, a quarter from its topic, a quarter from anywhere, common words first.
    size = (n_rows, features_per_row)
    pick = Y.indptr[:-1, None] + (rng.random(size) * np.diff(Y.indptr)[:, None]).astype(np.int64)
    own = label_words[Y.indices[pick], rng.integers(0, _OWN_WORDS, size)]
    of_topic = topic_words[topics[first][:, None], rng.integers(0, _TOPIC_WORDS, size)]
    anywhere = (vocabulary ** rng.random(size)).astype(np.int64) % vocabulary
    kind = rng.random(size)
    words = np.where(kind < 0.5, own, np.where(kind < 0.75, of_topic, anywhere))
    counts = sp.csr_array(
        (np.ones(words.size, np.float32), words.ravel(), np.arange(0, words.size + 1, features_per_row)),
        shape=(n_rows, vocabulary),
    )
    counts.sum_duplicates()
    documents = np.bincount(counts.indices, minlength=vocabulary)
    idf = np.log((1 + n_rows) / (1 + documents)) + 1
    counts.data = ((1 + np.log(counts.data)) * idf[counts.indices]).astype(np.float32)
    length = np.sqrt(np.add.reduceat(counts.data.astype(np.float64) ** 2, counts.indptr[:-1]))
    counts.data /= np.repeat(length, np.diff(counts.indptr)).astype(np.float32)
    return World(counts, Y, topics, label_words)
