"""Vocabularies: the known labels with their ids and names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from carya.errors import InputError
from carya.fork_safety import cached_property

if TYPE_CHECKING:
    from carya.core.label_index import LabelIndex


class Vocabulary:
    """The known labels, in column order.

    Parameters
    ----------
    ids : iterable of str
        Distinct ids, often URIs.
    names : iterable of str, optional
        One human-readable name per id; by default, the ids themselves.
    source : str
        The name of the vocabulary in error messages.

    Examples
    --------
    >>> vocabulary = Vocabulary(["yso:p10", "yso:p11"], ["awareness", "service"])
    >>> vocabulary.number("yso:p11"), vocabulary.names[1], len(vocabulary), "yso:p12" in vocabulary
    (1, 'service', 2, False)
    >>> vocabulary.index.find_name("awareness")
    0
    """

    def __init__(self, ids: Iterable[str], names: Iterable[str] | None = None, *, source: str = "vocabulary") -> None:
        self.ids: list[str] = list(ids)
        self.names: list[str] = self.ids if names is None else list(names)
        self.source = source
        if len(self.ids) != len(self.names):
            raise InputError(f"{source}: Expected {len(self.ids)} names, one per id, got {len(self.names)}.")
        if len(set(self.ids)) != len(self.ids):
            ((repeated, _),) = Counter(self.ids).most_common(1)
            raise InputError(f"{source}: Label {repeated!r} occurs more than once.")

    @cached_property
    def index(self) -> LabelIndex:
        """The index for lookups by id or name."""
        from carya.core.label_index import LabelIndex  # deferred, because importing NumPy is slow

        return LabelIndex(self.ids, self.names)

    def number(self, label_id: str) -> int:
        """Return the index of the label with this id; raise InputError if the id is unknown."""
        number = self.index.find_id(label_id)
        if number is None:
            raise InputError(f"{self.source}: Unknown label {label_id!r}.")
        return number

    def __contains__(self, label_id: object) -> bool:
        return isinstance(label_id, str) and self.index.find_id(label_id) is not None

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.ids == other.ids and self.names == other.names

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} labels)"
