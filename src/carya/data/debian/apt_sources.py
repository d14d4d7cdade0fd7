"""Read package sources and proxies from apt's configuration files."""

from __future__ import annotations

import io
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from carya.data.debian.deb822 import SkippedStanza, read_stanzas

APT_CONFIGURATION = Path("/etc/apt")

_SOURCE_FIELDS = frozenset(("types", "uris", "suites", "components", "architectures", "enabled"))
_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "armhf",
    "i686": "i386",
    "ppc64le": "ppc64el",
}
_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|#[^\n]*|"([^"\n]*)"|([{};])|([^\s{};"]+)', re.DOTALL)


@dataclass(frozen=True)
class AptSource:
    """One suite of an archive.

    >>> AptSource("http://deb.debian.org/debian", "sid", ("main",)).suite_url
    'http://deb.debian.org/debian/dists/sid'
    """

    uri: str
    suite: str
    components: tuple[str, ...]

    @property
    def suite_url(self) -> str:
        """The URL of the suite's folder."""
        return f"{self.uri.rstrip('/')}/dists/{self.suite}"


def read_sources(folder: Path = APT_CONFIGURATION) -> list[AptSource]:
    """Return the configured suites that contain binary packages for this machine.

    Archives without components and archives that are not accessed over HTTP or HTTPS are omitted.

    >>> read_sources(Path("/nonexistent"))
    []
    """
    sources: list[AptSource] = []
    source_folder = folder / "sources.list.d"
    for path in [folder / "sources.list", *sorted(source_folder.glob("*.list"))]:
        if path.is_file():
            sources += _parse_one_line_style(_read_text(path))
    for path in sorted(source_folder.glob("*.sources")):
        sources += _read_deb822_style(path)
    return [
        source
        for source in dict.fromkeys(sources)
        if source.uri.startswith(("http://", "https://")) and source.components
    ]


def architecture() -> str:
    """Return Debian's name for the architecture of this machine.

    >>> architecture() != ""
    True
    """
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def read_proxies(folder: Path = APT_CONFIGURATION) -> dict[str, str]:
    """Return the configured proxies; the keys are schemes, or schemes and hosts such as ``http::example.org``.

    >>> read_proxies(Path("/nonexistent"))
    {}
    """
    proxies: dict[str, str] = {}
    for path in [*sorted((folder / "apt.conf.d").glob("*")), folder / "apt.conf"]:
        if path.is_file():
            for key, value in parse_apt_conf(_read_text(path)):
                match = re.fullmatch(r"acquire::(https?)::proxy(::.+)?", key)
                if match and value:
                    proxies[match[1] + (match[2] or "")] = value
    return proxies


def parse_apt_conf(text: str) -> Iterator[tuple[str, str]]:
    """Yield the settings in an apt.conf file as pairs of a full lowercase name and a value.

    >>> list(parse_apt_conf('Acquire::Retries "3"; Acquire { http { Proxy "http://proxy:3128"; }; }; // end'))
    [('acquire::retries', '3'), ('acquire::http::proxy', 'http://proxy:3128')]
    """
    scopes: list[str] = []
    words: list[str] = []
    for match in _TOKEN.finditer(text):
        quoted, mark, word = match.groups()
        if quoted is not None or word is not None:
            words.append(quoted if quoted is not None else word)
        elif mark == "{":
            scopes.append(words[0].lower() if words else "")
            words = []
        elif mark is not None:
            if mark == ";" and len(words) > 1:
                yield "::".join([*scopes, words[0].lower()]), words[1]
            if mark == "}" and scopes:
                scopes.pop()
            words = []


def _read_text(path: Path) -> str:
    """Return the contents of a file, or an empty string if access is denied, as is common for files with passwords."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except PermissionError:
        return ""


def _parse_one_line_style(text: str) -> Iterator[AptSource]:
    """Yield the sources in ``deb [options] uri suite component …`` lines."""
    for line in io.StringIO(text):
        match = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)\s*([^#]*)", line)
        if not match:
            continue
        options, uri, suite, components = match.groups()
        architectures = re.search(r"\barch=(\S+)", options or "")
        if architectures is None or architecture() in architectures[1].split(","):
            yield from _make_source(uri, suite, components.split())


def _read_deb822_style(path: Path) -> Iterator[AptSource]:
    skipped: list[SkippedStanza] = []
    for stanza in read_stanzas(path, _SOURCE_FIELDS, skipped):
        architectures = stanza.get("architectures", "").split()
        is_disabled = stanza.get("enabled", "yes").lower() in ("no", "false", "0")
        has_binaries = "deb" in stanza.get("types", "").split()
        if is_disabled or not has_binaries or (architectures and architecture() not in architectures):
            continue
        for uri in stanza.get("uris", "").split():
            for suite in stanza.get("suites", "").split():
                yield from _make_source(uri, suite, stanza.get("components", "").split())


def _make_source(uri: str, suite: str, components: list[str]) -> Iterator[AptSource]:
    """Yield a source unless its suite is a path, which indicates a flat archive without components."""
    suite = suite.replace("$(ARCH)", architecture())
    if not suite.endswith("/"):
        yield AptSource(uri.rstrip("/"), suite, tuple(components))
