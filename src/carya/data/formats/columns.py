"""Text and label columns, and checks for values that a format cannot represent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from carya.data.corpus import Example
from carya.errors import InputError

#: The column or key that contains text ids; it is optional in all formats.
ID_COLUMN = "id"

#: The field separator in formats without quoting.
TAB = "\t"

_MAX_REPR = 60


class OptionError(InputError):
    """Raised if the data does not match an option of `open_data`; a different value of the option might work."""

    def __init__(self, message: str, option: str) -> None:
        super().__init__(message)
        self.option = option

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.option)


@dataclass(frozen=True)
class Columns:
    """The table columns or object keys to read.

    Attributes
    ----------
    text : str
        The name of the text column, or several names separated by commas.
    labels : str or None
        The name of the label column; None to read texts without labels.
    separator : str or None
        The separator between labels in a string; None for the default of the format.
    """

    text: str = "text"
    labels: str | None = "labels"
    separator: str | None = None

    def example(self, record: Mapping[str, Any], location: str) -> Example:
        """Convert a record to an example; raise InputError if the text or the labels are missing or invalid."""
        text = get_text(record, resolve_text_columns(self.text, record), location)
        labels: tuple[str, ...] = ()
        if self.labels is not None:
            value = get_column(record, self.labels, location, "label_column")
            labels = parse_labels(value, self.labels, self.separator, location)
        return Example(text, labels, text_id(record.get(ID_COLUMN)))


def short_repr(value: object) -> str:
    """Return the repr of a value for error messages, abbreviated if it is long."""
    text = repr(value)
    return text if len(text) <= _MAX_REPR else f"{text[: _MAX_REPR - 12]} … {text[-9:]}"


def quote_names(names: Collection[str]) -> str:
    """Return names in double quotes, separated by commas."""
    return ", ".join(f'"{name}"' for name in names)


def resolve_text_columns(text_column: str, columns: Collection[str]) -> list[str]:
    """Return the text columns: the column with this name or, if there is none, the columns listed in the name.

    Examples
    --------
    >>> resolve_text_columns("title,abstract", ["title", "abstract", "labels"])
    ['title', 'abstract']
    """
    return [text_column] if text_column in columns else [name.strip() for name in text_column.split(",")]


def join_texts(parts: Sequence[str]) -> str:
    """Join the nonempty texts of several columns with spaces."""
    return parts[0] if len(parts) == 1 else " ".join(part for part in parts if part)


def text_id(value: Any) -> str | None:
    """Return the id of a text as a string, or None if the value is neither a nonempty string nor an integer.

    >>> text_id("a-1"), text_id(7), text_id(""), text_id(None)
    ('a-1', '7', None, None)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if value and is_valid_text(value) else None


def is_valid_text(value: Any) -> bool:
    """Return whether a value is a string without lone surrogates."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_labels(value: Any, column: str, separator: str | None, location: str) -> tuple[str, ...]:
    """Parse the labels of a row: a list of strings or integers, an integer, or a string with a separator.

    Raises InputError for any other value, and for strings if no separator is given, because a string could contain one
    label or several.
    """
    if isinstance(value, str) and separator is not None and is_valid_text(value):
        return split_labels(value, separator, location)
    if isinstance(value, str):
        raise InputError(
            f'{location}: "{column}" must be a list of strings or integers, got {short_repr(value)}. To split strings '
            "into labels, pass label_separator (--label-separator)."
        )
    if is_integer(value):
        return (str(value),)
    if not isinstance(value, list):
        raise InputError(f'{location}: "{column}" must be a list of strings or integers, got {short_repr(value)}.')
    for label in value:
        if not is_valid_text(label) and not is_integer(label):
            raise InputError(
                f'{location}: "{column}" must be a list of strings or integers, but contains {short_repr(label)}.'
            )
        if label == "":
            raise InputError(f'{location}: "{column}" contains an empty label.')
    return tuple(map(str, value))


def is_integer(value: Any) -> bool:
    """Return whether a value is an integer >= 0, as required for a label index."""
    return type(value) is int and value >= 0


def get_column(record: Mapping[str, Any], key: str, location: str, option: str) -> Any:
    """Return the value of a key in a JSON object; raise OptionError if the key is missing."""
    if key not in record:
        keys = f"the keys are {quote_names(record)}" if record else "the object is empty"
        raise OptionError(f'{location}: Missing key "{key}"; {keys}.', option)
    return record[key]


def get_text(record: Mapping[str, Any], keys: Sequence[str], location: str) -> str:
    """Return the text of a JSON object: the values of the given keys, joined with spaces."""
    for key in keys:
        if not is_valid_text(get_column(record, key, location, "text_column")):
            raise InputError(f'{location}: "{key}" must be a string, got {short_repr(record[key])}.')
    return join_texts([record[key] for key in keys])


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
            raise InputError(
                f"{location}: Label {short_repr(label)} contains the label separator, {separator!r}. Use a different "
                "separator."
            )
        if not label or label != label.strip(" "):
            raise InputError(f"{location}: Label {short_repr(label)} is empty, or begins or ends with a space.")
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
