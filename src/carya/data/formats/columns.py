"""What columns hold: a text of one or several, and a list of labels in one; and what lines cannot hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from carya.errors import InputError

#: What separates fields in files that have no quotes.
TAB = "\t"

_LONGEST = 60


def brief(value: object) -> str:
    """A value as messages show it: as Python writes it, and not too long."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 12]} … {text[-9:]}"


def quoted(names: Collection[str]) -> str:
    """Names in quotes, with commas between."""
    return ", ".join(f'"{name}"' for name in names)


def text_columns(chosen: str, known: Collection[str]) -> list[str]:
    """The columns a text is made of: the one of that name, or several with commas between.

    Examples
    --------
    >>> text_columns("title,abstract", ["title", "abstract", "labels"])
    ['title', 'abstract']
    """
    return [chosen] if chosen in known else [name.strip() for name in chosen.split(",")]


def joined_text(parts: Sequence[str]) -> str:
    """The text of several columns: those that are not empty, with a space between."""
    return parts[0] if len(parts) == 1 else " ".join(part for part in parts if part)


def is_text(value: Any) -> bool:
    """Whether a value is a string of whole characters; half a surrogate pair is none."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def label_list(value: Any, column: str, where: str) -> tuple[str, ...]:
    """Labels that arrive as a list; raises InputError if they are no list of strings."""
    if not isinstance(value, list):
        raise InputError(f'{where}: "{column}" must be a list of strings, got {brief(value)}')
    for one in value:
        if not is_text(one):
            raise InputError(f'{where}: "{column}" must be a list of strings, got {brief(one)} in it')
        if not one:
            raise InputError(f'{where}: "{column}" has an empty label')
    return tuple(value)


def split_labels(cell: str, separator: str, where: str) -> tuple[str, ...]:
    """Labels that arrive in one string. Spaces around a label are no part of it; an empty label is an error.

    Where the separator is a space, several are as good as one.
    """
    if separator == " ":
        return tuple(label for label in cell.split(" ") if label)
    if not cell or not cell.strip(" "):
        return ()
    labels = tuple(label.strip(" ") for label in cell.split(separator))
    if "" in labels:
        empty = labels.index("") + 1
        raise InputError(f"{where}: label {empty} of {len(labels)} is empty; labels are separated by {separator!r}")
    return labels


def join_labels(labels: Sequence[str], separator: str, where: str) -> str:
    """The string that :func:`split_labels` takes apart again; raises InputError for labels it would not give back."""
    for label in labels:
        if separator in label:
            raise InputError(f"{where}: the label {brief(label)} has {separator!r} in it, which separates labels")
        if not label or label != label.strip(" "):
            raise InputError(f"{where}: the label {brief(label)} is empty or has spaces around it")
    return separator.join(labels)


def one_line(text: str, where: str, without: str = "") -> str:
    """A text that a line can hold, as it is; raises InputError for one that it cannot, or that has `without` in it."""
    for bad in ("\n", *without):
        if bad in text:
            raise InputError(f"{where}: {brief(text)} has {bad!r} in it, which this format cannot hold")
    if text.endswith("\r"):
        raise InputError(f"{where}: {brief(text)} ends with '\\r', which this format cannot hold")
    return text
