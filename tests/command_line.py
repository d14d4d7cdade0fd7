"""Helpers that run the `carya` command in a separate process."""

from __future__ import annotations

import functools
import inspect
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from click.testing import CliRunner

# Background jobs of a shell ignore SIGINT, and so do their child processes. Python's default handler is restored so
# that tests that send SIGINT also pass in a background job.
RESTORE_SIGINT = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"

#: Command line that runs `carya` in the current environment.
CARYA = [sys.executable, "-c", RESTORE_SIGINT + "from carya.cli import main; main()"]

_TIMEOUT = 120  # seconds


def run(
    *arguments: str,
    cwd: Path | None = None,
    input: str | None = None,  # noqa: A002
    **settings: Any,
) -> subprocess.CompletedProcess[str]:
    """Run `carya` with the given arguments until it exits; `settings` are passed to :func:`subprocess.run`.

    If no `settings` are passed, the command runs in a fork of a process that has already imported Carya.
    """
    if settings or not hasattr(os, "fork"):
        settings = {"cwd": cwd, "input": input, "timeout": _TIMEOUT, **settings}
        return subprocess.run([*CARYA, *arguments], capture_output=True, text=True, check=False, **settings)
    return _ForkServer.shared().run([*map(str, arguments)], cwd or Path.cwd(), input)


def cli_runner() -> CliRunner:
    """Return a runner that captures standard output and standard error separately, as is the default in Click 8.2."""
    settings: dict[str, Any] = {"mix_stderr": False}
    return CliRunner(**settings) if "mix_stderr" in inspect.signature(CliRunner).parameters else CliRunner()


def start(*arguments: str, cwd: Path | None = None, **settings: Any) -> subprocess.Popen[str]:
    """Start `carya` with the given arguments; `settings` are passed to :class:`subprocess.Popen`."""
    return subprocess.Popen([*CARYA, *arguments], text=True, cwd=cwd, **settings)


class _ForkServer:
    """Connection to a process that runs `fork_server.py`."""

    def __init__(self) -> None:
        self._connection, other = socket.socketpair()
        script = [sys.executable, str(Path(__file__).parent / "fork_server.py"), str(other.fileno())]
        self._process = subprocess.Popen(script, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL)
        other.close()
        self._connection.settimeout(_TIMEOUT)

    @classmethod
    @functools.cache
    def shared(cls) -> _ForkServer:
        """Return the fork server of this test process; it exits when the connection is closed."""
        return cls()

    def run(self, arguments: list[str], cwd: Path, text: str | None) -> subprocess.CompletedProcess[str]:
        stdin, input_writer = os.pipe()
        output_reader, stdout = os.pipe()
        error_reader, stderr = os.pipe()
        socket.send_fds(self._connection, [json.dumps([arguments, str(cwd)]).encode()], [stdin, stdout, stderr])
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
        outputs: dict[int, bytes] = {}
        readers = [
            threading.Thread(target=_read, args=(descriptor, outputs)) for descriptor in (output_reader, error_reader)
        ]
        writer = threading.Thread(target=_write, args=(input_writer, (text or "").encode()))
        for thread in (*readers, writer):
            thread.start()
        (status,) = struct.unpack("i", self._connection.recv(4))
        for thread in (*readers, writer):
            thread.join(_TIMEOUT)
        stdout_text, stderr_text = (
            outputs[descriptor].decode().replace("\r\n", "\n") for descriptor in (output_reader, error_reader)
        )
        return subprocess.CompletedProcess(["carya", *arguments], status, stdout_text, stderr_text)


def _read(descriptor: int, outputs: dict[int, bytes]) -> None:
    with open(descriptor, "rb") as stream:
        outputs[descriptor] = stream.read()


def _write(descriptor: int, data: bytes) -> None:
    try:
        with open(descriptor, "wb") as stream:
            stream.write(data)
    except BrokenPipeError:  # the command did not read all of its standard input
        pass
