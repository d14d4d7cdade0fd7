"""Process batch jobs in a background thread of each worker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import traceback
from typing import Any, BinaryIO

import msgspec

from carya.serve.http.errors import BadRequestError, NotFoundError, ServiceUnavailableError, TooManyRequestsError
from carya.serve.http.logging import JsonLogger
from carya.serve.jobs.folder import ClaimedJob, JobFolder, now
from carya.serve.jobs.job import JobLine, JobState
from carya.serve.registry import ModelRegistry
from carya.serve.routes.schemas import SuggestRequest
from carya.serve.service import suggest
from carya.serve.settings import ServerSettings

_BLOCK_TEXTS = 64  # larger blocks are not faster; the state is saved after each block
_BLOCK_BYTES = 4 << 20
_POLL_SECONDS = 1.0
_MAX_ATTEMPTS = 30
_OUTAGE_SECONDS = 10.0  # time after which a job is resumed if its model or the disk was unavailable
_EXPIRY_SECONDS = 60.0  # time between checks for expired jobs

Row = tuple[str | int, str | None, str | None]  # the id of a line, and its text or the reason why it is invalid


class JobRunner:
    """Thread that processes the jobs in a folder, one at a time.

    Parameters
    ----------
    folder : JobFolder
    registry : ModelRegistry
    settings : ServerSettings
    logger : JsonLogger
    """

    def __init__(
        self, folder: JobFolder, registry: ModelRegistry, settings: ServerSettings, logger: JsonLogger
    ) -> None:
        self.folder = folder
        self._registry = registry
        self._settings = settings
        self._logger = logger
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._paused: dict[str, float] = {}  # for each paused job, the time at which it is resumed
        self._next_expiry = 0.0
        self._thread = threading.Thread(target=self._run, name="carya-jobs", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Process new jobs immediately instead of at the next poll."""
        self._wake.set()

    async def close(self) -> None:
        """Stop after the current block of texts; another worker, or the next server, resumes the job."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, self._settings.request_timeout)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._delete_expired()
                while not self._stop.is_set() and self.run_next():
                    pass
            except Exception as error:  # such as a full disk; the job is resumed later
                self._logger.log(
                    "error", "job interrupted", error=repr(error), traceback=traceback.format_exc(limit=10)
                )
            self._wake.wait(_POLL_SECONDS)
            self._wake.clear()

    def run_next(self) -> bool:
        """Process the oldest unfinished job that is not paused; return whether there was one.

        If its model or the disk is unavailable, the job is paused, so that it does not delay other jobs, and the
        attempt does not count.
        """
        self._paused = {name: until for name, until in self._paused.items() if until > time.monotonic()}
        job = self.folder.claim(skipped=self._paused)
        if job is None:
            return False
        try:
            self._run_job(job)
        except FileNotFoundError:
            pass  # the job was deleted
        except (ServiceUnavailableError, OSError):  # includes PartUnavailableError
            self._paused[job.path.name] = time.monotonic() + _OUTAGE_SECONDS
            with contextlib.suppress(OSError):
                job.postpone()
            raise
        finally:
            job.release()
        return True

    def _delete_expired(self) -> None:
        """Delete expired jobs if the last check was some time ago; also called between the blocks of a long job."""
        if time.monotonic() >= self._next_expiry:
            self._next_expiry = time.monotonic() + _EXPIRY_SECONDS
            self.folder.delete_expired(self._settings.job_retention)

    def _run_job(self, job: ClaimedJob) -> None:
        state, info = job.state, job.state.info
        state.attempts += 1  # saved before the texts are ranked, because one of them could crash the worker
        info.state = "running"
        job.save()
        self._logger.log("info", "job started", model=info.model, input_bytes=info.input_bytes, text=info.n_texts)
        try:
            if state.attempts > _MAX_ATTEMPTS:
                raise BadRequestError(f"It was interrupted {_MAX_ATTEMPTS} times at the same position.")
            if not self._process(job):
                return
            info.state, info.progress = "completed", 1.0
        except (NotFoundError, TooManyRequestsError, BadRequestError) as error:
            info.state, info.error = "failed", error.detail
        info.finished = now()
        job.save()
        self._logger.log(
            "info" if info.error is None else "error",
            f"job {info.state}",
            model=info.model,
            n_texts=info.n_texts,
            n_errors=info.n_errors,
            error=info.error,
        )

    def _process(self, job: ClaimedJob) -> bool:
        """Rank the remaining texts; return False if the worker stops before all texts have been ranked."""
        state, info = job.state, job.state.info
        with job.open_input() as lines, job.open_results() as results:
            while not self._stop.is_set():
                rows = self._read_block(lines, state)
                if not rows:
                    return True
                content = self._rank(rows, state)
                self.folder.check_space(len(content))
                results.write(content)
                results.flush()
                os.fsync(results.fileno())
                info.result_bytes += len(content)
                state.input_offset = lines.tell()
                state.attempts = 0
                info.progress = state.input_offset / info.input_bytes
                job.save()
                self._delete_expired()
        return False

    def _read_block(self, lines: BinaryIO, state: JobState) -> list[Row]:
        """Return the next rows, skipping empty lines; return an empty list at the end of the file."""
        rows: list[Row] = []
        begin = lines.tell()
        limit = 6 * self._settings.max_text_length + 1024  # almost all characters have JSON escapes of at most 6 bytes
        while len(rows) < _BLOCK_TEXTS and (not rows or lines.tell() - begin < _BLOCK_BYTES):
            line = lines.readline(limit)
            if not line:
                break
            state.n_lines += 1
            is_too_long = len(line) == limit and not line.endswith(b"\n")
            if is_too_long:
                while (rest := lines.readline(_BLOCK_BYTES)) and not rest.endswith(b"\n"):
                    pass
            if line.strip():
                rows.append(self._parse(line, state.n_lines, is_too_long=is_too_long))
        return rows

    def _parse(self, line: bytes, number: int, *, is_too_long: bool) -> Row:
        if is_too_long:
            return number, None, f"The line is longer than {6 * self._settings.max_text_length + 1024} bytes."
        try:
            row = parse_line(line)
        except BadRequestError as error:
            return number, None, error.detail
        name = number if row.id is None else row.id
        if len(row.text) > self._settings.max_text_length:
            return (
                name,
                None,
                f"A text can have at most {self._settings.max_text_length} characters, got {len(row.text)}.",
            )
        return name, row.text, None

    def _rank(self, rows: list[Row], state: JobState) -> bytes:
        """Return the result lines of a block."""
        options = state.options
        texts = [text for _, text, _ in rows if text is not None]
        model = self._registry.get(options.model)
        results: list[Any] = []
        if texts:
            request = SuggestRequest(
                texts=texts, top_k=options.top_k, min_score=options.min_score, beam_width=options.beam_width
            )
            with model.in_use():
                results = list(suggest(model, request, texts, self._settings).results)
        state.info.n_texts += len(texts)
        state.info.n_errors += len(rows) - len(texts)
        results.reverse()
        content = []
        for name, text, error in rows:
            if text is None:
                content.append({"id": name, "error": error})
            else:
                content.append({"id": name, "version": model.version, "suggestions": results.pop().suggestions})
        encode = msgspec.json.encode
        return b"".join(encode(line) + b"\n" for line in content)


def parse_line(line: bytes) -> JobLine:
    """Return the text and the id in a line; raise BadRequestError if the line is invalid."""
    try:
        return msgspec.json.decode(line, type=JobLine)
    except msgspec.ValidationError as error:
        raise BadRequestError(f'Each line must be a JSON object with a "text": {error}.') from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequestError(f"The line is not valid JSON: {error}.") from None
