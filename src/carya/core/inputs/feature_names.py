"""Column names of data frames: recorded during training and checked during prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from carya.core.inputs.columns import is_table
from carya.core.inputs.features import column_names
from carya.errors import InputError


def feature_names(X: Any, name: str = "X") -> tuple[str, ...] | None:
    """Return the column names of a data frame; None for other inputs or if no column name is a string.

    As in scikit-learn, a mixture of string and non-string names is rejected.
    """
    if not is_table(X):
        return None
    names = column_names(X)
    is_text = [isinstance(column, str) for column in names]
    if not any(is_text):
        return None
    if not all(is_text):
        other = names[is_text.index(False)]
        raise InputError(
            f"{name} has both string column names and non-string ones, such as {other!r}. Convert all column names to "
            "strings."
        )
    return tuple(names)


def check_feature_names(X: Any, expected: Sequence[str] | None, name: str = "X") -> None:
    """Raise InputError unless a data frame has the same columns as the training data, in the same order."""
    names = None if expected is None else feature_names(X, name)
    if names is None or expected is None or names == tuple(expected):
        return
    known, given = set(expected), set(names)
    advice = "Pass the same columns as in training, in the same order: X[model.feature_names_in_]."
    unknown = next((column for column in names if column not in known), None)
    if unknown is not None:
        raise InputError(f"{name} has the column {unknown!r}, which the model was not trained on. {advice}")
    missing = next((column for column in expected if column not in given), None)
    if missing is not None:
        raise InputError(f"{name} lacks the column {missing!r}, which the model was trained on. {advice}")
    position = next(i for i, (a, b) in enumerate(zip(names, expected, strict=False)) if a != b)
    raise InputError(
        f"{name} has the same columns as in training, but in a different order: column {position} is "
        f"{names[position]!r}, but was "
        f"{expected[position]!r} in training. {advice}"
    )
