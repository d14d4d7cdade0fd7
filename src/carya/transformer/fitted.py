"""Fitted state of a transformer model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from carya.text.labels import LabelSet
from carya.text.tfidf import Tfidf
from carya.transformer.rankers.rankers import CombinedRankers

if TYPE_CHECKING:
    from carya.transformer.encoder.encoder import Encoder


@dataclass(frozen=True, eq=False)
class FittedTransformer:
    """The trained parts of a transformer model.

    Attributes
    ----------
    encoder : Encoder
    vectorizer : Tfidf
    rankers : CombinedRankers
    labels : LabelSet
    """

    encoder: Encoder
    vectorizer: Tfidf
    rankers: CombinedRankers
    labels: LabelSet
