"""Server process that imports Carya once and then forks for each command, so that commands start quickly.

The script's argument is the file descriptor of an inherited Unix socket. A request contains a JSON list
[arguments, folder] and the file descriptors of standard input, output and error; the response is the exit status of the
command.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
import threading

import numpy  # noqa: F401
import scipy.sparse  # noqa: F401

import carya
import carya.cli.commands
import carya.cli.evaluate
import carya.cli.predict
import carya.cli.train
from carya.cli import main

_MAX_REQUEST_BYTES = 1 << 20


def serve(connection: socket.socket) -> None:
    """Run one command per request until the other end of the connection is closed."""
    for name in ("TextRanker", "Tfidf", "XRLinear"):  # otherwise imported lazily, on first use
        getattr(carya, name)
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, _MAX_REQUEST_BYTES, 3)
        if not request:
            return
        child = os.fork()
        if child == 0:
            run_command(connection, json.loads(request), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        _, status = os.waitpid(child, 0)
        connection.sendall(struct.pack("i", os.waitstatus_to_exitcode(status)))


def run_command(connection: socket.socket, request: list[object], descriptors: list[int]) -> None:
    """Run a command with its own standard streams and exit, as a new process would."""
    connection.close()
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    arguments, folder = request
    os.chdir(str(folder))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    sys.argv = ["carya", *map(str, arguments)] if isinstance(arguments, list) else []
    status = 1
    try:
        main()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
