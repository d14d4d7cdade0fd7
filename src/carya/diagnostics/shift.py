"""Differences in labels, words and terms between training data and new data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.text.tfidf import Tfidf

_MIN_COUNT = 5  # labels and terms whose observed and expected counts are both lower are not listed


@dataclass(frozen=True)
class Change:
    """A label or term whose frequency has changed.

    Attributes
    ----------
    name : str
    count : int
        The number of new rows that contain the label or term.
    expected : float
        The number of rows expected given the frequency in the training data.
    z : float
        The difference between `count` and `expected`, in standard deviations of a Poisson distribution.
    """

    name: str
    count: int
    expected: float
    z: float


@dataclass(frozen=True)
class LabelShift:
    """Differences between the label frequencies in training and new data.

    Attributes
    ----------
    distance : float
        The total variation distance between the two distributions: from 0 (identical) to 1 (disjoint).
    expected_distance : float
        The distance expected by chance between samples of these sizes from the same distribution.
    unknown_share : float
        The fraction of the label assignments in the new rows whose label does not occur in the training data.
    unknown : list of (str, int)
        The most frequent labels that do not occur in the training data.
    more, less : list of Change
        The labels with the largest increases and decreases in frequency.
    """

    distance: float
    expected_distance: float
    unknown_share: float
    unknown: list[tuple[str, int]]
    more: list[Change]
    less: list[Change]


@dataclass(frozen=True)
class VocabularyShift:
    """Vocabulary differences between the training texts and new texts.

    Attributes
    ----------
    unknown_share : float
        The fraction of the words in the new texts that are unknown to the vectorizer.
    unknown : list of (str, int)
        The most frequent unknown words, with their numbers of occurrences.
    texts_without_terms : int
        The number of texts without any known term.
    n_texts : int
    more, less : list of Change
        The terms with the largest increases and decreases in document frequency; empty if their document frequencies
        in the training texts are unknown.
    """

    unknown_share: float
    unknown: list[tuple[str, int]]
    texts_without_terms: int
    n_texts: int
    more: list[Change] = field(default_factory=list)
    less: list[Change] = field(default_factory=list)


def label_shift(
    new: NDArray[np.int64],
    training: NDArray[np.int64],
    n_training_rows: int,
    n_rows: int,
    names: Sequence[str],
    *,
    top: int = 20,
) -> LabelShift:
    """Compare the label frequencies of new data and training data.

    Parameters
    ----------
    new, training : ndarray of int64
        The number of rows per label in each data set.
    n_training_rows, n_rows : int
    names : sequence of str
    """
    total, training_total = max(1, int(new.sum())), max(1, int(training.sum()))
    distance = float(np.abs(new / total - training / training_total).sum() / 2)
    # The mean absolute deviation of a Poisson variable is about sqrt(2 / pi) times its standard deviation.
    noise = np.sqrt(2 / np.pi) * np.sqrt(training / training_total * (1 / total + 1 / training_total))
    unknown = np.flatnonzero((training == 0) & (new > 0))
    order = sorted(unknown.tolist(), key=lambda label: (-new.item(label), names[label]))
    more, less = _changes(new, training / max(1, n_training_rows) * n_rows, names, top, known=training > 0)
    return LabelShift(
        distance,
        float(min(1.0, noise.sum() / 2)),
        float(new[unknown].sum() / total),
        [(names[label], new.item(label)) for label in order[:top]],
        more,
        less,
    )


def vocabulary_shift(
    vectorizer: Tfidf, texts: Sequence[str], n_training_texts: int | None, *, top: int = 20
) -> VocabularyShift:
    """Compare the words of new texts with the vocabulary of a fitted vectorizer.

    Words are maximal sequences of two or more letters or digits. The document frequencies of the training texts are
    recovered from the inverse document frequencies stored by the vectorizer.
    """
    rows = vectorizer.transform(list(texts))
    n_without = int((np.diff(rows.indptr) == 0).sum())
    words: Counter[str] = Counter()
    for text in texts:
        words.update(re.findall(r"[^\W_]{2,}", text.lower()))
    known = _known_words(vectorizer, list(words))
    unknown = {word: count for word, count in words.items() if word not in known}
    ranked = sorted(unknown, key=lambda word: (-unknown[word], word))
    share = sum(unknown.values()) / max(1, sum(words.values()))
    more: list[Change] = []
    less: list[Change] = []
    frequencies = _training_frequencies(vectorizer, n_training_texts)
    if frequencies is not None and n_training_texts:
        columns = vectorizer.word_features_
        counts = np.bincount(rows.indices, minlength=vectorizer.n_features_)[columns.start : columns.stop]
        expected = frequencies[columns.start : columns.stop] / n_training_texts * len(texts)
        more, less = _changes(counts, expected, _TermNames(vectorizer), top, offset=columns.start)
    return VocabularyShift(share, [(word, unknown[word]) for word in ranked[:top]], n_without, len(texts), more, less)


class _TermNames:
    """The terms of a vectorizer, indexed by feature."""

    def __init__(self, vectorizer: Tfidf) -> None:
        self._vectorizer = vectorizer

    def __getitem__(self, feature: int) -> str:
        return self._vectorizer.term(feature, prefix=False) or str(feature)


def _known_words(vectorizer: Tfidf, words: list[str]) -> set[str]:
    """Return the words that are terms or, if there are no word features, that contain a known character n-gram."""
    if not words:
        return set()
    matrix = vectorizer.transform(words)
    columns = vectorizer.word_features_ if "word" in vectorizer.analyzers_ else range(vectorizer.n_features_)
    is_word = (matrix.indices >= columns.start) & (matrix.indices < columns.stop)
    counts = np.add.reduceat(np.append(is_word, False), matrix.indptr[:-1]) * (np.diff(matrix.indptr) > 0)
    return {word for word, count in zip(words, counts.tolist(), strict=True) if count}


def _training_frequencies(vectorizer: Tfidf, n_texts: int | None) -> NDArray[np.float64] | None:
    """Return the document frequencies of all terms in the training texts, or None if they are unknown."""
    settings = vectorizer.fitted_parameters_
    if n_texts is None or not settings["use_idf"] or settings["n_buckets"] or "word" not in vectorizer.analyzers_:
        return None
    smooth = 1 if settings["smooth_idf"] else 0
    idf = np.asarray(vectorizer.idf_, np.float64)
    return np.maximum(0.0, np.rint((n_texts + smooth) / np.exp(idf - 1) - smooth))


def _changes(
    counts: NDArray[Any],
    expected: NDArray[np.float64],
    names: Any,
    top: int,
    *,
    offset: int = 0,
    known: NDArray[np.bool_] | None = None,
) -> tuple[list[Change], list[Change]]:
    """Return the labels or terms with the largest significant increases and decreases in frequency."""
    z = (counts - expected) / np.sqrt(expected + 1)
    is_listed = np.maximum(counts, expected) >= _MIN_COUNT
    if known is not None:
        is_listed &= known

    def listed(order: NDArray[np.int64], sign: int) -> list[Change]:
        chosen = [i for i in order.tolist() if is_listed[i] and sign * z[i] > 2][:top]
        return [
            Change(names[offset + i], int(counts[i]), round(float(expected[i]), 2), round(float(z[i]), 2))
            for i in chosen
        ]

    return listed(np.argsort(-z, kind="stable"), 1), listed(np.argsort(z, kind="stable"), -1)
