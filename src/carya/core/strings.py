"""Many strings in two arrays, as they are saved: opened at once, however many there are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from carya.errors import InputError


class Strings(Sequence[str]):
    """An immutable list of strings.

    Parameters
    ----------
    data : ndarray of uint8
        Their UTF-8 bytes, one behind the other.
    ends : ndarray of int64
        Where each ends.

    Examples
    --------
    >>> names = Strings.of(["cat", "", "dög"])
    >>> len(names), names[2], names.index("cat")
    (3, 'dög', 0)
    """

    def __init__(self, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        ends_in_order = ends.ndim == 1 and not (np.diff(ends, prepend=0) < 0).any()
        if data.ndim != 1 or not ends_in_order or data.size != (ends[-1] if ends.size else 0):
            raise InputError("the ends of strings do not fit their bytes")
        self.data = data
        self.ends = ends
        self._raw = memoryview(np.ascontiguousarray(data).data)

    @classmethod
    def of(cls, strings: Sequence[str]) -> Self:
        """From any strings."""
        try:
            encoded = [text.encode() for text in strings]
        except UnicodeEncodeError as error:
            raise InputError(f"{error.object!r} has a lone surrogate: it is no text") from None
        ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends)

    def __len__(self) -> int:
        return int(self.ends.size)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(f"there are {len(self)} strings, none at {at}")
        at = at % len(self)
        return _decoded(self._raw[self.ends.item(at - 1) if at else 0 : self.ends.item(at)])

    def __iter__(self) -> Iterator[str]:
        for begin, end in itertools.pairwise([0, *self.ends.tolist()]):
            yield _decoded(self._raw[begin:end])

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The place of each string, the first of equal ones."""
        places: dict[str, int] = {}
        for place, text in enumerate(self):
            places.setdefault(text, place)
        return places


def _decoded(raw: memoryview) -> str:
    return str(raw, "utf-8", "replace")
