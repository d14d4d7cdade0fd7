"""What the pages of the API ask a model, and its answers as messages."""

from __future__ import annotations

import bisect

from carya.errors import InputError
from carya.serve.errors import BadRequest, NotFound
from carya.serve.messages import (
    ExplainRequest,
    ExplainResponse,
    LabelAbout,
    LabelsResponse,
    LevelShares,
    ModelAbout,
    Ranking,
    Share,
    Suggested,
    SuggestRequest,
    SuggestResponse,
)
from carya.serve.registry import Loaded, Registry
from carya.serve.settings import Settings
from carya.text.explaining import TermShare


def suggest(loaded: Loaded, asked: SuggestRequest, settings: Settings) -> SuggestResponse:
    """The rankings of the texts of a request."""
    texts = asked.texts if asked.texts is not None else [asked.text or ""]
    found = loaded.ranker.suggest_all(texts, top_k=asked.top_k, beam_width=asked.beam_width, min_score=asked.threshold)
    results = [Ranking([Suggested(one.label, one.name, one.score) for one in some]) for some in found]
    return SuggestResponse(loaded.name, loaded.version, results)


def explain(loaded: Loaded, asked: ExplainRequest, settings: Settings) -> ExplainResponse:
    """Why a text gets a label."""
    label = asked.label
    if label is None:
        best = loaded.ranker.suggest(asked.text, top_k=1)
        if not best:
            raise BadRequest("the model knows no term of the text")
        label = best[0].label
    try:
        why = loaded.ranker.explain(asked.text, label)
    except InputError as error:
        raise BadRequest(str(error)) from None

    def listed(terms: tuple[TermShare, ...]) -> list[Share]:
        return [Share(one.term, one.share, list(one.places)) for one in terms]

    levels = [LevelShares(one.node, one.score, one.base, listed(one.terms)) for one in why.levels]
    return ExplainResponse(
        loaded.name, loaded.version, why.label, why.name, why.score, why.in_logs, why.base, listed(why.terms), levels
    )


def about(registry: Registry, loaded: Loaded, settings: Settings) -> ModelAbout:
    """What a model is."""
    ranker = loaded.ranker
    tree = getattr(ranker.model_, "tree_", None)
    return ModelAbout(
        name=loaded.name,
        version=loaded.version,
        kind=type(ranker.model_).__name__,
        default=loaded.name == registry.default,
        labels=len(ranker.labels_),
        features=int(ranker.vectorizer_.n_features_),
        levels=[] if tree is None else [len(parents) for parents in tree.parents],
        beam_width=getattr(ranker.model_, "beam_width", None),
        explains=hasattr(ranker.model_, "explain"),
        limits={
            "texts": settings.max_texts,
            "text_length": settings.max_text_length,
            "top_k": settings.max_top_k,
            "beam_width": settings.max_beam_width,
        },
        others=[name for name in registry.names() if name != loaded.name],
    )


def labels(loaded: Loaded, start: str, limit: int) -> LabelsResponse:
    """Labels that begin with something, by name and then by id, whatever their case."""
    ranker = loaded.ranker
    folded = start.casefold()
    names = sorted((name.casefold(), label) for label, name in enumerate(ranker.label_names_))
    at = bisect.bisect_left(names, (folded,))
    found = []
    for name, label in names[at:]:
        if not name.startswith(folded):
            break
        found.append(label)
    shown = [LabelAbout(ranker.labels_[label], ranker.label_names_[label]) for label in found[:limit]]
    return LabelsResponse(loaded.name, loaded.version, shown, len(found))


__all__ = ["NotFound", "about", "explain", "labels", "suggest"]
