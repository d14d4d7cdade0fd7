"""Requests that are small but expensive: long label filters, and texts for models with many n-grams and a wide beam."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from carya.serve.app import create_app
from carya.serve.settings import ServerSettings

from serving import Client, save_model

TEXT = "the telescope shows a planet and its moon"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    save_model(tmp_path / "m")
    settings = ServerSettings(log_level="error", request_timeout=5.0, max_filter_labels=1000)
    with Client(create_app({"m": tmp_path / "m"}, settings)) as client:
        yield client


@pytest.mark.parametrize("field", ["allowed", "excluded"])
def test_repeated_labels_are_looked_up_once(client: Client, field: str) -> None:
    """A filter of 8 MB with repeated labels took up to 30 seconds."""
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
