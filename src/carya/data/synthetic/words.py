"""Pronounceable pseudowords for synthetic texts."""

from __future__ import annotations

_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


def pseudoword(number: int) -> str:
    """Return a pronounceable word of two or more syllables; different numbers give different words.

    >>> pseudoword(0), pseudoword(77)
    ('babe', 'dibi')
    """
    base = len(_SYLLABLES)
    number = int(number) + base
    word = ""
    while number:
        number, digit = divmod(number, base)
        word += _SYLLABLES[digit]
    return word
