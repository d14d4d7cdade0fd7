"""Tests with hostile requests to a server process, which must reject them and continue to serve other clients.

``python tests/attacks/test_server_requests.py`` prints the table of requests and responses for docs/serve.md.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from serving import Server, read_response, save_model, start_server

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"
LIMITS = {
    "--max-body-bytes": "100000",
    "--max-header-bytes": "8192",
    "--max-texts": "8",
    "--max-text-length": "5000",
    "--max-requests": "40",
    "--max-connections": "100",
    "--max-client-share": "1",
    "--body-timeout": "0.5",
    "--idle-timeout": "1",
}
FOREVER = 10_000  # repetitions, far more than a server should accept


def post(body: bytes, *headers: str, path: str = "/v1/suggest", length: int | None = None) -> bytes:
    """Return a POST request as bytes."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    if not any(header.startswith(("Content-Length", "Transfer-Encoding")) for header in headers):
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def get(path: str, *headers: str) -> bytes:
    """Return a GET request as bytes."""
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def summarize(response: bytes) -> str:
    """Return the status code and error message of a response as text."""
    if not response:
        return "closed"
    head, _, body = response.partition(b"\r\n\r\n")
    status = head[9:12].decode()
    has_retry = b"retry-after: 1" in head.lower()
    detail = json.loads(body).get("detail", "") if body.startswith(b"{") else ""
    return f"{status}{': ' + detail if detail else ''}{' (Retry-After: 1)' if has_retry else ''}"


def send(data: bytes, *, close_half: bool = False) -> Callable[[Server], str]:
    return lambda server: summarize(server.send(data, close_half=close_half))


def send_slowly(server: Server, begin: bytes, more: bytes) -> str:
    """Send `begin`, then send `more` every 0.1 seconds until the server responds."""
    with server.connect() as connection:
        connection.sendall(begin)
        connection.settimeout(0.1)
        for _ in range(200):
            try:
                received = connection.recv(65536)
                connection.settimeout(20)
                return summarize(received + read_response(connection))
            except TimeoutError:
                with contextlib.suppress(ConnectionError):
                    connection.sendall(more)
            except ConnectionError:
                return "closed"
    return "no response"


def send_endlessly(server: Server, begin: bytes, more: bytes) -> str:
    """Send `begin`, then send `more` repeatedly until the server stops accepting data."""
    with server.connect() as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(begin)
            for _ in range(FOREVER):
                connection.sendall(more)
        return summarize(read_response(connection))


def send_without_reading(server: Server, pause: float) -> str:
    """Keep sending requests without reading the responses."""
    requests = get("/openapi.json") * 50
    with server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            for _ in range(FOREVER):
                connection.sendall(requests)
                time.sleep(pause)
        except TimeoutError:
            return "blocked"
        except ConnectionError:
            return "closed"
    return "all accepted"


def exceed_concurrent_requests(server: Server) -> str:
    """Send 80 concurrent requests."""
    message = {"texts": ["moon " * 900] * 8, "labels": {"excluded": ["chess"]}}  # processed in a worker thread
    request = post(json.dumps(message).encode())
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(server.connect()) for _ in range(80)]
        for connection in connections:
            connection.sendall(request[:-1])  # only complete requests count toward the limit
        server.process.send_signal(signal.SIGSTOP)
        for connection in connections:
            connection.sendall(request[-1:])
        server.process.send_signal(signal.SIGCONT)
        responses = [summarize(read_response(connection)) for connection in connections]
    assert responses.count("200") >= 40
    (rejected,) = set(responses) - {"200"}
    return rejected


