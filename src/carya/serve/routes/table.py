"""Table of all server routes.

This table is the only declaration of the routes. The router (app.py), the OpenAPI document (openapi.py), the values of
the `route` label in the metrics (http/metrics.py), and the exemptions from authentication and load shedding
(http/middleware.py) are derived from it.
"""

from __future__ import annotations

from typing import Any

from carya.models.routed.remote import DESCRIBE_PATH, MEDIA_TYPE, RANK_PATH
from carya.serve.routes import annif, api, explorer, pages, parts
from carya.serve.routes.parameters import MODEL
from carya.serve.routes.route import FORM, ApiRoute, RouteTable
from carya.serve.routes.schemas import (
    AnnifBatch,
    AnnifBatchResults,
    AnnifForm,
    AnnifInfo,
    AnnifProject,
    AnnifProjects,
    AnnifResults,
    AnnifVocabularies,
    ExplainRequest,
    ExplainResponse,
    ExploreLabelRequest,
    ExploreTextRequest,
    HealthStatus,
    LabelsResponse,
    ModelInfo,
    ModelsResponse,
    PartInfo,
    SuggestRequest,
    SuggestResponse,
)
from carya.text.explore.views import (
    ClusterPage,
    ComparedLabel,
    LabelCard,
    LabelView,
    SearchTrace,
    TreeExplanation,
)

_RANKING = "Ranking"
_EXPLORER = "Explorer"
_ANNIF = "Annif"
_PARTS = "Parts of split models"
_OPERATIONS = "Operations"


def _file(path: str, handler: Any, summary: str, **options: Any) -> ApiRoute:
    """Declare a route for a web page file."""
    return ApiRoute(
        "GET", path, handler, summary, "Pages", metrics_label="page", is_public=True, is_documented=False, **options
    )


