"""Download package lists from the archives configured in apt.

Sizes and SHA-256 sums are verified against the Release file of each suite, but the signature of that file is not
verified. If signatures must be verified, download the lists with apt-get
(:data:`carya.data.debian.index.FETCH_COMMAND`).
"""

from __future__ import annotations

import hashlib
import http.client
import io
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from carya.core.progress import Progress
from carya.data.debian.apt_sources import APT_CONFIGURATION, AptSource, architecture, read_proxies, read_sources
from carya.data.debian.deb822 import SkippedStanza, parse_stanzas
from carya.errors import InputError

_TIMEOUT_SECONDS = 30
_MAX_RELEASE_BYTES = 16 << 20
_MAX_LIST_BYTES = 1 << 30


def download(folder: Path, *, apt: Path = APT_CONFIGURATION, progress: Progress | None = None) -> list[str]:
    """Download package lists and English package descriptions to a folder, using apt's file names.

    Parameters
    ----------
    folder : Path
        An existing folder.
    apt : Path
        The folder with apt's configuration.
    progress : Progress, optional

    Returns
    -------
    list of str
        Warnings about lists that could not be downloaded.

    Raises
    ------
    InputError
        If no list could be downloaded.

    Examples
    --------
    >>> download(Path("/tmp"), apt=Path("/nonexistent"))
    Traceback (most recent call last):
        ...
    carya.errors.InputError: No archive with an HTTP or HTTPS address is configured in /nonexistent.
    """
    sources = read_sources(apt)
    if not sources:
        raise InputError(f"No archive with an HTTP or HTTPS address is configured in {apt}.")
    fetcher = _Fetcher(read_proxies(apt))
    warnings: list[str] = []
    n_lists = 0
    with (progress or Progress()).stage("download package lists") as report:
        for number, source in enumerate(sources, 1):
            try:
                n_lists += _download_suite(fetcher, source, folder, warnings)
            except (OSError, ValueError, http.client.HTTPException) as error:
                warnings.append(f"{source.suite_url}: {getattr(error, 'strerror', None) or error}")
            if report is not None:
                report(number, len(sources))
    if not n_lists:
        raise InputError("No package list could be downloaded: " + "; ".join(warnings))
    return warnings


class _Fetcher:
    """Downloader that uses the proxies configured in apt or, if there are none, in the environment."""

    def __init__(self, proxies: dict[str, str]) -> None:
        self._proxies = proxies

    def fetch(self, url: str, max_bytes: int) -> bytes:
        """Return the content of a URL; raise ValueError if it exceeds `max_bytes`."""
        parts = urlsplit(url)
        proxy = self._proxies.get(f"{parts.scheme}::{parts.hostname}") or self._proxies.get(parts.scheme)
        proxies = None if proxy is None else {} if proxy == "DIRECT" else {parts.scheme: proxy}
        opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
        with opener.open(url, timeout=_TIMEOUT_SECONDS) as response:
            data: bytes = response.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise ValueError(f"{url} exceeds {max_bytes:,} bytes")
        return data


def _download_suite(fetcher: _Fetcher, source: AptSource, folder: Path, warnings: list[str]) -> int:
    """Download the package and translation lists of one suite; return the number of package lists."""
    files, by_hash = parse_release(fetcher.fetch(f"{source.suite_url}/InRelease", _MAX_RELEASE_BYTES))
    n_lists = 0
    for component in source.components:
        for name in (f"{component}/binary-{architecture()}/Packages", f"{component}/i18n/Translation-en"):
            suffix = next((suffix for suffix in (".xz", ".gz", "") if name + suffix in files), None)
            if suffix is None:
                warnings.append(f"{source.suite_url} has no {name}")
                continue
            size, digest = files[name + suffix]
            if size > _MAX_LIST_BYTES:
                raise ValueError(f"{name + suffix} has {size:,} bytes, which exceeds the limit of {_MAX_LIST_BYTES:,}")
            path = f"{name.rpartition('/')[0]}/by-hash/SHA256/{digest}" if by_hash else name + suffix
            data = fetcher.fetch(f"{source.suite_url}/{path}", size)
            if hashlib.sha256(data).hexdigest() != digest:
                raise ValueError(f"the SHA-256 sum of {name + suffix} differs from the one in InRelease")
            url = f"{source.suite_url}/{name}{suffix}".partition("://")[2]
            (folder / url.replace("/", "_")).write_bytes(data)
            n_lists += name.endswith("/Packages")
    return n_lists


def parse_release(data: bytes) -> tuple[dict[str, tuple[int, str]], bool]:
    r"""Return the sizes and SHA-256 sums in a Release or InRelease file, and whether files can be downloaded by hash.

    >>> parse_release(b"Suite: sid\nSHA256:\n 0a 12 main/x\n")
    ({'main/x': (12, '0a')}, False)
    """
    text = data.replace(b"\r\n", b"\n")
    if text.startswith(b"-----BEGIN PGP SIGNED MESSAGE"):
        text = text.partition(b"\n\n")[2]
    text = text.partition(b"\n-----BEGIN PGP SIGNATURE")[0]
    skipped: list[SkippedStanza] = []
    fields = frozenset(("sha256", "acquire-by-hash"))
    stanza = next(parse_stanzas(io.BytesIO(text), fields, "Release", skipped), None)
    if stanza is None or "sha256" not in stanza:
        raise ValueError("the Release file has no SHA-256 sums")
    files = {}
    for line in stanza["sha256"].split("\n"):
        words = line.split()
        if len(words) == 3 and words[1].isdecimal():
            files[words[2]] = (int(words[1]), words[0].lower())
    return files, stanza.get("acquire-by-hash", "").lower() == "yes"
