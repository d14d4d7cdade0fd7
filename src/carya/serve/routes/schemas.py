"""The JSON of the API: what requests and answers are made of. The OpenAPI document is made from these."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

ModelName = Annotated[str, Meta(description="The model to ask; the server's first one if not given.")]
Text = Annotated[str, Meta(description="A text.", examples=["a fast web server"])]


class LabelFilter(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which labels an answer may hold: those of `only` and of `prefix` (of both, if both are given), less `never`."""

    only: (
        Annotated[list[str], Meta(description="Nothing but these, by id or name; each is scored, found or not.")] | None
    ) = None
    prefix: Annotated[str, Meta(min_length=1, description="Only labels whose ids begin with this.")] | None = None
    never: Annotated[list[str], Meta(description="None of these, by id or name.")] | None = None


class SuggestRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One text, or several; and how to rank their labels."""

    text: Text | UnsetType = UNSET
    texts: Annotated[list[str], Meta(min_length=1, description="Instead of `text`: several.")] | UnsetType = UNSET
    model: ModelName | None = None
    top_k: Annotated[int, Meta(ge=1, description="The most labels of a text.")] = 10
    threshold: Annotated[float, Meta(description="Leave out labels that score less.")] | None = None
    beam_width: (
        Annotated[int, Meta(ge=1, description="Nodes kept at each level of the tree; the model's own if not given.")]
        | None
    ) = None
    labels: LabelFilter | None = None


class Suggested(Struct, omit_defaults=True):
    """A label of a text."""

    label: str
    name: str
    score: float
    chance: (
        Annotated[float, Meta(description="How often a label of such a score is right; if the model is calibrated.")]
        | None
    ) = None


class Ranking(Struct):
    """The labels of a text, best first."""

    suggestions: list[Suggested]


class SuggestResponse(Struct):
    """A ranking for each text, in the order of the request."""

    model: str
    version: str
    results: list[Ranking]


class ExplainRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A text and a label."""

    text: Text
    label: Annotated[str, Meta(description="By id or name; the best one if not given.")] | None = None
    model: ModelName | None = None


class Share(Struct):
    """What a term adds to the score, or to its logarithm, and where it stands in the text, by characters."""

    term: str
    share: float
    places: list[tuple[int, int]]


class LevelShares(Struct):
    """What terms add at a level of the tree; those of all levels multiplied (added, if not in_logs) are the score."""

    node: int
    score: float
    base: float
    terms: list[Share]


class ExplainResponse(Struct):
    """Why a text gets a label: `base` and the shares add up to the score or, if `in_logs`, to its logarithm."""

    model: str
    version: str
    label: str
    name: str
    score: float
    in_logs: bool
    base: float
    terms: list[Share]
    levels: list[LevelShares]


class ModelAbout(Struct):
    """What a model is."""

    name: str
    version: str
    kind: Annotated[str, Meta(description="What ranks, such as XRLinear.")]
    default: Annotated[bool, Meta(description="Whether requests that name no model get this one.")]
    labels: Annotated[int, Meta(description="How many labels it knows.")]
    features: Annotated[int, Meta(description="How many terms it knows.")]
    levels: Annotated[list[int], Meta(description="Nodes at each level of the tree; empty if it has no single tree.")]
    beam_width: int | None
    explains: Annotated[bool, Meta(description="Whether /v1/explain works with it.")]
    calibrated: Annotated[bool, Meta(description="Whether suggestions have a chance beside their score.")]
    limits: Annotated[dict[str, int], Meta(description="What a request to this server may ask for.")]
    others: Annotated[list[str], Meta(description="The names of the server's other models.")]


class LabelAbout(Struct):
    """A label of a model."""

    label: str
    name: str


class LabelsResponse(Struct):
    """Labels that begin with what was asked for, by name and then by id."""

    model: str
    version: str
    labels: list[LabelAbout]
    total: Annotated[int, Meta(description="How many there are, shown or not.")]


class Health(Struct):
    """Whether the server is well."""

    status: str


class ProblemDetails(Struct):
    """What was wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class AnnifInfo(Struct):
    """What answers here."""

    title: str
    version: str


class AnnifBackend(Struct):
    """What a project ranks with."""

    backend_id: str


class AnnifVocabulary(Struct):
    """The labels of a project."""

    vocab_id: str
    languages: list[str]
    size: int
    loaded: bool


class AnnifProject(Struct):
    """A model, as Annif describes a project."""

    project_id: str
    name: str
    language: str
    backend: AnnifBackend
    vocab: AnnifVocabulary
    vocab_language: str
    is_trained: bool
    modification_time: str


class AnnifProjects(Struct):
    """All models."""

    projects: list[AnnifProject]


class AnnifVocabularies(Struct):
    """The labels of all models."""

    vocabs: list[AnnifVocabulary]


class AnnifSubject(Struct):
    """A label of a text."""

    uri: str
    label: str
    notation: str | None
    score: float


class AnnifResults(Struct):
    """The labels of a text, best first."""

    results: list[AnnifSubject]


class AnnifDocument(Struct):
    """A text; other fields, such as metadata, are ignored."""

    text: Text
    document_id: str | None = None


class AnnifBatch(Struct):
    """Several texts."""

    documents: list[AnnifDocument]


class AnnifBatchResults(Struct):
    """The labels of one text of several."""

    results: list[AnnifSubject]
    document_id: str | None


class AnnifForm(Struct):
    """One text, as a form; other fields are ignored."""

    text: Text
    limit: Annotated[int, Meta(ge=0, description="The most labels.")] = 10
    threshold: Annotated[float, Meta(ge=0, le=1, description="Leave out labels that score less.")] = 0.0
    language: Annotated[str, Meta(description="Of the names of labels.")] | None = None
