"""Vocabularies: the known labels with their ids and names."""

from __future__ import annotations

from collections.abc import Iterable

from carya.errors import InputError


class Vocabulary:
    """The labels there are, in the order of their columns.

    Parameters
    ----------
    ids : iterable of str
        All different; often URIs.
    names : iterable of str, optional
        What people call them, one for each id; the ids themselves if not given.
    source : str
        What messages call it.

    Examples
    --------
    >>> vocabulary = Vocabulary(["yso:p10", "yso:p11"], ["awareness", "service"])
    >>> vocabulary.row("yso:p11"), vocabulary.names[1], len(vocabulary), "yso:p12" in vocabulary
    (1, 'service', 2, False)
    """

    def __init__(self, ids: Iterable[str], names: Iterable[str] | None = None, *, source: str = "vocabulary") -> None:
        self.ids: list[str] = list(ids)
        self.names: list[str] = self.ids if names is None else list(names)
        self.source = source
        if len(self.ids) != len(self.names):
            raise InputError(f"{source}: {len(self.ids)} ids, {len(self.names)} names")
        self._rows = {one: row for row, one in enumerate(self.ids)}
        if len(self._rows) != len(self.ids):
            twice = next(one for row, one in enumerate(self.ids) if self._rows[one] != row)
            raise InputError(f"{source}: the label {twice!r} occurs twice")
        self._by_name: dict[str, str] | None = None

    def row(self, one: str) -> int:
        """The number of a label, from 0; raises InputError for a label that is not in it."""
        try:
            return self._rows[one]
        except KeyError:
            raise InputError(f"{self.source}: there is no label {one!r}") from None

    def named(self, name: str) -> str | None:
        """The id of the first label of that name; None if there is none."""
        if self._by_name is None:
            self._by_name = dict(zip(reversed(self.names), reversed(self.ids), strict=True))
        return self._by_name.get(name)

    def __contains__(self, one: object) -> bool:
        return one in self._rows

    def __len__(self) -> int:
        return len(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.ids == other.ids and self.names == other.names

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} labels)"
