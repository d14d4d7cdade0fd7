"""Exact ranking within a subset of the labels: no label is missed because other labels rank higher."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.models.base import RankOptions
from carya.text.base import RankedLabels
from carya.text.tfidf import check_texts

if TYPE_CHECKING:
    from carya.text.text_ranker import TextRanker

_GROWTH = 4  # factor by which a ranking is extended if it contains too few allowed labels


@dataclass(frozen=True, eq=False)
class LabelRestriction:
    """Set of labels that a ranking may contain.

    Attributes
    ----------
    allowed : ndarray of int32 or None
        The numbers of the allowed labels, in ascending order; None allows all labels. All allowed labels are scored,
        including labels that the beam search would not reach.
    excluded : ndarray of int32
        The numbers of the excluded labels, in ascending order.
    """

    allowed: NDArray[np.int32] | None
    excluded: NDArray[np.int32]

    @property
    def candidates(self) -> NDArray[np.int32] | None:
        """The allowed labels without the excluded ones; None if all labels are allowed."""
        if self.allowed is None:
            return None
        return np.setdiff1d(self.allowed, self.excluded, assume_unique=True)


def rank_restricted(
    ranker: TextRanker,
    texts: Sequence[str],
    restriction: LabelRestriction,
    *,
    top_k: int = 10,
    beam_width: int | None = None,
    min_score: float | None = None,
) -> list[RankedLabels]:
    """Return the best labels for each text, subject to the restriction; other arguments as in `rank_texts`."""
    check_texts(texts)
    options = RankOptions.of(top_k, beam_width, min_score)
    candidates = restriction.candidates
    if candidates is None:
        excluded = set(restriction.excluded.tolist())
        rankings = ranker.rank_texts(texts, **options._replace(top_k=options.top_k + len(excluded))._asdict())
        return [[pair for pair in ranking if pair[0] not in excluded][: options.top_k] for ranking in rankings]
    if ranker.model_.scores_any_label:
        return _score_all(ranker, texts, candidates, options)
    return [_extend_ranking(ranker, text, set(candidates.tolist()), options) for text in texts]


def _score_all(
    ranker: TextRanker, texts: Sequence[str], candidates: NDArray[np.int32], options: RankOptions
) -> list[RankedLabels]:
    """Score every candidate and return the best ones."""
    X = ranker.vectorizer_.transform(texts)
    pairs = sp.csr_array(
        (
            np.ones(candidates.size * len(texts), np.float32),
            np.tile(candidates, len(texts)),
            np.arange(len(texts) + 1, dtype=np.int64) * candidates.size,
        ),
        shape=(len(texts), len(ranker.labels_)),
    )
    scores = ranker.model_.predict_selected(X, pairs).data.reshape(len(texts), candidates.size)
    rankings: list[RankedLabels] = []
    for row, (begin, end) in zip(scores, itertools.pairwise(X.indptr), strict=True):
        if begin == end:  # without known terms, the ranking is empty, as it is without a restriction
            rankings.append([])
            continue
        best = np.lexsort((candidates, -row))[: options.top_k]
        pairs_of_text = zip(candidates[best].tolist(), row[best].tolist(), strict=True)
        rankings.append([pair for pair in pairs_of_text if pair[1] >= options.min_score])
    return rankings


def _extend_ranking(ranker: TextRanker, text: str, candidates: set[int], options: RankOptions) -> RankedLabels:
    """Extend the ranking until it contains enough candidates, for models that cannot score arbitrary labels.

    Texts are ranked one at a time, because the complete rankings of all texts may not fit into memory.
    """
    n_labels = len(ranker.labels_)
    needed = min(options.top_k, len(candidates))
    count = options.top_k
    while True:
        count = min(n_labels, count * _GROWTH)
        (ranking,) = ranker.rank_texts([text], **options._replace(top_k=count)._asdict())
        kept = [pair for pair in ranking if pair[0] in candidates][: options.top_k]
        if count == n_labels or len(kept) == needed or len(ranking) < count:
            return kept
