"""The state of a batch job and the lines of its files."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct


class JobLine(Struct, omit_defaults=True):
    """A line of an uploaded file; other fields are ignored."""

    text: str
    id: str | int | None = None


class JobOptions(Struct, frozen=True):
    """The options of a job."""

    model: str
    top_k: int = 10
    min_score: float | None = None
    beam_width: int | None = None


class JobInfo(Struct, kw_only=True):
    """The state and the progress of a job."""

    id: Annotated[str, Meta(description="The id of the job, which only the client that created it receives.")]
    model: str
    state: Literal["queued", "running", "completed", "failed"]
    created: Annotated[str, Meta(description="Time at which the file was received (ISO 8601).")]
    finished: Annotated[str | None, Meta(description="Time at which the job was completed or failed.")] = None
    progress: Annotated[float, Meta(description="Fraction of the file that has been processed.")] = 0.0
    n_texts: Annotated[int, Meta(description="Number of texts ranked.")] = 0
    n_errors: Annotated[int, Meta(description="Number of invalid lines; their results contain the errors.")] = 0
    input_bytes: Annotated[int, Meta(description="Size of the uploaded file.")] = 0
    result_bytes: Annotated[int, Meta(description="Size of the results so far.")] = 0
    error: Annotated[str | None, Meta(description="Why the job failed.")] = None


class JobState(Struct, kw_only=True):
    """The saved state of a job, from which it is resumed after a crash."""

    info: JobInfo
    options: JobOptions
    input_offset: int = 0
    n_lines: int = 0
    attempts: int = 0  # since the last progress
