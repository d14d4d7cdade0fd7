"""Tests for the server's JSON API, called in this process."""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Mount

import carya
from carya.core.label_index import LabelIndex
from carya.errors import CaryaError, InputError, ModelFormatError, ParameterError
from carya.serve import service
from carya.serve.app import create_app, create_state, watch_models
from carya.serve.http import logging
from carya.serve.http.errors import ServiceUnavailableError
from carya.serve.http.logging import JsonLogger
from carya.serve.http.metrics import MetricsLayout, ServerMetrics
from carya.serve.http.shared_limits import SharedLimit
from carya.serve.http.thread_pool import ThreadPool
from carya.serve.registry import ModelRegistry, ReloadFailure
from carya.serve.routes import json_io
from carya.serve.settings import ServerSettings

from serving import Client, new_metrics, save_model
from topics import TOPICS, corpus

TEXT = "the telescope shows a planet and its moon"
WORDS = sorted({word for words in TOPICS.values() for word in words.split()} | {"unknown", "Moon", "é"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the models "first" and "second"."""
    folder = tmp_path_factory.mktemp("models")
    save_model(folder / "first")
    save_model(folder / "second", seed=5)
    return folder


@pytest.fixture(scope="module")
def ranker(folder: Path) -> carya.TextRanker:
    return carya.load(folder / "first")  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    models = {"first": folder / "first", "second": folder / "second"}
    with Client(create_app(models, ServerSettings(log_level="error"))) as client:
        yield client


def start(folder: Path, **settings: Any) -> Client:
    """Return a client for an application that serves the first model."""
    return Client(create_app({"first": folder / "first"}, ServerSettings(**{"log_level": "error", **settings})))


def labels_of(response: dict[str, Any], text: int = 0) -> list[tuple[str, str, float]]:
    suggestions = response["results"][text]["suggestions"]
    return [(suggestion["label"], suggestion["name"], suggestion["score"]) for suggestion in suggestions]


def to_tuples(suggestions: list[Any]) -> list[tuple[str, str, float]]:
    return [(suggestion.label, suggestion.name, suggestion.score) for suggestion in suggestions]


@pytest.mark.filterwarnings("ignore::carya.errors.UnknownTextWarning")
def test_suggestions_equal_those_of_the_ranker(client: Client, ranker: carya.TextRanker) -> None:
    response = client.post("/v1/suggest", {"text": TEXT, "top_k": 5}).json()
    assert (response["model"], len(response["version"])) == ("first", 16)
    assert labels_of(response) == to_tuples(ranker.suggest(TEXT, top_k=5))
    all_texts = corpus(40, seed=3)[0] + [""]
    for texts in (all_texts[:3], all_texts):  # a few texts are ranked one by one, many texts in a batch
        response = client.post("/v1/suggest", {"texts": texts, "min_score": 0.01, "beam_width": 3}).json()
        expected = ranker.suggest_all(texts, min_score=0.01, beam_width=3)
        assert [labels_of(response, text) for text in range(len(texts))] == [to_tuples(row) for row in expected]
    assert response["results"][-1]["suggestions"] == []


def test_long_texts(client: Client, ranker: carya.TextRanker) -> None:
    text = " ".join(corpus(3000, seed=4)[0])[:100_000]
    assert len(text) == 100_000
    assert labels_of(client.post("/v1/suggest", {"text": text}).json()) == to_tuples(ranker.suggest(text))


def test_models_by_name(client: Client, folder: Path) -> None:
    second = carya.load(folder / "second")
    response = client.post("/v1/suggest", {"text": TEXT, "model": "second"}).json()
    assert labels_of(response) == to_tuples(second.suggest(TEXT))
    info = client.get("/v1/model?model=second").json()
    assert (info["name"], info["is_default"], info["other_models"]) == ("second", False, ["first"])
    assert (info["kind"], info["is_explainable"], info["n_labels"]) == ("XRLinear", True, len(second.labels_))
    assert info["is_calibrated"] is False
    assert info["level_sizes"] == [len(level) for level in second.model_.tree_.parents]
    assert client.get("/v1/model").json()["is_default"] is True
    unknown = client.get("/v1/model?model=third")
    assert unknown.status_code == 404
    assert unknown.headers["content-type"] == "application/problem+json"
    assert unknown.json()["detail"] == "Unknown model 'third'. Available models: 'first', 'second'."


@pytest.mark.filterwarnings("ignore::carya.errors.UnknownTextWarning")
def test_label_filters_are_exact(client: Client, ranker: carya.TextRanker) -> None:
    texts = [*corpus(12, seed=6)[0], "nothing known"]
    everything = ranker.suggest_all(texts, top_k=len(ranker.labels_), beam_width=1000)
    allowed = sorted(ranker.labels_)[::3]

    def suggest(**labels: Any) -> list[list[tuple[str, str, float]]]:
        response = client.post("/v1/suggest", {"texts": texts, "top_k": 4, "labels": labels})
        assert response.status_code == 200, response.text
        return [labels_of(response.json(), text) for text in range(len(texts))]

    def ids(rows: list[Any]) -> list[list[str]]:
        return [[label[0] for label in row] for row in rows]

    # Every allowed label is scored, although a beam of width 10 would not reach most of these labels.
    for filtered, full in zip(suggest(allowed=allowed), everything, strict=True):
        best = [label for label in to_tuples(full) if label[0] in set(allowed)][:4]
        assert [label[:2] for label in filtered] == [label[:2] for label in best]
        np.testing.assert_allclose([label[2] for label in filtered], [label[2] for label in best], rtol=1e-5)
    prefixed = suggest(prefix="chess/")
    assert {label[0].partition("/")[0] for row in prefixed for label in row} == {"chess"}
    both = suggest(prefix="chess/", allowed=["chess/queen", "astronomy"])
    assert {label[0] for row in both for label in row} == {"chess/queen"}
    assert suggest(prefix="no such prefix") == [[]] * len(texts)
    # Excluded labels are removed from the ranking, and the next-ranked labels take their places.
    plain = ranker.suggest_all(texts, top_k=40)
    excluded = [row[0].label for row in plain if row][:5]
    expected = [[label.label for label in row if label.label not in excluded][:4] for row in plain]
    assert ids(suggest(excluded=excluded)) == expected
    remaining = suggest(prefix="chess/", excluded=["chess/queen"])
    assert all(label[0] != "chess/queen" for row in remaining for label in row)
    assert ids(suggest(allowed=["Astronomy"]))[0] == ["astronomy"]  # allowed labels can be specified by name
    message = {"text": TEXT, "min_score": 0.5, "labels": {"allowed": allowed}}
    assert all(score >= 0.5 for _, _, score in labels_of(client.post("/v1/suggest", message).json()))
    unknown = client.post("/v1/suggest", {"text": TEXT, "labels": {"excluded": ["gardening"]}})
    assert (unknown.status_code, unknown.json()["detail"]) == (
        400,
        "labels.excluded contains the unknown label 'gardening'.",
    )


@pytest.mark.filterwarnings("ignore::carya.errors.UnknownTextWarning")
def test_models_that_cannot_explain_scores_or_score_given_labels(tmp_path: Path) -> None:
    members = carya.XRLinear(max_leaf_size=6, n_jobs=1)
    ranker = carya.TextRanker(carya.Tfidf(n_jobs=1), carya.Ensemble(members, n_trees=2, n_jobs=1)).fit(*corpus())
    ranker.save(tmp_path / "m")
    with Client(create_app({"m": tmp_path / "m"}, ServerSettings(log_level="error"))) as client:
        assert labels_of(client.post("/v1/suggest", {"text": TEXT}).json()) == to_tuples(ranker.suggest(TEXT))
        info = client.get("/v1/model").json()
        assert (info["kind"], info["is_explainable"], info["level_sizes"]) == ("Ensemble", False, [])
        refused = client.post("/v1/explain", {"text": TEXT})
        assert refused.status_code == 400
        assert refused.json()["detail"] == (
            "The scores of model 'm' (Ensemble) cannot be explained. Use an XRLinear model, or pass a number from 0 to "
            '1 as "tree" to explain the score of one label tree.'
        )
        explained = client.post("/v1/explain", {"text": TEXT, "label": "chess", "tree": 1}).json()
        assert explained["score"] == ranker.explain(TEXT, "chess", tree=1).score
        missing = client.post("/v1/explain", {"text": TEXT, "label": "chess", "tree": 2})
        assert (missing.status_code, missing.json()["detail"]) == (400, "tree must be between 0 and 1, got 2.")
        assert client.post("/v1/explain", {"text": TEXT, "tree": -1}).status_code == 400
        assert info["n_trees"] == 2
        texts = ["nothing known", TEXT, *corpus(3, seed=6)[0]]
        message = {"texts": texts, "top_k": 3, "beam_width": 1000, "labels": {"prefix": "chess"}}
        response = client.post("/v1/suggest", message).json()
        complete = ranker.suggest_all(texts, top_k=len(ranker.labels_), beam_width=1000)
        for text, full in enumerate(complete):
            best = [label for label in to_tuples(full) if label[0].startswith("chess")][:3]
            assert labels_of(response, text) == best
            assert bool(best) == (text > 0)


@pytest.mark.filterwarnings("ignore::carya.errors.UnknownTextWarning")
def test_probabilities(tmp_path: Path) -> None:
    ranker = save_model(tmp_path / "m").calibrate(*corpus(100, seed=8))
    ranker.save(tmp_path / "m")
    with Client(create_app({"m": tmp_path / "m"}, ServerSettings(log_level="error"))) as client:
        assert client.get("/v1/model").json()["is_calibrated"] is True
        for texts in ([TEXT], [TEXT, "", *corpus(20, seed=9)[0]]):
            response = client.post("/v1/suggest", {"texts": texts}).json()
            for result, expected in zip(response["results"], ranker.suggest_all(texts), strict=True):
                probabilities = [suggestion["probability"] for suggestion in result["suggestions"]]
                assert ranker.calibration_ is not None
                assert probabilities == pytest.approx([suggestion.probability for suggestion in expected])


@given(st.lists(st.sampled_from(WORDS), max_size=30), st.integers(0, 10**6))
def test_explanations_add_up_to_the_scores(
    client: Client, ranker: carya.TextRanker, words: list[str], number: int
) -> None:
    text = " ".join(words)
    label = ranker.labels_[number % len(ranker.labels_)]
    explanation = client.post("/v1/explain", {"text": text, "label": label}).json()
    score = explanation["score"]
    assert explanation["log_scale"] is True
    contributions = [term["contribution"] for term in explanation["terms"]]
    total = math.fsum([explanation["base"], *contributions])
    assert math.isclose(math.exp(total), score, rel_tol=1e-9, abs_tol=1e-300)
    levels = [
        math.fsum([level["base"], *(term["contribution"] for term in level["terms"])])
        for level in explanation["levels"]
    ]
    assert math.isclose(math.exp(math.fsum(levels)), score, rel_tol=1e-9, abs_tol=1e-300)
    assert math.isclose(math.prod(level["score"] for level in explanation["levels"]), score, rel_tol=1e-9)
    for term in explanation["terms"]:
        for begin, end in term["spans"]:
            covered = [word for word in text[begin:end].lower().split() if len(word) > 1]  # drops single letters
            assert covered == term["term"].split()
    response = client.post("/v1/suggest", {"text": text, "labels": {"allowed": [label]}}).json()
    for _, _, suggested in labels_of(response):  # empty for a text without known terms
        assert math.isclose(suggested, score, rel_tol=1e-4, abs_tol=1e-30)


def test_the_best_label_is_explained_by_default(client: Client, ranker: carya.TextRanker) -> None:
    explanation = client.post("/v1/explain", {"text": TEXT}).json()
    assert explanation["label"] == ranker.suggest(TEXT, top_k=1)[0].label
    expected = json.loads(json.dumps(ranker.explain(TEXT, explanation["label"]).to_dict()))
    assert {key: explanation[key] for key in expected} == expected
    assert client.post("/v1/explain", {"text": TEXT, "label": "Astronomy"}).json()["label"] == "astronomy"
    assert client.post("/v1/explain", {"text": "xyzzy"}).status_code == 404
    unknown = client.post("/v1/explain", {"text": TEXT, "label": "gardening"})
    assert (unknown.status_code, unknown.json()["detail"]) == (404, "Unknown label 'gardening'.")


def test_labels_by_prefix(client: Client, ranker: carya.TextRanker) -> None:
    response = client.get("/v1/labels?q=ASTRO&limit=2").json()
    assert response["labels"][0] == {"label": "astronomy", "name": "Astronomy"}
    assert len(response["labels"]) == 2
    assert response["total"] == sum(label.startswith("astro") for label in ranker.labels_)
    assert client.get("/v1/labels").json()["total"] == len(ranker.labels_)
    assert client.get("/v1/labels?q=zzz").json()["labels"] == []
    for limit in ("0", "x", "1001", "-1", ""):
        refused = client.get(f"/v1/labels?limit={limit}")
        assert refused.status_code == 400
        assert refused.json()["detail"] == f"limit must be an integer between 1 and 1000, got {limit!r}."


@given(st.lists(st.text("abAB ß", max_size=4), min_size=1, max_size=12, unique=True), st.text("abß", max_size=3))
def test_label_index(names: list[str], prefix: str) -> None:
    ids = [f"id:{name}" for name in names]
    index = LabelIndex(ids, names)
    folded = prefix.casefold()
    assert sorted(index.search(prefix).tolist()) == [
        number for number, name in enumerate(names) if name.casefold().startswith(folded)
    ]
    assert index.with_prefix("id:" + prefix).tolist() == [
        number for number, name in enumerate(names) if name.startswith(prefix)
    ]
    for number, name in enumerate(names):
        assert index.find(ids[number]) == number
        assert index.find(name) == number
    queries = [*ids, *names, "id:", "unknown"]
    expected = [index.find(query) for query in queries]
    assert index.find_all(queries).tolist() == [-1 if number is None else number for number in expected]
    assert LabelIndex(names).find_all(names).tolist() == list(range(len(names)))
    assert LabelIndex(names, names).search(prefix).size == sum(name.casefold().startswith(folded) for name in names)


@pytest.mark.parametrize(
    ("message", "status", "detail"),
    [
        ({}, 400, 'The request must contain either "text" or "texts", but not both.'),
        ({"text": "a", "texts": ["b"]}, 400, 'The request must contain either "text" or "texts", but not both.'),
        ({"texts": []}, 400, "Expected `array` of length >= 1"),
        ({"text": "a", "top_k": 0}, 400, "Expected `int` >= 1 - at `$.top_k`"),
        ({"text": "a", "top_k": 2000}, 400, "top_k must be at most 1000, got 2000."),
        ({"text": "a", "beam_width": 2000}, 400, "beam_width must be at most 1000, got 2000."),
        ({"texts": ["a"] * 500, "top_k": 1000}, 400, "A response can have at most 200000 labels"),
        ({"text": "a", "min_scor": 1}, 400, "Object contains unknown field `min_scor`"),
        ({"texts": ["a"] * 1025}, 413, "A request can have at most 1024 texts, got 1025."),
        ({"text": "a" * 200_001}, 413, "A text can have at most 200000 characters, got 200001."),
        (
            {"texts": ["a"], "labels": {"allowed": "b"}},
            400,
            "Expected `array | null`, got `str` - at `$.labels.allowed`",
        ),
    ],
)
def test_invalid_requests(client: Client, message: Any, status: int, detail: str) -> None:
    response = client.post("/v1/suggest", message)
    assert response.status_code == status
    assert detail in response.json()["detail"]
    assert response.json()["status"] == status


def test_too_many_pairs(folder: Path) -> None:
    with start(folder, max_pairs=10) as client:
        refused = client.post("/v1/suggest", {"texts": ["a", "b"], "labels": {"prefix": "c"}})
        assert refused.status_code == 413
        assert "can score at most 10 (text, label) pairs" in refused.json()["detail"]
        message = {"texts": ["a", "b"], "top_k": 4, "labels": {"excluded": ["chess"]}}
        assert client.post("/v1/suggest", message).status_code == 200
        refused = client.post("/v1/suggest", message | {"top_k": 5})
        assert refused.status_code == 413
        assert "top_k plus the number of excluded labels is 6 and the number of texts is 2." in refused.json()["detail"]


def test_unknown_paths_and_methods(client: Client) -> None:
    for response in (client.get("/nowhere"), client.get("/v1/suggest/"), client.get("/page/../app.py")):
        assert response.status_code == 404
        assert response.json()["detail"] == "Unknown path. See /docs for all routes."
    wrong = client.get("/v1/suggest")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert wrong.json()["detail"] == "Method GET is not allowed. Use POST."
    assert client.post("/v1/suggest", content=b"<a/>", headers={"content-type": "text/xml"}).status_code == 415


def test_tokens(folder: Path) -> None:
    with start(folder, tokens=("secret", "other")) as client:
        for path in ("/v1/model", "/metrics", "/v1/projects", "/nowhere"):
            refused = client.get(path)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert client.get(path, headers={"Authorization": "Bearer secre"}).status_code == 401
            assert client.get(path, headers={"Authorization": "Basic secret"}).status_code == 401
            assert client.get(path, headers={"Authorization": "Bearer secretö".encode()}).status_code == 401
        for token in ("secret", "other"):
            assert client.get("/v1/model", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    for invalid in ((), ("",), ("a b",), ("é",), "secret"):
        with pytest.raises(ParameterError, match="tokens must be a non-empty tuple of strings"):
            create_app({"first": folder / "first"}, ServerSettings(tokens=invalid))  # type: ignore[arg-type]


@pytest.mark.parametrize("mount", ["/page", "/docs", "/carya"])
def test_a_mounted_application_requires_tokens(folder: Path, mount: str) -> None:
    """A route requires a token even if the application is mounted at the path of a public route."""
    metrics = new_metrics()
    settings = ServerSettings(log_level="error", tokens=("secret",))
    app = create_app({"first": folder / "first"}, settings, metrics=metrics)
    with Client(Starlette(routes=[Mount(mount, app)])) as client:
        assert client.get(f"{mount}/healthz").status_code == 200
        assert client.get(f"{mount}/v1/model").status_code == 401
        assert client.post(f"{mount}/v1/suggest", {"text": TEXT}).status_code == 401
        token = {"Authorization": "Bearer secret"}
        assert client.post(f"{mount}/v1/suggest", {"text": TEXT}, headers=token).status_code == 200
    assert 'carya_requests_total{route="/v1/suggest",status="200"} 1' in metrics.to_text().splitlines()


def test_rejected_requests_do_not_count_as_concurrent(folder: Path) -> None:
    """A request without a token whose body has not yet arrived does not prevent other requests from being processed."""
    settings = ServerSettings(log_level="error", tokens=("secret",), max_requests=1)
    app = create_app({"first": folder / "first"}, settings)
    scope = {"type": "http", "method": "POST", "path": "/v1/suggest", "query_string": b"", "root_path": ""}

    async def send(headers: list[tuple[bytes, bytes]], receive: Any) -> int:
        sent: list[Any] = []

        async def collect(message: Any) -> None:
            sent.append(message)

        required = [(b"host", b"carya.test"), (b"content-type", b"application/json")]
        await app({**scope, "headers": required + headers}, receive, collect)
        return int(sent[0]["status"])

    async def send_both() -> tuple[int, int]:
        release, is_receiving = asyncio.Event(), asyncio.Event()

        async def receive_slowly() -> Any:
            is_receiving.set()
            await release.wait()
            return {"type": "http.request", "body": b"", "more_body": False}

        async def receive() -> Any:
            return {"type": "http.request", "body": b'{"text": "a"}', "more_body": False}

        rejected = asyncio.create_task(send([], receive_slowly))
        await is_receiving.wait()
        status = await send([(b"authorization", b"Bearer secret")], receive)
        release.set()
        return status, await rejected

    assert asyncio.run(asyncio.wait_for(send_both(), 60)) == (200, 401)


@pytest.mark.parametrize(
    ("allowed", "statuses"),
    [
        (None, [200, 200, 200]),
        ("*", [200, 200, 200]),
        ("carya.TEST", [200, 421, 421]),
        (("carya.test", "::1"), [200, 421, 200]),
    ],
)
def test_allowed_hosts(folder: Path, allowed: Any, statuses: list[int]) -> None:
    with start(folder, allowed_hosts=allowed) as client:
        hosts = ("CARYA.test:80", "attacker.example", "[::1]:8000")
        assert [client.get("/v1/model", headers={"Host": host}).status_code for host in hosts] == statuses


@pytest.mark.parametrize("allowed", [(), "", ("a b",), "http://a", "a:80", ("a", 1), 1])
def test_invalid_allowed_hosts(allowed: Any) -> None:
    with pytest.raises(ParameterError, match="one or more host names"):
        ServerSettings(allowed_hosts=allowed).check_parameters()


def test_long_responses_are_encoded_in_threads(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Responses encoded in worker threads are identical to those encoded in the event loop."""
    texts = [f"{TEXT} {word}" for word in ("harbor", "flour", "nothing known: zzz", "rook")] * 8
    message = {"texts": texts, "top_k": 7}
    batch = {"documents": [{"text": text, "document_id": f"[] {number}"} for number, text in enumerate(texts)]}
    form = {"data": {"text": TEXT, "limit": "7"}}

    def send_all() -> list[Any]:
        return [
            client.post("/v1/suggest", message),
            client.post("/v1/projects/first/suggest-batch?limit=3", batch),
            client.post("/v1/projects/first/suggest", **form),
            client.post("/v1/suggest", {"text": TEXT}),
        ]

    short = send_all()
    threads: list[str] = []
    call_and_encode = json_io.call_and_encode

    def record_thread(*args: Any) -> bytes:
        threads.append(threading.current_thread().name)
        return call_and_encode(*args)

    monkeypatch.setattr(service, "is_short", lambda *_: False)
    monkeypatch.setattr(json_io, "call_and_encode", record_thread)
    long = send_all()
    assert [response.content for response in long] == [response.content for response in short]
    assert all(response.status_code == 200 for response in long)
    assert len(threads) == 4
    assert all(name.startswith("carya") for name in threads)


def test_internal_errors_reveal_no_details(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("/etc/secret/path")

    monkeypatch.setattr(service, "suggest", fail)
    with start(folder, log_level="info") as client:
        response = client.post("/v1/suggest", {"text": TEXT}, headers={"X-Request-Id": "mine-1"})
    assert response.status_code == 500
    assert response.headers["x-request-id"] == "mine-1"
    assert "secret" not in response.text
    assert "Zero" not in response.text
    logging.flush()
    events = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [event["event"] for event in events] == ["internal error", "request"]
    assert "ZeroDivisionError" in events[0]["traceback"]
    assert events[0]["id"] == events[1]["id"] == "mine-1"


def test_errors_for_damaged_models_reveal_no_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **_options: object) -> None:
        raise ModelFormatError("/etc/secret/path: arrays.bin is damaged")

    monkeypatch.setattr(carya.TextRanker, "explain", fail)
    with start(folder) as client:
        response = client.post("/v1/explain", {"text": TEXT})
    assert response.status_code == 500
    assert "secret" not in response.text
    logging.flush()
    assert "secret" in capfd.readouterr().err  # the details appear only in the log


def test_logging_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """If nothing reads the log, excess lines are dropped and counted, and all other lines are complete."""
    read_end, write_end = os.pipe()
    monkeypatch.setattr(logging, "_MAX_WAITING", 300)
    monkeypatch.setattr(logging, "_WRITER", logging._BackgroundWriter())
    with os.fdopen(read_end, "rb") as reader, os.fdopen(write_end, "wb") as writer:
        monkeypatch.setattr(sys, "stderr", writer)
        logger = JsonLogger("info", 3)
        for number in range(2000):
            logger.log("info", "request", number=number, path="/" * 200)
            if number == 100:
                logging.flush()
        logging._WRITER.flush(0.05)  # returns even though the pipe is full
        lines: list[dict[str, Any]] = []
        while not lines or lines[-1]["event"] != "log lines dropped":
            lines.append(json.loads(reader.readline()))
    numbers = [line["number"] for line in lines[:-1]]
    assert numbers == sorted(numbers)
    assert numbers[:101] == list(range(101))
    assert len(numbers) + lines[-1]["lines"] == 2000
    assert all(line["worker"] == 3 for line in lines[:-1])


def test_request_log(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for settings in ({"log_level": "info"}, {"log_level": "info", "log_texts": True}, {"log_level": "warning"}):
        with start(folder, **settings) as client:
            client.post("/v1/suggest", {"texts": [TEXT, "a"]})
            client.get("/v1/labels?q=private")
    logging.flush()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["path"] for line in lines] == ["/v1/suggest", "/v1/labels"] * 2
    plain, _, with_texts, _ = lines
    assert (plain["status"], plain["n_texts"], plain["model"], plain["level"]) == (200, 2, "first", "info")
    assert "telescope" not in json.dumps(plain)
    assert with_texts["texts"] == [TEXT, "a"]
    assert "private" not in json.dumps(lines)


def test_metrics_of_several_workers(folder: Path) -> None:
    layout = MetricsLayout(["/v1/suggest", "/metrics"])
    rows = [memoryview(bytearray(8 * layout.size)).cast("d") for _ in range(2)]
    ServerMetrics(layout, rows, 1).observe_request("/v1/suggest", 200, 0.003)
    metrics = ServerMetrics(layout, rows, 0)
    with Client(create_app({"first": folder / "first"}, ServerSettings(log_level="error"), metrics=metrics)) as client:
        client.post("/v1/suggest", {"texts": [TEXT] * 3})
        client.post("/v1/suggest", {})
        client.get("/v1/nowhere")
        response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = response.text.splitlines()
    assert 'carya_requests_total{route="/v1/suggest",status="200"} 2' in lines  # the sum over both workers
    assert 'carya_requests_total{route="/v1/suggest",status="400"} 1' in lines
    assert 'carya_requests_total{route="other",status="404"} 1' in lines
    assert 'carya_request_duration_seconds_bucket{route="/v1/suggest",le="+Inf"} 3' in lines
    assert 'carya_request_duration_seconds_count{route="/v1/suggest"} 3' in lines
    assert "carya_texts_total 3" in lines
    assert "carya_requests_in_progress 1" in lines  # the request for /metrics itself
    assert sum(line.startswith("carya_worker_start_time_seconds") for line in lines) == 2
    names = {line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")}
    typed = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert all(name in typed or name.rpartition("_")[0] in typed for name in names)


def test_a_full_queue_rejects_requests(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, finish = threading.Semaphore(0), threading.Event()
    monkeypatch.setattr(service, "is_short", lambda *_: False)
    suggest = service.suggest

    def suggest_slowly(*args: Any) -> Any:
        started.release()
        assert finish.wait(30)
        return suggest(*args)

    monkeypatch.setattr(service, "suggest", suggest_slowly)
    with start(folder, threads=1, max_queued=2, request_timeout=30, max_client_share=1.0) as client:

        def finish_when_started() -> None:
            assert started.acquire(timeout=30)
            finish.set()

        thread = threading.Thread(target=finish_when_started)
        thread.start()
        responses = client.post_all("/v1/suggest", [{"text": TEXT}] * 6)
        thread.join()
        assert sorted(response.status_code for response in responses) == [200] * 3 + [429] * 3
        rejected = next(response for response in responses if response.status_code == 429)
        assert rejected.headers["retry-after"] == "1"
        assert client.post("/v1/suggest", {"text": TEXT}).status_code == 200


def test_request_timeout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = threading.Event()
    monkeypatch.setattr(service, "explain", lambda *_: finish.wait(30))
    with start(folder, request_timeout=0.05) as client:
        response = client.post("/v1/explain", {"text": TEXT})
        finish.set()
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert response.json()["detail"] == "The request took longer than 0.05 seconds."


def test_queued_jobs_are_canceled_on_timeout() -> None:
    settings = ServerSettings(threads=1, max_queued=1, request_timeout=0.05)
    jobs = SharedLimit(2, 1.0, "jobs")
    pool = ThreadPool(settings, jobs)
    finish = threading.Event()
    started: list[str] = []

    def block(name: str) -> None:
        started.append(name)
        assert finish.wait(30)

    async def run() -> None:
        errors = await asyncio.gather(
            pool.run("", block, "first"), pool.run("", block, "second"), return_exceptions=True
        )
        assert [type(error) for error in errors] == [ServiceUnavailableError, ServiceUnavailableError]
        while jobs.used > 1:  # the first job still occupies the thread; the second job is removed from the queue
            await asyncio.sleep(0.01)
        finish.set()
        while jobs.used:
            await asyncio.sleep(0.01)
        assert await pool.run("", lambda: "third") == "third"

    asyncio.run(asyncio.wait_for(run(), 60))
    pool.close()
    assert started == ["first"]


def test_concurrent_requests_are_limited(folder: Path) -> None:
    with start(folder, max_requests=2, max_client_share=1.0) as client:
        responses = client.post_all("/v1/explain", [{"text": TEXT}] * 5)
    assert sorted(response.status_code for response in responses) == [200, 200, 429, 429, 429]


def test_the_openapi_document_describes_the_limits(folder: Path) -> None:
    with start(folder, max_top_k=7, max_beam_width=8, max_texts=9, max_text_length=10, language="fi") as client:
        document = client.get("/openapi.json").json()
        schemas = document["components"]["schemas"]
        assert schemas["SuggestRequest"]["properties"]["top_k"]["maximum"] == 7
        assert {"type": "integer", "minimum": 1, "maximum": 8}.items() <= (
            schemas["ExploreTextRequest"]["properties"]["beam_width"]["anyOf"][0].items()
        )
        assert schemas["AnnifBatch"]["properties"]["documents"]["maxItems"] == 9
        assert schemas["ExploreLabelRequest"]["properties"]["text"]["maxLength"] == 10
        assert schemas["AnnifForm"]["properties"]["language"]["type"] == "string"
        batch = document["paths"]["/v1/projects/{project_id}/suggest-batch"]["post"]
        limit = next(parameter for parameter in batch["parameters"] if parameter["name"] == "limit")
        assert limit["schema"] == {"type": "integer", "minimum": 0, "maximum": 7, "default": 10}
        assert client.post("/v1/suggest", {"text": "a", "top_k": 8}).status_code == 400
        assert client.post("/v1/explore/text", {"text": "a", "beam_width": 9}).status_code == 400
        assert client.post("/v1/explore/explain", {"text": "a" * 11, "label": "chess"}).status_code == 413
    references = {part.partition('"')[0] for part in json.dumps(document).split('"#/components/schemas/')[1:]}
    assert references <= set(schemas)
    assert not [name for name, schema in schemas.items() if "----" in schema["description"]]


def test_the_api_page_sends_no_requests_to_other_hosts(client: Client) -> None:
    page = client.get("/docs")
    assert "http" not in page.text.replace("https://carya.test", "")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "https:" not in client.get("/docs.js").text


def test_invalid_models(tmp_path: Path) -> None:
    carya.Tfidf(min_df=1).fit(["a text"]).save(tmp_path / "tfidf")
    with pytest.raises(InputError, match=r"Only models can be served, but .* of type Tfidf"):
        ModelRegistry.open({"m": tmp_path / "tfidf"})
    with pytest.raises(CaryaError, match="is not a Carya model"):
        ModelRegistry.open({"m": tmp_path / "nowhere"})
    with pytest.raises(InputError, match=r"Model names must consist of letters, digits, .* got 'a b'"):
        ModelRegistry.open({"a b": tmp_path / "tfidf"})
    with pytest.raises(InputError, match="No models to serve"):
        ModelRegistry.open({})


def test_every_array_of_a_new_version_is_verified(tmp_path: Path) -> None:
    """Each array of an ensemble is damaged in turn; the old version remains in use."""
    save_model(tmp_path / "m")
    registry = ModelRegistry.open({"m": tmp_path / "m"})
    old = registry.get()
    texts, labels = corpus(seed=9)
    members = [carya.XRLinear(max_leaf_size=6, n_jobs=1), carya.XRLinear(max_leaf_size=6, n_jobs=1, seed=1)]
    new = carya.TextRanker(carya.Tfidf(n_jobs=1), carya.Ensemble(members, n_jobs=1)).fit(texts, labels)
    new.save(tmp_path / "new")
    intact = (tmp_path / "new" / "arrays.bin").read_bytes()
    for entry in json.loads((tmp_path / "new" / "manifest.json").read_bytes())["arrays"]:
        if 0 in entry["shape"]:
            continue
        damaged = bytearray(intact)
        damaged[entry["offset"]] ^= 1
        new.save(tmp_path / "m")
        (tmp_path / "m" / "arrays.bin").write_bytes(damaged)
        assert [type(result) for result in registry.refresh()] == [ReloadFailure], entry["name"]
        assert registry.get() is old


def test_temporary_failures_are_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    save_model(tmp_path / "m")
    registry = ModelRegistry.open({"m": tmp_path / "m"})
    new = save_model(tmp_path / "m", seed=9)

    def fail(*_: object, **options: object) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(carya, "load", fail)
        for _ in range(2):
            assert registry.refresh() == [ReloadFailure("m", "MemoryError: no room")]
    assert registry.refresh() == [registry.get()]
    assert registry.get().ranker.suggest(TEXT) == new.suggest(TEXT)

    metrics = new_metrics()
    settings = ServerSettings(reload_interval=0.01)
    state = create_state(registry, settings, metrics=metrics, logger=JsonLogger("error"))

    async def watch_until_it_fails_twice() -> None:
        watcher = asyncio.create_task(watch_models(state))
        for _ in range(2):
            while "reload failed" not in capfd.readouterr().err:
                await asyncio.sleep(0.01)
        assert not watcher.done()
        watcher.cancel()

    monkeypatch.setattr(registry, "refresh_model", fail)
    asyncio.run(asyncio.wait_for(watch_until_it_fails_twice(), 60))
    assert "carya_reload_failures_total 0" not in metrics.to_text()


def test_a_repaired_model_is_loaded(tmp_path: Path) -> None:
    save_model(tmp_path / "m")
    registry = ModelRegistry.open({"m": tmp_path / "m"})
    new = save_model(tmp_path / "m", seed=9)
    arrays = tmp_path / "m" / "arrays.bin"
    intact = arrays.read_bytes()
    arrays.write_bytes(intact[:-64])
    assert [type(result) for result in registry.refresh()] == [ReloadFailure]
    arrays.write_bytes(intact)
    assert registry.refresh() == [registry.get()]
    assert registry.refresh(force=True) == []  # the version has not changed
    assert registry.get().ranker.suggest(TEXT) == new.suggest(TEXT)


def test_new_versions(tmp_path: Path) -> None:
    first = save_model(tmp_path / "m")
    registry = ModelRegistry.open({"m": tmp_path / "m"})
    old = registry.get()
    assert registry.refresh() == []
    second = save_model(tmp_path / "m", seed=9)
    assert registry.refresh() == [registry.get()]
    assert registry.get().version != old.version
    assert registry.get().ranker.suggest(TEXT) == second.suggest(TEXT)
    assert old.ranker.suggest(TEXT) == first.suggest(TEXT)  # ongoing requests can still use the old version
    (tmp_path / "m").rename(tmp_path / "away")
    assert registry.refresh() == []  # a missing folder is not a new version
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "arrays.bin").write_bytes(b"")
    (tmp_path / "m" / "manifest.json").write_text("{}")
    (failure,) = registry.refresh()
    assert (failure.name, "m" in failure.reason) == ("m", True)  # type: ignore[union-attr]
    assert registry.refresh() == []  # an invalid model is not loaded again
    assert registry.get().ranker.suggest(TEXT) == second.suggest(TEXT)
    (tmp_path / "m").rename(tmp_path / "damaged")
    save_model(tmp_path / "beside", seed=11)
    arrays = bytearray((tmp_path / "beside" / "arrays.bin").read_bytes())
    arrays[len(arrays) // 2] ^= 1
    (tmp_path / "beside" / "arrays.bin").write_bytes(arrays)
    (tmp_path / "beside").rename(tmp_path / "m")
    (failure,) = registry.refresh()
    assert "checksum" in failure.reason or "damaged" in failure.reason  # type: ignore[union-attr]
    assert registry.get().ranker.suggest(TEXT) == second.suggest(TEXT)
    (tmp_path / "m").rename(tmp_path / "flipped")
    third = save_model(tmp_path / "m", seed=10)
    assert len(registry.refresh()) == 1
    assert registry.get().ranker.suggest(TEXT) == third.suggest(TEXT)
