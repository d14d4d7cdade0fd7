"""What hostile requests get from a real server: an answer that says what is wrong, and nobody else notices.

``python tests/test_serve_hostile.py`` prints the table of docs/serve.md.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from serving import Server, read_answer, saved, server

PAGE = Path(__file__).parent.parent / "docs" / "serve.md"
LIMITS = {
    "--max-body": "100000",
    "--max-header": "8192",
    "--max-texts": "8",
    "--max-text-length": "5000",
    "--max-requests": "40",
    "--max-connections": "100",
    "--body-seconds": "0.5",
    "--idle-seconds": "1",
}


def post(body: bytes, *headers: str, path: str = "/v1/suggest", length: int | None = None) -> bytes:
    """A request as it goes over the wire."""
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json"]
    if not any(header.startswith(("Content-Length", "Transfer-Encoding")) for header in headers):
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def told(answer: bytes) -> str:
    """An answer in words: its status and what it says."""
    if not answer:
        return "closed"
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head[9:12].decode()
    retry = b"retry-after: 1" in head.lower()
    detail = json.loads(body).get("detail", "") if body.startswith(b"{") else ""
    return f"{status}{': ' + detail if detail else ''}{' (Retry-After: 1)' if retry else ''}"


def said(data: bytes, *, close_half: bool = False) -> Callable[[Server], str]:
    return lambda running: told(running.say(data, close_half=close_half))


def drip(running: Server, first: bytes, more: bytes) -> str:
    """A byte ten times a second, for ever."""
    with socket.create_connection(("127.0.0.1", running.port), 20) as connection:
        connection.sendall(first)
        connection.settimeout(0.1)
        for _ in range(200):
            try:
                got = connection.recv(65536)
                connection.settimeout(20)
                return told(got + read_answer(connection))  # its head may come before the rest
            except TimeoutError:
                with contextlib.suppress(ConnectionError):
                    connection.sendall(more)
            except ConnectionError:
                return "closed"
    return "waits for ever"


def endless(running: Server, first: bytes, more: bytes) -> str:
    """As much as the server takes."""
    with socket.create_connection(("127.0.0.1", running.port), 20) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(first)
            for _ in range(10_000):
                connection.sendall(more)
        return told(read_answer(connection))


def not_reading(running: Server, pause: float) -> str:
    """Requests without end on a connection, of which no answer is read."""
    asked = get("/openapi.json") * 50
    with socket.create_connection(("127.0.0.1", running.port), 20) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            for _ in range(10_000):
                connection.sendall(asked)
                time.sleep(pause)
        except TimeoutError:
            return "waits for ever"
        except ConnectionError:
            return "closed"
    return "is answered for ever"


def at_once(running: Server) -> str:
    """More requests than there may be, all of which have begun."""
    with contextlib.ExitStack() as open_ones:
        for _ in range(40):
            one = open_ones.enter_context(socket.create_connection(("127.0.0.1", running.port), 20))
            one.sendall(post(b"{", length=100))
        until = time.monotonic() + 10
        while "carya_requests_in_progress 41" not in httpx.get(running.url("/metrics")).text:
            assert time.monotonic() < until
        return told(running.say(post(b'{"text": "moon"}')))


def many_connections(running: Server) -> str:
    """Ten thousand connections that stay open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 10_300:
        pytest.skip("this system allows fewer than 10,000 connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 10_300), hard))
    with contextlib.ExitStack() as open_ones:
        ones = []
        for _ in range(10_000):
            one = socket.create_connection(("127.0.0.1", running.port), 20)
            ones.append(open_ones.enter_context(one))
        refused = [told(read_answer(one)) for one in ones[100:]]
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        (answer,) = set(refused) - {"closed"}  # those that took the place of one that had said nothing for too long
        return f"those beyond get {answer}"


def gone(running: Server) -> str:
    """A client that leaves in the midst of its body."""
    with socket.create_connection(("127.0.0.1", running.port), 20) as connection:
        connection.sendall(post(b'{"text": ', length=100))
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if any(line.get("status") == 499 for line in running.lines()):
            return "nothing; the log has 499"
        time.sleep(0.05)
    return "nothing, and the log does not tell"


DEEP = b"[" * 50_000
BIG = b"x" * 1000
# What is sent, how, and what is answered.
HOSTILE: list[tuple[str, Callable[[Server], str], str]] = [
    (
        "a body of more than `--max-body` bytes",
        said(post(b'{"text": "' + b"a" * 200_000 + b'"}')),
        "413: the body has more than 100000 bytes, which is the most there may be",
    ),
    (
        "the same, announced with `Expect: 100-continue`",
        said(post(b"", "Expect: 100-continue", length=10**12)),
        "413: the body has more than 100000 bytes, which is the most there may be",
    ),
    (
        "a chunked body without end",
        lambda it: endless(it, post(b"", "Transfer-Encoding: chunked"), b"3e8\r\n" + BIG + b"\r\n"),
        "413: the body has more than 100000 bytes, which is the most there may be",
    ),
    ("`Content-Length: -1`", said(post(b"", "Content-Length: -1")), "400: this is not an HTTP/1.1 request"),
    (
        "two lengths that differ",
        said(post(b"{}", "Content-Length: 2", "Content-Length: 3")),
        "400: this is not an HTTP/1.1 request",
    ),
    (
        "a length and chunks, as in request smuggling",
        said(post(b"0\r\n\r\n", "Content-Length: 5", "Transfer-Encoding: chunked")),
        "400: this is not an HTTP/1.1 request",
    ),
    (
        "a body that comes byte by byte",
        lambda it: drip(it, post(b"{", length=1000), b" "),
        "408: the body did not arrive within 0.5 seconds",
    ),
    (
        "a head that comes byte by byte",
        lambda it: drip(it, b"GET / HTTP/1.1\r\nX: ", b"x"),
        "408: the head of the request took longer than 1 seconds",
    ),
    ("a connection that says nothing", said(b""), "closed"),
    (
        "10,000 headers",
        lambda it: endless(it, b"GET / HTTP/1.1\r\n", b"X-Header: value\r\n"),
        "431: the head of the request has more than 8192 bytes",
    ),
    (
        "a header without end",
        lambda it: endless(it, b"GET / HTTP/1.1\r\nX: ", BIG),
        "431: the head of the request has more than 8192 bytes",
    ),
    (
        "an address of 9,000 characters",
        said(get("/" + "a" * 9000)),
        "431: the head of the request has more than 8192 bytes",
    ),
    (
        "a TLS greeting",
        said(bytes.fromhex("16030100c8010000c40303") + b"\0" * 190),
        "400: this is not an HTTP/1.1 request",
    ),
    ("an HTTP/2 greeting", said(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "400: this is not an HTTP/1.1 request"),
    (
        "JSON that is 50,000 arrays deep",
        said(post(DEEP)),
        "400: the body is not what it must be: Expected `object`, got `array`",
    ),
    (
        "the same in a field",
        said(post(b'{"texts": [' + DEEP)),
        "400: the body is not what it must be: Expected `str`, got `array` - at `$.texts[0]`",
    ),
    (
        "the same in a field that is ignored",
        said(post(b'{"documents": [{"text": "a", "metadata": ' + DEEP, path="/v1/projects/model/suggest-batch")),
        "400: the body is not what it must be: it is nested too deeply",
    ),
    ("bytes that are no UTF-8", said(post(b'{"text": "\xff\xfe"}')), "400: the body is not JSON: …"),
    ("half a surrogate pair", said(post(b'{"text": "\\ud800"}')), "400: the body is not JSON: …"),
    ("half a JSON document", said(post(b'{"text": "a"')), "400: the body is not JSON: …"),
    (
        "a number beyond all floats",
        said(post(b'{"text": "a", "threshold": 1e999}')),
        "400: the body is not what it must be: …",
    ),
    (
        "a number of 5,000 digits",
        said(post(b'{"text": "a", "top_k": ' + b"9" * 5000 + b"}")),
        "400: the body is not what it must be: …",
    ),
    (
        "a field that there is not",
        said(post(b'{"text": "a", "top_n": 5}')),
        "400: the body is not what it must be: Object contains unknown field `top_n`",
    ),
    (
        "too many texts",
        said(post(json.dumps({"texts": ["a"] * 9}).encode())),
        "413: there are 9 texts; the most there may be are 8",
    ),
    (
        "a text that is too long",
        said(post(json.dumps({"text": "a" * 5001}).encode())),
        "413: a text has 5001 characters; the most there may be are 5000",
    ),
    (
        "a compressed body that would be a gigabyte",
        said(post(gzip.compress(b"a" * 10**6), "Content-Encoding: gzip")),
        "400: the body is not JSON: …",
    ),
    (
        "a body of another type",
        said(post(b"<a/>").replace(b"application/json", b"application/xml")),
        "415: Content-Type is 'application/xml'; it must be application/json",
    ),
    (
        "`/page/../../../etc/passwd`",
        said(get("/page/../../../etc/passwd")),
        "404: there is no such page; /docs shows those there are",
    ),
    (
        "`/page/%2e%2e/%2e%2e/etc/passwd`",
        said(get("/page/%2e%2e/%2e%2e/etc/passwd")),
        "404: there is no such page; /docs shows those there are",
    ),
    ("`/page/%00`", said(get("/page/%00")), "404: there is no such page; /docs shows those there are"),
    (
        "a method that there is not",
        said(get("/v1/model").replace(b"GET", b"DELETE")),
        "405: the method DELETE is not one of GET, HEAD",
    ),
    (
        "an upgrade to WebSocket",
        said(get("/v1/model", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")),
        "200",
    ),
    (
        "a request whose sender closes its half of the connection",
        said(post(b'{"text": "moon"}'), close_half=True),
        "200",
    ),
    ("the same in the midst of the body", said(post(b'{"text": ', length=100), close_half=True), "closed"),
    ("a client that leaves in the midst of its body", gone, "nothing; the log has 499"),
    ("a client that never reads its answers", lambda it: not_reading(it, 0.05), "closed"),
    ("requests without end on a connection", lambda it: not_reading(it, 0), "closed"),
    (
        "more requests at once than `--max-requests`",
        at_once,
        "429: 40 requests are being answered, which is the most there may be (Retry-After: 1)",
    ),
    (
        "10,000 connections where `--max-connections` is 100",
        many_connections,
        "those beyond get 503: there are 100 connections, the most there may be (Retry-After: 1)",
    ),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("hostile")
    saved(folder / "model")
    flags = [part for pair in LIMITS.items() for part in pair]
    with server(folder, str(folder / "model"), *flags) as made:
        yield made
        assert not [line for line in made.lines() if line["event"] == "fault" or line["level"] == "error"]


@pytest.mark.parametrize(("about", "act", "expected"), HOSTILE, ids=[about for about, _, _ in HOSTILE])
def test_hostile_requests(running: Server, about: str, act: Callable[[Server], str], expected: str) -> None:
    got = act(running)
    assert got.startswith(expected[:-1]) if expected.endswith("…") else got == expected
    deadline = time.monotonic() + 20  # others are answered, at once or as soon as connections are free again
    while True:
        try:
            answer = httpx.post(running.url("/v1/suggest"), json={"text": "moon"}, timeout=20)
        except httpx.TransportError:
            answer = httpx.Response(503)
        if answer.status_code == 200 or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    assert answer.status_code == 200


def table() -> str:
    """The table as Markdown."""
    rows = ["| request | answer |", "|---|---|"]
    rows += [f"| {about} | {expected} |" for about, _, expected in HOSTILE]
    return "\n".join(rows) + "\n"


def test_the_page_shows_these_answers() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert table() in page
    for flag, value in LIMITS.items():
        assert f"`{flag} {value}`" in page


if __name__ == "__main__":
    print(table(), end="")
