"""Word segmentation for scripts without spaces, such as Chinese, Japanese and Thai, using ICU's dictionaries."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from carya import _core
from carya.core.extras import require

#: Inserted between words. The native tokenizer splits words at this noncharacter, which does not occur in texts, and
#: removes it from character n-grams.
BOUNDARY = "\ufdd0"


class SegmentedText(NamedTuple):
    """A text with boundaries inserted between words.

    Attributes
    ----------
    text : str
    boundaries : list of int
        The positions of the inserted boundaries in `text`, in ascending order.
    """

    text: str
    boundaries: list[int]

    def original_position(self, position: int) -> int:
        """Convert a position in the segmented text to the corresponding position in the original text."""
        return position - bisect_left(self.boundaries, position)


class IcuSegmenter:
    """Split runs of characters in scripts without spaces into words.

    Raises
    ------
    MissingExtraError
        If icu4py is not installed.
    """

    def __init__(self) -> None:
        breakers = require("icu4py.breakers", extra="icu", purpose="segmenter='icu'", alternative="segmenter='bigrams'")
        self._break_words = breakers.WordBreaker

    def segment(self, text: str) -> SegmentedText:
        """Insert boundaries between the words of each run; the rest of the text is unchanged."""
        runs = [] if text.isascii() else _core.unspaced_runs(text)
        parts: list[str] = []
        boundaries: list[int] = []
        length = previous_end = 0
        for begin, end in runs:
            parts.append(text[previous_end:begin])
            length += begin - previous_end
            for number, word in enumerate(self._break_words(text[begin:end], "root")):
                if number > 0:
                    boundaries.append(length)
                    parts.append(BOUNDARY)
                    length += 1
                parts.append(word)
                length += len(word)
            previous_end = end
        if not boundaries:
            return SegmentedText(text, boundaries)
        parts.append(text[previous_end:])
        return SegmentedText("".join(parts), boundaries)

    def segment_all(self, texts: Iterable[str]) -> list[str]:
        """Return the texts with boundaries; items that are not strings are returned unchanged."""
        return [self.segment(text).text if isinstance(text, str) else text for text in texts]
