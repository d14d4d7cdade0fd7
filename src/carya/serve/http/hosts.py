"""Check the Host header, so that web pages cannot reach a local server through their own domain (DNS rebinding)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from carya.serve.http.errors import BadRequestError, MisdirectedRequestError

#: Host names of the local machine; by default, a server on a loopback address accepts only these names.
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")

_HOST = re.compile(r"(?:\[(?P<address>[0-9a-fA-F:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{1,5})?")
_MAX_ECHO = 100  # characters; longer names are truncated in error messages


def host_name(header: str) -> str | None:
    """Return the lowercase host name from a Host header, without the port, or None if the header is invalid.

    >>> host_name("Localhost:8000"), host_name("[::1]:8000"), host_name("example.org."), host_name("a@b")
    ('localhost', '::1', 'example.org', None)
    """
    match = _HOST.fullmatch(header)
    if match is None:
        return None
    return (match["address"] or match["name"]).lower().removesuffix(".")


def check_host(headers: Iterable[tuple[bytes, bytes]], allowed: Collection[str] | None, *, is_required: bool) -> None:
    """Raise HttpError unless a request has one Host header with an allowed name.

    Parameters
    ----------
    headers : iterable of (bytes, bytes)
        The request headers, with names in lower case.
    allowed : collection of str, optional
        The allowed names; None allows all names.
    is_required : bool
        Whether the header is required even if all names are allowed.
    """
    values = [value.decode("latin-1") for name, value in headers if name == b"host"]
    if len(values) > 1 or (not values and (is_required or allowed is not None)):
        raise BadRequestError(f"A request must have exactly one Host header, got {len(values)}.")
    if not values:
        return
    name = host_name(values[0])
    if name is None and (values[0] or allowed is not None):
        raise BadRequestError(f"The Host header is invalid: {values[0][:_MAX_ECHO]!r}.")
    if allowed is not None and name not in allowed:
        raise MisdirectedRequestError(
            f"The host {str(name)[:_MAX_ECHO]!r} is not served here. If clients should use this name, start the server "
            f"with --allowed-hosts {str(name)[:_MAX_ECHO]}"
        )
