"""API operations: validate a request, call the model, and build the response."""

from __future__ import annotations

import math
import time
import warnings
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from carya.errors import InputError, ParameterError, UnknownTextWarning
from carya.models.calibration.assignment import pool_size
from carya.models.calibration.calibration import Calibration
from carya.models.xr_linear.model import XRLinear
from carya.serve.http.errors import BadRequestError, ContentTooLargeError, NotFoundError
from carya.serve.registry import ModelRegistry, ServedFeatureModel, ServedModel
from carya.serve.routes.feature_rows import feature_blocks
from carya.serve.routes.schemas import (
    ExplainedLevel,
    ExplainedTerm,
    ExplainRequest,
    ExplainResponse,
    FeaturesRequest,
    LabelFilter,
    LabelInfo,
    LabelsResponse,
    ModelInfo,
    SuggestedLabel,
    SuggestRequest,
    SuggestResponse,
    TextSuggestions,
)
from carya.serve.settings import ServerSettings
from carya.text.explanation import TermContribution
from carya.text.label_restriction import LabelRestriction, RankedLabels, rank_restricted

# Requests within these limits are processed in the event loop.
_SHORT_SECONDS = 0.01  # estimated CPU time for ranking
_SHORT_LABELS = 2_000  # encoding this many labels takes a few milliseconds
_LABEL_BYTES = 100  # size of a suggestion in a response, without its id and name


def check_suggest_request(request: SuggestRequest, settings: ServerSettings) -> list[str]:
    """Validate a request and return its texts.

    Raises BadRequestError if the request is invalid, and ContentTooLargeError if it contains too much text.
    """
    if (request.text is UNSET) == (request.texts is UNSET):
        raise BadRequestError('The request must contain either "text" or "texts", but not both.')
    texts = [request.text] if isinstance(request.text, str) else request.texts or []
    check_texts(texts, request.top_k, request.beam_width, settings)
    if request.min_score is not None and not math.isfinite(request.min_score):
        raise BadRequestError(f"min_score must be a finite number, got {request.min_score}.")
    return texts


def check_texts(texts: list[str], top_k: int, beam_width: int | None, settings: ServerSettings) -> None:
    """Raise BadRequestError or ContentTooLargeError if texts or options exceed their limits."""
    if len(texts) > settings.max_texts:
        raise ContentTooLargeError(f"A request can have at most {settings.max_texts} texts, got {len(texts)}.")
    check_text_lengths(texts, settings)
    check_search_options(top_k, beam_width, settings)
    _check_label_count(top_k, len(texts), "texts", settings)


def _check_label_count(top_k: int, count: int, inputs: str, settings: ServerSettings) -> None:
    if top_k * count > settings.max_labels:
        raise BadRequestError(
            f"A response can have at most {settings.max_labels} labels, but top_k is {top_k} for {count} {inputs}. "
            f"Decrease top_k or send fewer {inputs} per request."
        )


def check_text_lengths(texts: list[str], settings: ServerSettings) -> None:
    """Raise ContentTooLargeError if a text is too long."""
    longest = max(map(len, texts), default=0)
    if longest > settings.max_text_length:
        raise ContentTooLargeError(f"A text can have at most {settings.max_text_length} characters, got {longest}.")


def check_search_options(top_k: int, beam_width: int | None, settings: ServerSettings) -> None:
    """Raise BadRequestError if an option exceeds its limit."""
    if top_k > settings.max_top_k:
        raise BadRequestError(f"top_k must be at most {settings.max_top_k}, got {top_k}.")
    if beam_width is not None and beam_width > settings.max_beam_width:
        raise BadRequestError(f"beam_width must be at most {settings.max_beam_width}, got {beam_width}.")


def estimate_response(model: ServedModel, request: SuggestRequest, texts: list[str]) -> int:
    """Return the approximate maximum size of a response in bytes."""
    top_k = request.top_k
    if request.decide is not None:
        try:
            top_k = pool_size(request.decide)
        except ParameterError as error:
            raise BadRequestError(str(error)) from None
    labels = min(top_k, len(model.ranker.labels_)) * len(texts)
    return int(labels * (_LABEL_BYTES + model.mean_label_bytes))


