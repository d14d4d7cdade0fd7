"""Tests for operating a server: CORS, compression, metrics per model, and `python -m carya`."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from carya.errors import ParameterError
from carya.serve.app import create_app
from carya.serve.settings import ServerSettings

from serving import Client, save_model

TEXT = "the telescope shows a planet and its moon"
ORIGIN = {"Origin": "https://library.example"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("operations") / "topics"
    save_model(folder)
    return folder


def new_client(folder: Path, **settings: Any) -> Client:
    models = {"topics": folder, "copy": folder}
    return Client(create_app(models, ServerSettings(log_level="error", **settings)))


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    with new_client(folder, min_gzip_bytes=1000) as client:
        yield client


def test_other_origins_are_not_allowed_by_default(client: Client) -> None:
    assert "access-control-allow-origin" not in client.get("/v1/model", headers=ORIGIN).headers


@pytest.mark.parametrize("origins", ["*", "https://library.example", ("https://a.example", "https://library.example")])
def test_cors_origins_allow_pages_to_read_responses_and_errors(folder: Path, origins: str | tuple[str, ...]) -> None:
    with new_client(folder, cors_origins=origins, tokens=("secret",)) as client:
        expected = "*" if origins == "*" else "https://library.example"
        preflight = client.request(
            "OPTIONS",
            "/v1/suggest",
            headers={
                **ORIGIN,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "content-type,authorization",
            },
        )
        assert preflight.status_code == 200  # browsers send no token in a preflight request
        assert preflight.headers["access-control-allow-origin"] == expected
        assert "POST" in preflight.headers["access-control-allow-methods"]
        for headers, status in [({"Authorization": "Bearer secret"}, 200), ({}, 401)]:
            response = client.post("/v1/suggest", {"text": TEXT}, headers=ORIGIN | headers)
            assert (response.status_code, response.headers["access-control-allow-origin"]) == (status, expected)
        if origins != "*":
            other = client.get("/healthz", headers={"Origin": "https://attacker.example"})
            assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize("origins", ["library.example", "https://a.example/path", (), ("*", 1)])
def test_invalid_origins_are_rejected(origins: Any) -> None:
    with pytest.raises(ParameterError, match=re.escape("cors_origins must be one or more origins such as https://")):
        ServerSettings(cors_origins=origins).check_parameters()


def test_large_responses_are_compressed_if_the_client_accepts_gzip(client: Client) -> None:
    message = {"texts": [TEXT] * 500, "top_k": 4}
    plain = client.post("/v1/suggest", message, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.headers["vary"] == "accept-encoding"
    compressed = client.post("/v1/suggest", message, headers={"Accept-Encoding": "br, gzip"})
    assert compressed.headers["content-encoding"] == "gzip"
    assert compressed.headers["content-length"] == str(len(gzip.compress(plain.content, 4)))
    assert int(compressed.headers["content-length"]) < len(plain.content) / 10
    assert compressed.json() == plain.json()
    short = client.post("/v1/suggest", {"text": TEXT, "top_k": 1}, headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in short.headers


def test_compression_can_be_disabled(folder: Path) -> None:
    with new_client(folder, min_gzip_bytes=0) as client:
        response = client.post("/v1/suggest", {"texts": [TEXT] * 500}, headers={"Accept-Encoding": "gzip"})
        assert "content-encoding" not in response.headers


def test_compressed_pages_are_revalidated_by_their_tag(client: Client) -> None:
    page = client.get("/page/app.js", headers={"Accept-Encoding": "gzip"})
    assert page.headers["content-encoding"] == "gzip"
    tag = page.headers["etag"]
    assert tag.startswith('W/"')
    assert client.get("/page/app.js", headers={"If-None-Match": tag}).status_code == 304
    assert client.get("/page/app.js", headers={"If-None-Match": tag.removeprefix("W/")}).status_code == 304


def test_metrics_count_requests_and_texts_per_model(folder: Path) -> None:
    with new_client(folder) as client:
        client.post("/v1/suggest", {"texts": [TEXT] * 3})
        client.post("/v1/suggest", {"text": TEXT, "model": "copy"})
        client.post("/v1/explain", {"text": TEXT, "label": "unknown", "model": "copy"})
        client.post("/v1/suggest", {"text": TEXT, "model": "missing"})
        text = client.get("/metrics").text
        assert 'carya_model_texts_total{model="topics"} 3\n' in text
        assert 'carya_model_texts_total{model="copy"} 2\n' in text
        assert 'carya_model_requests_total{model="topics",status="200"} 1\n' in text
        assert 'carya_model_requests_total{model="copy",status="200"} 1\n' in text
        assert 'carya_model_requests_total{model="copy",status="404"} 1\n' in text
        assert 'carya_model_request_duration_seconds_count{model="copy"} 2\n' in text
        assert 'carya_model_request_duration_seconds_bucket{model="copy",le="+Inf"} 2\n' in text
        assert "missing" not in text


def test_python_m_carya_runs_the_command() -> None:
    run = subprocess.run([sys.executable, "-m", "carya", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("carya ")
