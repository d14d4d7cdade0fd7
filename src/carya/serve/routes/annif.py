"""Handlers for Annif's REST API. Models appear as projects and labels as subjects, so Annif clients work unchanged."""

from __future__ import annotations

import math
import urllib.parse
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from carya.core.extras import require
from carya.errors import MissingExtraError
from carya.serve.http.errors import (
    BadRequestError,
    ContentTooLargeError,
    ForbiddenError,
    NotFoundError,
    ServiceUnavailableError,
)
from carya.serve.projects import Project
from carya.serve.registry import ServedModel
from carya.serve.routes.api import suggest_response
from carya.serve.routes.json_io import check_content_type, json_response, json_response_from_thread, read_json
from carya.serve.routes.parameters import FractionParameter, IntegerParameter, LanguageParameter, Parameter
from carya.serve.routes.schemas import (
    AnnifBackend,
    AnnifBatch,
    AnnifBatchResults,
    AnnifIndexedDocument,
    AnnifInfo,
    AnnifLanguageRequest,
    AnnifLanguages,
    AnnifLanguageScore,
    AnnifProject,
    AnnifProjects,
    AnnifResults,
    AnnifSubject,
    AnnifVocabularies,
    AnnifVocabulary,
    SuggestedLabel,
    SuggestRequest,
    SuggestResponse,
)
from carya.serve.routes.stored.feedback import label_ids, store_feedback
from carya.serve.service import check_text_lengths
from carya.serve.state import ServerState
from carya.version import __version__

PROJECT = Parameter(name="project_id", description="Name of the model.", location="path", required=True)
LIMIT = IntegerParameter(
    name="limit", description="Maximum number of labels.", default=10, minimum=0, maximum="max_top_k"
)
THRESHOLD = FractionParameter(name="threshold", description="Minimum score; labels with lower scores are excluded.")
LANGUAGE = LanguageParameter(name="language", description="Language of the label names.")

_MAX_FORM_FIELDS = 1000  # most fields are metadata, which is ignored


async def describe_api(state: ServerState, request: Request) -> Response:
    """Return the name and version of the server."""
    return json_response(AnnifInfo("Carya (Annif REST API)", __version__))


async def list_projects(state: ServerState, request: Request) -> Response:
    """List the models as projects."""
    models = [state.registry.get(name) for name in state.registry.names()]
    return json_response(AnnifProjects([_describe_project(model, state) for model in models]))


async def list_vocabularies(state: ServerState, request: Request) -> Response:
    """List the vocabularies of the models."""
    models = [state.registry.get(name) for name in state.registry.names()]
    by_vocabulary: dict[str, ServedModel] = {}
    for model in models:
        by_vocabulary.setdefault(state.projects[model.name].vocabulary, model)
    return json_response(AnnifVocabularies([_describe_vocabulary(model, state) for model in by_vocabulary.values()]))


async def describe_project(state: ServerState, request: Request) -> Response:
    """Describe a model as a project."""
    return json_response(_describe_project(_project(state, request), state))


async def suggest(state: ServerState, request: Request) -> Response:
    """Suggest subjects for one text."""
    model = _project(state, request)
    form = await _read_form(request)
    if "text" not in form:
        raise BadRequestError("The form field 'text' is required.")
    return await _suggest(state, request, model, [form["text"]], form, lambda subjects: AnnifResults(subjects[0]))


async def suggest_batch(state: ServerState, request: Request) -> Response:
    """Suggest subjects for several texts."""
    model = _project(state, request)
    batch = await read_json(request, AnnifBatch)
    texts = [document.text for document in batch.documents]
    ids = [document.document_id for document in batch.documents]
    options = dict(request.query_params)
    return await _suggest(
        state, request, model, texts, options, lambda subjects: list(map(AnnifBatchResults, subjects, ids))
    )


async def learn(state: ServerState, request: Request) -> Response:
    """Store documents with their subjects as feedback, which can be used to retrain the model."""
    model = _project(state, request)
    if state.feedback is None:
        raise ForbiddenError(
            f"Project {model.name!r} is not configured to allow learning via API. Enable it with: carya serve "
            "--feedback-file FILE"
        )
    documents = await read_json(request, list[AnnifIndexedDocument])
    if len(documents) > state.settings.max_texts:
        raise ContentTooLargeError(
            f"A request can have at most {state.settings.max_texts} documents, got {len(documents)}."
        )
    given: list[tuple[str, list[str]]] = []
    for document in documents:
        if document.text is not None and document.subjects is not None:  # other documents are ignored, as in Annif
            check_text_lengths([document.text], state.settings)
            given.append((document.text, [subject.uri for subject in document.subjects]))
    if given:
        ids = await label_ids(state, request, model, [labels for _, labels in given])
        await store_feedback(
            state.feedback, model, [(text, own, []) for (text, _), own in zip(given, ids, strict=True)]
        )
    return Response(status_code=204)