def is_short(model: ServedModel, request: SuggestRequest, texts: list[str]) -> bool:
    """Return whether a request is expected to take so little time that it can be processed in the event loop."""
    return (
        request.labels is None
        and not request.open_vocabulary
        and request.decide is None
        and model.cost is not None
        and request.top_k * len(texts) <= _SHORT_LABELS
        and model.cost.estimate(texts, request.beam_width) <= _SHORT_SECONDS
    )


def suggest_short(
    model: ServedModel, request: SuggestRequest, texts: list[str], settings: ServerSettings
) -> SuggestResponse:
    """Return the suggestions for the texts in a short request, and update the cost estimate of the model."""
    started = time.perf_counter()
    response = suggest(model, request, texts, settings)
    if model.cost is not None:
        model.cost.observe(time.perf_counter() - started, texts, request.beam_width)
    return response


def suggest(model: ServedModel, request: SuggestRequest, texts: list[str], settings: ServerSettings) -> SuggestResponse:
    """Return the suggestions for the texts in a request."""
    limits: dict[str, Any] = {"top_k": request.top_k, "beam_width": request.beam_width, "min_score": request.min_score}
    if request.decide is not None:
        return _assign(model, request, texts, settings)
    if request.open_vocabulary:
        return _suggest_open(model, request, texts, limits)
    if request.labels is None:
        rankings = model.ranker.rank_texts(texts, **limits)
    else:
        restriction = _label_restriction(model, request.labels, settings)
        _check_pairs(restriction, request.top_k, len(texts), settings)
        rankings = rank_restricted(model.ranker, texts, restriction, **limits)
    label = model.label
    results = [
        TextSuggestions([SuggestedLabel(*label(number), score) for number, score in ranking]) for ranking in rankings
    ]
    if model.ranker.calibration_ is not None:
        _add_probabilities(model.ranker.calibration_, rankings, results, by_rank=request.labels is None)
    return SuggestResponse(model.name, model.version, results)


def check_features_request(request: FeaturesRequest, settings: ServerSettings) -> None:
    """Validate a request; raise BadRequestError or ContentTooLargeError if it is invalid."""
    count = len(request.features)
    if count > settings.max_texts:
        raise ContentTooLargeError(f"A request can have at most {settings.max_texts} feature vectors, got {count}.")
    check_search_options(request.top_k, request.beam_width, settings)
    _check_label_count(request.top_k, count, "feature vectors", settings)
    if request.min_score is not None and not math.isfinite(request.min_score):
        raise BadRequestError(f"min_score must be a finite number, got {request.min_score}.")


def suggest_for_features(model: ServedFeatureModel, request: FeaturesRequest) -> SuggestResponse:
    """Return the suggestions for the feature vectors in a request."""
    ranker = model.ranker
    features = feature_blocks(request.features, ranker.widths_, model.feature_columns)
    rankings = ranker.suggest_all(
        features, top_k=request.top_k, beam_width=request.beam_width, min_score=request.min_score
    )
    results = [
        TextSuggestions([SuggestedLabel(found.label, found.name, found.score, found.probability) for found in row])
        for row in rankings
    ]
    return SuggestResponse(model.name, model.version, results)


def _assign(model: ServedModel, request: SuggestRequest, texts: list[str], settings: ServerSettings) -> SuggestResponse:
    """Return the labels that the decision rule of the request assigns."""
    if request.labels is not None or request.open_vocabulary or request.min_score is not None:
        raise BadRequestError("decide cannot be combined with labels, open_vocabulary or min_score.")
    try:
        size = pool_size(request.decide)
        check_search_options(size, request.beam_width, settings)
        if size * len(texts) > settings.max_labels:
            raise BadRequestError(
                f"A response can have at most {settings.max_labels} labels. Send fewer texts per request."
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnknownTextWarning)
            assigned = model.ranker.assign(texts, decide=str(request.decide), beam_width=request.beam_width)
    except (InputError, ParameterError) as error:  # an invalid rule, or a model without cut-offs
        raise BadRequestError(str(error)) from None
    results = [
        TextSuggestions([SuggestedLabel(found.label, found.name, found.score, found.probability) for found in row])
        for row in assigned
    ]
    return SuggestResponse(model.name, model.version, results)


