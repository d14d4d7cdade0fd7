"""Compress responses with gzip if the client accepts it."""

from __future__ import annotations

import asyncio
import gzip
import re

from starlette.types import Message

_LEVEL = 4  # level 9 takes five times as long and makes JSON only a few percent smaller
_INLINE_BYTES = 16 << 10  # compressing larger bodies takes more than half a millisecond, so a thread does it
_MEDIA_TYPES = (b"text/", b"application/json", b"application/problem+json", b"application/x-ndjson", b"image/svg+xml")
_ZERO_WEIGHT = re.compile(r"q=0(?:\.0*)?")


def accepts_gzip(header: bytes) -> bool:
    """Return whether an Accept-Encoding header allows gzip.

    >>> accepts_gzip(b"br, gzip;q=0.5"), accepts_gzip(b"gzip;q=0, *"), accepts_gzip(b"*"), accepts_gzip(b"")
    (True, False, True, False)
    """
    weights = {}
    for part in header.decode("latin-1").lower().split(","):
        coding, _, weight = part.partition(";")
        weights[coding.strip()] = not _ZERO_WEIGHT.fullmatch(weight.strip())
    return weights.get("gzip", weights.get("*", False))


def is_compressible(start: Message) -> bool:
    """Return whether a response has a compressible type and is not encoded yet."""
    headers = dict(start.get("headers", ()))
    return (
        headers.get(b"content-type", b"").startswith(_MEDIA_TYPES)
        and b"content-encoding" not in headers
        and b"content-range" not in headers  # the range refers to the uncompressed bytes
    )


async def compress(start: Message, body: bytes) -> tuple[Message, bytes]:
    """Return the start message and the body of a response, compressed."""
    if len(body) <= _INLINE_BYTES:
        compressed = gzip.compress(body, _LEVEL, mtime=0)
    else:
        compressed = await asyncio.to_thread(gzip.compress, body, _LEVEL, mtime=0)
    headers = []
    for name, value in start.get("headers", ()):
        if name == b"content-length":
            headers.append((name, str(len(compressed)).encode()))
        elif name == b"etag":  # a strong tag would identify the uncompressed bytes
            headers.append((name, value if value.startswith(b"W/") else b"W/" + value))
        else:
            headers.append((name, value))
    return {**start, "headers": [*headers, (b"content-encoding", b"gzip")]}, compressed
