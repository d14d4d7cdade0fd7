"""Columns of texts and labels, and checks for values that a format cannot represent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from carya.errors import InputError

#: Separates fields in formats without quotes.
TAB = "\t"

_MAX_REPR = 60


def short_repr(value: object) -> str:
    """Return the repr of a value for error messages, abbreviated if it is long."""
    text = repr(value)
    return text if len(text) <= _MAX_REPR else f"{text[: _MAX_REPR - 12]} … {text[-9:]}"


def quote_names(names: Collection[str]) -> str:
    """Return names in double quotes, separated by commas."""
    return ", ".join(f'"{name}"' for name in names)


def resolve_text_columns(text_column: str, columns: Collection[str]) -> list[str]:
    """Return the columns that form the text: the column with this name or, failing that, a comma-separated list.

    Examples
    --------
    >>> resolve_text_columns("title,abstract", ["title", "abstract", "labels"])
    ['title', 'abstract']
    """
    return [text_column] if text_column in columns else [name.strip() for name in text_column.split(",")]


def join_texts(parts: Sequence[str]) -> str:
    """Join the nonempty texts of several columns with spaces."""
    return parts[0] if len(parts) == 1 else " ".join(part for part in parts if part)


def is_valid_text(value: Any) -> bool:
    """Return whether a value is a string without lone surrogates."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_label_list(value: Any, column: str, location: str) -> tuple[str, ...]:
    """Return the labels in a list; raise InputError if the value is not a list of non-empty strings."""
    if not isinstance(value, list):
        raise InputError(f'{location}: "{column}" must be a list of strings, got {short_repr(value)}.')
    for label in value:
        if not is_valid_text(label):
            raise InputError(f'{location}: "{column}" must be a list of strings, but contains {short_repr(label)}.')
        if not label:
            raise InputError(f'{location}: "{column}" contains an empty label.')
    return tuple(value)


def split_labels(cell: str, separator: str, location: str) -> tuple[str, ...]:
    """Split a string into labels and strip spaces; raise InputError if a label is empty.

    If the separator is a space, repeated spaces count as one.
    """
    if separator == " ":
        return tuple(label for label in cell.split(" ") if label)
    if not cell or not cell.strip(" "):
        return ()
    labels = tuple(label.strip(" ") for label in cell.split(separator))
    if "" in labels:
        number = labels.index("") + 1
        raise InputError(
            f"{location}: Label {number} of {len(labels)} is empty. Labels are separated by {separator!r}."
        )
    return labels


def join_labels(labels: Sequence[str], separator: str, location: str) -> str:
    """Join labels into one string; raise InputError for labels that :func:`split_labels` would not restore."""
    for label in labels:
        if separator in label:
            raise InputError(f"{location}: Label {short_repr(label)} contains the label separator, {separator!r}.")
        if not label or label != label.strip(" "):
            raise InputError(f"{location}: Label {short_repr(label)} is empty or begins or ends with a space.")
    return separator.join(labels)


def check_one_line(text: str, location: str, forbidden: str = "") -> str:
    """Return a text unchanged; raise InputError if it does not fit on one line or contains a forbidden character."""
    for character in ("\n", *forbidden):
        if character in text:
            raise InputError(
                f"{location}: {short_repr(text)} contains {character!r}, which this format cannot represent."
            )
    if text.endswith("\r"):
        raise InputError(f"{location}: {short_repr(text)} ends with '\\r', which this format cannot represent.")
    return text
