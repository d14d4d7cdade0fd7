"""Large immutable lists of strings, stored as two arrays so that saved lists load instantly."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from carya.errors import InputError


class StringArray(Sequence[str]):
    """Immutable list of strings.

    Parameters
    ----------
    data : ndarray of uint8
        The concatenated UTF-8 bytes of all strings.
    ends : ndarray of int64
        The end offset of each string.

    Examples
    --------
    >>> names = StringArray.of(["cat", "", "dög"])
    >>> len(names), names[2], list(names)
    (3, 'dög', ['cat', '', 'dög'])
    """

    def __init__(self, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        ascending = ends.ndim == 1 and not (np.diff(ends, prepend=0) < 0).any()
        if data.ndim != 1 or not ascending or data.size != (ends[-1] if ends.size else 0):
            raise InputError("The end offsets of the strings do not match their data.")
        self.data = data
        self.ends = ends
        self._raw = memoryview(np.ascontiguousarray(data).data)

    @classmethod
    def of(cls, strings: Sequence[str]) -> Self:
        """Create an array from a sequence of strings."""
        try:
            encoded = [text.encode() for text in strings]
        except UnicodeEncodeError as error:
            raise InputError(f"{error.object!r} contains a lone surrogate and is not valid Unicode text.") from None
        ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), ends)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.data, self.ends)

    def __len__(self) -> int:
        return int(self.ends.size)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"Index {index} is out of range for {len(self)} strings.")
        index %= len(self)
        return _decode(self._raw[self.ends.item(index - 1) if index else 0 : self.ends.item(index)])

    def __iter__(self) -> Iterator[str]:
        for begin, end in itertools.pairwise([0, *self.ends.tolist()]):
            yield _decode(self._raw[begin:end])


class NumberStrings(Sequence[str]):
    """The numbers from 0 to n - 1 as strings: the ids of labels without names.

    >>> list(NumberStrings(3)), NumberStrings(3) == ["0", "1", "2"]
    (['0', '1', '2'], True)
    """

    def __init__(self, length: int) -> None:
        self._numbers = range(length)

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: Any) -> Any:
        numbers = self._numbers[index]
        return [str(number) for number in numbers] if isinstance(numbers, range) else str(numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(str.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]


def _decode(raw: memoryview) -> str:
    return str(raw, "utf-8", "replace")
