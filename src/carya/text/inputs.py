"""Inputs to text models: texts in any supported form, and corpora, which contain texts and labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from carya.core.inputs.columns import is_table, table_column
from carya.core.inputs.texts import LABEL_COLUMN, TextsLike, coerce_texts
from carya.data.corpus import Corpus, Matrices
from carya.errors import InputError
from carya.text.labels import LabelRows


class TextsAndLabels(NamedTuple):
    """Texts with their labels and label names.

    Attributes
    ----------
    texts : iterable of str
    labels : object
        Labels in any supported form; for a streamed corpus, a list that is complete only after all texts have been
        read.
    names : mapping of str to str, or None
    """

    texts: Iterable[str]
    labels: Any
    names: Mapping[str, str] | None = None


def texts_of(texts: TextsLike, name: str = "texts") -> Iterable[str]:
    """Return texts as a sequence or an iterator; the labels of a corpus are ignored."""
    if isinstance(texts, Corpus):
        return texts.texts()
    if isinstance(texts, Matrices):
        raise InputError(
            f"{texts.source} contains features, but this model requires texts. Use a model such as carya.XRLinear for "
            "features."
        )
    return coerce_texts(texts, name)


def list_of_texts(texts: TextsLike) -> Sequence[str]:
    """Return texts as a list or tuple."""
    checked = texts_of(texts)
    return checked if isinstance(checked, (list, tuple)) else list(checked)


def checked_list_of_texts(texts: TextsLike, name: str = "texts") -> list[str]:
    """Return texts as a list; like the native core, raise InputError if an item is not a string."""
    checked = list(texts_of(texts, name))
    for row, text in enumerate(checked):
        if not isinstance(text, str):
            raise InputError(f"{name} must be a list of strings, but item {row} has type {type(text).__name__}.")
    return checked


def split_corpus(texts: TextsLike, labels: Any = None) -> TextsAndLabels:
    """Return texts and labels; if `labels` is None, both are taken from a table, or from a corpus in a single pass."""
    if labels is not None:
        return TextsAndLabels(texts_of(texts), labels)
    if is_table(texts):
        return TextsAndLabels(texts_of(texts), table_column(texts, LABEL_COLUMN))
    if not isinstance(texts, Corpus):
        texts_of(texts)  # raises a more specific error if the type is not supported
        raise InputError("labels is missing. Pass labels, or pass a Corpus or a data frame that contains them.")
    names = _label_names(texts)
    if texts.matrix is not None and texts.vocabulary is not None:
        return TextsAndLabels(texts.texts(), LabelRows(texts.matrix, texts.vocabulary.ids), names)
    labels = []
    return TextsAndLabels(_read(texts, labels), labels, names)


def _read(corpus: Corpus, labels: list[tuple[str, ...]]) -> Iterator[str]:
    for example in corpus:
        labels.append(example.labels)
        yield example.text
    if not labels:
        raise InputError(f"{corpus.source} contains no rows. At least one is required.")


def _label_names(corpus: Corpus) -> dict[str, str] | None:
    """Return the label names, or None if they are the same as the ids."""
    if corpus.vocabulary is None:
        return None
    names = dict(zip(corpus.vocabulary.ids, corpus.vocabulary.names, strict=True))
    return names if any(label != name for label, name in names.items()) else None
