"""Files with additional training inputs: a label tree, a label graph, a shortlist, and label features."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from carya.cli.commands import option
from carya.cli.options.common import PATH
from carya.cli.options.data_options import unescape
from carya.data.io.files import MATRIX_SUFFIXES
from carya.errors import InputError

_Callback = TypeVar("_Callback", bound=Callable[..., Any])
_HELP = {
    "tree": "Label tree: one line per label, with the label, a tab and the path of its clusters, as in "
    "cat<TAB>animals/mammals; if DATA contains features, one path per line.",
    "label_features": "Label features for --representation lf: one line per label, with the label, a tab and its "
    "description; if DATA contains features, an .npz or .npy matrix with one row per label.",
    "label_graph": "Label graph for --representation graph: one line per edge, with two labels and, optionally, a "
    "weight, separated by tabs; if DATA contains features, an .npz matrix of shape (labels, labels).",
    "shortlist": "Shortlist for --negatives given: one line per text, with labels separated by tabs or "
    "--label-separator; if DATA contains features, an .npz matrix with the same shape as the label matrix.",
}


@dataclass(frozen=True)
class LabelFiles:
    """Paths of the files that were passed on the command line."""

    tree: Path | None = None
    label_features: Path | None = None
    label_graph: Path | None = None
    shortlist: Path | None = None

    def given(self) -> list[str]:
        """Return the options that were passed."""
        return [_flag(field.name) for field in fields(self) if getattr(self, field.name) is not None]

    def of_texts(self, separator: str | None) -> dict[str, Any]:
        """Return the arguments for `TextRanker.fit`."""
        arguments: dict[str, Any] = {}
        if self.tree is not None:
            arguments["tree"] = _read_pairs(self.tree)
        if self.label_features is not None:
            arguments["label_texts"] = _read_pairs(self.label_features)
        if self.label_graph is not None:
            arguments["label_graph"] = [_edge(self.label_graph, edge) for edge in _read_columns(self.label_graph, 2, 3)]
        if self.shortlist is not None:
            split = unescape(separator) or "\t"
            lines = _read_lines(self.shortlist)
            arguments["shortlist"] = [[label for label in line.split(split) if label] for line in lines]
        return arguments

    def of_features(self) -> dict[str, Any]:
        """Return the arguments for the `fit` method of a feature model."""
        from carya.data.io.matrix_files import read_matrix
        from carya.trees.label_tree import LabelTree

        arguments: dict[str, Any] = {}
        for name in ("label_features", "label_graph", "shortlist"):
            path: Path | None = getattr(self, name)
            if path is not None:
                if path.suffix not in MATRIX_SUFFIXES:
                    raise InputError(
                        f"{_flag(name)} must be an .npz or .npy file if DATA contains features, got {path}."
                    )
                arguments[name] = read_matrix(path)
        if self.tree is not None:
            arguments["tree"] = LabelTree.from_paths(list(_read_lines(self.tree)))
        return arguments


def label_file_options(callback: _Callback) -> _Callback:
    """Add the options to a command, which receives them as a :class:`LabelFiles` named `label_files`."""
    names = [field.name for field in fields(LabelFiles)]

    @functools.wraps(callback)
    def with_files(*args: Any, **arguments: Any) -> None:
        callback(*args, label_files=LabelFiles(**{name: arguments.pop(f"{name}_file") for name in names}), **arguments)

    decorated: Any = with_files
    for name in reversed(names):
        decorated = option(_flag(name), f"{name}_file", type=PATH, metavar="FILE", heading="Data", help=_HELP[name])(
            decorated
        )
    result: _Callback = decorated
    return result


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _read_lines(path: Path) -> Iterator[str]:
    from carya.data.io.files import read_lines

    return read_lines(path)


def _read_columns(path: Path, least: int, most: int) -> Iterator[tuple[str, ...]]:
    """Yield the columns of each nonblank line."""
    for number, line in enumerate(_read_lines(path), 1):
        if not line.strip():
            continue
        columns = tuple(line.split("\t"))
        if not least <= len(columns) <= most or not columns[0]:
            expected = f"{least}" if least == most else f"{least} or {most}"
            raise InputError(f"{path}, line {number}: Expected {expected} tab-separated columns, got {line!r}.")
        yield columns


def _read_pairs(path: Path) -> dict[str, str]:
    """Return a dictionary that maps the first column of each line to the second."""
    return {label: value for label, value in _read_columns(path, 2, 2)}  # noqa: C416 - each item is known to be a pair


def _edge(path: Path, columns: tuple[str, ...]) -> tuple[Any, ...]:
    if len(columns) == 2:
        return columns
    try:
        return *columns[:2], float(columns[2])
    except ValueError:
        raise InputError(f"{path}: {columns[2]!r} is not a weight. Weights must be numbers >= 0.") from None
