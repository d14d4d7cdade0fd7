"""Look up labels by id, by name, or by prefix.

The index stores a few integers per label and no strings, so a server worker needs little memory even with millions
of labels. The sort orders are computed on first use.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from carya.fork_safety import cached_property


class LabelIndex:
    """Index of label ids and names.

    Parameters
    ----------
    ids : sequence of str
    names : sequence of str, optional
        One name per id; defaults to the ids.

    Examples
    --------
    >>> index = LabelIndex(["u:1", "u:2", "v:3"], ["Cats", "dogs", "cat food"])
    >>> index.find("u:2"), index.find("dogs"), index.find("birds")
    (1, 1, None)
    >>> index.find_all(["u:2", "dogs", "birds"]).tolist()
    [1, 1, -1]
    >>> index.search("CAT").tolist(), index.with_prefix("u:").tolist()
    ([2, 0], [0, 1])
    """

    def __init__(self, ids: Sequence[str], names: Sequence[str] | None = None) -> None:
        self._ids = ids
        self._names = ids if names is None else names

    def find(self, label: str) -> int | None:
        """Return the index of the label with this id or, failing that, of the first label with this name."""
        number = self.find_id(label)
        return self.find_name(label) if number is None else number

    def find_all(self, labels: Sequence[str]) -> NDArray[np.int32]:
        """Return the index of each label, or -1 if it is unknown; faster than `find` for many labels."""
        numbers = self._hashed_ids.find_all(labels)
        if self._names is not self._ids:
            missing = np.flatnonzero(numbers < 0)
            numbers[missing] = self._hashed_names.find_all([labels[place] for place in missing.tolist()])
        return numbers

    def find_id(self, label_id: str) -> int | None:
        """Return the index of the label with this id, or None."""
        return self._by_id.find(label_id)

    def find_name(self, name: str) -> int | None:
        """Return the index of the first label with this name, or None."""
        return self._by_name.find(name)

    def with_prefix(self, prefix: str) -> NDArray[np.int32]:
        """Return the indices of the labels whose ids start with a prefix, in ascending order."""
        return np.sort(self._by_id.with_prefix(prefix))

    def search(self, prefix: str) -> NDArray[np.int32]:
        """Return indices of labels whose name or id starts with a prefix, ignoring case; name matches come first."""
        folded = prefix.casefold()
        by_name = self._by_folded_name.with_prefix(folded)
        if self._names is self._ids:
            return by_name
        by_id = self._by_folded_id.with_prefix(folded)
        return np.concatenate([by_name, by_id[~np.isin(by_id, by_name)]])

    def search_words(self, query: str, limit: int = 1000) -> NDArray[np.int32]:
        """Return indices of labels whose name or id contains all words of a query, ignoring case.

        Labels that start with the query come first, then labels in which the first word of the query starts a word,
        and then the others, in the order of the labels.

        Parameters
        ----------
        limit : int
            The maximum number of labels that contain the query but do not start with it.

        Examples
        --------
        >>> index = LabelIndex(["python3-numpy", "numpy-doc", "python3-scipy", "libnumpy"])
        >>> index.search_words("numpy").tolist(), index.search_words("scipy PYTHON").tolist()
        ([1, 0, 3], [2])
        """
        words = list(dict.fromkeys(query.casefold().split()))
        if not words:
            return self.search(query)
        first = self.search(query)
        seen = set(first.tolist())
        at_word_start: list[int] = []
        others: list[int] = []
        for searchable in (self._searchable_names, self._searchable_ids):
            if searchable is None:
                continue
            for number, is_word_start in searchable.find(words):
                if number not in seen:
                    seen.add(number)
                    (at_word_start if is_word_start else others).append(number)
                    if len(at_word_start) >= limit:
                        break
        return np.concatenate([first, np.array((at_word_start + others)[:limit], np.int32)])

    @cached_property
    def _searchable_names(self) -> _SearchableStrings:
        return _SearchableStrings(self._names)

    @cached_property
    def _searchable_ids(self) -> _SearchableStrings | None:
        return None if self._names is self._ids else _SearchableStrings(self._ids)

    @cached_property
    def _hashed_ids(self) -> _HashedStrings:
        return _HashedStrings(self._ids)

    @cached_property
    def _hashed_names(self) -> _HashedStrings:
        return _HashedStrings(self._names)

    @cached_property
    def _by_id(self) -> _SortedStrings:
        return _SortedStrings(self._ids)

    @cached_property
    def _by_name(self) -> _SortedStrings:
        return self._by_id if self._names is self._ids else _SortedStrings(self._names)

    @cached_property
    def _by_folded_id(self) -> _SortedStrings:
        return _SortedStrings(self._ids, str.casefold)

    @cached_property
    def _by_folded_name(self) -> _SortedStrings:
        return self._by_folded_id if self._names is self._ids else _SortedStrings(self._names, str.casefold)


class _SortedStrings:
    """Sort order of a sequence of strings, with an optional sort key."""

    def __init__(self, strings: Sequence[str], key: Callable[[str], str] | None = None) -> None:
        keys = list(strings) if key is None else [key(text) for text in strings]
        self._order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int32)
        self._strings = strings
        self._key = key

    def _at(self, place: int) -> str:
        text = self._strings[int(self._order[place])]
        return text if self._key is None else self._key(text)

    def with_prefix(self, prefix: str) -> NDArray[np.int32]:
        """Return the indices of the strings that start with a prefix, in sort order."""
        places = range(len(self._order))
        begin = bisect.bisect_left(places, prefix, key=self._at)
        end = bisect.bisect_right(places, prefix, begin, key=lambda place: self._at(place)[: len(prefix)])
        return self._order[begin:end]

    def find(self, text: str) -> int | None:
        """Return the index of the first string that equals `text`, or None."""
        place = bisect.bisect_left(range(len(self._order)), text, key=self._at)
        if place == len(self._order) or self._at(place) != text:
            return None
        return int(self._order[place])


class _SearchableStrings:
    """The case-folded strings, concatenated for substring search.

    Python searches 100 MB of text in a tenth of a second, so a million labels need no further index.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        folded = [text.casefold().replace("\n", " ") for text in strings]
        lengths = np.fromiter(map(len, folded), np.int64, len(folded))
        self._text = "\n".join([*folded, ""])
        self._begins = np.concatenate([[0], np.cumsum(lengths + 1)])

    def find(self, words: Sequence[str]) -> Iterator[tuple[int, bool]]:
        """Yield the index of each string that contains all words, and whether the first word starts a word in it."""
        text, longest = self._text, max(words, key=len)
        place = text.find(longest)
        while place >= 0:
            number = int(np.searchsorted(self._begins, place, "right")) - 1
            begin, end = int(self._begins[number]), int(self._begins[number + 1])
            if all(text.find(word, begin, end) >= 0 for word in words):
                first = text.find(words[0], begin, end)
                yield number, first == begin or not text[first - 1].isalnum()
            place = text.find(longest, end)


class _HashedStrings:
    """Sorted hash values of a sequence of strings, for exact lookups.

    A lookup decodes one string, whereas a binary search among a million strings would decode about twenty.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        hashes = _hash_all(strings)
        self._order = np.argsort(hashes, kind="stable").astype(np.int32)
        self._hashes = hashes[self._order]
        self._strings = strings

    def find_all(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """For each text, return the index of the first string that equals it, or -1 if there is none."""
        hashes = _hash_all(texts)
        begins = np.searchsorted(self._hashes, hashes, "left").tolist()
        ends = np.searchsorted(self._hashes, hashes, "right").tolist()
        numbers = np.full(len(texts), -1, np.int32)
        for place, (text, begin, end) in enumerate(zip(texts, begins, ends, strict=True)):
            for number in self._order[begin:end].tolist():  # usually zero or one label
                if self._strings[number] == text:
                    numbers[place] = number
                    break
        return numbers


def _hash_all(strings: Sequence[str]) -> NDArray[np.int64]:
    return np.fromiter(map(hash, strings), np.int64, len(strings))
