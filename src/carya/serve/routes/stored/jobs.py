"""Handlers for batch jobs (/v1/jobs)."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from carya.serve import service
from carya.serve.http.errors import BadRequestError, ConflictError, ForbiddenError
from carya.serve.jobs.folder import RESULTS, JobFolder, Upload
from carya.serve.jobs.job import JobOptions
from carya.serve.jobs.runner import JobRunner, parse_line
from carya.serve.routes.json_io import check_content_type, json_response
from carya.serve.routes.parameters import MODEL, IntegerParameter, NumberParameter, Parameter
from carya.serve.routes.route import NDJSON
from carya.serve.state import ServerState

JOB = Parameter(name="job_id", description="Id of the job.", location="path", required=True)
TOP_K = IntegerParameter(
    name="top_k", description="Maximum number of labels per text.", default=10, minimum=1, maximum="max_top_k"
)
MIN_SCORE = NumberParameter(name="min_score", description="Minimum score; labels with lower scores are excluded.")
BEAM_WIDTH = IntegerParameter(
    name="beam_width",
    description="Number of nodes kept per level; the model's beam width if 0 or omitted.",
    default=0,
    minimum=0,
    maximum="max_beam_width",
)

_FIRST_LINE_BYTES = 1 << 20  # maximum size of a first line that is validated during the upload


async def create_job(state: ServerState, request: Request) -> Response:
    """Receive a file of texts and add it to the queue."""
    runner = _runner(state)
    check_content_type(request, NDJSON)
    query = request.query_params
    top_k = TOP_K.parse(query, state.settings)
    beam_width = BEAM_WIDTH.parse(query, state.settings) or None
    service.check_search_options(top_k, beam_width, state.settings)
    options = JobOptions(
        model=state.registry.get(query.get(MODEL.name)).name,
        top_k=top_k,
        min_score=MIN_SCORE.parse(query),
        beam_width=beam_width,
    )
    await asyncio.to_thread(runner.folder.check_space)
    upload = await asyncio.to_thread(runner.folder.new_upload)
    is_complete = False
    try:
        await _receive(request, runner.folder, upload)
        info = await asyncio.to_thread(upload.finish, options)
        is_complete = True
    finally:
        if not is_complete:
            upload.discard()
    runner.wake()
    return json_response(info)


async def _receive(request: Request, folder: JobFolder, upload: Upload) -> None:
    first: bytes | None = b""
    checked = 0
    async for data in request.stream():
        if first is not None:
            first += data
            line, end, _ = first.partition(b"\n")
            if end or len(first) > _FIRST_LINE_BYTES:
                if end:
                    parse_line(line)  # most mistakes affect the whole file, so they are reported immediately
                first = None
        if data:
            await asyncio.to_thread(upload.write, data)
        if upload.size - checked > _FIRST_LINE_BYTES:
            checked = upload.size
            await asyncio.to_thread(folder.check_space)
    if not upload.size:
        raise BadRequestError('The file is empty. It must contain one JSON object with a "text" per line.')
    if first is not None:
        parse_line(first)


async def show_job(state: ServerState, request: Request) -> Response:
    """Return the state and the progress of a job."""
    job = await asyncio.to_thread(_runner(state).folder.state, request.path_params[JOB.name])
    return json_response(job.info)


async def job_results(state: ServerState, request: Request) -> Response:
    """Return the results of a completed job; range requests can resume an interrupted download."""
    folder = _runner(state).folder
    name = request.path_params[JOB.name]
    info = (await asyncio.to_thread(folder.state, name)).info
    if info.state != "completed":
        reason = f": {info.error}" if info.error else f" ({info.progress:.0%} processed)."
        raise ConflictError(f"The job is {info.state}{reason}")
    return FileResponse(
        folder.find(name) / RESULTS,
        media_type=NDJSON,
        headers={"Content-Disposition": f'attachment; filename="{name}.jsonl"'},
    )


async def delete_job(state: ServerState, request: Request) -> Response:
    """Cancel a job and delete its files."""
    folder = _runner(state).folder
    name = request.path_params[JOB.name]
    info = (await asyncio.to_thread(folder.state, name)).info
    await asyncio.to_thread(folder.delete, name)
    return json_response(info)


def _runner(state: ServerState) -> JobRunner:
    if state.jobs is None:
        raise ForbiddenError(
            "Batch jobs are disabled on this server. Enable them with: carya serve --jobs-folder FOLDER"
        )
    return state.jobs