def _suggest_open(
    model: ServedModel, request: SuggestRequest, texts: list[str], limits: dict[str, Any]
) -> SuggestResponse:
    """Return suggestions that include phrases that are not in the label list."""
    if request.labels is not None:
        raise BadRequestError("open_vocabulary cannot be combined with labels.")
    try:
        rankings = model.ranker.suggest_all(texts, open_vocabulary=True, **limits)
    except (InputError, ParameterError) as error:  # no word vectorizer, or no label names
        raise BadRequestError(str(error)) from None
    results = [
        TextSuggestions(
            [
                SuggestedLabel(
                    found.label,
                    found.name,
                    found.score,
                    found.probability,
                    new=found.is_new,
                )
                for found in ranking
            ]
        )
        for ranking in rankings
    ]
    return SuggestResponse(model.name, model.version, results)


def _add_probabilities(
    calibration: Calibration, rankings: list[RankedLabels], results: list[TextSuggestions], *, by_rank: bool
) -> None:
    """Set the probabilities of all suggestions; with a label filter, they depend only on the scores."""
    scores = [score for ranking in rankings for _, score in ranking]
    if by_rank:
        labels = [number for ranking in rankings for number, _ in ranking]
        ranks = [rank for ranking in rankings for rank in range(1, len(ranking) + 1)]
        values = calibration.of_labels(np.array(labels, np.int64), scores, ranks).tolist()
    else:
        values = calibration(scores).tolist()
    suggestions = (suggestion for result in results for suggestion in result.suggestions)
    for suggestion, probability in zip(suggestions, values, strict=True):
        suggestion.probability = probability


def _label_restriction(model: ServedModel, labels: LabelFilter, settings: ServerSettings) -> LabelRestriction:
    """Convert a label filter to a LabelRestriction; raise HttpError if it is too large or contains unknown labels."""
    index = model.ranker.label_set_.index

    def find_all(names: list[str], field: str) -> NDArray[np.int32]:
        distinct = list(dict.fromkeys(names))
        if len(distinct) > settings.max_filter_labels:
            raise ContentTooLargeError(
                f"labels.{field} can have at most {settings.max_filter_labels} different labels, got {len(distinct)}."
            )
        numbers = index.find_all(distinct)
        if numbers.min(initial=0) < 0:
            unknown = distinct[int(numbers.argmin())]
            raise BadRequestError(f"labels.{field} contains the unknown label {unknown[:100]!r}.")
        return np.unique(numbers)

    allowed = None if labels.allowed is None else find_all(labels.allowed, "allowed")
    if labels.prefix is not None:
        matching = index.with_prefix(labels.prefix)
        allowed = matching if allowed is None else np.intersect1d(allowed, matching, assume_unique=True)
    return LabelRestriction(allowed, find_all(labels.excluded or [], "excluded"))


def _check_pairs(restriction: LabelRestriction, top_k: int, n_texts: int, settings: ServerSettings) -> None:
    """Raise ContentTooLargeError if a label filter requires scoring too many pairs."""
    candidates = restriction.candidates
    if candidates is None:
        per_text, reason = top_k + restriction.excluded.size, "top_k plus the number of excluded labels"
    else:
        per_text, reason = candidates.size, "the number of allowed labels"
    if per_text * n_texts > settings.max_pairs:
        raise ContentTooLargeError(
            f"A request with a label filter can score at most {settings.max_pairs} (text, label) pairs, but {reason} "
            f"is {per_text} and the number of texts is {n_texts}. Send fewer texts per request, or use a narrower "
            "filter."
        )


