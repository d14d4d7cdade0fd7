"""Annif's REST API: a model is a project, a label a subject. Annif's own clients work unchanged (docs/annif.md)."""

from __future__ import annotations

import math
import urllib.parse
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from carya.core.version import __version__
from carya.models.reranked.model import Reranked
from carya.serve.http.errors import BadRequest, NotFound, Problem, TooLarge, WrongType
from carya.serve.registry import Loaded, Registry
from carya.serve.routes.api import answer, message, suggested, whole
from carya.serve.routes.schemas import (
    AnnifBackend,
    AnnifBatch,
    AnnifBatchResults,
    AnnifInfo,
    AnnifProject,
    AnnifProjects,
    AnnifResults,
    AnnifSubject,
    AnnifVocabularies,
    AnnifVocabulary,
    Suggested,
    SuggestRequest,
    SuggestResponse,
)
from carya.serve.settings import Settings

_FIELDS = 1000  # of a form, most of them metadata nobody reads


class _Forbidden(Problem):
    status = 403


def routes(registry: Registry, settings: Settings) -> list[BaseRoute]:
    """The pages of Annif's API."""

    def project(request: Request) -> Loaded:
        name = request.path_params["project_id"]
        if name not in registry.names():
            raise NotFound(f"Project {name[:100]!r} not found")
        return registry.get(name)

    async def info(request: Request) -> Response:
        return answer(AnnifInfo("Carya, with Annif's REST API", __version__))

    async def projects(request: Request) -> Response:
        return answer(AnnifProjects([_project(registry.get(name), settings) for name in registry.names()]))

    async def vocabularies(request: Request) -> Response:
        return answer(AnnifVocabularies([_vocabulary(registry.get(name), settings) for name in registry.names()]))

    async def one_project(request: Request) -> Response:
        return answer(_project(project(request), settings))

    async def suggest(request: Request) -> Response:
        loaded = project(request)
        form = await _form(request)
        if "text" not in form:
            raise BadRequest("there is no text in the form")
        return await _asked(request, loaded, [form["text"]], form, lambda found: AnnifResults(found[0]))

    async def suggest_batch(request: Request) -> Response:
        loaded = project(request)
        batch = await message(request, AnnifBatch)
        texts = [document.text for document in batch.documents]
        names = [document.document_id for document in batch.documents]
        return await _asked(
            request, loaded, texts, dict(request.query_params), lambda found: list(map(AnnifBatchResults, found, names))
        )

    async def learn(request: Request) -> Response:
        raise _Forbidden(f"Project {project(request).name!r} does not learn from single documents: train it again")

    async def _asked(
        request: Request,
        loaded: Loaded,
        texts: list[str],
        given: dict[str, str],
        shape: Callable[[list[list[AnnifSubject]]], Any],
    ) -> Response:
        limit = whole(given.get("limit") or None, "limit", 10, least=0, most=settings.max_top_k)
        threshold = _share(given.get("threshold"), "threshold")
        language = given.get("language") or settings.language
        if language != settings.language:
            raise BadRequest(f"language {language[:20]!r} not supported by vocabulary")
        if not texts:
            return answer([])
        in_logs = isinstance(loaded.ranker.model_, Reranked)

        def shaped(said: SuggestResponse) -> Any:
            return shape([_subjects(one.suggestions, threshold, in_logs=in_logs)[:limit] for one in said.results])

        asked = SuggestRequest(texts=texts, model=loaded.name, top_k=max(1, limit))
        return await suggested(request, loaded, asked, settings, shaped)

    return [
        Route("/v1", info),
        Route("/v1/", info),
        Route("/v1/projects", projects),
        Route("/v1/vocabs", vocabularies),
        Route("/v1/projects/{project_id}", one_project),
        Route("/v1/projects/{project_id}/suggest", suggest, methods=["POST"]),
        Route("/v1/projects/{project_id}/suggest-batch", suggest_batch, methods=["POST"]),
        Route("/v1/projects/{project_id}/learn", learn, methods=["POST"]),
    ]


def _subjects(found: list[Suggested], threshold: float, *, in_logs: bool) -> list[AnnifSubject]:
    """Suggestions as Annif knows them, with scores above 0 and up to 1, from a threshold on.

    The score is the chance of a suggestion if the model is calibrated. Logarithms become what they are of; where they
    are above 0, so of no probabilities, the best is 1 and the others are in proportion, as their order must stay.

    >>> [one.score for one in _subjects([Suggested("a", "A", 0.0), Suggested("b", "B", -800.0)], 0.0, in_logs=True)]
    [1.0]
    """
    top = max([0.0, *(one.score for one in found)])
    subjects = []
    for one in found:
        score = one.chance
        if score is None:
            score = math.exp(one.score - top) if in_logs else min(1.0, one.score)
        if score > 0 and score >= threshold:
            subjects.append(AnnifSubject(one.label, one.name, None, score))
    return subjects


def _project(loaded: Loaded, settings: Settings) -> AnnifProject:
    return AnnifProject(
        project_id=loaded.name,
        name=loaded.name,
        language=settings.language,
        backend=AnnifBackend("carya"),
        vocab=_vocabulary(loaded, settings),
        vocab_language=settings.language,
        is_trained=True,
        modification_time=loaded.changed.isoformat(),
    )


def _vocabulary(loaded: Loaded, settings: Settings) -> AnnifVocabulary:
    return AnnifVocabulary(loaded.name, [settings.language], len(loaded.ranker.labels_), loaded=True)


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form, the last of equal names; raises BadRequest, TooLarge or WrongType."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise WrongType(f"Content-Type is {kind[:100]!r}; it must be application/x-www-form-urlencoded")
    body = await request.body()
    try:
        fields: Any = urllib.parse.parse_qsl(
            body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS
        )
    except UnicodeDecodeError:
        raise BadRequest("the form is not UTF-8, as it is or in percent encoding") from None
    except ValueError:
        raise TooLarge(f"the form has more than {_FIELDS} fields") from None
    return dict(fields)


def _share(given: str | None, name: str) -> float:
    """A number between 0 and 1."""
    try:
        value = 0.0 if given is None else float(given)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= 1.0:
        raise BadRequest(f"{name} is {(given or '')[:100]!r}; it must be a number between 0 and 1")
    return value
