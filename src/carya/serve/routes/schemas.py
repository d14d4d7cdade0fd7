"""JSON messages of the API, from which the OpenAPI document is generated.

The explorer's routes return the dataclasses in :mod:`carya.text.explore.views`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

ModelName = Annotated[str, Meta(description="Name of the model; the default model if omitted.")]
Text = Annotated[str, Meta(description="The text.", examples=["a fast web server"])]
TopK = Annotated[int, Meta(ge=1, description="Maximum number of labels per text.")]
BeamWidth = Annotated[int, Meta(ge=1, description="Number of nodes kept per level; the model's beam width if omitted.")]


class LabelFilter(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Restrictions on the labels in a response; a label must satisfy all specified conditions."""

    allowed: Annotated[list[str], Meta(description="Allowed labels, by id or name; all of them are scored.")] | None = (
        None
    )
    prefix: (
        Annotated[str, Meta(min_length=1, description="Include only labels whose ids start with this prefix.")] | None
    ) = None
    excluded: Annotated[list[str], Meta(description="Excluded labels, by id or name.")] | None = None


class SuggestRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One or more texts, and ranking options. Either `text` or `texts` is required."""

    text: Text | UnsetType = UNSET
    texts: Annotated[list[str], Meta(min_length=1, description="The texts; an alternative to `text`.")] | UnsetType = (
        UNSET
    )
    model: ModelName | None = None
    top_k: TopK = 10
    min_score: Annotated[float, Meta(description="Minimum score; labels with lower scores are excluded.")] | None = None
    beam_width: BeamWidth | None = None
    labels: LabelFilter | None = None
    open_vocabulary: Annotated[
        bool, Meta(description="Also propose phrases that occur in the texts but not in the label list.")
    ] = False
    decide: Annotated[
        str | None,
        Meta(description="Decision rule instead of top_k: f1, precision>=0.8, macro-f1@5, or a number of labels."),
    ] = None


class SuggestedLabel(Struct, omit_defaults=True):
    """A label suggested for a text."""

    label: str
    name: str
    score: float
    probability: (
        Annotated[float, Meta(description="Probability that the label is correct; only for calibrated models.")] | None
    ) = None
    new: Annotated[bool, Meta(description="Whether the label is a phrase that is not in the label list.")] = False


class TextSuggestions(Struct):
    """The labels suggested for a text, best first."""

    suggestions: list[SuggestedLabel]


class SuggestResponse(Struct):
    """The suggestions for each text, in the order of the request."""

    model: str
    version: str
    results: list[TextSuggestions]


class FeatureVector(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The features of a query: `indices` and `values`, `dense`, or both, or else `named`; other features are 0."""

    indices: Annotated[
        list[Annotated[int, Meta(ge=0)]], Meta(description="Positions of sparse features, starting at 0, in any order.")
    ] = []
    values: Annotated[list[float], Meta(description="Values of the features at `indices`.")] = []
    dense: Annotated[list[float], Meta(description="All dense features, if the model was trained with any.")] = []
    named: Annotated[
        dict[str, float], Meta(description="Values by feature name, if the model was trained on a data frame.")
    ] = {}


class FeaturesRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One or more feature vectors, and ranking options."""

    features: Annotated[list[FeatureVector], Meta(min_length=1, description="The feature vectors, one per query.")]
    model: Annotated[str, Meta(description="Name of the model; by default, the first model over features.")] | None = (
        None
    )
    top_k: TopK = 10
    min_score: Annotated[float, Meta(description="Minimum score; labels with lower scores are excluded.")] | None = None
    beam_width: BeamWidth | None = None


class ExplainRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A text and the label to explain."""

    text: Text
    label: Annotated[str, Meta(description="Label id or name; the best label if omitted.")] | None = None
    model: ModelName | None = None
    tree: Annotated[int, Meta(description="Index of the label tree whose score is explained.", ge=0)] | None = None


