"""The folder that contains the batch jobs of a server.

Each job is a folder named after its id, with the uploaded file, the results and the state. The state is replaced
atomically after each block of texts and records the positions in both files, so that a job whose worker was killed is
resumed by another worker, with the same results. The worker that processes a job holds a lock on its folder; the
operating system releases the lock when the worker exits.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import time
from collections.abc import Container
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from carya.core.atomic import atomic_file
from carya.errors import InputError
from carya.serve.http.errors import NotFoundError, TooManyRequestsError
from carya.serve.jobs.job import JobInfo, JobOptions, JobState

INPUT, RESULTS = "input.jsonl", "results.jsonl"
_STATE = "job.json"
_ID = re.compile(r"[0-9a-f]{32}")
_UPLOAD = re.compile(r"\.upload-[0-9a-f]{32}")
_UPLOAD_SECONDS = 3600.0  # uploads that have not changed for this long are considered interrupted


def now() -> str:
    """Return the current time in ISO 8601 format."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Upload:
    """A file that is being received.

    Attributes
    ----------
    id : str
    size : int
        The number of bytes received so far.
    """

    def __init__(self, folder: Path) -> None:
        self.id = secrets.token_hex(16)
        self.path = folder / f".upload-{self.id}"
        self.path.mkdir()
        self.size = 0
        self._file = (self.path / INPUT).open("wb")

    def write(self, data: bytes) -> None:
        """Append data to the file."""
        self._file.write(data)
        self.size += len(data)

    def finish(self, options: JobOptions) -> JobInfo:
        """Add the job to the queue."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        info = JobInfo(id=self.id, model=options.model, state="queued", created=now(), input_bytes=self.size)
        save_state(self.path, JobState(info=info, options=options))
        (self.path / RESULTS).touch()
        self.path.rename(self.path.parent / self.id)
        return info

    def discard(self) -> None:
        """Delete the file."""
        self._file.close()
        shutil.rmtree(self.path, ignore_errors=True)


class ClaimedJob:
    """A job locked by this worker; raises OSError if another worker holds the lock.

    Attributes
    ----------
    path : path
    state : JobState
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.state = load_state(path)
        except BaseException:
            os.close(self._lock)
            raise

    def save(self) -> None:
        """Save the state; raise FileNotFoundError if the job has been deleted."""
        save_state(self.path, self.state)

    def postpone(self) -> None:
        """Return the job to the queue at the last saved position, without counting the attempt."""
        self.state = load_state(self.path)
        self.state.attempts = max(0, self.state.attempts - 1)
        self.state.info.state = "queued"
        self.save()

    def open_input(self) -> BinaryIO:
        """Open the uploaded file at the last saved position."""
        file = (self.path / INPUT).open("rb")
        file.seek(self.state.input_offset)
        return file

    def open_results(self) -> BinaryIO:
        """Open the results for appending after the last saved position."""
        file = (self.path / RESULTS).open("r+b")
        file.truncate(self.state.info.result_bytes)
        file.seek(self.state.info.result_bytes)
        return file

    def release(self) -> None:
        """Allow other workers to process the job."""
        os.close(self._lock)


