"""Statistics of label names: the frequencies of words and last words, and the number of words per name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from carya.errors import InputError

#: Words, including hyphenated words and words with apostrophes.
WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
MAX_WORDS = 3
_MIN_PLURALS = 0.3  # plural forms are also proposed if at least this share of the names end with s
_PREFIX = 5


def normalize(text: str) -> str:
    """Return a name in lower case, with single spaces between its words.

    >>> normalize("Web  Servers (HTTP)")
    'web servers http'
    """
    return " ".join(WORD.findall(text.lower()))


@dataclass(frozen=True)
class NameStatistics:
    """Statistics of the names of all labels.

    Attributes
    ----------
    names : frozenset of str
        The normalized names.
    words, last_words : Counter
        The number of names that contain each word, and the number of names that end with it.
    beginnings : frozenset of str
        The five-letter prefixes of the words in names.
    lengths : tuple of float
        The shares of names with one, two and three words; names with more words are not counted.
    n_names : int
    plural_share : float
        The share of names whose last word ends with s.
    """

    names: frozenset[str]
    words: Counter[str]
    last_words: Counter[str]
    beginnings: frozenset[str]
    lengths: tuple[float, ...]
    n_names: int
    plural_share: float

    @classmethod
    def of(cls, names: Iterable[str]) -> NameStatistics:
        """Compute the statistics; raise InputError if most names contain no words."""
        words: Counter[str] = Counter()
        last: Counter[str] = Counter()
        lengths: Counter[int] = Counter()
        normalized = set()
        n_names = n_readable = 0
        for name in names:
            parts = WORD.findall(name.lower())
            n_names += 1
            n_readable += any(part.isalpha() for part in parts) and "://" not in name
            if parts:
                normalized.add(" ".join(parts))
                words.update(set(parts))
                last[parts[-1]] += 1
                lengths[len(parts)] += 1
        if 2 * n_readable < n_names:
            raise InputError("open_vocabulary requires label names, but most labels are codes. Pass names to fit.")
        total = max(1, sum(lengths[number] for number in range(1, MAX_WORDS + 1)))
        shares = tuple(lengths[number] / total for number in range(1, MAX_WORDS + 1))
        plurals = sum(count for word, count in last.items() if word.endswith("s")) / max(1, sum(last.values()))
        beginnings = frozenset(word[:_PREFIX] for word in words if len(word) >= _PREFIX)
        return cls(frozenset(normalized), words, last, beginnings, shares, n_names, plurals)

    def has_related_word(self, word: str) -> bool:
        """Return whether a name contains the word or a word with the same five-letter prefix."""
        return word in self.words or (len(word) >= _PREFIX and word[:_PREFIX] in self.beginnings)

    @property
    def prefers_plurals(self) -> bool:
        """Whether label names are often plurals, as in English thesauri."""
        return self.plural_share >= _MIN_PLURALS


def plural(word: str) -> str:
    """Return the regular English plural of a word.

    >>> plural("library"), plural("church"), plural("day"), plural("books")
    ('libraries', 'churches', 'days', 'books')
    """
    if word.endswith("s") or not word.isalpha():
        return word
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search(r"(?:sh|ch|x|z)$", word) else "s")
