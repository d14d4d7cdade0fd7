"""Tests for OpenTelemetry traces: spans in a collector, and an unreachable collector."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving import save_model, start_server

pytest.importorskip("opentelemetry.instrumentation.asgi")
service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

TEXT = "the telescope shows a planet and its moon"
TRACE = "0af7651916cd43dd8448eb211c80319c"


class Collector(ThreadingHTTPServer):
    """A collector that stores the received requests."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        super().__init__(("127.0.0.1", 0), CollectorHandler)


class CollectorHandler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_spans_name_the_route_and_the_model_but_contain_no_texts(tmp_path: Path, collector: Collector) -> None:
    save_model(tmp_path / "m")
    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    with start_server(tmp_path, str(tmp_path / "m"), "--trace-endpoint", endpoint) as server:
        headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        httpx.post(server.url("/v1/suggest?secret=1"), json={"texts": [TEXT] * 3}, headers=headers).raise_for_status()
        assert httpx.get(server.url("/v1/projects/missing")).status_code == 404
    spans: dict[str, Any] = {}  # the server sends all spans before it exits
    for body in collector.bodies:
        for resource in service.ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {item.key: item.value.string_value for item in resource.resource.attributes}
            assert names["service.name"] == "carya"
            spans |= {span.name: span for scope in resource.scope_spans for span in scope.spans}
    assert {"POST /v1/suggest", "GET /v1/projects/{project_id}"} <= spans.keys()
    span = spans["POST /v1/suggest"]
    assert span.trace_id.hex() == TRACE
    attributes = {item.key: item.value for item in span.attributes}
    assert attributes["carya.model"].string_value == "m"
    assert attributes["carya.n_texts"].int_value == 3
    for private in (b"telescope", b"secret"):
        assert private not in b"".join(collector.bodies)


def test_requests_do_not_depend_on_the_collector(tmp_path: Path) -> None:
    save_model(tmp_path / "m")
    started = time.monotonic()
    endpoint = "http://127.0.0.1:9/v1/traces"
    with start_server(tmp_path, str(tmp_path / "m"), "--trace-endpoint", endpoint) as server:
        assert httpx.post(server.url("/v1/suggest"), json={"text": TEXT}).status_code == 200
    assert time.monotonic() - started < 50
