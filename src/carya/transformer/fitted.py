"""Fitted state of a transformer model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from carya.models.calibration.calibration import Calibration
from carya.text.labels import LabelSet
from carya.text.tfidf import Tfidf
from carya.transformer.rankers.rankers import CombinedRankers

if TYPE_CHECKING:
    from carya.transformer.encoder.encoder import Encoder


@dataclass(frozen=True, eq=False)
class FittedTransformer:
    """The trained components of a transformer model.

    Attributes
    ----------
    encoder : Encoder
    rankers : CombinedRankers
    labels : LabelSet
    vectorizer : Tfidf or None
        None if the model was trained without TF-IDF features.
    feature_widths : pair of int
        The numbers of sparse and dense columns in the features passed to `fit`; (0, 0) if none were passed.
    calibration : Calibration or None
    label_vectorizer : Tfidf or None
        The vectorizer of the features that are compared with label texts.
    """

    encoder: Encoder
    rankers: CombinedRankers
    labels: LabelSet
    vectorizer: Tfidf | None
    feature_widths: tuple[int, int] = (0, 0)
    calibration: Calibration | None = None
    label_vectorizer: Tfidf | None = None
