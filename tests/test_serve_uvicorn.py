"""Tests for the pinned uvicorn version: the server subclasses uvicorn's HTTP protocol, which is a private interface."""

from __future__ import annotations

import ast
import asyncio
import importlib.metadata
import inspect
import tomllib
from pathlib import Path
from typing import Any

import uvicorn
from packaging.requirements import Requirement
from packaging.version import Version
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from carya.serve.http import connections
from carya.serve.http.connections import LimitedConnection
from carya.serve.server import DrainingServer
from fake_transport import FakeTransport

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"


def test_the_version_is_pinned() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    (uvicorn_requirement,) = [
        requirement for requirement in map(Requirement, extras["serve"]) if requirement.name == "uvicorn"
    ]
    installed = Version(importlib.metadata.version("uvicorn"))
    assert installed in uvicorn_requirement.specifier
    next_minor = Version(f"{installed.major}.{installed.minor + 1}.0")
    assert next_minor not in uvicorn_requirement.specifier, "pyproject.toml must exclude the next minor version"


def attributes_in_source() -> dict[str, set[str]]:
    """Return the protocol, request (`cycle`) and flow-control attributes that connections.py uses."""
    used: dict[str, set[str]] = {"self": set(), "cycle": set(), "flow": set()}
    for node in ast.walk(ast.parse(inspect.getsource(connections))):
        if not isinstance(node, ast.Attribute):
            continue
        if isinstance(node.value, ast.Name) and node.value.id in used:
            used[node.value.id].add(node.attr)
        elif isinstance(node.value, ast.Attribute) and node.value.attr == "flow":
            used["flow"].add(node.attr)
    return used


async def served_protocol() -> HttpToolsProtocol:
    """Return uvicorn's own protocol after it has processed a request."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    config = uvicorn.Config(app, http=HttpToolsProtocol, ws="none", lifespan="off", log_config=None)
    config.load()
    protocol = HttpToolsProtocol(config, ServerState(), {}, _loop=asyncio.get_running_loop())
    protocol.connection_made(FakeTransport())  # type: ignore[arg-type]
    protocol.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await asyncio.gather(*protocol.tasks)
    assert protocol.transport.written.startswith(b"HTTP/1.1 204")  # type: ignore[attr-defined]
    protocol._unset_keepalive_if_required()
    return protocol


def test_every_private_attribute_exists() -> None:
    protocol = asyncio.run(served_protocol())
    used = attributes_in_source()
    inherited = used["self"] - set(vars(LimitedConnection)) - set(inspect.get_annotations(LimitedConnection))
    inherited -= attributes_of_init()
    assert {"connections", "pipeline", "cycle", "flow", "transport", "loop"} <= inherited, (
        "the source was not parsed as expected"
    )
    assert not [name for name in inherited if not hasattr(protocol, name)]
    assert {"response_complete", "more_body", "keep_alive", "disconnected", "message_event"} <= used["cycle"]
    assert not [name for name in used["cycle"] if not hasattr(protocol.cycle, name)]
    assert {"pause_reading", "read_paused"} <= used["flow"]
    assert not [name for name in used["flow"] if not hasattr(protocol.flow, name)]


def attributes_of_init() -> set[str]:
    """Return the attributes that the subclass assigns in `__init__`."""
    tree = ast.parse(inspect.getsource(connections))
    (init,) = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    return {node.attr for node in ast.walk(init) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}


def test_overridden_methods_exist() -> None:
    """Every method that overrides one of uvicorn's methods has the same parameters as the overridden method."""
    overriding = {"eof_received", "send_400_response", "shutdown"}  # these methods do not call super()
    for name, method in vars(LimitedConnection).items():
        if inspect.isfunction(method) and "super()" in inspect.getsource(method):
            overriding.add(name)
    assert {"data_received", "on_header", "_start_asgi_task"} <= overriding, "the source was not parsed as expected"
    for name in overriding - {"__init__"}:
        original = inspect.signature(getattr(HttpToolsProtocol, name))
        assert list(inspect.signature(vars(LimitedConnection)[name]).parameters) == list(original.parameters), name
    original = inspect.signature(uvicorn.Server.shutdown)
    assert list(inspect.signature(DrainingServer.shutdown).parameters) == list(original.parameters)
