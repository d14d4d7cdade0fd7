"""Store named labels and convert label lists to matrices."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core.inputs.labels import LabelNames, coerce_labels, match_labels
from carya.core.label_index import LabelIndex
from carya.core.matrices import Csr
from carya.core.parameters import did_you_mean
from carya.core.strings import StringArray
from carya.errors import InputError
from carya.fork_safety import cached_property
from carya.text.open_vocabulary.name_statistics import NameStatistics

_MAX_LABELS_FOR_SUGGESTIONS = 200_000


@dataclass(frozen=True, eq=False)
class LabelSet:
    """Labels of a text ranker.

    Attributes
    ----------
    ids : StringArray
        The labels as they occur in the data, such as URIs, in sorted order, followed by the labels added later.
    names : StringArray or None
        Human-readable names, if they differ from the ids.
    texts : StringArray or None
        Descriptions of the labels.
    counts : ndarray of int64 or None
        The number of training texts per label, if known.
    n_texts : int or None
        The number of training texts, if known.
    """

    ids: StringArray
    names: StringArray | None = None
    texts: StringArray | None = None
    counts: NDArray[np.int64] | None = None
    n_texts: int | None = None

    @classmethod
    def of(
        cls, ids: Sequence[str], names: Mapping[str, str] | None = None, texts: Mapping[str, str] | None = None
    ) -> LabelSet:
        """Create a label set; missing names default to the ids, and missing texts to the names."""
        for argument, mapping in (("names", names), ("label_texts", texts)):
            if mapping is not None and not isinstance(mapping, Mapping):
                raise InputError(f"{argument} must be a mapping from labels to strings, got {type(mapping).__name__}.")
            for label, text in (mapping or {}).items():
                if not isinstance(text, str):
                    raise InputError(f"{argument} must map labels to strings, but {label!r} is mapped to {text!r}.")
            if mapping and ids and not any(label in mapping for label in ids):
                raise InputError(
                    f"{argument} contains none of the labels: its first key is {next(iter(mapping))!r}, but the first "
                    f"label is {ids[0]!r}. Use the label ids as keys."
                )
        name_list = [(names or {}).get(label, label) for label in ids]
        text_array = None
        if texts is not None:
            text_array = StringArray.of([texts.get(label, name) for label, name in zip(ids, name_list, strict=True)])
        return cls(StringArray.of(ids), StringArray.of(name_list) if names else None, text_array)

    def with_counts(self, Y: Csr) -> LabelSet:
        """Return a copy with the number of training texts per label, computed from the training labels `Y`."""
        return replace(self, counts=Y.column_counts(), n_texts=Y.rows)

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def index(self) -> LabelIndex:
        """The index for looking up labels by id, name or prefix."""
        return LabelIndex(self.ids, self.names)

    @cached_property
    def name_statistics(self) -> NameStatistics:
        """The statistics of the label names, used to propose new labels."""
        return NameStatistics.of(self.ids if self.names is None else self.names)

    def name(self, label: int) -> str:
        """Return the name of a label."""
        return self.ids[label] if self.names is None else self.names[label]

    def __contains__(self, label: object) -> bool:
        return isinstance(label, str) and self.index.find(label) is not None

    def number(self, label: str) -> int:
        """Return the index of the label with the given id or name; raise InputError if the label is unknown."""
        if not isinstance(label, str):
            raise InputError(f"label must be a string, got {label!r}.")
        number = self.index.find(label)
        if number is None:
            few = len(self) < _MAX_LABELS_FOR_SUGGESTIONS
            suggestion = did_you_mean(label, self.ids if self.names is None else self.names) if few else ""
            raise InputError(f"Unknown label {label!r}.{suggestion}")
        return number

    def numbers(self, labels: Iterable[str]) -> NDArray[np.int32]:
        """Return the distinct indices of the given labels, in ascending order; raise InputError if the list is
        empty.
        """
        if isinstance(labels, (str, bytes)) or not isinstance(labels, Iterable):
            raise InputError(f"labels must be a list of strings, got {labels!r}.")
        found = sorted({self.number(label) for label in labels})
        if not found:
            raise InputError("labels is empty. At least one label is required.")
        return np.array(found, np.int32)

    def take(self, numbers: NDArray[np.int32]) -> LabelSet:
        """Return a label set with the labels at the given indices."""

        def of(strings: StringArray | None) -> StringArray | None:
            return None if strings is None else StringArray.of([strings[number] for number in numbers.tolist()])

        counts = None if self.counts is None else self.counts[numbers]
        ids = StringArray.of([self.ids[number] for number in numbers.tolist()])
        return LabelSet(ids, of(self.names), of(self.texts), counts, self.n_texts)

    def append(self, new: LabelSet, counts: NDArray[np.int64]) -> LabelSet:
        """Return a label set with additional labels, which follow the existing ones.

        Names and texts that only one of the sets has default to the ids and the names.
        """
        names = texts = None
        if self.names is not None or new.names is not None:
            names = StringArray.of([*(self.names or self.ids), *(new.names or new.ids)])
        if self.texts is not None or new.texts is not None:
            own = [part.texts or part.names or part.ids for part in (self, new)]
            texts = StringArray.of([*own[0], *own[1]])
        ids = StringArray.of([*self.ids, *new.ids])
        if self.counts is None or self.n_texts is None:
            return LabelSet(ids, names, texts)
        n_texts = max(self.n_texts, int(counts.max(initial=0)))
        return LabelSet(ids, names, texts, np.concatenate([self.counts, counts]), n_texts)


@dataclass(frozen=True, eq=False)
class LabelRows:
    """Label matrix with named columns; accepted in place of lists of labels.

    Attributes
    ----------
    matrix : Csr of shape (n_texts, n_labels)
    ids : sequence of str
        One unique id per column.
    """

    matrix: Csr
    ids: Sequence[str]

    def used(self) -> tuple[Csr, list[str]]:
        """Return the nonempty columns, sorted by id, and their ids, as :func:`label_matrix` does."""
        order = sorted(np.flatnonzero(self.matrix.column_counts()).tolist(), key=self.ids.__getitem__)
        column = np.zeros(self.matrix.cols, np.int32)
        column[order] = np.arange(len(order), dtype=np.int32)
        return self.matrix.merge_columns(column, max(len(order), 1)).with_values(1), [self.ids[old] for old in order]


def training_labels(labels: Any, label_names: LabelNames | None = None) -> tuple[Csr, list[str]]:
    """Convert training labels in any form to a matrix, whose values can serve as costs; also return the label ids."""
    if isinstance(labels, LabelRows):
        return labels.used()
    coerced = coerce_labels(labels, label_names=label_names)
    return coerced.matrix, coerced.all_ids()


def add_unseen_labels(Y: Csr, ids: list[str], vocabulary: Iterable[str] | None) -> tuple[Csr, list[str]]:
    """Add empty columns for the labels in a vocabulary that no text has.

    If the labels are sorted, the new labels are inserted in sorted order; otherwise, they are appended.

    >>> Y, ids = add_unseen_labels(training_labels([["b"], ["d"]])[0], ["b", "d"], ["a", "b", "c"])
    >>> ids, Y.to_scipy().toarray().tolist()
    (['a', 'b', 'c', 'd'], [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    """
    if vocabulary is None:
        return Y, ids
    if isinstance(vocabulary, (str, bytes)) or not isinstance(vocabulary, Iterable):
        raise InputError(f"vocabulary must be a list of strings, got {vocabulary!r}.")
    unseen = set()
    for label in vocabulary:
        if not isinstance(label, str):
            raise InputError(f"vocabulary must contain only strings, got {label!r}.")
        unseen.add(label)
    unseen -= set(ids)
    extended = ids + sorted(unseen)
    if all(first < second for first, second in itertools.pairwise(ids)):
        extended.sort()
    column = {label: number for number, label in enumerate(extended)}
    new_columns = np.array([column[label] for label in ids], np.int32)
    return Y.merge_columns(new_columns, len(extended)), extended


def label_matrix(
    labels: Any, known: Sequence[str] | None = None, *, keep_unknown: bool = False
) -> tuple[sp.csr_array, list[str]]:
    """Convert labels in any form to a (rows, labels) matrix; also return the label of each column.

    The columns are the known labels or, by default, all labels that occur, in sorted order; integers are column
    indices. Unknown labels are ignored or, with `keep_unknown`, appended after the known ones.

    >>> Y, ids = label_matrix([["b", "a"], [], ["b"]])
    >>> ids, Y.toarray().tolist()
    (['a', 'b'], [[1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    """
    coerced = coerce_labels(labels) if known is None else match_labels(labels, known, keep_unknown=keep_unknown)
    return coerced.matrix.to_scipy(), coerced.all_ids()
