"""Rankers that compare the character n-grams of a text with those of the label texts.

They suggest labels that are mentioned in a text, including labels without training texts, inflected forms and parts of
compound words.
"""

from __future__ import annotations

import numpy as np

from carya import _core
from carya.core.matrices import Csr, Features
from carya.indexing.representations import normalize
from carya.models.reranked.similarity_model import similarity_model
from carya.models.xr_linear.model import XRLinear
from carya.text.tfidf import Tfidf
from carya.transformer.inputs import LabelTexts

#: The cosine similarity of the TF-IDF weights, and the fraction of a label text's n-grams that occur in the text.
TERM_RANKERS = ("label_terms", "label_coverage")


def label_term_vectorizer(*, n_jobs: int) -> Tfidf:
    """Return an unfitted vectorizer for texts and label texts."""
    return Tfidf(analyzer="char_wb", ngram_range=(3, 5), n_jobs=n_jobs)


def label_term_rankers(vectorizer: Tfidf, label_texts: LabelTexts, *, n_jobs: int) -> dict[str, XRLinear]:
    """Return the rankers by name; labels without a text have a score of 0."""
    texts = [""] * label_texts.n_labels
    for label, text in zip(label_texts.labels.tolist(), label_texts.texts, strict=True):
        texts[label] = text
    terms = Features.of(Csr.of_scipy(vectorizer.transform(texts)))
    counts = np.diff(terms.sparse.indptr)
    equal = terms.sparse.with_values(1)
    shares = Csr.of(equal.indptr, equal.indices, (1 / np.repeat(counts, counts)).astype(np.float32), equal.cols)
    threads = _core.thread_count(n_jobs)
    matrices = (normalize(terms), Features.of(shares))
    return {
        name: similarity_model(matrix, n_jobs=n_jobs, threads=threads)
        for name, matrix in zip(TERM_RANKERS, matrices, strict=True)
    }


def label_term_features(ranker: str, terms: Features) -> Features:
    """Return the input of a ranker, given the TF-IDF features of texts."""
    return normalize(terms) if ranker == "label_terms" else Features.of(terms.sparse.with_values(1))
