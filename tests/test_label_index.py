"""Tests for label lookup: comparison with a linear search."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from carya.core.label_index import LabelIndex

TEXTS = st.text("aAbß:É", max_size=4)


@given(st.lists(TEXTS, unique=True, max_size=12), st.lists(TEXTS, min_size=12, max_size=12), TEXTS)
def test_lookups_equal_linear_search(ids: list[str], names: list[str], query: str) -> None:
    names = names[: len(ids)]
    index = LabelIndex(ids, names)
    assert index.find_id(query) == (ids.index(query) if query in ids else None)
    assert index.find_name(query) == (names.index(query) if query in names else None)
    assert index.find(query) == next((texts.index(query) for texts in (ids, names) if query in texts), None)
    assert index.with_prefix(query).tolist() == [number for number, text in enumerate(ids) if text.startswith(query)]


@given(st.lists(TEXTS, unique=True, max_size=12), st.lists(TEXTS, min_size=12, max_size=12), TEXTS)
def test_search_ignores_case_and_returns_names_before_ids(ids: list[str], names: list[str], prefix: str) -> None:
    names = names[: len(ids)]

    def matches(texts: list[str]) -> list[int]:
        folded = [text.casefold() for text in texts]
        numbers = [number for number, text in enumerate(folded) if text.startswith(prefix.casefold())]
        return sorted(numbers, key=lambda number: (folded[number], number))

    by_name = matches(names)
    by_id = [number for number in matches(ids) if number not in by_name]
    assert LabelIndex(ids, names).search(prefix).tolist() == by_name + by_id
    assert LabelIndex(ids).search(prefix).tolist() == matches(ids)
