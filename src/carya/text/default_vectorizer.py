"""Which features of texts suit which model."""

from __future__ import annotations

from typing import Any

from carya.models.reranked.model import Reranked
from carya.text.tfidf import Tfidf


def suited(model: object, **given: Any) -> Tfidf:
    """An untrained Tfidf with the features that a model ranks best with, and settings of one's own.

    A :class:`carya.Reranked` gets characters behind the words, to find the names of labels in texts: its trees see the
    words, see :func:`about_columns`. Other models get words.

    Examples
    --------
    >>> import carya
    >>> suited(carya.XRLinear())
    Tfidf()
    >>> suited(carya.Reranked()).analyzer
    ['word', 'char_wb']
    >>> suited(carya.Reranked(), analyzer="word")
    Tfidf()
    """
    if isinstance(model, Reranked) and not {"analyzer", "ngram_range"} & given.keys():
        return Tfidf(analyzer=["word", "char_wb"], ngram_range=[(1, 2), (3, 5)], **given)
    return Tfidf(**given)


def about_columns(model: object, vectorizer: Tfidf) -> dict[str, Any]:
    """What `fit` is to be told of the features of a trained vectorizer: which of several analyzers is for trees."""
    columns = vectorizer.widths_[0]
    several = 0 < columns < vectorizer.n_features_
    return {"columns": columns} if isinstance(model, Reranked) and several else {}
