"""Rank a subset of the labels exactly: higher-ranking labels outside the subset do not displace labels in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.core.validation import LabelsLike
from carya.models.interface import RankOptions
from carya.text.inputs import list_of_texts

_GROWTH = 4  # factor by which a ranking is extended if it contains too few allowed labels
_MAX_PAIRS = 1 << 22  # maximum number of (text, label) pairs in memory at a time

#: Label indices and scores for one text, best first.
RankedLabels = list[tuple[int, float]]


class TextModel(Protocol):
    """A text model whose ranking can be restricted."""

    @property
    def labels_(self) -> Sequence[str]:
        """The label ids."""
        ...

    @property
    def scores_any_label(self) -> bool:
        """Whether `predict_selected` can score labels that a search would not retrieve."""
        ...

    def rank_texts(
        self, texts: Sequence[str], *, top_k: int, beam_width: int | None, min_score: float | None
    ) -> list[RankedLabels]:
        """Return the indices and scores of the best labels for each text, best first."""
        ...

    def predict_selected(self, texts: Iterable[str], candidates: LabelsLike) -> Any:
        """Return the scores of the given (text, label) pairs."""
        ...

    def is_rankable(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Return a mask of the texts for which the model ranks labels."""
        ...


@dataclass(frozen=True, eq=False)
class LabelRestriction:
    """Set of labels that a ranking may contain.

    Attributes
    ----------
    allowed : ndarray of int32 or None
        The indices of the allowed labels, in ascending order; None allows all labels. All allowed labels are scored,
        including labels that the beam search would not reach.
    excluded : ndarray of int32
        The indices of the excluded labels, in ascending order.
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
    ranker: TextModel,
    texts: Sequence[str],
    restriction: LabelRestriction,
    *,
    top_k: int = 10,
    beam_width: int | None = None,
    min_score: float | None = None,
) -> list[RankedLabels]:
    """Return the best labels for each text, subject to the restriction; see `rank_texts` for the other arguments."""
    texts = list_of_texts(texts)
    options = RankOptions.of(top_k, beam_width, min_score)
    candidates = restriction.candidates
    if candidates is None:
        excluded = set(restriction.excluded.tolist())
        rankings = _rank_all(ranker, texts, options._replace(top_k=options.top_k + len(excluded)))
        return [[pair for pair in ranking if pair[0] not in excluded][: options.top_k] for ranking in rankings]
    return rank_within(ranker, texts, candidates, options)


def rank_within(
    ranker: TextModel, texts: Sequence[str], candidates: NDArray[np.int32], options: RankOptions
) -> list[RankedLabels]:
    """Return the best candidates for each text, best first; `options.labels` is ignored."""
    if not ranker.scores_any_label:
        return [_extend_ranking(ranker, text, set(candidates.tolist()), options) for text in texts]
    step = max(1, _MAX_PAIRS // max(1, candidates.size))
    blocks = (texts[begin : begin + step] for begin in range(0, len(texts), step))
    return [ranking for block in blocks for ranking in _score_all(ranker, block, candidates, options)]


def _rank_all(ranker: TextModel, texts: Sequence[str], options: RankOptions) -> list[RankedLabels]:
    return ranker.rank_texts(texts, top_k=options.top_k, beam_width=options.beam_width, min_score=options.min_score)


def _score_all(
    ranker: TextModel, texts: Sequence[str], candidates: NDArray[np.int32], options: RankOptions
) -> list[RankedLabels]:
    """Score every candidate and return the best ones."""
    pairs = sp.csr_array(
        (
            np.ones(candidates.size * len(texts), np.float32),
            np.tile(candidates, len(texts)),
            np.arange(len(texts) + 1, dtype=np.int64) * candidates.size,
        ),
        shape=(len(texts), len(ranker.labels_)),
    )
    scores = ranker.predict_selected(texts, pairs).data.reshape(len(texts), candidates.size)
    rankings: list[RankedLabels] = []
    for row, is_rankable in zip(scores, ranker.is_rankable(texts).tolist(), strict=True):
        if not is_rankable:  # an unrestricted ranking is also empty for a text without known terms
            rankings.append([])
            continue
        best = np.lexsort((candidates, -row))[: options.top_k]
        pairs_of_text = zip(candidates[best].tolist(), row[best].tolist(), strict=True)
        rankings.append([pair for pair in pairs_of_text if pair[1] >= options.min_score])
    return rankings


def _extend_ranking(ranker: TextModel, text: str, candidates: set[int], options: RankOptions) -> RankedLabels:
    """Extend the ranking until it contains enough candidates; used for models that cannot score arbitrary labels.

    Texts are ranked one at a time, because the complete rankings of all texts may not fit in memory.
    """
    n_labels = len(ranker.labels_)
    needed = min(options.top_k, len(candidates))
    count = options.top_k
    while True:
        count = min(n_labels, count * _GROWTH)
        (ranking,) = _rank_all(ranker, [text], options._replace(top_k=count))
        kept = [pair for pair in ranking if pair[0] in candidates][: options.top_k]
        if count == n_labels or len(kept) == needed or len(ranking) < count:
            return kept
