"""Parts of a split model on other machines, reached over HTTP.

Connections are kept open and reused. If a replica does not respond, the request is sent to the next one, and for a
short time, the failed replica is tried only after all others.
"""

from __future__ import annotations

import http.client
import itertools
import json
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import urlsplit

from carya.errors import InputError, PartUnavailableError
from carya.models.routed.messages import PartRequest, PartResponse

#: The HTTP routes of a server that serves a part.
RANK_PATH, DESCRIBE_PATH = "/v1/part/rank", "/v1/part"
#: The media type of requests and responses.
MEDIA_TYPE = "application/octet-stream"

_REST_SECONDS = 2.0  # time for which a failed replica is tried only after all others
_MAX_IDLE = 64  # maximum number of idle connections per replica
_MAX_ECHO = 200
_STALE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)


class Replica:
    """A server that serves a part, and the idle connections to it. Thread-safe.

    Parameters
    ----------
    url : str
        The base URL of the server.
    timeout : float
        The number of seconds after which a request is considered to have failed.
    token : str, optional
        The bearer token to send.
    """

    def __init__(self, url: str, timeout: float, token: str | None) -> None:
        address = urlsplit(url)
        try:
            port = address.port
        except ValueError:
            port = -1
        if address.scheme not in ("http", "https") or not address.hostname or port == -1 or address.query:
            raise InputError(f"The address of a part must be a URL such as http://part-0:8000, got {url!r}.")
        self.url = url.rstrip("/")
        self.failed_at = -_REST_SECONDS
        self._class = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
        self._host, self._port, self._path = address.hostname, port, address.path.rstrip("/")
        self._timeout = timeout
        self._headers = {"Content-Type": MEDIA_TYPE}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._idle: deque[http.client.HTTPConnection] = deque()
        weakref.finalize(self, _close_all, self._idle)

    def send(self, method: str, path: str, body: bytes | None = None) -> http.client.HTTPConnection:
        """Send a request on an idle connection or a new one; raise OSError or HTTPException on failure."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            try:
                connection.request(method, self._path + path, body, self._headers)
                return connection
            except (OSError, http.client.HTTPException):  # the server has closed the connection in the meantime
                connection.close()
        connection = self._class(self._host, self._port, timeout=self._timeout)
        try:
            connection.request(method, self._path + path, body, self._headers)
        except BaseException:
            connection.close()
            raise
        return connection

    def receive(self, connection: http.client.HTTPConnection) -> tuple[int, bytes]:
        """Return the status and the body of a response; raise OSError or HTTPException on failure."""
        try:
            response = connection.getresponse()
            status, body = response.status, response.read()
        except BaseException:
            connection.close()
            raise
        if response.will_close or len(self._idle) >= _MAX_IDLE:
            connection.close()
        else:
            self._idle.append(connection)
        return status, body

    def exchange(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Send a request and return the status and the body of the response."""
        for _ in range(_MAX_IDLE + 1):
            is_reused = bool(self._idle)
            connection = self.send(method, path, body)
            try:
                return self.receive(connection)
            except _STALE:
                if not is_reused:
                    raise
        raise ConnectionResetError("connection reset")


class RemotePart:
    """A part of a split model on one or several servers.

    Parameters
    ----------
    name : str
        The name of the part, for error messages.
    urls : sequence of str
        The base URLs of the replicas.
    timeout : float
        The number of seconds after which a request to a replica is considered to have failed.
    token : str, optional
        The bearer token to send.
    """

    def __init__(self, name: str, urls: Sequence[str], *, timeout: float = 5.0, token: str | None = None) -> None:
        if not urls:
            raise InputError(f"{name} has no address. Pass at least one URL per part.")
        self.name = name
        self.replicas = [Replica(url, timeout, token) for url in urls]
        self._turns = itertools.count()

    def start(self, request: PartRequest) -> Callable[[], PartResponse]:
        """Send a request to a replica; return a function that waits for the response.

        The function raises PartUnavailableError if no replica responds.
        """
        body = request.encode()
        replicas = self._in_order()
        first = next(replicas)
        problems: list[str] = []
        connection = None
        try:
            connection = first.send("POST", RANK_PATH, body)
        except (OSError, http.client.HTTPException) as error:
            self._record_failure(first, error, problems)

        def wait() -> PartResponse:
            if connection is not None:
                try:
                    return self._read(first, first.receive(connection))
                except _STALE:  # the connection was closed while it was idle
                    replicas_left: Iterator[Replica] = itertools.chain([first], replicas)
                except (OSError, http.client.HTTPException, _ReplicaError) as error:
                    self._record_failure(first, error, problems)
                    replicas_left = replicas
            else:
                replicas_left = replicas
            for replica in replicas_left:
                try:
                    return self._read(replica, replica.exchange("POST", RANK_PATH, body))
                except (OSError, http.client.HTTPException, _ReplicaError) as error:
                    self._record_failure(replica, error, problems)
            raise PartUnavailableError(self.name, problems)

        return wait

    def check(self, split: str, number: int) -> None:
        """Raise PartUnavailableError unless a replica is available and serves the given part."""
        problems: list[str] = []
        for replica in self._in_order():
            try:
                status, body = replica.exchange("GET", DESCRIBE_PATH)
                if status != 200:
                    raise _ReplicaError(_problem(status, body))
                description = json.loads(body)
                found = (description.get("split"), description.get("part"))
                if found != (split, number):
                    raise _ReplicaError(f"has part {found[1]} of the split {found[0]}, not part {number} of {split}")
                replica.failed_at = -_REST_SECONDS
                return
            except (OSError, http.client.HTTPException, _ReplicaError, ValueError, AttributeError) as error:
                self._record_failure(replica, error, problems)
        raise PartUnavailableError(self.name, problems)

    def _in_order(self) -> Iterator[Replica]:
        """Return all replicas in round-robin order; replicas that failed recently come last."""
        turn = next(self._turns) % len(self.replicas)
        replicas = self.replicas[turn:] + self.replicas[:turn]
        now = time.monotonic()
        return iter(sorted(replicas, key=lambda replica: now - replica.failed_at < _REST_SECONDS))

    def _read(self, replica: Replica, answer: tuple[int, bytes]) -> PartResponse:
        status, body = answer
        if status in (400, 413, 422):  # the request is invalid, so the other replicas would also reject it
            raise InputError(f"{self.name} rejected the request: {_problem(status, body)}")
        if status != 200:
            raise _ReplicaError(_problem(status, body))
        try:
            return PartResponse.decode(body)
        except InputError as error:
            raise _ReplicaError(str(error)) from None

    @staticmethod
    def _record_failure(replica: Replica, error: Exception, problems: list[str]) -> None:
        replica.failed_at = time.monotonic()
        text = str(error) or type(error).__name__
        problems.append(f"{replica.url}: {'timed out' if isinstance(error, TimeoutError) else text}")


def _close_all(connections: deque[http.client.HTTPConnection]) -> None:
    """Close the idle connections of a replica that is no longer used."""
    while connections:
        connections.pop().close()


class _ReplicaError(Exception):
    """Raised when a replica returns an error or an invalid response."""


def _problem(status: int, body: bytes) -> str:
    """Return the status code and the detail message of an error response."""
    try:
        detail = str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        detail = ""
    return f"status {status} {detail[:_MAX_ECHO]}".rstrip()