def explain(model: ServedModel, request: ExplainRequest) -> ExplainResponse:
    """Return the explanation of a label's score.

    Raises NotFoundError if the label is unknown, and BadRequestError if the model's scores cannot be explained.
    """
    ranker = model.ranker
    _check_explainable(model, request.tree)
    if request.label is None:
        (best,) = ranker.rank_texts([request.text], top_k=1)
        if not best:
            raise NotFoundError(
                "The text contains no terms from the model's vocabulary, so there is no best label. Pass a label."
            )
        label = ranker.labels_[best[0][0]]
    else:
        label, _ = model.label(model.find_label(request.label))
    try:
        explanation = ranker.explain(request.text, label, tree=request.tree)
    except (InputError, ParameterError) as error:  # other errors can contain file paths
        raise BadRequestError(str(error)) from None

    def convert(terms: tuple[TermContribution, ...]) -> list[ExplainedTerm]:
        return [ExplainedTerm(term.term, term.contribution, list(term.spans)) for term in terms]

    return ExplainResponse(
        model=model.name,
        version=model.version,
        label=explanation.label,
        name=explanation.name,
        score=explanation.score,
        log_scale=explanation.log_scale,
        base=explanation.base,
        terms=convert(explanation.terms),
        levels=[
            ExplainedLevel(level.node, level.score, level.base, convert(level.terms)) for level in explanation.levels
        ],
    )


def _check_explainable(model: ServedModel, tree: int | None) -> None:
    """Raise BadRequestError if the scores of a model, or of one of its trees, cannot be explained."""
    if tree is not None or model.ranker.single_tree_ is not None:
        return
    count = len(model.ranker.text_trees_)
    advice = "Use an XRLinear model."
    if count:
        numbers = "0" if count == 1 else f"a number from 0 to {count - 1}"
        advice = f'Use an XRLinear model, or pass {numbers} as "tree" to explain the score of one label tree.'
    raise BadRequestError(
        f"The scores of model {model.name!r} ({model.ranker.model_kind_}) cannot be explained. {advice}"
    )


def describe_model(registry: ModelRegistry, model: ServedModel, settings: ServerSettings) -> ModelInfo:
    """Return the properties of a model."""
    ranker = model.ranker
    tree = ranker.single_tree_
    return ModelInfo(
        name=model.name,
        version=model.version,
        kind=ranker.model_kind_,
        is_default=model.name == registry.default,
        n_labels=len(ranker.labels_),
        n_features=sum(int(vectorizer.n_features_) for vectorizer in ranker.vectorizers_),
        level_sizes=[] if tree is None else list(tree.tree_.level_sizes[1:]),
        beam_width=None if tree is None else tree.beam_width,
        is_explainable=tree is not None,
        n_trees=len(ranker.text_trees_),
        is_calibrated=ranker.calibration_ is not None,
        limits={
            "texts": settings.max_texts,
            "text_length": settings.max_text_length,
            "top_k": settings.max_top_k,
            "beam_width": settings.max_beam_width,
        },
        other_models=[name for name in registry.names() if name != model.name],
    )


def describe_feature_model(registry: ModelRegistry, model: ServedFeatureModel, settings: ServerSettings) -> ModelInfo:
    """Return the properties of a model that ranks labels for feature vectors."""
    ranker = model.ranker
    tree = ranker if isinstance(ranker, XRLinear) else None
    return ModelInfo(
        name=model.name,
        version=model.version,
        kind=type(ranker).__name__,
        is_default=model.name == registry.default,
        n_labels=ranker.n_labels_,
        n_features=sum(ranker.widths_),
        level_sizes=[] if tree is None else list(tree.tree_.level_sizes[1:]),
        beam_width=None if tree is None else tree.beam_width,
        is_explainable=False,
        n_trees=len(ranker.trees_),
        is_calibrated=ranker.calibration_ is not None,
        limits={"features": settings.max_texts, "top_k": settings.max_top_k, "beam_width": settings.max_beam_width},
        other_models=[name for name in registry.names() if name != model.name],
        input="features",
        n_dense_features=ranker.widths_[1],
        has_feature_names=model.feature_columns is not None,
    )


def search_labels(model: ServedModel, query: str, limit: int, *, by_words: bool = False) -> LabelsResponse:
    """Return the labels whose names or ids start with the query or contain its words, ignoring case."""
    index = model.ranker.label_set_.index
    matches = index.search_words(query) if by_words else index.search(query)
    labels = [LabelInfo(*model.label(number)) for number in matches[:limit].tolist()]
    return LabelsResponse(model.name, model.version, labels, int(matches.size))
