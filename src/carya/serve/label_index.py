"""Finding labels of a model by id, name or beginning. Holds some numbers a label: workers have little of their own."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray


class _Sorted:
    """Strings in order, by what a key makes of them."""

    def __init__(self, strings: Sequence[str], key: Callable[[str], str]) -> None:
        made = [key(text) for text in strings]
        self._order = np.array(sorted(range(len(made)), key=made.__getitem__), np.int32)
        self._strings = strings
        self._key = key

    def beginning_with(self, start: str) -> NDArray[np.int32]:
        """Which strings begin with something, in order."""
        size = len(start)

        def head(at: int) -> str:
            return self._key(self._strings[int(self._order[at])])[:size]

        places = range(len(self._order))
        return self._order[bisect.bisect_left(places, start, key=head) : bisect.bisect_right(places, start, key=head)]

    def equal_to(self, text: str) -> int | None:
        """The first string that is this one."""
        at = bisect.bisect_left(range(len(self._order)), text, key=lambda at: self._strings[int(self._order[at])])
        found = int(self._order[at]) if at < len(self._order) else -1
        return found if found >= 0 and self._strings[found] == text else None


def _as_it_is(text: str) -> str:
    return text


class LabelIndex:
    """The labels of a model by what they begin with.

    Examples
    --------
    >>> index = LabelIndex(["u:1", "u:2", "v:3"], ["Cats", "dogs", "cat food"])
    >>> index.number("u:2"), index.number("dogs"), index.number("birds")
    (1, 1, None)
    >>> index.search("CAT").tolist(), index.with_prefix("u:").tolist()
    ([2, 0], [0, 1])
    """

    def __init__(self, ids: Sequence[str], names: Sequence[str]) -> None:
        self._by_id = _Sorted(ids, _as_it_is)
        named = names is not ids
        self._by_name = _Sorted(names, _as_it_is) if named else self._by_id
        self._folded_ids = _Sorted(ids, str.casefold)
        self._folded_names = _Sorted(names, str.casefold) if named else self._folded_ids

    def number(self, label: str) -> int | None:
        """The label of an id, or of a name if there is no such id."""
        found = self._by_id.equal_to(label)
        return self._by_name.equal_to(label) if found is None else found

    def with_prefix(self, start: str) -> NDArray[np.int32]:
        """The labels whose ids begin with something, ascending."""
        return np.sort(self._by_id.beginning_with(start))

    def search(self, start: str) -> NDArray[np.int32]:
        """The labels whose names, and behind them those whose ids, begin with something, whatever the case."""
        folded = start.casefold()
        by_name = self._folded_names.beginning_with(folded)
        if self._folded_ids is self._folded_names:
            return by_name
        by_id = self._folded_ids.beginning_with(folded)
        return np.concatenate([by_name, by_id[~np.isin(by_id, by_name)]])
