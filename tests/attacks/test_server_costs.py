"""Tests with requests that are expensive to process because of long label filters, many n-grams or wide beams."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import carya
from carya.serve import service
from carya.serve.app import create_app
from carya.serve.ranking_cost import RankingCost
from carya.serve.settings import ServerSettings

from serving import Client, save_model
from topics import corpus

TEXT = "the telescope shows a planet and its moon"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    save_model(tmp_path / "m")
    settings = ServerSettings(log_level="error", request_timeout=5.0, max_filter_labels=1000)
    with Client(create_app({"m": tmp_path / "m"}, settings)) as client:
        yield client


@pytest.mark.parametrize("field", ["allowed", "excluded"])
def test_repeated_labels_are_looked_up_once(client: Client, field: str) -> None:
    """Regression test: an 8 MB label filter with repeated labels took up to 30 seconds to process."""
    once = client.post("/v1/suggest", {"text": TEXT, "labels": {field: ["chess", "astronomy/moon"]}})
    labels = ["chess", "astronomy/moon"] * 290_000
    repeated = client.post("/v1/suggest", {"text": TEXT, "labels": {field: labels}})
    assert repeated.status_code == once.status_code == 200
    assert repeated.content == once.content


@pytest.mark.parametrize("field", ["allowed", "excluded"])
def test_the_number_of_different_labels_is_limited(client: Client, field: str) -> None:
    response = client.post("/v1/suggest", {"text": TEXT, "labels": {field: [f"label {n}" for n in range(400_000)]}})
    assert response.status_code == 413
    assert response.json()["detail"] == f"labels.{field} can have at most 1000 different labels, got 400000."


def test_the_event_loop_is_not_blocked_by_expensive_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: for models with many n-grams and a wide beam, long texts blocked the event loop for seconds."""
    vectorizer = carya.Tfidf(analyzer="char", ngram_range=(1, 20), min_df=1, n_jobs=1)
    texts, labels = corpus()
    model = carya.XRLinear(branching=2, max_leaf_size=2, beam_width=1000, n_jobs=1)
    carya.TextRanker(vectorizer, model).fit(texts, labels).save(tmp_path / "expensive")
    save_model(tmp_path / "cheap")
    threads: list[str] = []
    suggest = service.suggest

    def record_thread(*args: Any) -> Any:
        threads.append(threading.current_thread().name)
        return suggest(*args)

    monkeypatch.setattr(service, "suggest", record_thread)
    models = {"cheap": tmp_path / "cheap", "expensive": tmp_path / "expensive"}
    with Client(create_app(models, ServerSettings(log_level="error"))) as client:
        for name, text in (("cheap", TEXT), ("expensive", " ".join(texts) * 10)):
            assert client.post("/v1/suggest", {"text": text, "model": name}).status_code == 200
    assert [name.startswith("carya") for name in threads] == [False, True]


def test_estimates_grow_for_a_time_if_requests_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("carya.serve.ranking_cost.time.monotonic", lambda: now)
    cost = RankingCost(per_text=0.0, per_character=1e-6, beam_width=10)
    texts = ["a" * 5000]
    assert cost.estimate(texts) == pytest.approx(0.005)
    for seconds in (0.0001, 0.04):  # faster than estimated, and slower than estimated but still fast
        cost.observe(seconds, texts)
        assert cost.estimate(texts) == pytest.approx(0.005)
    cost.observe(0.1, texts)
    assert cost.estimate(texts) == pytest.approx(0.1)
    cost.observe(100.0, texts)
    assert cost.estimate(texts) == pytest.approx(0.5)  # estimates are corrected by at most a factor of 100
    now += 200.0
    assert cost.estimate(texts) == pytest.approx(0.005, rel=0.01)
