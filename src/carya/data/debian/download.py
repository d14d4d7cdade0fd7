"""Package lists from the archives that apt is set up with, into a folder of one's own.

Sizes and SHA-256 sums are checked against the Release file of each suite; its signature is not. Where that matters, let
apt-get fetch the lists: :data:`carya.data.debian.index.FETCH` is the line.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from carya.core.progress import Progress
from carya.data.debian.apt_sources import APT, Source, architecture, proxies, sources
from carya.data.debian.deb822 import Problem, stanzas
from carya.errors import InputError

_SECONDS = 30
_LARGEST_RELEASE = 16 << 20
_LARGEST_LIST = 1 << 30


def download(folder: Path, *, apt: Path = APT, progress: Progress | None = None) -> list[str]:
    """Fetch the lists of packages and their English descriptions into a folder, under the names that apt gives them.

    Returns
    -------
    list of str
        What could not be fetched, and why. If nothing could, that is an ``InputError``.

    Examples
    --------
    >>> download(Path("/tmp"), apt=Path("/nowhere"))
    Traceback (most recent call last):
        ...
    carya.errors.InputError: /nowhere names no archive to fetch package lists from by http or https
    """
    wanted = sources(apt)
    if not wanted:
        raise InputError(f"{apt} names no archive to fetch package lists from by http or https")
    fetch = _Fetcher(proxies(apt))
    notes: list[str] = []
    got = 0
    with (progress or Progress()).stage("fetch package lists") as report:
        for number, source in enumerate(wanted):
            try:
                got += _suite(fetch, source, folder, notes)
            except (OSError, ValueError, http.client.HTTPException) as error:
                notes.append(f"{source.release}: {getattr(error, 'strerror', None) or error}")
            if report is not None:
                report(number + 1, len(wanted))
    if not got:
        raise InputError("no package list could be fetched: " + "; ".join(notes))
    return notes


class _Fetcher:
    """Opens addresses by the proxies of apt, or those of the environment."""

    def __init__(self, chosen: dict[str, str]) -> None:
        self._chosen = chosen

    def __call__(self, url: str, most: int) -> bytes:
        """The bytes at an address; more than ``most`` are an error."""
        parts = urlsplit(url)
        proxy = self._chosen.get(f"{parts.scheme}::{parts.hostname}") or self._chosen.get(parts.scheme)
        using = None if proxy is None else {} if proxy == "DIRECT" else {parts.scheme: proxy}
        opener = urllib.request.build_opener(urllib.request.ProxyHandler(using))
        with opener.open(url, timeout=_SECONDS) as answer:
            data: bytes = answer.read(most + 1)
        if len(data) > most:
            raise ValueError(f"{url} has more than {most:,} bytes")
        return data


def _suite(fetch: _Fetcher, source: Source, folder: Path, notes: list[str]) -> int:
    """Fetch the lists of one suite; the number of package lists that came."""
    files, by_hash = release_files(fetch(f"{source.release}/InRelease", _LARGEST_RELEASE))
    got = 0
    for component in source.components:
        for name in (f"{component}/binary-{architecture()}/Packages", f"{component}/i18n/Translation-en"):
            ending = next((ending for ending in (".xz", ".gz", "") if name + ending in files), None)
            if ending is None:
                notes.append(f"{source.release} has no {name}")
                continue
            size, digest = files[name + ending]
            if size > _LARGEST_LIST:
                raise ValueError(f"{name + ending} would have {size:,} bytes")
            at = f"{name.rpartition('/')[0]}/by-hash/SHA256/{digest}" if by_hash else name + ending
            data = fetch(f"{source.release}/{at}", size)
            if hashlib.sha256(data).hexdigest() != digest:
                raise ValueError(f"{name + ending} is not the file that InRelease describes: its SHA-256 differs")
            plain = f"{source.release}/{name}{ending}".partition("://")[2]
            (folder / plain.replace("/", "_")).write_bytes(data)
            got += name.endswith("/Packages")
    return got


def release_files(data: bytes) -> tuple[dict[str, tuple[int, str]], bool]:
    r"""Size and SHA-256 of each file that a Release or InRelease file names, and whether they are kept by hash.

    >>> release_files(b"Suite: sid\nSHA256:\n 0a 12 main/x\n")
    ({'main/x': (12, '0a')}, False)
    """
    text = data.replace(b"\r\n", b"\n")
    if text.startswith(b"-----BEGIN PGP SIGNED MESSAGE"):
        text = text.partition(b"\n\n")[2]
    text = text.partition(b"\n-----BEGIN PGP SIGNATURE")[0]
    problems: list[Problem] = []
    wanted = frozenset(("sha256", "acquire-by-hash"))
    stanza = next(stanzas(io.BytesIO(text), wanted, "Release", problems), None)
    if stanza is None or "sha256" not in stanza:
        raise ValueError("its Release file has no SHA-256 sums")
    files = {}
    for line in stanza["sha256"].split("\n"):
        words = line.split()
        if len(words) == 3 and words[1].isdecimal():
            files[words[2]] = (int(words[1]), words[0].lower())
    return files, stanza.get("acquire-by-hash", "").lower() == "yes"
