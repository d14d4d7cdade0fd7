"""Find the phrases in a text that are possible labels, and estimate the probability that each phrase is a label."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from carya.text.open_vocabulary.name_statistics import MAX_WORDS, WORD, NameStatistics, plural
from carya.text.tfidf import Tfidf

_SEGMENT = re.compile(r"[^.,;:!?()\[\]{}\"“”«»/|\n\t=<>]+")
_MIN_LETTERS = 3
# Words that occur in a larger share of the texts are treated as function words, unless they occur in label names.
_MAX_SHARE = 0.3
_MAX_SHARE_SHORT = 0.02
_SHORT = 4  # maximum number of letters in a short word


@dataclass(frozen=True)
class Phrase:
    """A possible label that was found in a text.

    Attributes
    ----------
    text : str
        The phrase in lower case; it can be a plural form that does not occur in the text.
    words : tuple of str
    begin : int
        The position of the phrase's first occurrence in the text.
    features : tuple of float
        The features from which the phrase's probability is computed; see :data:`FEATURES`.
    """

    text: str
    words: tuple[str, ...]
    begin: int
    features: tuple[float, ...]


#: The names of the features of a phrase.
FEATURES = (
    "mean weight",
    "lowest weight",
    "is two words",
    "is three words",
    "words in names",
    "last word in names",
    "frequency of last word",
    "related words",
    "repeated",
    "position",
    "share of length",
    "is plural",
    "made plural",
    "unknown words",
)


def find_phrases(text: str, vectorizer: Tfidf, names: NameStatistics) -> list[Phrase]:
    """Return the n-grams in a text that have up to three words and are not label names.

    N-grams do not cross punctuation and do not begin or end with a function word.
    """
    idf = _word_idf(text, vectorizer)
    highest = float(vectorizer.idf_[_columns(vectorizer)].max(initial=1.0))
    lowest, lowest_short = 1 - math.log(_MAX_SHARE), 1 - math.log(_MAX_SHARE_SHORT)
    found: dict[tuple[str, ...], list[int]] = {}
    for segment in _SEGMENT.finditer(text):
        located = [(match.group().lower(), segment.start() + match.start()) for match in WORD.finditer(segment.group())]
        for first in range(len(located)):
            for last in range(first, min(first + MAX_WORDS, len(located))):
                ngram = tuple(word for word, _ in located[first : last + 1])
                found.setdefault(ngram, []).append(located[first][1])

    def is_content(word: str) -> bool:
        has_letters = len(word) >= _MIN_LETTERS and any(character.isalpha() for character in word)
        is_rare = idf.get(word, highest) > (lowest_short if len(word) <= _SHORT else lowest)
        return has_letters and (is_rare or word in names.words)

    phrases = []
    for words, positions in found.items():
        with_plural = (*words[:-1], plural(words[-1]))
        is_known = " ".join(words) in names.names or " ".join(with_plural) in names.names
        if is_known or not (is_content(words[0]) and is_content(words[-1])):
            continue
        weights = [idf.get(word, highest) / highest for word in words]
        n_unknown = sum(word not in idf for word in words)
        is_other_form = names.prefers_plurals and with_plural not in found
        for form in (words, with_plural) if is_other_form else (words,):
            features = _features(form, weights, positions, len(text), n_unknown, names, made_plural=form != words)
            phrases.append(Phrase(" ".join(form), form, positions[0], features))
    return phrases


def probabilities(phrases: Sequence[Phrase], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probability that each phrase is a label, given the bias and one weight per feature."""
    if not phrases:
        return np.zeros(0)
    matrix = np.array([phrase.features for phrase in phrases])
    result: NDArray[np.float64] = 1 / (1 + np.exp(-(weights[0] + matrix @ weights[1:])))
    return result


def _features(
    words: tuple[str, ...],
    weights: Sequence[float],
    positions: Sequence[int],
    length: int,
    n_unknown: int,
    names: NameStatistics,
    *,
    made_plural: bool,
) -> tuple[float, ...]:
    n = len(words)
    return (
        sum(weights) / n,
        min(weights),
        float(n == 2),
        float(n == 3),
        sum(word in names.words for word in words) / n,
        float(words[-1] in names.last_words),
        math.log1p(names.last_words[words[-1]]),
        sum(map(names.has_related_word, words)) / n,
        math.log(len(positions)),
        positions[0] / max(1, length),
        sum(map(len, words)) / max(1, length),
        float(words[-1].endswith("s")),
        float(made_plural),
        n_unknown / n,
    )


def _columns(vectorizer: Tfidf) -> slice:
    columns = vectorizer.word_features_
    return slice(columns.start, columns.stop)


def _word_idf(text: str, vectorizer: Tfidf) -> dict[str, float]:
    """Return a mapping from the known words of a text, in lower case, to their inverse document frequencies."""
    columns = vectorizer.word_features_
    found: dict[str, float] = {}
    for term in vectorizer.terms_in(text):
        if term.feature in columns and " " not in term.text:
            found[text[term.begin : term.end].lower()] = float(vectorizer.idf_[term.feature])
    return found