def exceed_connections(server: Server) -> str:
    """Open ten thousand connections and keep them open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 10_300:
        pytest.skip("this system allows fewer than 10,000 connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 10_300), hard))
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(server.connect()) for _ in range(10_000)]
        responses = [summarize(read_response(connection)) for connection in connections[100:]]
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        (response,) = set(responses) - {"closed"}  # those that replaced idle connections time out
        return f"additional connections receive {response}"


def disconnect(server: Server) -> str:
    """Disconnect while the request body is being sent."""
    with server.connect() as connection:
        connection.sendall(post(b'{"text": ', length=100))
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if any(event.get("status") == 499 for event in server.events("request")):
            return "none; status 499 is logged"
        time.sleep(0.05)
    return "none; status 499 is not logged"


NESTED = b"[" * 50_000
KILOBYTE = b"x" * 1000
BODY_TOO_LARGE = "413: The request body exceeds the limit of 100000 bytes."
HEAD_TOO_LARGE = "431: The request line and headers exceed the limit of 8192 bytes."
NOT_HTTP = "400: The data received is not a valid HTTP/1.1 request."
ONE_HOST = "400: A request must have exactly one Host header"
UNKNOWN_PATH = "404: Unknown path. See /docs for all routes."
# Each entry consists of a description of the request, a function that sends it, and the expected response.
HOSTILE: list[tuple[str, Callable[[Server], str], str]] = [
    ("body larger than `--max-body-bytes`", send(post(b'{"text": "' + b"a" * 200_000 + b'"}')), BODY_TOO_LARGE),
    (
        "body larger than `--max-body-bytes`, announced with `Expect: 100-continue`",
        send(post(b"", "Expect: 100-continue", length=10**12)),
        BODY_TOO_LARGE,
    ),
    (
        "endless chunked body",
        lambda server: send_endlessly(server, post(b"", "Transfer-Encoding: chunked"), b"3e8\r\n" + KILOBYTE + b"\r\n"),
        BODY_TOO_LARGE,
    ),
    ("`Content-Length: -1`", send(post(b"", "Content-Length: -1")), NOT_HTTP),
    ("two different `Content-Length` headers", send(post(b"{}", "Content-Length: 2", "Content-Length: 3")), NOT_HTTP),
    (
        "both `Content-Length` and `Transfer-Encoding: chunked`, as in request smuggling",
        send(post(b"0\r\n\r\n", "Content-Length: 5", "Transfer-Encoding: chunked")),
        NOT_HTTP,
    ),
    (
        "body sent byte by byte",
        lambda server: send_slowly(server, post(b"{", length=1000), b" "),
        "408: The request body was not received within 0.5 seconds.",
    ),
    (
        "head sent byte by byte",
        lambda server: send_slowly(server, b"GET / HTTP/1.1\r\nX: ", b"x"),
        "408: The request head was not received within 1 seconds.",
    ),
    ("idle connection", send(b""), "closed"),
    (
        "10,000 headers",
        lambda server: send_endlessly(server, b"GET / HTTP/1.1\r\n", b"X-Header: value\r\n"),
        HEAD_TOO_LARGE,
    ),
    ("endless header", lambda server: send_endlessly(server, b"GET / HTTP/1.1\r\nX: ", KILOBYTE), HEAD_TOO_LARGE),
    ("URL with 9,000 characters", send(get("/" + "a" * 9000)), HEAD_TOO_LARGE),
    ("TLS handshake", send(bytes.fromhex("16030100c8010000c40303") + b"\0" * 190), NOT_HTTP),
    ("HTTP/2 preface", send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), NOT_HTTP),
    (
        "JSON nested 50,000 levels deep",
        send(post(NESTED)),
        "400: The request body is invalid: Expected `object`, got `array`.",
    ),
    (
        "deeply nested JSON in a field",
        send(post(b'{"texts": [' + NESTED)),
        "400: The request body is invalid: Expected `str`, got `array` - at `$.texts[0]`.",
    ),
    (
        "deeply nested JSON in an ignored field",
        send(post(b'{"documents": [{"text": "a", "metadata": ' + NESTED, path="/v1/projects/model/suggest-batch")),
        "400: The request body is invalid: it is nested too deeply.",
    ),
    ("invalid UTF-8", send(post(b'{"text": "\xff\xfe"}')), "400: The request body is not valid JSON: …"),
    ("unpaired surrogate", send(post(b'{"text": "\\ud800"}')), "400: The request body is not valid JSON: …"),
    ("truncated JSON", send(post(b'{"text": "a"')), "400: The request body is not valid JSON: …"),
    (
        "number outside the range of 64-bit floats",
        send(post(b'{"text": "a", "min_score": 1e999}')),
        "400: The request body is invalid: …",
    ),
    (
        "integer with 5,000 digits",
        send(post(b'{"text": "a", "top_k": ' + b"9" * 5000 + b"}")),
        "400: The request body is invalid: …",
    ),
    (
        "unknown field",
        send(post(b'{"text": "a", "top_n": 5}')),
        "400: The request body is invalid: Object contains unknown field `top_n`.",
    ),
    (
        "too many texts",
        send(post(json.dumps({"texts": ["a"] * 9}).encode())),
        "413: A request can have at most 8 texts, got 9.",
    ),
    (
        "text that is too long",
        send(post(json.dumps({"text": "a" * 5001}).encode())),
        "413: A text can have at most 5000 characters, got 5001.",
    ),
    (
        "compressed body (zip bomb)",
        send(post(gzip.compress(b"a" * 10**6), "Content-Encoding: gzip")),
        "400: The request body is not valid JSON: …",
    ),
    (
        "unsupported content type",
        send(post(b"<a/>").replace(b"application/json", b"application/xml")),
        "415: Content-Type must be application/json, got 'application/xml'.",
    ),
    (
        "missing content type",
        send(post(b'{"text": "a"}').replace(b"Content-Type", b"X-Type")),
        "415: Content-Type must be application/json, but the header is missing.",
    ),
    (
        "content type that HTML forms on other websites can send",
        send(post(b'{"text": "a"}').replace(b"application/json", b"text/plain")),
        "415: Content-Type must be application/json, got 'text/plain'.",
    ),
    (
        "`Host` header of another server (DNS rebinding)",
        send(get("/v1/model").replace(b"localhost", b"attacker.example")),
        "421: The host 'attacker.example' is not served here. If clients should use this name, start the server with "
        "--allowed-hosts attacker.example",
    ),
    ("missing `Host` header", send(get("/v1/model").replace(b"Host", b"X-Host")), f"{ONE_HOST}, got 0."),
    ("two `Host` headers", send(get("/v1/model", "Host: attacker.example")), f"{ONE_HOST}, got 2."),
    (
        "invalid `Host` header",
        send(get("/v1/model").replace(b"localhost", b"localhost@attacker.example")),
        "400: The Host header is invalid: 'localhost@attacker.example'.",
    ),
    ("`/page/../../../etc/passwd`", send(get("/page/../../../etc/passwd")), UNKNOWN_PATH),
    ("`/page/%2e%2e/%2e%2e/etc/passwd`", send(get("/page/%2e%2e/%2e%2e/etc/passwd")), UNKNOWN_PATH),
    ("`/page/%00`", send(get("/page/%00")), UNKNOWN_PATH),
    (
        "unsupported method",
        send(get("/v1/model").replace(b"GET", b"DELETE")),
        "405: Method DELETE is not allowed. Use GET, HEAD.",
    ),
    (
        "upgrade to WebSocket",
        send(get("/v1/model", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")),
        "200",
    ),
    (
        "complete request on a half-closed connection",
        send(post(b'{"text": "moon"}'), close_half=True),
        "200",
    ),
    (
        "incomplete request on a half-closed connection",
        send(post(b'{"text": ', length=100), close_half=True),
        "closed",
    ),
    ("client that disconnects in the middle of the body", disconnect, "none; status 499 is logged"),
    ("client that does not read responses", lambda server: send_without_reading(server, 0.05), "closed"),
    ("endless pipelined requests", lambda server: send_without_reading(server, 0), "closed"),
    (
        "more concurrent requests than `--max-requests`",
        exceed_concurrent_requests,
        "429: The server has reached its limit of 40 concurrent requests. (Retry-After: 1)",
    ),
    (
        "10,000 connections with `--max-connections 100`",
        exceed_connections,
        "additional connections receive 503: The server has reached its limit of 100 connections. (Retry-After: 1)",
    ),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("hostile")
    save_model(folder / "model")
    flags = [part for pair in LIMITS.items() for part in pair]
    with start_server(folder, str(folder / "model"), *flags) as server:
        yield server
        assert not [event for event in server.events() if event["level"] == "error"]


@pytest.mark.parametrize(
    ("description", "act", "expected"), HOSTILE, ids=[description for description, _, _ in HOSTILE]
)
def test_hostile_requests(server: Server, description: str, act: Callable[[Server], str], expected: str) -> None:
    response = act(server)
    assert response.startswith(expected[:-1]) if expected.endswith("…") else response == expected
    deadline = time.monotonic() + 20  # other clients must be served once connections are available again
    while True:
        try:
            other = httpx.post(server.url("/v1/suggest"), json={"text": "moon"}, timeout=20)
        except httpx.TransportError:
            other = httpx.Response(503)
        if other.status_code == 200 or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    assert other.status_code == 200


def table() -> str:
    """Return a Markdown table of the requests and responses."""
    rows = ["| request | response |", "|---|---|"]
    rows += [f"| {description} | {expected} |" for description, _, expected in HOSTILE]
    return "\n".join(rows) + "\n"


def test_the_documentation_contains_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert table() in page
    for flag, value in LIMITS.items():
        assert f"`{flag} {value}`" in page


if __name__ == "__main__":
    print(table(), end="")