class ExplainedTerm(Struct):
    """The contribution of a term to the score or, if `log_scale` is true, to its logarithm."""

    term: str
    contribution: float
    spans: Annotated[list[tuple[int, int]], Meta(description="Character ranges of the term in the text.")]


class ExplainedLevel(Struct):
    """The contributions at one level of the tree.

    The label's score is the product of the level scores, or their sum if `log_scale` is false.
    """

    node: int
    score: float
    base: Annotated[float, Meta(description="Score for an empty text, or its logarithm if `log_scale` is true.")]
    terms: list[ExplainedTerm]


class ExplainResponse(Struct):
    """The explanation of a label's score.

    `base` and the contributions add up to the score or, if `log_scale` is true, to its logarithm.
    """

    model: str
    version: str
    label: str
    name: str
    score: float
    log_scale: bool
    base: float
    terms: list[ExplainedTerm]
    levels: list[ExplainedLevel]


class ModelInfo(Struct):
    """The properties of a model."""

    name: str
    version: str
    kind: Annotated[str, Meta(description="Class of the model, such as XRLinear.")]
    is_default: Annotated[bool, Meta(description="Whether requests without a model name use this model.")]
    n_labels: int
    n_features: Annotated[int, Meta(description="Number of features, or of terms if the model ranks texts.")]
    level_sizes: Annotated[
        list[int], Meta(description="Number of nodes per level; empty if the model is not a single tree.")
    ]
    beam_width: int | None
    is_explainable: Annotated[
        bool, Meta(description="Whether /v1/explain can explain the model's own scores, which requires a single tree.")
    ]
    n_trees: Annotated[int, Meta(description="Number of label trees whose scores /v1/explain can explain.")]
    is_calibrated: Annotated[bool, Meta(description="Whether suggestions include probabilities.")]
    limits: Annotated[dict[str, int], Meta(description="Limits on requests to this server.")]
    other_models: Annotated[list[str], Meta(description="Names of the server's other models.")]
    input: Annotated[
        Literal["texts", "features"], Meta(description="features: the model ranks labels for /v1/suggest-features.")
    ] = "texts"
    n_dense_features: Annotated[int, Meta(description="Number of features that are dense, if `input` is features.")] = 0
    has_feature_names: Annotated[bool, Meta(description="Whether features can be given by name.")] = False


class PartInfo(Struct):
    """A part of a split model."""

    name: str
    version: str
    split: Annotated[str, Meta(description="Id of the split, shared by the top of the model and all parts.")]
    part: Annotated[int, Meta(description="Index of the part, starting at 0.")]
    n_clusters: int
    n_labels: int


class LabelInfo(Struct):
    """A label."""

    label: str
    name: str


class LabelsResponse(Struct):
    """Labels whose names start with a prefix, followed by labels whose ids start with it."""

    model: str
    version: str
    labels: list[LabelInfo]
    total: Annotated[int, Meta(description="Total number of matching labels, including labels that are not returned.")]


class FeedbackRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The labels of a text that a user has accepted or rejected."""

    text: Text
    accepted: Annotated[list[str], Meta(description="Correct labels, by id or name; new labels are allowed.")] = []
    rejected: Annotated[list[str], Meta(description="Incorrect labels, by id or name.")] = []
    model: ModelName | None = None


class FeedbackResponse(Struct):
    """Confirmation that feedback has been stored."""

    model: str
    version: str
    n_accepted: int
    n_rejected: int


class HealthStatus(Struct):
    """The status of the server."""

    status: str


class ProblemDetails(Struct):
    """The details of an error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class ExploreTextRequest(Struct, forbid_unknown_fields=True):
    """A text and search options."""

    text: Text
    top_k: TopK = 12
    beam_width: BeamWidth | None = None


class ExploreLabelRequest(Struct, forbid_unknown_fields=True):
    """A text and a label to explain."""

    text: Text
    label: Annotated[str, Meta(description="Label id or name.")]


class LabeledText(Struct, forbid_unknown_fields=True):
    """A text and its correct labels."""

    text: Text
    labels: Annotated[list[str], Meta(description="Correct labels, by id or name.")] = []


