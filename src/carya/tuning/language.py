"""Guess the language of texts, to choose a stemmer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

#: Short words that are frequent in a language but rare in the others, keyed by the language's Snowball stemmer.
_WORDS = {
    "danish": "af at det den der med på til er som ikke",
    "dutch": "het een van dat met voor zijn niet ook aan bij",
    "english": "the of and to that is with for are from which",
    "finnish": "ja on että ei se joka mutta myös kuin ovat tai",
    "french": "les des est une dans pour que qui sur pas du",
    "german": "der die und das von mit den für ist zu auf",
    "italian": "il di che della per sono una gli nel con del",
    "norwegian": "og det som på til er av med ikke har fra",
    "portuguese": "os uma não para com da dos em das mais ao",
    "russian": "и в не на что как для из по от это",
    "spanish": "los las del que por una con para el como su",
    "swedish": "och att det som på är för med inte till av",
}
_MIN_SHARE = 0.05  # minimum share of these words among all words; low, because titles contain few of them
_MIN_LEAD = 1.5


def guess_language(texts: Iterable[str]) -> str | None:
    """Return the name of the Snowball stemmer for the language of the texts, or None if the language is unclear.

    >>> guess_language(["the state of the art", "a report on the effects of heat"])
    'english'
    >>> guess_language(["lib64 gtk3"]) is None
    True
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(re.findall(r"[^\W\d_]+", text.lower()))
    total = sum(counts.values())
    if not total:
        return None
    found = {language: sum(counts[word] for word in words.split()) for language, words in _WORDS.items()}
    best, second = sorted(found, key=found.__getitem__, reverse=True)[:2]
    is_clear = found[best] >= _MIN_SHARE * total and found[best] >= _MIN_LEAD * found[second]
    return best if is_clear else None
