"""Tests for the route table: every route has a handler, documentation, metrics and access rules."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import carya
from carya.serve import service
from carya.serve.app import create_app
from carya.serve.routes.table import ROUTES
from carya.serve.settings import ServerSettings

from serving import Client, save_model

TEXT = "the telescope shows a planet and its moon"
TOKEN = {"Authorization": "Bearer secret"}


class Expected(NamedTuple):
    """Expected properties of a route, specified independently of its declaration.

    `options` are the arguments of a successful request, and `status` is the expected status code.
    """

    method: str
    path: str
    options: dict[str, Any] = {}  # noqa: RUF012
    url: str = ""
    status: int = 200
    label: str = ""
    is_public: bool = False
    is_always_answered: bool = False
    is_documented: bool = True


def page(path: str, url: str = "") -> Expected:
    return Expected("GET", path, url=url, label="page", is_public=True, is_documented=False)


EXPECTED = [
    Expected("POST", "/v1/suggest", {"json": {"text": TEXT}}),
    Expected("POST", "/v1/suggest-features", {"json": {"features": [{"indices": [0], "values": [1]}]}}),
    Expected("POST", "/v1/explain", {"json": {"text": TEXT}}),
    Expected("GET", "/v1/model"),
    Expected("GET", "/v1/labels"),
    Expected("GET", "/v1/explore/models"),
    Expected("POST", "/v1/explore/text", {"json": {"text": TEXT}}),
    Expected("POST", "/v1/explore/compare", {"json": {"text": TEXT}}),
    Expected("POST", "/v1/explore/evaluate", {"json": {"texts": [{"text": TEXT, "labels": ["chess"]}]}}),
    Expected("POST", "/v1/explore/explain", {"json": {"text": TEXT, "label": "chess"}}),
    Expected("GET", "/v1/explore/tree"),
    Expected("GET", "/v1/explore/labels"),
    Expected("GET", "/v1/explore/label", url="/v1/explore/label?label=chess"),
    Expected("GET", "/v1"),
    Expected("GET", "/v1/", is_documented=False),
    Expected("GET", "/v1/vocabs"),
    Expected("GET", "/v1/projects"),
    Expected("GET", "/v1/projects/{project_id}", url="/v1/projects/m"),
    Expected("POST", "/v1/projects/{project_id}/suggest", {"data": {"text": TEXT}}, "/v1/projects/m/suggest"),
    Expected(
        "POST",
        "/v1/projects/{project_id}/suggest-batch",
        {"json": {"documents": [{"text": TEXT}]}},
        "/v1/projects/m/suggest-batch",
    ),
    Expected("GET", "/healthz", is_public=True, is_always_answered=True),
    Expected("GET", "/readyz", is_public=True, is_always_answered=True),
    Expected("GET", "/metrics", is_always_answered=True),
    page("/"),
    page("/page/{name}", "/page/app.js"),
    page("/docs"),
    page("/docs.js"),
    page("/docs.css"),
    page("/openapi.json"),
]
#: The routes for parts of split models, which are tested in test_routed_serving.py.
PART_ROUTES = [("GET", "/v1/part"), ("POST", "/v1/part/rank")]
#: The routes that store data, which are tested in test_serve_jobs.py.
STORED_ROUTES = [
    ("POST", "/v1/jobs"),
    ("GET", "/v1/jobs/{job_id}"),
    ("GET", "/v1/jobs/{job_id}/results"),
    ("POST", "/v1/jobs/{job_id}/delete"),
    ("POST", "/v1/feedback"),
    ("POST", "/v1/projects/{project_id}/learn"),
    ("POST", "/v1/detect-language"),
]
IDS = [f"{route.method} {route.path}" for route in EXPECTED]
every_route = pytest.mark.parametrize("route", EXPECTED, ids=IDS)


def send(client: Client, route: Expected, **options: Any) -> Any:
    return client.request(route.method, route.url or route.path, **route.options, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("routes") / "m"
    save_model(folder)
    carya.XRLinear(max_leaf_size=10).fit(*carya.data.make_world(50, 20)).save(folder.with_name("vectors"))
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[Client]:
    models = {"m": folder, "vectors": folder.with_name("vectors")}
    with Client(create_app(models, ServerSettings(log_level="error"))) as client:
        yield client


@pytest.fixture(scope="module")
def protected(folder: Path) -> Iterator[Client]:
    settings = ServerSettings(log_level="error", tokens=("secret",))
    models = {"m": folder, "vectors": folder.with_name("vectors")}
    with Client(create_app(models, settings)) as client:
        yield client


def test_every_declared_route_is_expected() -> None:
    """Every new route must be added to EXPECTED, so that all tests in this file cover it."""
    assert sorted((route.method, route.path) for route in ROUTES) == sorted(
        [*((route.method, route.path) for route in EXPECTED), *PART_ROUTES, *STORED_ROUTES]
    )


@every_route
def test_the_router_contains_the_route(client: Client, route: Expected) -> None:
    assert send(client, route).status_code == route.status
    other = "GET" if route.method == "POST" else "POST"
    rejected = client.request(other, route.url or route.path)
    assert rejected.status_code == 405
    assert route.method in rejected.headers["allow"]


@every_route
def test_the_openapi_document_contains_the_route(client: Client, route: Expected) -> None:
    document = client.get("/openapi.json").json()
    methods = document["paths"].get(route.path, {})
    assert list(methods) == ([route.method.lower()] if route.is_documented else [])
    if not route.is_documented:
        return
    operation = methods[route.method.lower()]
    response = send(client, route)
    described = operation["responses"][str(response.status_code)]["content"]
    assert response.headers["content-type"].partition(";")[0] in described
    assert ("requestBody" in operation) == (bool(route.options) and route.status == 200)
    if "requestBody" in operation:
        (media_type,) = operation["requestBody"]["content"]
        assert media_type == response.request.headers["content-type"]
        invalid = client.request(
            route.method, route.url or route.path, content=b"\xff", headers={"content-type": media_type}
        )
        assert invalid.status_code == 400
        assert "400" in operation["responses"]
        assert (
            client.request(
                route.method, route.url or route.path, content=b"", headers={"content-type": "a/b"}
            ).status_code
            == 415
        )
        assert {"408", "413", "415"} <= set(operation["responses"])
    in_path = [parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "path"]
    assert in_path == [part.partition("}")[0] for part in route.path.split("{")[1:]]


@every_route
def test_responses_match_their_declared_types(client: Client, route: Expected) -> None:
    """Decoding a response as its declared type and re-encoding it yields the same JSON."""
    declared = ROUTES.find(route.path)
    assert declared is not None
    if not route.is_documented or declared.response in (None, str):
        return
    response = send(client, route)
    decoded = msgspec.json.decode(response.content, type=declared.response)
    assert json.loads(msgspec.json.encode(decoded)) == response.json()


@every_route
def test_the_metrics_count_the_route(folder: Path, route: Expected) -> None:
    models = {"m": folder, "vectors": folder.with_name("vectors")}
    with Client(create_app(models, ServerSettings(log_level="error"))) as client:
        send(client, route)
        lines = client.get("/metrics").text.splitlines()
    counted = [line for line in lines if line.startswith("carya_requests_total{")]
    if route.path == "/metrics":
        assert counted == ['carya_requests_total{route="/metrics",status="200"} 1']
    else:
        assert counted == [f'carya_requests_total{{route="{route.label or route.path}",status="{route.status}"}} 1']


@every_route
def test_only_public_routes_need_no_token(protected: Client, route: Expected) -> None:
    response = send(protected, route)
    assert response.status_code == (route.status if route.is_public else 401)
    assert send(protected, route, headers=TOKEN).status_code == route.status
    if route.is_documented:
        document = protected.get("/openapi.json").json()
        operation = document["paths"][route.path][route.method.lower()]
        assert operation.get("security", document["security"]) == ([] if route.is_public else [{"token": []}])
        assert ("401" in operation["responses"]) != route.is_public


def test_saturated_servers_answer_only_health_checks_and_metrics(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, finish = threading.Event(), threading.Event()

    def wait(*_: object) -> None:
        started.set()
        assert finish.wait(60)

    monkeypatch.setattr(service, "explain", wait)
    settings = ServerSettings(log_level="error", max_requests=1, request_timeout=60)
    with Client(create_app({"m": folder}, settings)) as client:

        async def send_all() -> dict[str, int]:
            blocking = asyncio.create_task(client.send("POST", "/v1/explain", json={"text": TEXT}))
            await asyncio.to_thread(started.wait, 60)
            statuses = {}
            for route in EXPECTED:
                response = await client.send(route.method, route.url or route.path, **route.options)
                statuses[route.path] = response.status_code
            finish.set()
            await blocking
            return statuses

        statuses = client.run(send_all())
    assert statuses == {route.path: 200 if route.is_always_answered else 429 for route in EXPECTED}


def test_paths_with_parameters_match_one_segment() -> None:
    for path in ("/v1/projects/a/b", "/v1/projects/", "/v1/projects/a/suggest/", "/page/a/b", "/v1/suggest/", ""):
        assert ROUTES.find(path) is None
    for path, expected in (
        ("/v1/projects/a.b", "/v1/projects/{project_id}"),
        ("/v1/projects/suggest", "/v1/projects/{project_id}"),
        ("/v1/projects/a/suggest", "/v1/projects/{project_id}/suggest"),
        ("/v1/projects", "/v1/projects"),
    ):
        route = ROUTES.find(path)
        assert route is not None
        assert route.path == expected