class EvaluateRequest(Struct, forbid_unknown_fields=True):
    """Labeled texts and search options."""

    texts: Annotated[list[LabeledText], Meta(min_length=1, description="The labeled texts.")]
    top_k: TopK = 10


class TreeSummary(Struct):
    """The properties of a label tree in a model."""

    level_sizes: Annotated[list[int], Meta(description="Number of clusters per level.")]
    beam_width: int
    is_overlapping: Annotated[bool, Meta(description="Whether a label can be in several clusters.")]
    is_explainable: Annotated[bool, Meta(description="Whether scores are sums or products of term contributions.")]


class ModelSummary(Struct):
    """The model properties shown on the explorer page."""

    name: str
    kind: str
    n_labels: int
    n_terms: int
    n_texts: Annotated[int | None, Meta(description="Number of training texts; null if unknown.")]
    trees: list[TreeSummary]
    is_calibrated: bool


class ModelsResponse(Struct):
    """All models on the server."""

    default: Annotated[str, Meta(description="Name of the default model.")]
    models: list[ModelSummary]
    accepts_feedback: Annotated[bool, Meta(description="Whether /v1/feedback stores feedback.")] = False


class AnnifInfo(Struct):
    """The name and version of the server."""

    title: str
    version: str


class AnnifBackend(Struct):
    """The backend of a project."""

    backend_id: str


class AnnifVocabulary(Struct):
    """The vocabulary of a project: the labels of a model."""

    vocab_id: str
    languages: list[str]
    size: int
    loaded: bool


class AnnifProject(Struct):
    """A model as an Annif project."""

    project_id: str
    name: str
    language: str
    backend: AnnifBackend
    vocab: AnnifVocabulary
    vocab_language: str
    is_trained: bool
    modification_time: str


class AnnifProjects(Struct):
    """All models as Annif projects."""

    projects: list[AnnifProject]


class AnnifVocabularies(Struct):
    """The vocabularies of all models."""

    vocabs: list[AnnifVocabulary]


class AnnifSubject(Struct):
    """A label suggested for a text."""

    uri: str
    label: str
    notation: str | None
    score: float


class AnnifResults(Struct):
    """The labels suggested for a text, best first."""

    results: list[AnnifSubject]


class AnnifDocument(Struct):
    """A text; other fields, such as metadata, are ignored."""

    text: Text
    document_id: str | None = None


class AnnifBatch(Struct):
    """A batch of texts."""

    documents: list[AnnifDocument]


class AnnifBatchResults(Struct):
    """The labels suggested for a text in a batch, best first."""

    results: list[AnnifSubject]
    document_id: str | None


class AnnifSubjectReference(Struct):
    """A subject of a document, identified by its URI."""

    uri: str


class AnnifIndexedDocument(Struct):
    """A text with its subjects; other fields, such as metadata, are ignored."""

    text: Text | None = None
    subjects: list[AnnifSubjectReference] | None = None


class AnnifLanguageRequest(Struct):
    """A text and the languages in which it may be written."""

    text: Text
    languages: Annotated[
        list[Annotated[str, Meta(min_length=2, max_length=3)]],
        Meta(min_length=1, max_length=5, description="Candidate languages as IETF BCP 47 codes."),
    ]


class AnnifLanguageScore(Struct):
    """The proportion of words that belong to a language."""

    language: Annotated[str | None, Meta(description="Language code; null for words in none of the languages.")]
    score: float


class AnnifLanguages(Struct):
    """The candidate languages with their scores, best first."""

    results: list[AnnifLanguageScore]


class AnnifForm(Struct):
    """A text and ranking options as form fields; other fields are ignored."""

    text: Text
    limit: Annotated[int, Meta(ge=0, description="Maximum number of labels.")] = 10
    threshold: Annotated[
        float, Meta(ge=0, le=1, description="Minimum score; labels with lower scores are excluded.")
    ] = 0.0
    language: Annotated[str, Meta(description="Language of the label names.")] | None = None
