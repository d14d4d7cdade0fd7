"""Default vectorizer for each model kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from carya.models.reranked.model import Reranked
from carya.text.tfidf import Tfidf


def default_vectorizer(model: object, **settings: Any) -> Tfidf:
    """Return an unfitted Tfidf with the default features for a model; `settings` are passed to Tfidf.

    For :class:`carya.Reranked`, the features include character n-grams in addition to words, so that label names can be
    matched to texts; the trees use only the words (see :func:`name_columns`). For other models, the features are words
    and, if the texts are short, character n-grams (``analyzer="auto"``).

    Examples
    --------
    >>> import carya
    >>> default_vectorizer(carya.XRLinear())
    Tfidf(analyzer='auto')
    >>> default_vectorizer(carya.Reranked()).analyzer
    ['word', 'char_wb']
    >>> default_vectorizer(carya.Reranked(), analyzer="word")
    Tfidf()
    """
    if isinstance(model, Reranked):
        if not {"analyzer", "ngram_range"} & settings.keys():
            return Tfidf(analyzer=["word", "char_wb"], ngram_range=[(1, 2), (3, 5)], **settings)
        return Tfidf(**settings)
    return Tfidf(**{"analyzer": "auto"} | settings)


def name_columns(model: object, vectorizer: Tfidf) -> int | None:
    """Return the number of feature columns used only to match label names, or None if there are none."""
    return count_name_columns(model, vectorizer.widths_)


def count_name_columns(model: object, widths: Sequence[int]) -> int | None:
    """Compute the result of :func:`name_columns` from the number of features per analyzer."""
    count = sum(widths) - widths[0]
    return count if isinstance(model, Reranked) and 0 < count < sum(widths) else None