#: All routes, in the order in which the API page lists them.
ROUTES = RouteTable(
    [
        ApiRoute(
            "POST",
            "/v1/suggest",
            api.suggest,
            "Rank labels for texts",
            _RANKING,
            request=SuggestRequest,
            response=SuggestResponse,
            errors=(404,),
        ),
        ApiRoute(
            "POST",
            "/v1/explain",
            api.explain,
            "Explain a label's score",
            _RANKING,
            request=ExplainRequest,
            response=ExplainResponse,
            errors=(404,),
        ),
        ApiRoute(
            "GET",
            "/v1/model",
            api.describe_model,
            "Describe a model",
            _RANKING,
            parameters=(MODEL,),
            response=ModelInfo,
            errors=(404,),
        ),
        ApiRoute(
            "GET",
            "/v1/labels",
            api.search_labels,
            "Search labels by prefix",
            _RANKING,
            parameters=(api.LABEL_PREFIX, api.LABEL_LIMIT, MODEL),
            response=LabelsResponse,
            errors=(400, 404),
        ),
        ApiRoute(
            "GET",
            "/v1/explore/models",
            explorer.list_models,
            "List models and their trees",
            _EXPLORER,
            response=ModelsResponse,
        ),
        ApiRoute(
            "POST",
            "/v1/explore/text",
            explorer.search,
            "Rank labels for a text and trace the beam search",
            _EXPLORER,
            parameters=(MODEL, explorer.TREE),
            request=ExploreTextRequest,
            response=SearchTrace,
            errors=(404,),
        ),
        ApiRoute(
            "POST",
            "/v1/explore/compare",
            explorer.compare_models,
            "Rank labels for a text with two models",
            _EXPLORER,
            parameters=(MODEL, explorer.OTHER_MODEL),
            request=ExploreTextRequest,
            response=list[ComparedLabel],
            errors=(404,),
        ),
        ApiRoute(
            "POST",
            "/v1/explore/explain",
            explorer.explain,
            "Explain a label's score in one tree",
            _EXPLORER,
            parameters=(MODEL, explorer.TREE),
            request=ExploreLabelRequest,
            response=TreeExplanation,
            errors=(404,),
        ),
        ApiRoute(
            "GET",
            "/v1/explore/tree",
            explorer.browse_tree,
            "Show a cluster and its children",
            _EXPLORER,
            parameters=(MODEL, explorer.TREE, explorer.LEVEL, explorer.NODE, explorer.BEGIN),
            response=ClusterPage,
            errors=(400, 404),
        ),
        ApiRoute(
            "GET",
            "/v1/explore/labels",
            explorer.frequent_labels,
            "List the most frequent labels",
            _EXPLORER,
            parameters=(MODEL,),
            response=list[LabelView],
            errors=(404,),
        ),
        ApiRoute(
            "GET",
            "/v1/explore/label",
            explorer.show_label,
            "Show a label's position, terms and similar labels",
            _EXPLORER,
            parameters=(explorer.LABEL, MODEL, explorer.TREE),
            response=LabelCard,
            errors=(400, 404),
        ),
        ApiRoute("GET", "/v1", annif.describe_api, "Describe the API", _ANNIF, response=AnnifInfo),
        ApiRoute("GET", "/v1/", annif.describe_api, "Describe the API", _ANNIF, response=AnnifInfo),
        ApiRoute("GET", "/v1/vocabs", annif.list_vocabularies, "List vocabularies", _ANNIF, response=AnnifVocabularies),
        ApiRoute("GET", "/v1/projects", annif.list_projects, "List models as projects", _ANNIF, response=AnnifProjects),
        ApiRoute(
            "GET",
            "/v1/projects/{project_id}",
            annif.describe_project,
            "Describe a model as a project",
            _ANNIF,
            parameters=(annif.PROJECT,),
            response=AnnifProject,
            errors=(404,),
        ),
        ApiRoute(
            "POST",
            "/v1/projects/{project_id}/suggest",
            annif.suggest,
            "Suggest subjects for a text",
            _ANNIF,
            parameters=(annif.PROJECT,),
            request=AnnifForm,
            request_media_type=FORM,
            response=AnnifResults,
            errors=(404,),
        ),
        ApiRoute(
            "POST",
            "/v1/projects/{project_id}/suggest-batch",
            annif.suggest_batch,
            "Suggest subjects for several texts",
            _ANNIF,
            parameters=(annif.PROJECT, annif.LIMIT, annif.THRESHOLD, annif.LANGUAGE),
            request=AnnifBatch,
            response=list[AnnifBatchResults],
            errors=(404,),
        ),
        ApiRoute(
            "POST",
            "/v1/projects/{project_id}/learn",
            annif.learn,
            "Learn from documents (not supported)",
            _ANNIF,
            parameters=(annif.PROJECT,),
            errors=(403, 404),
        ),
        ApiRoute(
            "GET",
            DESCRIBE_PATH,
            parts.describe_part,
            "Describe a part of a split model",
            _PARTS,
            parameters=(parts.PART,),
            response=PartInfo,
            errors=(404,),
        ),
        ApiRoute(
            "POST",
            RANK_PATH,
            parts.rank,
            "Rank the labels in some clusters of a part",
            _PARTS,
            parameters=(parts.PART,),
            request=bytes,
            request_media_type=MEDIA_TYPE,
            response=bytes,
            response_media_type=MEDIA_TYPE,
            errors=(404, 409),
        ),
        ApiRoute(
            "GET",
            "/healthz",
            api.health,
            "Check that the server is running",
            _OPERATIONS,
            response=HealthStatus,
            is_public=True,
            is_always_answered=True,
        ),
        ApiRoute(
            "GET",
            "/readyz",
            api.readiness,
            "Check that the server can answer requests",
            _OPERATIONS,
            response=HealthStatus,
            is_public=True,
            is_always_answered=True,
        ),
        ApiRoute(
            "GET",
            "/metrics",
            api.metrics,
            "Report metrics for Prometheus",
            _OPERATIONS,
            response=str,
            response_media_type="text/plain",
            is_always_answered=True,
        ),
        _file("/", pages.explorer_page, "The explorer page"),
        _file("/page/{name}", pages.explorer_file, "Files of the explorer page", parameters=(pages.FILE_NAME,)),
        _file("/docs", pages.api_page, "The API page"),
        _file("/docs.js", pages.api_script, "The script for the API page"),
        _file("/docs.css", pages.api_style, "The style sheet for the API page"),
        _file("/openapi.json", pages.openapi_document, "The OpenAPI document"),
    ]
)
