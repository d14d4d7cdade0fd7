"""Limits on resources that all clients share, with a smaller limit for each client."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from carya.serve.settings import ServerSettings


@lru_cache(maxsize=4096)
def client_key(address: str | None) -> str:
    """Return the key under which the resource usage of a client is counted.

    IPv6 clients are counted by their /64 network, because a single host can use all addresses of its network.

    >>> client_key("10.0.0.1"), client_key("2001:db8::1:2"), client_key("::ffff:10.0.0.1"), client_key(None)
    ('10.0.0.1', '2001:db8::', '10.0.0.1', '')
    """
    try:
        ip = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:  # not an IP address, for example if the client is connected to a Unix socket
        return address or ""
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(ip) >> 64 << 64))


class SharedLimit:
    """Limit on a resource that all clients share, with a smaller limit for each client.

    Parameters
    ----------
    limit : int
        The limit for all clients together.
    client_share : float
        The fraction of the limit that a single client can use.
    unit : str
        The unit of the limit in error messages.

    Attributes
    ----------
    used : int
        The amount currently used by all clients.

    Examples
    --------
    >>> connections = SharedLimit(4, 0.5, "connections")
    >>> for client in ("a", "a", "b"):
    ...     connections.add(client)
    >>> connections.problem("a")
    'The client has reached its limit of 2 connections.'
    >>> connections.problem("b", 2)
    'The server has reached its limit of 4 connections.'
    >>> connections.problem("b") is None
    True
    """

    def __init__(self, limit: int, client_share: float, unit: str) -> None:
        self.limit = limit
        self.client_limit = max(1, int(limit * client_share))
        self.unit = unit
        self.used = 0
        self._used_by: dict[str, int] = {}

    def used_by(self, client: str) -> int:
        """Return the amount used by a client."""
        return self._used_by.get(client, 0)

    def problem(self, client: str, amount: int = 1) -> str | None:
        """Return an error message if using an additional amount would exceed a limit; otherwise, return None."""
        if self.used + amount > self.limit:
            return f"The server has reached its limit of {self.limit} {self.unit}."
        if self.used_by(client) + amount > self.client_limit:
            return f"The client has reached its limit of {self.client_limit} {self.unit}."
        return None

    def add(self, client: str, amount: int = 1) -> None:
        """Add an amount, or subtract it if it is negative, without checking the limits."""
        self.used += amount
        used = self.used_by(client) + amount
        if used:
            self._used_by[client] = used
        else:
            self._used_by.pop(client, None)  # the table contains only clients that are using the resource


class ServerLimits:
    """Shared limits of a worker.

    Attributes
    ----------
    connections, requests, jobs, buffered_bytes : SharedLimit
        Limits on the open connections, the requests in progress, the requests in the thread pool, and the total size of
        buffered request and response bodies.
    """

    def __init__(self, settings: ServerSettings) -> None:
        share = settings.max_client_share
        self.connections = SharedLimit(settings.max_connections, share, "connections")
        self.requests = SharedLimit(settings.max_requests, share, "concurrent requests")
        self.jobs = SharedLimit(settings.threads + settings.max_queued, share, "running and queued requests")
        self.buffered_bytes = SharedLimit(
            settings.max_buffered_bytes, share, "bytes for buffered request and response bodies"
        )
