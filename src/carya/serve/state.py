"""Objects shared by the request handlers of a worker."""

from __future__ import annotations

from dataclasses import dataclass

from carya.serve.feedback import FeedbackStore
from carya.serve.http.logging import JsonLogger
from carya.serve.http.metrics import ServerMetrics
from carya.serve.http.shared_limits import ServerLimits
from carya.serve.http.thread_pool import ThreadPool
from carya.serve.jobs.runner import JobRunner
from carya.serve.projects import Project
from carya.serve.registry import ModelRegistry
from carya.serve.reloading import ModelReloader
from carya.serve.settings import ServerSettings


@dataclass(frozen=True)
class ServerState:
    """Objects shared by all request handlers of a worker.

    Attributes
    ----------
    registry : ModelRegistry
    settings : ServerSettings
    limits : ServerLimits
    metrics : ServerMetrics
    logger : JsonLogger
    pool : ThreadPool
        The thread pool for long requests.
    reloader : ModelReloader
    openapi : bytes
        The OpenAPI document as JSON.
    jobs : JobRunner or None
        The thread that processes batch jobs; None if they are disabled.
    projects : dict of str to Project
        The Annif project of each model.
    feedback : FeedbackStore or None
        The database for feedback; None if it is disabled.
    """

    registry: ModelRegistry
    settings: ServerSettings
    limits: ServerLimits
    metrics: ServerMetrics
    logger: JsonLogger
    pool: ThreadPool
    reloader: ModelReloader
    openapi: bytes
    projects: dict[str, Project]
    jobs: JobRunner | None = None
    feedback: FeedbackStore | None = None
