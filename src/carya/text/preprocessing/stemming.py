"""Stemming with the Snowball algorithms; each distinct word is stemmed only once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from carya import _core
from carya.core.extras import require
from carya.core.parameters import did_you_mean
from carya.errors import MissingExtraError, ParameterError
from carya.fork_safety import ForkSafeLock

_MAX_WORDS = 1 << 20  # limits the memory used for the stems of words in queries


def check_language(language: str) -> None:
    """Raise ParameterError if there is no stemmer for a language; accept any language if no stemmers are installed."""
    try:
        known = list(import_snowball(language).algorithms())
    except MissingExtraError:  # reported by `check_dependencies`
        return
    if language not in known:
        raise ParameterError(
            f"stemmer must be None or one of {', '.join(map(repr, sorted(known)))}, got {language!r}."
            f"{did_you_mean(language, known)}"
        )


class Stemmer:
    """Snowball stemmer that caches the stems of all words seen so far.

    Attributes
    ----------
    table : _core.StemTable
        The stem of each known word; analyzers that use the table replace words with their stems.
    """

    def __init__(self, language: str) -> None:
        self._snowball = import_snowball(language).stemmer(language)
        self._lock = ForkSafeLock()  # Snowball stemmers are not thread-safe
        self.table = _core.StemTable()

    @property
    def is_full(self) -> bool:
        """Whether the table has reached its maximum size and should be replaced by an empty table."""
        return len(self.table) >= _MAX_WORDS

    def learn(self, texts: Iterable[str], analyzer: _core.TextAnalyzer, threads: int) -> None:
        """Add the stems of all words in the texts to the table."""
        words = self.table.missing(texts, analyzer, threads)
        if words:
            with self._lock:
                stems = self._snowball.stemWords(words)
            self.table.add(words, [stem or word for stem, word in zip(stems, words, strict=True)])


def import_snowball(language: str) -> Any:
    """Import the Snowball stemmers; raise MissingExtraError if they are not installed."""
    return require("snowballstemmer", extra="stem", purpose=f"stemmer={language!r}", alternative="stemmer=None")
