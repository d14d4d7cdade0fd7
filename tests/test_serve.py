"""The JSON API of the server, asked in this process."""

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
from carya.errors import CaryaError, InputError, ModelFormatError, ParameterError
from carya.serve.app import create_app, watch
from carya.serve.http import logging, thread_pool
from carya.serve.http.errors import Unavailable
from carya.serve.http.logging import Journal
from carya.serve.http.metrics import Counters
from carya.serve.label_index import LabelIndex
from carya.serve.registry import Failure, Registry
from carya.serve.routes.openapi import document
from carya.serve.settings import Settings
from test_text_ranker import TOPICS, corpus

from serving import Client, saved

TEXT = "the telescope shows a planet and its moon"
WORDS = sorted({word for words in TOPICS.values() for word in words.split()} | {"unknown", "Moon", "é"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    saved(place / "one")
    saved(place / "two", seed=5)
    return place


@pytest.fixture(scope="module")
def ranker(folder: Path) -> carya.TextRanker:
    return carya.load(folder / "one")  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    with Client(create_app({"one": folder / "one", "two": folder / "two"}, Settings(log="error"))) as made:
        yield made


def labels_of(answer: dict[str, Any], at: int = 0) -> list[tuple[str, str, float]]:
    return [(one["label"], one["name"], one["score"]) for one in answer["results"][at]["suggestions"]]


def wanted(found: list[Any]) -> list[tuple[str, str, float]]:
    return [(one.label, one.name, one.score) for one in found]


def test_suggests_what_the_ranker_does(client: Client, ranker: carya.TextRanker) -> None:
    answer = client.post("/v1/suggest", {"text": TEXT, "top_k": 5}).json()
    assert (answer["model"], len(answer["version"])) == ("one", 16)
    assert labels_of(answer) == wanted(ranker.suggest(TEXT, top_k=5))
    texts = corpus(40, seed=3)[0] + [""]
    for some in (texts[:3], texts):  # few are ranked one by one
        answer = client.post("/v1/suggest", {"texts": some, "threshold": 0.01, "beam_width": 3}).json()
        expected = ranker.suggest_all(some, min_score=0.01, beam_width=3)
        assert [labels_of(answer, at) for at in range(len(some))] == [wanted(found) for found in expected]
    assert answer["results"][-1]["suggestions"] == []


def test_long_requests_are_answered_by_threads(client: Client, ranker: carya.TextRanker) -> None:
    text = " ".join(corpus(3000, seed=4)[0])[:100_000]
    assert len(text) == 100_000
    assert labels_of(client.post("/v1/suggest", {"text": text}).json()) == wanted(ranker.suggest(text))


def test_models_by_name(client: Client, folder: Path) -> None:
    two = carya.load(folder / "two")
    assert labels_of(client.post("/v1/suggest", {"text": TEXT, "model": "two"}).json()) == wanted(two.suggest(TEXT))
    about = client.get("/v1/model?model=two").json()
    assert (about["name"], about["default"], about["others"]) == ("two", False, ["one"])
    assert (about["kind"], about["explains"], about["labels"]) == ("XRLinear", True, len(two.labels_))
    assert about["calibrated"] is False
    assert about["levels"] == [len(level) for level in two.model_.tree_.parents]
    assert client.get("/v1/model").json()["default"] is True
    gone = client.get("/v1/model?model=three")
    assert gone.status_code == 404
    assert gone.headers["content-type"] == "application/problem+json"
    assert gone.json()["detail"] == "there is no model 'three'; the models are 'one', 'two'"


def test_filters_are_exact(client: Client, ranker: carya.TextRanker) -> None:
    texts = [*corpus(12, seed=6)[0], "nothing known"]
    everything = ranker.suggest_all(texts, top_k=len(ranker.labels_), beam_width=1000)
    some = sorted(ranker.labels_)[::3]

    def ask(**labels: Any) -> list[list[tuple[str, str, float]]]:
        answer = client.post("/v1/suggest", {"texts": texts, "top_k": 4, "labels": labels})
        assert answer.status_code == 200, answer.text
        return [labels_of(answer.json(), at) for at in range(len(texts))]

    def without_scores(rows: list[Any]) -> list[list[str]]:
        return [[one[0] for one in row] for row in rows]

    # Every allowed label has its score, though a beam of 10 would not come to most of them.
    for found, full in zip(ask(only=some), everything, strict=True):
        best = [one for one in wanted(full) if one[0] in set(some)][:4]
        assert [one[:2] for one in found] == [one[:2] for one in best]
        np.testing.assert_allclose([one[2] for one in found], [one[2] for one in best], rtol=1e-5)
    prefixed = ask(prefix="chess/")
    assert {one[0].partition("/")[0] for row in prefixed for one in row} == {"chess"}
    both = ask(prefix="chess/", only=["chess/queen", "astronomy"])
    assert {one[0] for row in both for one in row} == {"chess/queen"}
    assert ask(prefix="nothing begins so") == [[]] * len(texts)
    # Without some: the ranking as it is, less these.
    plain = ranker.suggest_all(texts, top_k=40)
    never = [row[0].label for row in plain if row][:5]
    expected = [[one.label for one in row if one.label not in never][:4] for row in plain]
    assert without_scores(ask(never=never)) == expected
    assert all(one[0] != "chess/queen" for row in ask(prefix="chess/", never=["chess/queen"]) for one in row)
    assert without_scores(ask(only=["Astronomy"]))[0] == ["astronomy"]  # by name
    threshold = client.post("/v1/suggest", {"text": TEXT, "threshold": 0.5, "labels": {"only": list(some)}}).json()
    assert all(score >= 0.5 for _, _, score in labels_of(threshold))
    unknown = client.post("/v1/suggest", {"text": TEXT, "labels": {"never": ["gardening"]}})
    assert (unknown.status_code, unknown.json()["detail"]) == (
        400,
        "labels.never has 'gardening', which is no label of the model",
    )


class Ranking:
    """A model that ranks whole texts only, as some made of several do."""

    def __init__(self, ranker: carya.TextRanker) -> None:
        self._ranker = ranker
        self.model_ = object()
        self.vectorizer_ = ranker.vectorizer_
        self.labels_ = ranker.labels_
        self.label_names_ = ranker.label_names_
        self.calibration_ = None

    def suggest_all(self, *args: Any, **how: Any) -> Any:
        return self._ranker.suggest_all(*args, **how)


def test_models_that_cannot_do_everything(folder: Path, ranker: carya.TextRanker) -> None:
    registry = Registry.open({"one": folder / "one"})
    place = registry._places["one"]
    place.loaded = type(place.loaded)("one", Ranking(ranker), "0" * 16, place.loaded.changed)  # type: ignore[arg-type]
    with Client(create_app(registry, Settings(log="error"))) as client:
        assert labels_of(client.post("/v1/suggest", {"text": TEXT}).json()) == wanted(ranker.suggest(TEXT))
        about = client.get("/v1/model").json()
        assert (about["explains"], about["levels"], about["beam_width"]) == (False, [], None)
        why = client.post("/v1/explain", {"text": TEXT})
        assert why.status_code == 400
        assert why.json()["detail"] == (
            "the model 'one' does not explain its scores, as it is no single tree: it is of kind object"
        )
        deep = client.post("/v1/suggest", {"text": TEXT, "top_k": 3, "labels": {"prefix": "chess"}}).json()
        full = ranker.suggest(TEXT, top_k=len(ranker.labels_))
        assert labels_of(deep) == [one for one in wanted(full) if one[0].startswith("chess")][:3]
        texts = ["nothing known", TEXT, *corpus(3, seed=6)[0]]
        many = client.post("/v1/suggest", {"texts": texts, "top_k": 3, "labels": {"prefix": "chess"}}).json()
        for at, full in enumerate(ranker.suggest_all(texts, top_k=len(ranker.labels_))):
            assert labels_of(many, at) == [one for one in wanted(full) if one[0].startswith("chess")][:3]


def test_chances(tmp_path: Path) -> None:
    ranker = saved(tmp_path / "m").calibrate(*corpus(100, seed=8))
    ranker.save(tmp_path / "m")
    with Client(create_app({"m": tmp_path / "m"}, Settings(log="error"))) as client:
        assert client.get("/v1/model").json()["calibrated"] is True
        for texts in ([TEXT], [TEXT, "", *corpus(20, seed=9)[0]]):
            answer = client.post("/v1/suggest", {"texts": texts}).json()
            for found, expected in zip(answer["results"], ranker.suggest_all(texts), strict=True):
                chances = [one["chance"] for one in found["suggestions"]]
                assert ranker.calibration_ is not None
                assert chances == ranker.calibration_([one.score for one in expected]).tolist()
                assert chances == sorted(chances, reverse=True)


@given(st.lists(st.sampled_from(WORDS), max_size=30), st.integers(0, 10**6))
def test_explanations_add_up_to_the_scores(words: list[str], number: int) -> None:
    client, ranker = _explaining()
    text = " ".join(words)
    label = ranker.labels_[number % len(ranker.labels_)]
    why = client.post("/v1/explain", {"text": text, "label": label}).json()
    assert why["in_logs"] is True
    shares = [one["share"] for one in why["terms"]]
    assert math.isclose(math.exp(math.fsum([why["base"], *shares])), why["score"], rel_tol=1e-9, abs_tol=1e-300)
    levels = [math.fsum([level["base"], *(one["share"] for one in level["terms"])]) for level in why["levels"]]
    assert math.isclose(math.exp(math.fsum(levels)), why["score"], rel_tol=1e-9, abs_tol=1e-300)
    assert math.isclose(math.prod(level["score"] for level in why["levels"]), why["score"], rel_tol=1e-9)
    for one in why["terms"]:
        for begin, end in one["places"]:
            assert text[begin:end].lower().split() == one["term"].split()
    answer = client.post("/v1/suggest", {"text": text, "labels": {"only": [label]}}).json()
    for _, _, score in labels_of(answer):  # none for a text without known terms
        assert math.isclose(score, why["score"], rel_tol=1e-4, abs_tol=1e-30)


_KEPT: list[Any] = []


def _explaining() -> tuple[Client, carya.TextRanker]:
    """One for all examples of the property."""
    return _KEPT[0], _KEPT[1]


@pytest.fixture(autouse=True, scope="module")
def _keep(client: Client, ranker: carya.TextRanker) -> None:
    _KEPT[:] = [client, ranker]


def test_explains_the_best_label_by_default(client: Client, ranker: carya.TextRanker) -> None:
    why = client.post("/v1/explain", {"text": TEXT}).json()
    assert why["label"] == ranker.suggest(TEXT, top_k=1)[0].label
    expected = json.loads(json.dumps(ranker.explain(TEXT, why["label"]).to_dict()))
    assert {key: why[key] for key in expected} == expected
    assert client.post("/v1/explain", {"text": TEXT, "label": "Astronomy"}).json()["label"] == "astronomy"
    assert client.post("/v1/explain", {"text": "xyzzy"}).status_code == 404
    gone = client.post("/v1/explain", {"text": TEXT, "label": "gardening"})
    assert (gone.status_code, gone.json()["detail"]) == (404, "there is no label 'gardening'")


def test_labels_by_prefix(client: Client, ranker: carya.TextRanker) -> None:
    found = client.get("/v1/labels?q=ASTRO&limit=2").json()
    assert found["labels"][0] == {"label": "astronomy", "name": "Astronomy"}
    assert len(found["labels"]) == 2
    assert found["total"] == sum(label.startswith("astro") for label in ranker.labels_)
    assert client.get("/v1/labels").json()["total"] == len(ranker.labels_)
    assert client.get("/v1/labels?q=zzz").json()["labels"] == []
    assert client.get("/v1/labels?limit=0").status_code == client.get("/v1/labels?limit=x").status_code == 400


@given(st.lists(st.text("abAB ß", max_size=4), min_size=1, max_size=12, unique=True), st.text("abß", max_size=3))
def test_label_index(names: list[str], start: str) -> None:
    ids = [f"id:{name}" for name in names]
    index = LabelIndex(ids, names)
    folded = start.casefold()
    assert sorted(index.search(start).tolist()) == [
        at for at, name in enumerate(names) if name.casefold().startswith(folded) or not start
    ]
    assert index.with_prefix("id:" + start).tolist() == [at for at, name in enumerate(names) if name.startswith(start)]
    for at, name in enumerate(names):
        assert index.number(ids[at]) == at
        assert index.number(name) == at
    assert LabelIndex(names, names).search(start).size == sum(name.casefold().startswith(folded) for name in names)


@pytest.mark.parametrize(
    ("message", "status", "detail"),
    [
        ({}, 400, 'there must be either "text" or "texts"'),
        ({"text": "a", "texts": ["b"]}, 400, 'there must be either "text" or "texts"'),
        ({"texts": []}, 400, "Expected `array` of length >= 1"),
        ({"text": "a", "top_k": 0}, 400, "Expected `int` >= 1 - at `$.top_k`"),
        ({"text": "a", "top_k": 2000}, 400, "top_k is 2000; it must be at most 1000"),
        ({"text": "a", "beam_width": 2000}, 400, "beam_width is 2000; it must be at most 1000"),
        ({"texts": ["a"] * 500, "top_k": 1000}, 400, "an answer has at most 200000 labels in all"),
        ({"text": "a", "treshold": 1}, 400, "Object contains unknown field `treshold`"),
        ({"texts": ["a"] * 1025}, 413, "there are 1025 texts; the most there may be are 1024"),
        ({"text": "a" * 200_001}, 413, "a text has 200001 characters; the most there may be are 200000"),
        ({"texts": ["a"], "labels": {"only": "b"}}, 400, "Expected `array | null`, got `str` - at `$.labels.only`"),
    ],
)
def test_bad_messages(client: Client, message: Any, status: int, detail: str) -> None:
    answer = client.post("/v1/suggest", message)
    assert answer.status_code == status
    assert detail in answer.json()["detail"]
    assert answer.json()["status"] == status


def test_too_many_pairs(folder: Path) -> None:
    with Client(create_app({"one": folder / "one"}, Settings(log="error", max_pairs=10))) as client:
        answer = client.post("/v1/suggest", {"texts": ["a", "b"], "labels": {"prefix": "c"}})
        assert answer.status_code == 413
        assert "more than 10 pairs" in answer.json()["detail"]
        never = {"texts": ["a", "b"], "top_k": 4, "labels": {"never": ["chess"]}}
        assert client.post("/v1/suggest", never).status_code == 200
        refused = client.post("/v1/suggest", never | {"top_k": 5})
        assert refused.status_code == 413
        assert "labels.never has 1 labels, for 2 texts, which are more than 10 pairs" in refused.json()["detail"]


def test_pages_that_are_not(client: Client) -> None:
    for answer in (client.get("/nowhere"), client.get("/v1/suggest/"), client.get("/page/../app.py")):
        assert answer.status_code == 404
        assert answer.json()["detail"] == "there is no such page; /docs shows those there are"
    wrong = client.get("/v1/suggest")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert client.post("/v1/suggest", content=b"<a/>", headers={"content-type": "text/xml"}).status_code == 415


def test_tokens(folder: Path) -> None:
    settings = Settings(log="error", tokens=("secret", "other"))
    with Client(create_app({"one": folder / "one"}, settings)) as client:
        for path in ("/v1/model", "/metrics", "/v1/projects", "/nowhere"):
            refused = client.get(path)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert client.get(path, headers={"Authorization": "Bearer secre"}).status_code == 401
            assert client.get(path, headers={"Authorization": "Basic secret"}).status_code == 401
            assert client.get(path, headers={"Authorization": "Bearer secretö".encode()}).status_code == 401
        for token in ("secret", "other"):
            assert client.get("/v1/model", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        for path in ("/healthz", "/readyz", "/docs", "/docs.js", "/docs.css", "/openapi.json", "/"):
            assert client.get(path).status_code == 200
        assert client.get("/openapi.json").json()["security"] == [{"token": []}]
    for wrong in ((), ("",), ("a b",), ("é",), "secret"):
        with pytest.raises(ParameterError, match="'tokens'"):
            create_app({"one": folder / "one"}, Settings(tokens=wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize("where", ["/page", "/docs", "/carya"])
def test_tokens_of_an_application_within_another(folder: Path, where: str) -> None:
    counters = Counters()
    app = create_app({"one": folder / "one"}, Settings(log="error", tokens=("secret",)), counters=counters)
    with Client(Starlette(routes=[Mount(where, app)])) as client:
        assert client.get(f"{where}/healthz").status_code == 200
        assert client.get(f"{where}/v1/model").status_code == 401
        assert client.post(f"{where}/v1/suggest", {"text": TEXT}).status_code == 401
        told = client.post(f"{where}/v1/suggest", {"text": TEXT}, headers={"Authorization": "Bearer secret"})
        assert told.status_code == 200
    assert 'carya_requests_total{route="/v1/suggest",status="200"} 1' in counters.text([]).splitlines()


def test_refused_requests_take_no_place(folder: Path) -> None:
    """One that has no token waits for the rest of its body; others are answered meanwhile."""
    app = create_app({"one": folder / "one"}, Settings(log="error", tokens=("secret",), max_requests=1))
    scope = {"type": "http", "method": "POST", "path": "/v1/suggest", "query_string": b"", "root_path": ""}
    known = (b"authorization", b"Bearer secret")

    async def ask(headers: list[tuple[bytes, bytes]], receive: Any) -> int:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        await app({**scope, "headers": headers}, receive, send)
        return int(sent[0]["status"])

    async def both() -> tuple[int, int]:
        go, asked = asyncio.Event(), asyncio.Event()

        async def slow() -> Any:
            asked.set()
            await go.wait()
            return {"type": "http.request", "body": b"", "more_body": False}

        async def quick() -> Any:
            return {"type": "http.request", "body": b'{"text": "a"}', "more_body": False}

        refused = asyncio.create_task(ask([], slow))
        await asked.wait()
        answered = await ask([known], quick)
        go.set()
        return answered, await refused

    assert asyncio.run(asyncio.wait_for(both(), 60)) == (200, 401)


def test_long_answers_are_written_by_threads(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """And are what short ones are."""
    from carya.serve import service
    from carya.serve.routes import api

    texts = [f"{TEXT} {word}" for word in ("harbour", "flour", "nothing known: zzz", "rook")] * 8
    message = {"texts": texts, "top_k": 7}
    batch = {"documents": [{"text": text, "document_id": f"[] {at}"} for at, text in enumerate(texts)]}
    form = {"data": {"text": TEXT, "limit": "7"}}
    short = [client.post("/v1/suggest", message), client.post("/v1/projects/one/suggest-batch?limit=3", batch)]
    short += [client.post("/v1/projects/one/suggest", **form), client.post("/v1/suggest", {"text": TEXT})]
    monkeypatch.setattr(service, "is_short", lambda *_: False)
    wrote: list[str] = []
    written = api._written
    monkeypatch.setattr(
        api, "_written", lambda *given: (wrote.append(threading.current_thread().name), written(*given))[1]
    )
    long = [client.post("/v1/suggest", message), client.post("/v1/projects/one/suggest-batch?limit=3", batch)]
    long += [client.post("/v1/projects/one/suggest", **form), client.post("/v1/suggest", {"text": TEXT})]
    assert [one.content for one in long] == [one.content for one in short]
    assert all(one.status_code == 200 for one in long)
    assert len(wrote) == 4
    assert all(name.startswith("carya") for name in wrote)


def test_a_fault_tells_no_secrets(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from carya.serve import service

    def fail(*_: object) -> None:
        raise ZeroDivisionError("/etc/secret/path")

    monkeypatch.setattr(service, "suggest", fail)
    with Client(create_app({"one": folder / "one"})) as client:
        answer = client.post("/v1/suggest", {"text": TEXT}, headers={"X-Request-Id": "mine-1"})
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] == "mine-1"
    assert "secret" not in answer.text
    assert "Zero" not in answer.text
    logging.flush()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["fault", "request"]
    assert "ZeroDivisionError" in lines[0]["trace"]
    assert lines[0]["id"] == lines[1]["id"] == "mine-1"


def test_a_damaged_model_tells_no_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ModelFormatError("/etc/secret/path: arrays.bin is damaged")

    monkeypatch.setattr(carya.TextRanker, "explain", fail)
    with Client(create_app({"one": folder / "one"})) as client:
        answer = client.post("/v1/explain", {"text": TEXT})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    logging.flush()
    assert "secret" in capfd.readouterr().err  # the log says why


def test_a_log_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for it; what is too much is dropped and counted, and the rest is whole when somebody reads."""
    reading, writing = os.pipe()
    monkeypatch.setattr(logging, "_MOST_WAITING", 300)
    monkeypatch.setattr(logging, "_WRITER", logging._Writer())
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "wb") as writer:
        monkeypatch.setattr(sys, "stderr", writer)
        log = logging.Journal("info", 3)
        for number in range(2000):
            log.write("info", "request", number=number, path="/" * 200)
            if number == 100:
                logging.flush()
        logging._WRITER.flush(0.05)  # gives up
        lines: list[dict[str, Any]] = []
        while not lines or "dropped" not in lines[-1]["event"]:
            lines.append(json.loads(reader.readline()))
    numbers = [line["number"] for line in lines[:-1]]
    assert numbers == sorted(numbers)
    assert numbers[:101] == list(range(101))
    assert len(numbers) + lines[-1]["lines"] == 2000
    assert all(line["worker"] == 3 for line in lines[:-1])


def test_the_log(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for settings in (Settings(), Settings(log_texts=True), Settings(log="warning")):
        with Client(create_app({"one": folder / "one"}, settings)) as client:
            client.post("/v1/suggest", {"texts": [TEXT, "a"]})
            client.get("/v1/labels?q=private")
    logging.flush()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["path"] for line in lines] == ["/v1/suggest", "/v1/labels"] * 2
    plain, _, with_texts, _ = lines
    assert (plain["status"], plain["texts"], plain["model"], plain["level"]) == (200, 2, "one", "info")
    assert "telescope" not in json.dumps(plain)
    assert with_texts["said"] == [TEXT, "a"]
    assert "private" not in json.dumps(lines)


def test_metrics(folder: Path) -> None:
    rows = [memoryview(bytearray(8 * 4096)).cast("d") for _ in range(2)]
    from carya.serve.http.metrics import WIDTH

    rows = [row[:WIDTH] for row in rows]
    others = Counters(rows, 1)
    others.request("/v1/suggest", 200, 0.003)
    with Client(create_app({"one": folder / "one"}, Settings(log="error"), counters=Counters(rows, 0))) as client:
        client.post("/v1/suggest", {"texts": [TEXT] * 3})
        client.post("/v1/suggest", {})
        client.get("/v1/nowhere")
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert 'carya_requests_total{route="/v1/suggest",status="200"} 2' in lines  # of both workers
    assert 'carya_requests_total{route="/v1/suggest",status="400"} 1' in lines
    assert 'carya_requests_total{route="other",status="404"} 1' in lines
    assert 'carya_request_seconds_bucket{route="/v1/suggest",le="+Inf"} 3' in lines
    assert 'carya_request_seconds_count{route="/v1/suggest"} 3' in lines
    assert "carya_texts_total 3" in lines
    assert "carya_requests_in_progress 1" in lines  # this one
    assert sum(line.startswith("carya_worker_start_time_seconds") for line in lines) == 2
    names = {line.split("{")[0].split(" ")[0] for line in lines if not line.startswith("#")}
    typed = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert all(name in typed or name.rpartition("_")[0] in typed for name in names)


def test_back_pressure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from carya.serve import service

    begun, go = threading.Semaphore(0), threading.Event()
    monkeypatch.setattr(service, "is_short", lambda *_: False)
    right = service.suggest

    def slow(*args: Any) -> Any:
        begun.release()
        assert go.wait(30)
        return right(*args)

    monkeypatch.setattr(service, "suggest", slow)
    settings = Settings(log="error", threads=1, max_waiting=2, request_seconds=30)
    with Client(create_app({"one": folder / "one"}, settings)) as client:

        def let_go() -> None:
            assert begun.acquire(timeout=30)
            go.set()

        waiter = threading.Thread(target=let_go)
        waiter.start()
        answers = client.posts("/v1/suggest", [{"text": TEXT}] * 6)
        waiter.join()
        assert sorted(answer.status_code for answer in answers) == [200] * 3 + [429] * 3
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert refused.headers["retry-after"] == "1"
        assert client.post("/v1/suggest", {"text": TEXT}).status_code == 200  # it goes on


def test_requests_that_take_too_long(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from carya.serve import service

    go = threading.Event()
    monkeypatch.setattr(service, "explain", lambda *_: go.wait(30))
    with Client(create_app({"one": folder / "one"}, Settings(log="error", request_seconds=0.05))) as client:
        answer = client.post("/v1/explain", {"text": TEXT})
        go.set()
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json()["detail"] == "the request took longer than 0.05 seconds"


def test_what_nobody_waits_for_is_not_begun() -> None:
    pool = thread_pool.Pool(Settings(threads=1, max_waiting=1, request_seconds=0.05))
    go = threading.Event()
    begun: list[str] = []

    def slow(name: str) -> None:
        begun.append(name)
        assert go.wait(30)

    async def both() -> None:
        told = await asyncio.gather(pool.run(slow, "first"), pool.run(slow, "second"), return_exceptions=True)
        assert [type(one) for one in told] == [Unavailable, Unavailable]
        while pool.begun > 1:  # the first holds its thread, the second leaves the queue
            await asyncio.sleep(0.01)
        go.set()
        while pool.begun:
            await asyncio.sleep(0.01)
        assert await pool.run(lambda: "third") == "third"

    asyncio.run(asyncio.wait_for(both(), 60))
    pool.close()
    assert begun == ["first"]


def test_requests_at_once(folder: Path) -> None:
    with Client(create_app({"one": folder / "one"}, Settings(log="error", max_requests=2))) as client:
        answers = client.posts("/v1/explain", [{"text": TEXT}] * 5)
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200, 200, 429, 429, 429]


def test_work_needs_a_request() -> None:
    with pytest.raises(LookupError):
        asyncio.run(thread_pool.run(int))


def test_the_document_describes_the_server(client: Client) -> None:
    made = client.get("/openapi.json").json()
    assert made == json.loads(json.dumps(document(Settings())))
    assert {"/v1/suggest", "/v1/explain", "/v1/model", "/v1/labels", "/healthz", "/readyz", "/metrics"} <= set(
        made["paths"]
    )
    references = {part.partition('"')[0] for part in json.dumps(made).split('"#/components/schemas/')[1:]}
    assert references <= set(made["components"]["schemas"])
    assert made["components"]["schemas"]["SuggestRequest"]["properties"]["top_k"]["maximum"] == 1000
    page = client.get("/docs")
    assert "http" not in page.text.replace("https://carya.test", "")  # nothing from elsewhere
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "https:" not in client.get("/docs.js").text


def test_what_cannot_be_served(tmp_path: Path, model: carya.XRLinear) -> None:
    model.save(tmp_path / "matrix")
    with pytest.raises(InputError, match="a XRLinear cannot be served: only a TextRanker can"):
        Registry.open({"m": tmp_path / "matrix"})
    with pytest.raises(CaryaError, match="is not a saved model"):
        Registry.open({"m": tmp_path / "nowhere"})
    with pytest.raises(InputError, match="the name of a model is 'a b'"):
        Registry.open({"a b": tmp_path / "matrix"})
    with pytest.raises(InputError, match="there is no model to serve"):
        Registry.open({})


def test_every_part_of_a_new_version_is_checked(tmp_path: Path) -> None:
    """Whatever a model is made of: each array is damaged in turn, and the old version stays."""
    saved(tmp_path / "m")
    registry = Registry.open({"m": tmp_path / "m"})
    old = registry.get()
    texts, labels = corpus(seed=9)
    members = [carya.XRLinear(max_leaf=6, n_jobs=1), carya.XRLinear(max_leaf=6, n_jobs=1, seed=1)]
    new = carya.TextRanker(carya.Tfidf(n_jobs=1), carya.Ensemble(members, n_jobs=1)).fit(texts, labels)
    new.save(tmp_path / "new")
    whole = (tmp_path / "new" / "arrays.bin").read_bytes()
    for entry in json.loads((tmp_path / "new" / "manifest.json").read_bytes())["arrays"]:
        if 0 in entry["shape"]:
            continue
        damaged = bytearray(whole)
        damaged[entry["offset"]] ^= 1
        new.save(tmp_path / "m")
        (tmp_path / "m" / "arrays.bin").write_bytes(damaged)
        assert [type(one) for one in registry.refresh()] == [Failure], entry["name"]
        assert registry.get() is old


def test_failures_that_may_be_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path / "m")
    registry = Registry.open({"m": tmp_path / "m"})
    new = saved(tmp_path / "m", seed=9)

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(carya, "load", fail)
        for _ in range(2):  # tried each time
            assert registry.refresh() == [Failure("m", "MemoryError: no room")]
    assert registry.refresh() == [registry.get()]
    assert registry.get().ranker.suggest(TEXT) == new.suggest(TEXT)

    async def watching() -> None:
        watcher = asyncio.create_task(watch(registry, 0.01, counters, Journal("error")))
        while "failed" not in capfd.readouterr().err:  # twice: it goes on after the first
            await asyncio.sleep(0.01)
        while "failed" not in capfd.readouterr().err:
            await asyncio.sleep(0.01)
        assert not watcher.done()
        watcher.cancel()

    counters = Counters()
    monkeypatch.setattr(registry, "refresh", lambda anyway: fail())
    asyncio.run(asyncio.wait_for(watching(), 60))
    assert "carya_reload_failures_total 0" not in counters.text([])


def test_a_damaged_model_is_tried_again_anyway(tmp_path: Path) -> None:
    saved(tmp_path / "m")
    registry = Registry.open({"m": tmp_path / "m"})
    new = saved(tmp_path / "m", seed=9)
    arrays = tmp_path / "m" / "arrays.bin"
    whole = arrays.read_bytes()
    arrays.write_bytes(whole[:-64])
    assert [type(one) for one in registry.refresh()] == [Failure]
    arrays.write_bytes(whole)
    assert registry.refresh() == []  # its manifest is the same
    assert registry.refresh(anyway=True) == [registry.get()]
    assert registry.get().ranker.suggest(TEXT) == new.suggest(TEXT)


def test_new_versions(tmp_path: Path) -> None:
    first = saved(tmp_path / "m")
    registry = Registry.open({"m": tmp_path / "m"})
    old = registry.get()
    assert registry.refresh() == []
    second = saved(tmp_path / "m", seed=9)
    assert registry.refresh() == [registry.get()]
    assert registry.get().version != old.version
    assert registry.get().ranker.suggest(TEXT) == second.suggest(TEXT)
    assert old.ranker.suggest(TEXT) == first.suggest(TEXT)  # whoever has it goes on with it
    (tmp_path / "m").rename(tmp_path / "away")
    assert registry.refresh() == []  # nothing there is no new version
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "arrays.bin").write_bytes(b"")
    (tmp_path / "m" / "manifest.json").write_text("{}")
    (failed,) = registry.refresh()
    assert (failed.name, "m" in failed.reason) == ("m", True)  # type: ignore[union-attr]
    assert registry.refresh() == []  # it is not tried again and again
    assert registry.get().ranker.suggest(TEXT) == second.suggest(TEXT)
    (tmp_path / "m").rename(tmp_path / "damaged")
    saved(tmp_path / "beside", seed=11)
    arrays = bytearray((tmp_path / "beside" / "arrays.bin").read_bytes())
    arrays[len(arrays) // 2] ^= 1
    (tmp_path / "beside" / "arrays.bin").write_bytes(arrays)
    (tmp_path / "beside").rename(tmp_path / "m")
    (failed,) = registry.refresh()
    assert "checksum" in failed.reason or "damaged" in failed.reason  # type: ignore[union-attr]
    assert registry.get().ranker.suggest(TEXT) == second.suggest(TEXT)
    (tmp_path / "m").rename(tmp_path / "flipped")
    third = saved(tmp_path / "m", seed=10)
    assert len(registry.refresh()) == 1
    assert registry.get().ranker.suggest(TEXT) == third.suggest(TEXT)
