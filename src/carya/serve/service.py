"""What the pages of the API ask a model, within the limits, and its answers as messages."""

from __future__ import annotations

import math

from msgspec import UNSET

from carya.errors import InputError, ParameterError
from carya.models.xr_linear.model import XRLinear
from carya.serve import label_filter
from carya.serve.http.errors import BadRequest, NotFound, TooLarge
from carya.serve.registry import Loaded, Registry
from carya.serve.routes.schemas import (
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
from carya.serve.settings import Settings
from carya.text.explanation import TermShare

_SHORT_TEXTS = 50_000  # characters that are ranked in a few milliseconds
_SHORT_ANSWERS = 2_000  # labels
_SHORT_BEAM = 50


def checked(asked: SuggestRequest, settings: Settings) -> list[str]:
    """The texts of a request; raises BadRequest or TooLarge for what a request may not ask for."""
    if (asked.text is UNSET) == (asked.texts is UNSET):
        raise BadRequest('there must be either "text" or "texts"')
    texts = [asked.text] if isinstance(asked.text, str) else asked.texts or []
    if len(texts) > settings.max_texts:
        raise TooLarge(f"there are {len(texts)} texts; the most there may be are {settings.max_texts}")
    check_texts(texts, settings)
    for name, given, most in (
        ("top_k", asked.top_k, settings.max_top_k),
        ("beam_width", asked.beam_width, settings.max_beam_width),
    ):
        if given is not None and given > most:
            raise BadRequest(f"{name} is {given}; it must be at most {most}")
    if asked.top_k * len(texts) > settings.max_labels:
        raise BadRequest(
            f"top_k is {asked.top_k} for {len(texts)} texts; an answer has at most {settings.max_labels} labels in all"
        )
    if asked.threshold is not None and not math.isfinite(asked.threshold):
        raise BadRequest(f"threshold is {asked.threshold}; it must be a finite number")
    return texts


def check_texts(texts: list[str], settings: Settings) -> None:
    """Refuse texts that are too long."""
    longest = max(map(len, texts), default=0)
    if longest > settings.max_text_length:
        raise TooLarge(f"a text has {longest} characters; the most there may be are {settings.max_text_length}")


def is_short(loaded: Loaded, asked: SuggestRequest, texts: list[str]) -> bool:
    """Whether a request is answered so soon that it would take longer to hand it to a thread."""
    return (
        asked.labels is None
        and sum(map(len, texts)) <= _SHORT_TEXTS
        and asked.top_k * len(texts) <= _SHORT_ANSWERS
        and (asked.beam_width or 0) <= _SHORT_BEAM
        and isinstance(loaded.ranker.model_, XRLinear)  # others take longer
    )


def suggest(loaded: Loaded, asked: SuggestRequest, texts: list[str], settings: Settings) -> SuggestResponse:
    """The rankings of the texts of a request."""
    if asked.labels is None:
        rows = label_filter.found(loaded, texts, asked, asked.top_k)
    else:
        rows = label_filter.ranked(loaded, texts, asked, settings)
    label = loaded.label
    results = [Ranking([Suggested(*label(number), score) for number, score in row]) for row in rows]
    calibration = loaded.ranker.calibration_
    if calibration is not None:
        every = [one for ranking in results for one in ranking.suggestions]
        for one, chance in zip(every, calibration([one.score for one in every]).tolist(), strict=True):
            one.chance = chance
    return SuggestResponse(loaded.name, loaded.version, results)


def explain(loaded: Loaded, asked: ExplainRequest) -> ExplainResponse:
    """Why a text gets a label; raises NotFound for a label there is not, BadRequest where nothing can be explained."""
    if not hasattr(loaded.ranker.model_, "explain"):
        raise BadRequest(
            f"the model {loaded.name!r} does not explain its scores, as it is no single tree: it is of kind "
            f"{type(loaded.ranker.model_).__name__}"
        )
    if asked.label is None:
        best = loaded.ranker.suggest(asked.text, top_k=1)
        if not best:
            raise NotFound("the model knows no term of the text, so no label is the best one: give a label")
        label = best[0].label
    else:
        number = loaded.index.number(asked.label)
        if number is None:
            raise NotFound(f"there is no label {asked.label[:100]!r}")
        label = loaded.label(number)[0]
    try:
        why = loaded.ranker.explain(asked.text, label)
    except (InputError, ParameterError) as error:  # others, as that of a damaged model, name paths
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
        calibrated=ranker.calibration_ is not None,
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
    found = loaded.index.search(start)
    shown = [LabelAbout(*loaded.label(number)) for number in found[:limit].tolist()]
    return LabelsResponse(loaded.name, loaded.version, shown, int(found.size))
