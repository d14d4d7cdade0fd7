"""Tests for batch jobs and feedback: progress, results, limits, interruptions, and the export to a corpus."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import carya
from carya.errors import InputError, PartUnavailableError
from carya.serve.app import create_app
from carya.serve.feedback import FeedbackRow, FeedbackStore
from carya.serve.http.errors import ServiceUnavailableError
from carya.serve.http.logging import JsonLogger
from carya.serve.jobs.folder import JobFolder
from carya.serve.jobs.job import JobOptions
from carya.serve.jobs.runner import JobRunner
from carya.serve.registry import ModelRegistry
from carya.serve.service import suggest
from carya.serve.settings import ServerSettings

from serving import Client, run_carya, save_model, start_server
from topics import corpus

TEXT = "the telescope shows a planet and its moon"
NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs") / "m"
    save_model(folder)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = tmp_path_factory.mktemp("server")
    options = ["--jobs-folder", str(path / "jobs"), "--feedback-file", str(path / "feedback.db"), "--max-jobs", "20"]
    options += ["--max-job-bytes", "20000000", "--max-body-bytes", "10000", "--max-text-length", "1000"]
    with start_server(path, f"m={folder}", *options, "--workers", "2") as server:
        yield server


def lines(texts: list[str]) -> bytes:
    return b"".join(json.dumps({"id": f"row-{n}", "text": text}).encode() + b"\n" for n, text in enumerate(texts))


def wait(server: Any, job: str) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while (info := httpx.get(server.url(f"/v1/jobs/{job}"), timeout=60).json())["finished"] is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return dict(info)


def create(server: Any, content: bytes, query: str = "") -> httpx.Response:
    return httpx.post(server.url(f"/v1/jobs{query}"), content=content, headers=NDJSON, timeout=60)


def test_results_equal_the_suggestions_for_the_texts(server: Any, folder: Path) -> None:
    texts = corpus(300, seed=3)[0]
    response = create(server, lines(texts), "?top_k=3")
    assert response.status_code == 200, response.text
    info = wait(server, response.json()["id"])
    assert (info["state"], info["progress"], info["n_texts"], info["n_errors"]) == ("completed", 1.0, 300, 0)
    download = httpx.get(server.url(f"/v1/jobs/{info['id']}/results"), timeout=60)
    assert download.headers["content-type"] == "application/x-ndjson"
    assert len(download.content) == info["result_bytes"]
    results = [json.loads(line) for line in download.text.splitlines()]
    assert [result["id"] for result in results] == [f"row-{n}" for n in range(300)]
    expected = carya.load(folder).suggest_all(texts, top_k=3)
    assert [[(item["label"], item["score"]) for item in result["suggestions"]] for result in results] == [
        [(suggestion.label, suggestion.score) for suggestion in row] for row in expected
    ]
    rest = httpx.get(server.url(f"/v1/jobs/{info['id']}/results"), headers={"Range": "bytes=1000-"}, timeout=60)
    assert (rest.status_code, rest.content) == (206, download.content[1000:])
    assert httpx.post(server.url(f"/v1/jobs/{info['id']}/delete"), timeout=60).status_code == 200
    assert httpx.get(server.url(f"/v1/jobs/{info['id']}"), timeout=60).status_code == 404


def test_invalid_lines_have_errors_and_do_not_stop_the_job(server: Any) -> None:
    content = b'{"text": "a planet"}\n\n{"text": 1}\nnot JSON\n{"text": "%b"}\n{"text": "%b"}\n{"id": 7, "text": "x"}'
    response = create(server, content % (b"a" * 1001, b"b" * 100_000))
    info = wait(server, response.json()["id"])
    assert (info["state"], info["n_texts"], info["n_errors"]) == ("completed", 2, 4)
    text = httpx.get(server.url(f"/v1/jobs/{info['id']}/results"), timeout=60).text
    results = [json.loads(line) for line in text.splitlines()]
    assert [result["id"] for result in results] == [1, 3, 4, 5, 6, 7]
    assert [result.get("error", "")[:30] for result in results] == [
        "",
        "Each line must be a JSON objec",
        "The line is not valid JSON: JS",
        "A text can have at most 1000 c",
        "The line is longer than 7024 b",
        "",
    ]


def test_many_empty_lines_do_not_end_a_job(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carya.serve.jobs.runner._BLOCK_BYTES", 1000)
    runner = new_runner(folder, tmp_path / "jobs")
    job = add_job(runner, lines([TEXT] * 3) + b"\n" * 5000 + lines([TEXT] * 2))
    while runner.run_next():
        pass
    info = runner.folder.state(job).info
    assert (info.state, info.n_texts) == ("completed", 5)


@pytest.mark.parametrize(
    ("content", "query", "status", "detail"),
    [
        (b"", "", 400, "The file is empty."),
        (b"\xff\n", "", 400, "The line is not valid JSON"),
        (b"[1]\n", "", 400, 'Each line must be a JSON object with a "text"'),
        (b'{"text": "a"}', "?model=missing", 404, "Unknown model 'missing'"),
        (b'{"text": "a"}', "?top_k=0", 400, "top_k must be an integer between 1 and 1000, got '0'."),
        (b'{"text": "a"}', "?min_score=nan", 400, "min_score must be a finite number, got 'nan'."),
        (b'{"text": "a"}\n' * 2_000_000, "", 413, "The request body exceeds the limit of 20000000 bytes."),
    ],
)
def test_mistakes_are_reported_immediately(server: Any, content: bytes, query: str, status: int, detail: str) -> None:
    response = create(server, content, query)
    assert response.status_code == status
    assert response.json()["detail"].startswith(detail)


def test_uploads_do_not_count_toward_the_buffer(folder: Path, tmp_path: Path) -> None:
    options = ["--jobs-folder", str(tmp_path / "jobs"), "--max-buffered-bytes", "2000000"]
    with start_server(tmp_path, f"m={folder}", *options) as server:
        response = create(server, b'{"text": "a"}\n' * 500_000)
        assert response.status_code == 200, response.text
        assert httpx.get(server.url(f"/v1/jobs/{response.json()['id']}/results"), timeout=60).status_code == 409
        assert httpx.post(server.url(f"/v1/jobs/{response.json()['id']}/delete"), timeout=60).status_code == 200


def new_runner(folder: Path, jobs: Path, **settings: Any) -> JobRunner:
    options = ServerSettings(**settings)
    job_folder = JobFolder(jobs, options.max_jobs, options.max_jobs_bytes)
    return JobRunner(job_folder, ModelRegistry.open({"m": folder}, options), options, JsonLogger("error"))


def add_job(runner: JobRunner, content: bytes, **options: Any) -> str:
    upload = runner.folder.new_upload()
    upload.write(content)
    return upload.finish(JobOptions(model="m", **options)).id


def test_interrupted_jobs_are_resumed_with_the_same_results(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carya.serve.jobs.runner._OUTAGE_SECONDS", 0)
    runner = new_runner(folder, tmp_path / "jobs")
    content = lines(corpus(300, seed=3)[0])
    expected, job = add_job(runner, content), add_job(runner, content)
    assert runner.run_next()
    assert runner.run_next()
    reference = (tmp_path / "jobs" / expected / "results.jsonl").read_bytes()
    assert (tmp_path / "jobs" / job / "results.jsonl").read_bytes() == reference
    fsync, rng, interruptions = os.fsync, random.Random(0), 0

    def fail_at_times(descriptor: int) -> None:
        if rng.random() < 0.4:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    job = add_job(runner, content)
    monkeypatch.setattr(os, "fsync", fail_at_times)
    while runner.folder.state(job).info.finished is None:
        try:
            runner.run_next()
        except OSError:
            interruptions += 1
            with (tmp_path / "jobs" / job / "results.jsonl").open("ab") as file:
                file.write(b"incomplete")  # as after a power failure
    assert interruptions > 2
    assert runner.folder.state(job).info.state == "completed"
    assert (tmp_path / "jobs" / job / "results.jsonl").read_bytes() == reference


def test_killed_workers_do_not_lose_a_job(folder: Path, tmp_path: Path) -> None:
    options = ["--jobs-folder", str(tmp_path / "jobs"), "--workers", "2"]
    with start_server(tmp_path, f"m={folder}", *options) as server:
        texts = corpus(2000, seed=3)[0] * 8
        job = create(server, lines(texts)).json()["id"]
        time.sleep(0.3)
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
        workers = [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        os.kill(workers[1], signal.SIGKILL)
        info = wait(server, job)
        assert (info["state"], info["n_texts"]) == ("completed", len(texts))
        text = httpx.get(server.url(f"/v1/jobs/{job}/results"), timeout=60).text
        assert [json.loads(line)["id"] for line in text.splitlines()] == [f"row-{n}" for n in range(len(texts))]


def test_jobs_that_never_progress_fail(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = new_runner(folder, tmp_path / "jobs")
    job = add_job(runner, lines([TEXT]))
    monkeypatch.setattr("carya.serve.jobs.runner.suggest", lambda *_: 1 / 0)
    for _ in range(30):
        with pytest.raises(ZeroDivisionError):
            runner.run_next()
    runner.run_next()
    info = runner.folder.state(job).info
    assert (info.state, info.error) == ("failed", "It was interrupted 30 times at the same position.")


def test_outages_do_not_count_as_attempts(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carya.serve.jobs.runner._OUTAGE_SECONDS", 0)
    runner = new_runner(folder, tmp_path / "jobs")
    job = add_job(runner, lines([TEXT] * 100))
    calls = 0

    def fail_after_the_first_block(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if 1 < calls < 100:
            raise PartUnavailableError("top", ["no replica responds"]) if calls % 2 else ServiceUnavailableError("busy")
        return suggest(*arguments)

    monkeypatch.setattr("carya.serve.jobs.runner.suggest", fail_after_the_first_block)
    while (info := runner.folder.state(job).info).finished is None:
        try:
            runner.run_next()
        except (PartUnavailableError, ServiceUnavailableError):
            assert runner.folder.state(job).info.state == "queued"
    assert (info.state, info.n_texts, info.result_bytes) == (
        "completed",
        100,
        (tmp_path / "jobs" / job / "results.jsonl").stat().st_size,
    )
    assert calls == 100


def test_an_outage_does_not_delay_other_jobs(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = new_runner(folder, tmp_path / "jobs")
    waiting, other = add_job(runner, lines([TEXT]), top_k=1), add_job(runner, lines([TEXT]), top_k=2)

    def fail_for_one_job(model: Any, request: Any, *arguments: Any) -> Any:
        if request.top_k == 1:
            raise ServiceUnavailableError("busy")
        return suggest(model, request, *arguments)

    monkeypatch.setattr("carya.serve.jobs.runner.suggest", fail_for_one_job)
    for _ in range(2):  # the order of jobs that were created in the same second is arbitrary
        with contextlib.suppress(ServiceUnavailableError):
            runner.run_next()
    assert (runner.folder.state(other).info.state, runner.folder.state(waiting).info.state) == ("completed", "queued")
    assert not runner.run_next()


def test_expired_jobs_are_deleted_while_a_long_job_runs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carya.serve.jobs.runner._EXPIRY_SECONDS", 0)
    runner = new_runner(folder, tmp_path / "jobs", job_retention=0.0)
    expired = add_job(runner, lines([TEXT]))
    assert runner.run_next()
    time.sleep(0.01)
    add_job(runner, lines([TEXT]))
    assert runner.run_next()
    assert not (tmp_path / "jobs" / expired).exists()


def test_the_number_and_the_size_of_jobs_are_limited(folder: Path, tmp_path: Path) -> None:
    runner = new_runner(folder, tmp_path / "jobs", max_jobs=2, max_jobs_bytes=3000, job_retention=0.0)
    job = add_job(runner, lines([TEXT] * 20), top_k=100)
    assert runner.run_next()
    info = runner.folder.state(job).info
    assert info.state == "failed"
    assert str(info.error).startswith("The files of all jobs have reached the limit of 3000 bytes.")
    add_job(runner, lines([TEXT]))
    with pytest.raises(Exception, match="limit of 2 jobs"):
        runner.folder.new_upload()
    time.sleep(0.01)
    runner.folder.delete_expired(0.0)
    assert len(list((tmp_path / "jobs").iterdir())) == 1  # only the queued job


def test_jobs_and_feedback_are_disabled_by_default(folder: Path) -> None:
    with Client(create_app({"m": folder}, ServerSettings(log_level="error"))) as client:
        for method, path in [("POST", "/v1/jobs"), ("GET", "/v1/jobs/a"), ("POST", "/v1/feedback")]:
            response = client.request(method, path)
            assert response.status_code == 403
            assert "disabled on this server. Enable" in response.json()["detail"]


def test_storage_that_cannot_be_written_is_reported_before_the_server_starts(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a database" * 100)
    run = run_carya("serve", str(folder), "--jobs-folder", str(tmp_path / "file" / "jobs"), "--workers", "2")
    assert run.returncode == 2
    assert "cannot be written" in run.stderr
    run = run_carya("serve", str(folder), "--feedback-file", str(tmp_path / "file"))
    assert run.returncode == 2
    assert "cannot be used for feedback" in run.stderr


def test_feedback_is_stored_and_exported_as_a_corpus(server: Any, tmp_path: Path) -> None:
    def send(**message: Any) -> httpx.Response:
        return httpx.post(server.url("/v1/feedback"), json=message, timeout=60)

    assert send(text=TEXT, accepted=["Astronomy", "new label"], rejected=["chess"]).json() == {
        "model": "m",
        "version": httpx.get(server.url("/v1/model"), timeout=60).json()["version"],
        "n_accepted": 2,
        "n_rejected": 1,
    }
    assert send(text=TEXT, accepted=["chess"]).status_code == 200  # the later feedback counts
    assert send(text="only rejected", rejected=["chess"]).status_code == 200
    database = server.log.parent / "feedback.db"
    with sqlite3.connect(database) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    target = tmp_path / "corpus.jsonl"
    run = run_carya("data", "feedback", str(database), str(target))
    assert run.returncode == 0, run.stderr
    assert "1 text" in run.stdout
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert rows == [{"text": TEXT, "labels": ["astronomy", "chess", "new label"]}]
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"text": TEXT}, '"accepted" or "rejected" must contain at least one label.'),
        ({"text": TEXT, "accepted": ["a"], "rejected": ["a"]}, "Label 'a' is both accepted and rejected."),
        ({"text": TEXT, "accepted": [" "]}, "Labels must have 1 to 1000 characters and must not be blank, got ' '."),
        ({"text": TEXT, "accepted": ["a"] * 1001}, "A text can have at most 1000 labels, got 1001."),
    ]
    for message, detail in mistakes:
        response = send(**message)
        assert (response.status_code, response.json()["detail"]) == (400, detail)


def test_feedback_databases_are_bounded_and_belong_to_carya(tmp_path: Path) -> None:
    store = FeedbackStore(tmp_path / "feedback.db", max_rows=1)
    assert store.add("m", "1", "a", accepted=["x"], rejected=[]) == 1
    assert store.add("m", "1", "b", accepted=["x"], rejected=[]) is None
    assert list(store.rows("m")) == [FeedbackRow("a", ["x"], [])]
    assert list(store.rows("other")) == []
    store = FeedbackStore(tmp_path / "small.db", max_bytes=1 << 16)
    numbers = [store.add("m", "1", "a" * 10_000, accepted=["x"], rejected=[]) for _ in range(10)]
    assert numbers[0] == 1
    assert numbers[-1] is None
    assert (tmp_path / "small.db").stat().st_size <= 1 << 16
    assert len(list(store.rows("m"))) == 1
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE t (x)")
    with pytest.raises(InputError, match="is a database that belongs to another program"):
        FeedbackStore(tmp_path / "other.db")
    with pytest.raises(InputError, match="does not exist"):
        FeedbackStore(tmp_path / "missing.db", must_exist=True)
