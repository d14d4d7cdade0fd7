"""A label tree inside a text model, with the vectorizer that computes its features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.errors import InputError
from carya.models.reranked.column_views import first_columns_of_row
from carya.models.xr_linear.model import XRLinear
from carya.text.explanation import TextExplanation, locate_contributions
from carya.text.labels import LabelSet
from carya.text.tfidf import Tfidf


class TextTree(NamedTuple):
    """A label tree that uses terms as features.

    Attributes
    ----------
    vectorizer : Tfidf
    model : XRLinear
        The tree; its features are the first columns of the vectorizer's output.
    """

    vectorizer: Tfidf
    model: XRLinear

    def row(self, text: str) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the feature indices and the values of a text."""
        features, values = self.vectorizer.row(text)
        return first_columns_of_row(features, values, self.model.widths_[0], self.vectorizer.n_features_)

    def explain(self, text: str, number: int, labels: LabelSet) -> TextExplanation:
        """Return the exact contribution of each term to the score of the label with the given index."""
        features, values = self.row(text)
        x = sp.csr_array((values, features, [0, features.size]), shape=(1, self.model.widths_[0]))
        explanation = self.model.explain(x, number)
        if not explanation.is_additive:
            raise InputError(
                "The levels of the model use different kinds of transforms, so its scores are not sums over terms. "
                "Use XRLinear.explain to get the raw contributions at each level."
            )
        return TextExplanation.of(
            explanation, locate_contributions(self.vectorizer, text), labels.ids[number], labels.name(number)
        )