async def detect_language(state: ServerState, request: Request) -> Response:
    """Detect the language of a text."""
    message = await read_json(request, AnnifLanguageRequest)
    check_text_lengths([message.text], state.settings)
    return await json_response_from_thread(state.pool, request, _detect_language, message)


def _detect_language(message: AnnifLanguageRequest) -> AnnifLanguages:
    try:
        simplemma = require("simplemma", extra="annif", purpose="Language detection")
    except MissingExtraError as error:
        raise ServiceUnavailableError(str(error)) from None
    try:
        detector = simplemma.LanguageDetector(tuple(message.languages))
        shares = detector.proportion_in_each_language(message.text)
    except ValueError:
        raise BadRequestError("unsupported candidate languages") from None
    scores = [AnnifLanguageScore(None if language == "unk" else language, score) for language, score in shares.items()]
    return AnnifLanguages(sorted(scores, key=lambda result: -result.score))


async def _suggest(
    state: ServerState,
    request: Request,
    model: ServedModel,
    texts: list[str],
    options: dict[str, str],
    convert: Callable[[list[list[AnnifSubject]]], Any],
) -> Response:
    if not options.get(LIMIT.name):
        options.pop(LIMIT.name, None)  # some clients send an empty limit
    limit = LIMIT.parse(options, state.settings)
    threshold = THRESHOLD.parse(options)
    project = state.projects[model.name]
    language = LANGUAGE.parse(options, project.languages)
    if not texts:
        return json_response([])
    log_scale = model.ranker.has_log_scores

    def to_annif(response: SuggestResponse) -> Any:
        return convert(
            [
                _translate(to_subjects(result.suggestions, threshold, log_scale=log_scale)[:limit], project, language)
                for result in response.results
            ]
        )

    message = SuggestRequest(texts=texts, model=model.name, top_k=max(1, limit))
    return await suggest_response(state, request, model, message, to_annif)


def to_subjects(suggestions: list[SuggestedLabel], threshold: float, *, log_scale: bool) -> list[AnnifSubject]:
    """Convert suggestions to subjects with scores in (0, 1], and drop those below the threshold.

    If the model is calibrated, the score is the probability. Log scores are exponentiated; if some are positive, and
    therefore not logarithms of probabilities, the results are divided by the largest one, which preserves the order.

    >>> suggestions = [SuggestedLabel("a", "A", 0.0), SuggestedLabel("b", "B", -800.0)]
    >>> [subject.score for subject in to_subjects(suggestions, 0.0, log_scale=True)]
    [1.0]
    """
    shift = max([0.0, *(suggestion.score for suggestion in suggestions)])
    subjects = []
    for suggestion in suggestions:
        score = suggestion.probability
        if score is None:
            score = math.exp(suggestion.score - shift) if log_scale else min(1.0, suggestion.score)
        if score > 0 and score >= threshold:
            subjects.append(AnnifSubject(suggestion.label, suggestion.name, None, score))
    return subjects


def _translate(subjects: list[AnnifSubject], project: Project, language: str) -> list[AnnifSubject]:
    """Add the names in a language and the notations to subjects, if the project has a vocabulary."""
    for subject in subjects:
        subject.label = project.label_name(subject.uri, language, subject.label)
        subject.notation = project.notations.get(subject.uri)
    return subjects


def _project(state: ServerState, request: Request) -> ServedModel:
    name = request.path_params[PROJECT.name]
    if name not in state.registry.names():
        raise NotFoundError(f"Project {name[:100]!r} not found.")
    return state.registry.get(name)


def _describe_project(model: ServedModel, state: ServerState) -> AnnifProject:
    project = state.projects[model.name]
    return AnnifProject(
        project_id=model.name,
        name=project.name,
        language=project.language,
        backend=AnnifBackend("carya"),
        vocab=_describe_vocabulary(model, state),
        vocab_language=project.language,
        is_trained=True,
        modification_time=model.modified.isoformat(),
    )


def _describe_vocabulary(model: ServedModel, state: ServerState) -> AnnifVocabulary:
    project = state.projects[model.name]
    return AnnifVocabulary(project.vocabulary, project.languages, len(model.ranker.labels_), loaded=True)


async def _read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form; if a name is repeated, the last value is used."""
    check_content_type(request, "application/x-www-form-urlencoded")
    body = await request.body()
    try:
        fields: Any = urllib.parse.parse_qsl(
            body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FORM_FIELDS
        )
    except UnicodeDecodeError:
        raise BadRequestError("The form is not valid UTF-8.") from None
    except ValueError:
        raise ContentTooLargeError(f"A form can have at most {_MAX_FORM_FIELDS} fields.") from None
    return dict(fields)
