"""Listening sockets: one per worker, all on the same port."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import sys

from carya.errors import InputError

#: Maximum number of connections waiting to be accepted by a worker.
BACKLOG = 1024

_SO_ATTACH_FILTER = 26
# A classic BPF program that drops segments with the SYN flag, which clients send to open connections, and keeps all
# other segments: load the byte with the flags; skip one instruction if SYN is not set; drop; keep.
_DROP_SYN = b"".join(
    struct.pack("=HBBI", *instruction)
    for instruction in ((0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
)


def listen(host: str, port: int, count: int) -> list[socket.socket]:
    """Return one listening socket per worker, all on the same port."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:  # without SO_REUSEPORT, fails if the port is in use
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            address = probe.getsockname()
        sockets = []
        for _ in range(count):
            listener = socket.socket(family, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
            listener.setblocking(False)
            sockets.append(listener)
    except OSError as error:
        raise InputError(f"Cannot listen on {host}, port {port}: {error.strerror or error}.") from None
    return sockets


def is_loopback(address: str) -> bool:
    """Return whether an IP address is reachable only from this machine."""
    return address == "::1" or address.startswith("127.")


def ignore_new_connections(listener: socket.socket) -> None:
    """Ignore new connection attempts; connections that are being established are still completed.

    When a listening socket is closed, the system resets the connections that have not been accepted, although their
    clients may have sent requests. Therefore, a worker ignores new connections, accepts all others, and only then
    closes its socket. Clients whose attempts are ignored retry after a second; they are then refused, or reach a new
    server on the same port. This requires Linux; on other systems, connections that arrive before the socket is closed
    are reset.
    """
    if sys.platform != "linux":
        return
    program = ctypes.create_string_buffer(_DROP_SYN, len(_DROP_SYN))
    with contextlib.suppress(OSError):
        descriptor = struct.pack("@HP", len(_DROP_SYN) // 8, ctypes.addressof(program))
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, descriptor)
