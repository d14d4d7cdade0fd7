"""Labels by name: from a list for each text to a matrix, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core.matrices import Csr
from carya.core.parameters import hint
from carya.core.strings import Strings
from carya.errors import InputError

_FEW_ENOUGH_FOR_HINTS = 200_000


@dataclass(frozen=True, eq=False)
class LabelSet:
    """The labels a ranker knows.

    Attributes
    ----------
    ids : Strings
        What data calls them, such as URIs; sorted.
    names : Strings or None
        What people call them, if that is something else.
    texts : Strings or None
        What is written about each.
    counts : ndarray of int64 or None
        How many training texts had each, if that is known.
    n_texts : int or None
        How many training texts there were, if that is known.
    """

    ids: Strings
    names: Strings | None = None
    texts: Strings | None = None
    counts: NDArray[np.int64] | None = None
    n_texts: int | None = None

    @classmethod
    def of(
        cls, ids: Sequence[str], names: Mapping[str, str] | None = None, texts: Mapping[str, str] | None = None
    ) -> LabelSet:
        """From ids and what is known of some of them; without a name the id is one, without a text the name."""
        for name, given in (("names", names), ("label_texts", texts)):
            if given is not None and not isinstance(given, Mapping):
                raise InputError(f"{name} must be a mapping of labels to strings, got {type(given).__name__}")
            for label, said in (given or {}).items():
                if not isinstance(said, str):
                    raise InputError(f"{name} must be strings, that of {label!r} is {said!r}")
            if given and ids and not any(one in given for one in ids):
                raise InputError(
                    f"{name} has none of the labels: it has {next(iter(given))!r}, the labels are {ids[0]!r} and others"
                )
        named = [(names or {}).get(one, one) for one in ids]
        told = (
            None if texts is None else Strings.of([texts.get(one, name) for one, name in zip(ids, named, strict=True)])
        )
        return cls(Strings.of(ids), Strings.of(named) if names else None, told)

    def counted(self, Y: Csr) -> LabelSet:
        """The same, knowing how often each label is in the training texts, whose labels `Y` holds."""
        return replace(self, counts=Y.column_counts(), n_texts=Y.rows)

    def __len__(self) -> int:
        return len(self.ids)

    def name(self, label: int) -> str:
        """What people call a label."""
        return self.ids[label] if self.names is None else self.names[label]

    def __contains__(self, label: object) -> bool:
        return any(known is not None and label in known.numbers for known in (self.ids, self.names))

    def number(self, label: str) -> int:
        """The label of an id, or of a name if there is no such id."""
        if not isinstance(label, str):
            raise InputError(f"label must be a string, got {label!r}")
        for known in (self.ids, self.names):
            if known is not None and label in known.numbers:
                return known.numbers[label]
        near = hint(label, self.ids if self.names is None else self.names) if len(self) < _FEW_ENOUGH_FOR_HINTS else ""
        raise InputError(f"there is no label {label!r}{near}")


@dataclass(frozen=True, eq=False)
class LabelRows:
    """The labels of texts as a matrix, with what its columns are called; it goes where a list for each text does.

    Attributes
    ----------
    matrix : Csr, texts x labels
    ids : sequence of str
        One for each column, all different.
    """

    matrix: Csr
    ids: Sequence[str]

    def used(self) -> tuple[Csr, list[str]]:
        """What :func:`label_matrix` makes of the same labels in lists."""
        order = sorted(np.flatnonzero(self.matrix.column_counts()).tolist(), key=self.ids.__getitem__)
        place = np.zeros(self.matrix.cols, np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        return self.matrix.merge_columns(place, max(len(order), 1)).with_values(1), [self.ids[one] for one in order]


def label_matrix(
    labels: Iterable[Iterable[str]], known: Sequence[str] | None = None, *, others: bool = False
) -> tuple[sp.csr_array, list[str]]:
    """Rows x labels, 1 where a row has a label, and the labels: those that occur, sorted; or the known ones.

    Labels that are not known are left out or, if `others`, stand behind those that are.

    >>> Y, ids = label_matrix([["b", "a"], [], ["b"]])
    >>> ids, Y.toarray().tolist()
    (['a', 'b'], [[1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    """
    numbers: dict[str, int] = {} if known is None else {one: place for place, one in enumerate(known)}
    entries: list[int] = []
    ends = [0]
    for row, given in enumerate(_several(labels)):
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise InputError(f"the labels of text {row} must be a list of strings, got {given!r}")
        for label in given:
            if not isinstance(label, str):
                raise InputError(f"the labels of text {row} must be strings, got {label!r}")
            number = numbers.get(label)
            if number is None:
                if known is not None and not others:
                    continue  # nobody can rank it
                number = numbers[label] = len(numbers)
            entries.append(number)
        ends.append(len(entries))
    ids = list(numbers)
    indices = np.array(entries, np.int32)
    if known is None:
        order = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int32)
        place = np.empty_like(order)
        place[order] = np.arange(order.size, dtype=np.int32)
        indices = place[indices]
        ids = [ids[number] for number in order]
    Y = sp.csr_array((np.ones(indices.size, np.float32), indices, np.array(ends, np.int64)), (len(ends) - 1, len(ids)))
    Y.sum_duplicates()
    Y.data[:] = 1  # a label given twice is given once
    return Y, ids


def _several(labels: Iterable[Iterable[str]]) -> Iterable[Iterable[str]]:
    if isinstance(labels, (str, bytes)) or not isinstance(labels, Iterable):
        raise InputError(f"labels must be a list of lists of strings, got {labels!r}")
    return labels
