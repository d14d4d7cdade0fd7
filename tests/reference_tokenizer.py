"""Slow reference implementation of the tokenizer, based on Python's `unicodedata` and `re`."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from functools import cache, partial

from sklearn.feature_extraction.text import strip_accents_ascii, strip_accents_unicode

SCRIPTS_WITHOUT_SPACES = (
    "CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH", "IDEOGRAPHIC ITERATION MARK", "IDEOGRAPHIC NUMBER ZERO",
    "VERTICAL IDEOGRAPHIC ITERATION MARK", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "VERTICAL KANA",
    "THAI", "LAO", "KHMER", "MYANMAR", "TAI LE", "NEW TAI LUE", "TAI THAM", "TAI VIET", "AHOM",
)  # fmt: skip
VARIATION_SELECTORS = "\u180b\u180c\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
_STRIP = {None: lambda text: text, "unicode": strip_accents_unicode, "ascii": strip_accents_ascii}


@cache
def is_ignored(c: str) -> bool:
    """Return whether a character is invisible and therefore removed."""
    selector = re.fullmatch(f"[\u034f{VARIATION_SELECTORS}]", c) is not None
    return selector or (unicodedata.category(c) == "Cf" and c != "\u200b")


@cache
def kind_of(c: str) -> str:
    """Return the class of a character: "unspaced" or "letter" if it can start a word, otherwise "mark" or "other"."""
    category = unicodedata.category(c)
    if c.isalnum() or c == "_":
        unspaced = category != "Nd" and unicodedata.name(c, "").startswith(SCRIPTS_WITHOUT_SPACES)
        return "unspaced" if unspaced else "letter"
    return "mark" if category in ("Mn", "Mc") and not is_ignored(c) else "other"


def normalize(text: str, *, lowercase: bool, strip_accents: str | None) -> str:
    """Remove invisible characters and convert the text to NFC; optionally lowercase it and strip accents."""
    text = "".join(c for c in (text.lower() if lowercase else text) if not is_ignored(c))
    return str(_STRIP[strip_accents](unicodedata.normalize("NFC", text)))


def split_runs(text: str, *, segmenter: str | None) -> Iterator[tuple[str, list[str]]]:
    """Yield ("word", [word]) for each word, and ("run", characters with their marks) for each unspaced run."""
    kind = "other"
    units: list[str] = []
    for c in [*text, " "]:
        character = kind_of(c)
        if character == "unspaced" and segmenter is None:
            character = "letter"
        if character == "mark" and units:
            units[-1] += c
            continue
        if character != kind and units:
            yield ("run", units) if kind == "unspaced" else ("word", ["".join(units)])
            units = []
        kind = character if character in ("letter", "unspaced") else "other"
        if kind != "other":
            units.append(c)


def word_terms(
    text: str, *, ngram_range: tuple[int, int], min_word_length: int, segmenter: str | None, stop_words: Collection[str]
) -> list[str]:
    """Return word n-grams, and character unigrams and bigrams of unspaced runs."""
    units: list[tuple[str, int]] = []  # (word or character, number of its run or 0)
    runs = itertools.count(1)
    for kind, parts in split_runs(text, segmenter=segmenter):
        run = next(runs)
        for part in parts:
            if part in stop_words:
                run = next(runs)
            elif kind == "run":
                units.append((part, run))
            elif len(part) >= min_word_length:
                units.append((part, 0))
    low, high = ngram_range
    terms = []
    for n in range(1, max(high, 2) + 1):
        for i in range(len(units) - n + 1):
            gram = units[i : i + n]
            within_run = n <= 2 and gram[0][1] != 0 and len({run for _, run in gram}) == 1
            if within_run or low <= n <= high:
                term = gram[0][0]
                for (_, run), (word, next_run) in itertools.pairwise(gram):
                    term += word if run == next_run != 0 else f" {word}"
                terms.append(term)
    return terms


def char_terms(text: str, *, ngram_range: tuple[int, int]) -> list[str]:
    """Return character n-grams; runs of whitespace count as one space."""
    text = re.sub(r"\s\s+", " ", text)
    return [text[i : i + n] for n in range(ngram_range[0], ngram_range[1] + 1) for i in range(len(text) - n + 1)]


def char_wb_terms(text: str, *, ngram_range: tuple[int, int]) -> list[str]:
    """Pad each word with a space on both sides, and return the character n-grams of the padded words."""
    terms = []
    for word in text.split():
        padded = f" {word} "
        for n in range(ngram_range[0], ngram_range[1] + 1):
            terms += [padded[i : i + n] for i in range(max(len(padded) - n, 0) + 1)]
            if n >= len(padded):
                break
    return terms


def reference_analyzer(
    *,
    analyzer: str = "word",
    ngram_range: tuple[int, int] = (1, 1),
    lowercase: bool = True,
    strip_accents: str | None = None,
    min_word_length: int = 2,
    segmenter: str | None = "bigrams",
    stop_words: Collection[str] | None = None,
) -> Callable[[str], list[str]]:
    """Return a function that splits a text into terms, for use as the `analyzer` of scikit-learn's vectorizers."""
    terms: Callable[[str], list[str]]
    if analyzer == "word":
        terms = partial(
            word_terms,
            ngram_range=ngram_range,
            min_word_length=min_word_length,
            segmenter=segmenter,
            stop_words=stop_words or (),
        )
    else:
        terms = partial(char_terms if analyzer == "char" else char_wb_terms, ngram_range=ngram_range)
    return lambda text: terms(normalize(text, lowercase=lowercase, strip_accents=strip_accents))
