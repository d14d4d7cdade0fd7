"""Rankings that hold only some labels, and are exact: nothing is lost because other labels stood before it."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from carya.core import lazy_sparse as sp
from carya.serve.http.errors import BadRequest, TooLarge
from carya.serve.registry import Loaded
from carya.serve.routes.schemas import LabelFilter, SuggestRequest
from carya.serve.settings import Settings

Row = list[tuple[int, float]]
_FEW = 8  # texts that are ranked sooner one by one than as a batch, which begins and ends threads
_DEEPER = 4  # times as many labels are asked for when too few of them were allowed


def ranked(loaded: Loaded, texts: list[str], asked: SuggestRequest, settings: Settings) -> list[Row]:
    """Labels and scores of each text, best first, as its filter allows them.

    With `only` or `prefix` every allowed label is scored, whether the beam would have come to it or not. With `never`
    alone the ranking is that without a filter, less these labels.
    """
    allowed, never = _numbers(loaded, asked.labels or LabelFilter())
    if allowed is None:
        return _without(loaded, texts, asked, never, settings)
    allowed = np.setdiff1d(allowed, never, assume_unique=True)
    if allowed.size * len(texts) > settings.max_pairs:
        raise TooLarge(
            f"the filter allows {allowed.size} labels of {len(texts)} texts, which are more than {settings.max_pairs} "
            "pairs to score: send fewer texts at once, or a narrower filter"
        )
    if not hasattr(loaded.ranker.model_, "predict_selected"):
        return _deeper(loaded, texts, asked, {*allowed.tolist()})
    return _each(loaded, texts, asked, allowed)


def _numbers(loaded: Loaded, labels: LabelFilter) -> tuple[NDArray[np.int32] | None, NDArray[np.int32]]:
    """The labels that are allowed, ascending, and None if all are; and those that are not."""

    def known(names: list[str], where: str) -> NDArray[np.int32]:
        found = []
        for name in names:
            number = loaded.index.number(name)
            if number is None:
                raise BadRequest(f"labels.{where} has {name[:100]!r}, which is no label of the model")
            found.append(number)
        return np.unique(np.array(found, np.int32))

    allowed = None if labels.only is None else known(labels.only, "only")
    if labels.prefix is not None:
        some = loaded.index.with_prefix(labels.prefix)
        allowed = some if allowed is None else np.intersect1d(allowed, some, assume_unique=True)
    return allowed, known(labels.never or [], "never")


def _each(loaded: Loaded, texts: list[str], asked: SuggestRequest, allowed: NDArray[np.int32]) -> list[Row]:
    """The best of the allowed labels, all of which are scored."""
    ranker = loaded.ranker
    X = ranker.vectorizer_.transform(texts)
    pairs = sp.csr_array(
        (
            np.ones(allowed.size * len(texts), np.float32),
            np.tile(allowed, len(texts)),
            np.arange(len(texts) + 1, dtype=np.int64) * allowed.size,
        ),
        shape=(len(texts), len(ranker.labels_)),
    )
    scores = ranker.model_.predict_selected(X, pairs).data.reshape(len(texts), allowed.size)
    rows: list[Row] = []
    for row, (begin, end) in zip(scores, itertools.pairwise(X.indptr), strict=True):
        if begin == end:  # no known term: no labels, as without a filter
            rows.append([])
            continue
        best = np.lexsort((allowed, -row))[: asked.top_k]
        rows.append(
            [
                (label, score)
                for label, score in zip(allowed[best].tolist(), row[best].tolist(), strict=True)
                if asked.threshold is None or score >= asked.threshold
            ]
        )
    return rows


def _without(
    loaded: Loaded, texts: list[str], asked: SuggestRequest, never: NDArray[np.int32], settings: Settings
) -> list[Row]:
    """As many more labels as could be left out, less those."""
    if (asked.top_k + never.size) * len(texts) > settings.max_pairs:
        raise TooLarge(
            f"top_k is {asked.top_k} and labels.never has {never.size} labels, for {len(texts)} texts, which are more "
            f"than {settings.max_pairs} pairs to score: send fewer texts at once"
        )
    left_out = set(never.tolist())
    return [
        [one for one in row if one[0] not in left_out][: asked.top_k]
        for row in found(loaded, texts, asked, asked.top_k + len(left_out))
    ]


def _deeper(loaded: Loaded, texts: list[str], asked: SuggestRequest, allowed: set[int]) -> list[Row]:
    """For models that cannot score given labels: ask for more of the ranking until it is enough, or all there is.

    One text at a time: whole rankings of all of them could be more than there is memory.
    """
    most = len(loaded.ranker.labels_)
    wanted = min(asked.top_k, len(allowed))
    rows: list[Row] = []
    for text in texts:
        count = asked.top_k
        while True:
            count = min(most, count * _DEEPER)
            (row,) = found(loaded, [text], asked, count)
            kept = [one for one in row if one[0] in allowed][: asked.top_k]
            if count == most or len(kept) == wanted or len(row) < count:
                break
        rows.append(kept)
    return rows


def found(loaded: Loaded, texts: list[str], asked: SuggestRequest, top_k: int) -> list[Row]:
    """Labels and scores of each text as the model ranks them."""
    ranker = loaded.ranker
    how = {"top_k": top_k, "beam_width": asked.beam_width, "min_score": asked.threshold}
    rank_rows = getattr(ranker.model_, "rank_rows", None)
    if rank_rows is None:
        number = loaded.index.number
        answers = ranker.suggest_all(texts, **how)  # type: ignore[arg-type]
        return [[(number(one.label) or 0, one.score) for one in some] for some in answers]
    if len(texts) < _FEW:
        ranks = [ranker.model_.rank_sparse(*ranker.vectorizer_.row(text), **how) for text in texts]
        return [list(zip(labels.tolist(), scores.tolist(), strict=True)) for labels, scores in ranks]
    ends, labels, scores = (array.tolist() for array in rank_rows(*ranker.vectorizer_.rows(texts), **how))
    return [list(zip(labels[begin:end], scores[begin:end], strict=True)) for begin, end in itertools.pairwise(ends)]