class JobFolder:
    """The folder of all jobs.

    Parameters
    ----------
    path : path
        Created if it does not exist.
    max_jobs : int
        The maximum number of jobs, including completed ones.
    max_bytes : int
        The maximum total size of all files.
    """

    def __init__(self, path: Path, max_jobs: int, max_bytes: int) -> None:
        self.path = path
        self._max_jobs = max_jobs
        self._max_bytes = max_bytes
        try:
            path.mkdir(parents=True, exist_ok=True)
            (path / f".test-{secrets.token_hex(4)}").mkdir()
        except OSError as error:
            raise InputError(
                f"jobs_folder {path} cannot be written: {error.strerror}. Pass a folder that the server can write to."
            ) from None
        for entry in path.glob(".test-*"):
            with contextlib.suppress(OSError):
                entry.rmdir()

    def new_upload(self) -> Upload:
        """Return a new upload; raise TooManyRequestsError if there are too many jobs."""
        if len(self._entries()) >= self._max_jobs:
            raise TooManyRequestsError(
                f"The server has reached its limit of {self._max_jobs} jobs. Delete completed jobs, or try again later."
            )
        return Upload(self.path)

    def check_space(self, additional: int = 0) -> None:
        """Raise TooManyRequestsError if the total size of all job files exceeds the limit."""
        used = 0
        for entry in self._entries():
            for name in (INPUT, RESULTS):
                with contextlib.suppress(OSError):
                    used += (self.path / entry / name).stat().st_size
        if used + additional > self._max_bytes:
            raise TooManyRequestsError(
                f"The files of all jobs have reached the limit of {self._max_bytes} bytes. Delete completed jobs, or "
                "try again later."
            )

    def find(self, job: str) -> Path:
        """Return the folder of a job; raise NotFoundError if it does not exist."""
        if not _ID.fullmatch(job) or not (self.path / job).is_dir():
            raise NotFoundError(f"Job {job[:100]!r} not found. It may have expired.")
        return self.path / job

    def state(self, job: str) -> JobState:
        """Return the state of a job; raise NotFoundError if it does not exist."""
        folder = self.find(job)
        try:
            return load_state(folder)
        except (OSError, msgspec.DecodeError):
            raise NotFoundError(f"Job {job!r} not found. It may have expired.") from None

    def delete(self, job: str) -> None:
        """Delete a job; a worker that processes it stops after the current block."""
        folder = self.find(job)
        removed = self.path / f".upload-{job}"  # rename first, so that no request sees an incomplete folder
        with contextlib.suppress(OSError):
            folder.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)

    def delete_expired(self, seconds: float) -> None:
        """Delete the jobs that finished more than `seconds` ago, and interrupted uploads."""
        for entry in self._entries():
            path = self.path / entry
            with contextlib.suppress(OSError, NotFoundError, msgspec.DecodeError):
                if _UPLOAD.fullmatch(entry):
                    file = path / INPUT
                    if time.time() - (file if file.exists() else path).stat().st_mtime > _UPLOAD_SECONDS:
                        shutil.rmtree(path, ignore_errors=True)
                elif load_state(path).info.finished and time.time() - (path / _STATE).stat().st_mtime > seconds:
                    self.delete(entry)

    def claim(self, skipped: Container[str] = ()) -> ClaimedJob | None:
        """Return the oldest unfinished job that no other worker processes and that is not in `skipped`, or None."""
        waiting = []
        for entry in self._entries():
            if _ID.fullmatch(entry) and entry not in skipped:
                with contextlib.suppress(OSError, msgspec.DecodeError):
                    state = load_state(self.path / entry)
                    if state.info.finished is None:
                        waiting.append((state.info.created, entry))
        for _, entry in sorted(waiting):
            with contextlib.suppress(OSError, msgspec.DecodeError):  # locked by another worker, or deleted
                job = ClaimedJob(self.path / entry)
                if job.state.info.finished is None:  # another worker may have finished it in the meantime
                    return job
                job.release()
        return None

    def _entries(self) -> list[str]:
        with contextlib.suppress(OSError), os.scandir(self.path) as entries:
            return [entry.name for entry in entries if _ID.fullmatch(entry.name) or _UPLOAD.fullmatch(entry.name)]
        return []


def load_state(folder: Path) -> JobState:
    """Return the saved state of a job."""
    return msgspec.json.decode((folder / _STATE).read_bytes(), type=JobState)


def save_state(folder: Path, state: JobState) -> None:
    """Save the state of a job atomically."""
    if not folder.is_dir():  # deleted; do not create it again
        raise FileNotFoundError(folder)
    with atomic_file(folder / _STATE) as file:
        file.write(msgspec.json.encode(state))
