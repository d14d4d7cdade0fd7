"""Where apt fetches packages from: its sources and proxies, read from its own files."""

from __future__ import annotations

import io
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from carya.data.debian.deb822 import Problem, read_stanzas

APT = Path("/etc/apt")

_WANTED = frozenset(("types", "uris", "suites", "components", "architectures", "enabled"))
_MACHINES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "armhf",
    "i686": "i386",
    "ppc64le": "ppc64el",
}
_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|#[^\n]*|"([^"\n]*)"|([{};])|([^\s{};"]+)', re.DOTALL)


@dataclass(frozen=True)
class Source:
    """One suite of an archive.

    >>> Source("http://deb.debian.org/debian", "sid", ("main",)).release
    'http://deb.debian.org/debian/dists/sid'
    """

    uri: str
    suite: str
    components: tuple[str, ...]

    @property
    def release(self) -> str:
        """The folder of the suite."""
        return f"{self.uri.rstrip('/')}/dists/{self.suite}"


def sources(folder: Path = APT) -> list[Source]:
    """The suites of binary packages for this machine that apt is set up with.

    What is not fetched by http or https, and archives without components, are left out.

    >>> sources(Path("/nowhere"))
    []
    """
    found: list[Source] = []
    parts = folder / "sources.list.d"
    for path in [folder / "sources.list", *sorted(parts.glob("*.list"))]:
        if path.is_file():
            found += _one_line(_text(path))
    for path in sorted(parts.glob("*.sources")):
        found += _deb822(path)
    return [one for one in dict.fromkeys(found) if one.uri.startswith(("http://", "https://")) and one.components]


def architecture() -> str:
    """Debian's name for this machine's processors.

    >>> architecture() != ""
    True
    """
    return _MACHINES.get(platform.machine(), platform.machine())


def proxies(folder: Path = APT) -> dict[str, str]:
    """Proxies that apt is set up with, by scheme, or by scheme and host as ``http::example.org``.

    >>> proxies(Path("/nowhere"))
    {}
    """
    found: dict[str, str] = {}
    for path in [*sorted((folder / "apt.conf.d").glob("*")), folder / "apt.conf"]:
        if path.is_file():
            for key, value in settings(_text(path)):
                match = re.fullmatch(r"acquire::(https?)::proxy(::.+)?", key)
                if match and value:
                    found[match[1] + (match[2] or "")] = value
    return found


def settings(text: str) -> Iterator[tuple[str, str]]:
    """The settings of an apt.conf file: full names in small letters, and values.

    >>> list(settings('Acquire::Retries "3"; Acquire { http { Proxy "http://proxy:3128"; }; }; // end'))
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


def _text(path: Path) -> str:
    """What is in a file; nothing of one that only root may read, as those with passwords are."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except PermissionError:
        return ""


def _one_line(text: str) -> Iterator[Source]:
    """``deb [options] uri suite component ...``"""
    for line in io.StringIO(text):
        match = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)\s*([^#]*)", line)
        if not match:
            continue
        options, uri, suite, components = match.groups()
        only = re.search(r"\barch=(\S+)", options or "")
        if only is None or architecture() in only[1].split(","):
            yield from _source(uri, suite, components.split())


def _deb822(path: Path) -> Iterator[Source]:
    ignored: list[Problem] = []
    for stanza in read_stanzas(path, _WANTED, ignored):
        only = stanza.get("architectures", "").split()
        off = stanza.get("enabled", "yes").lower() in ("no", "false", "0")
        if off or "deb" not in stanza.get("types", "").split() or (only and architecture() not in only):
            continue
        for uri in stanza.get("uris", "").split():
            for suite in stanza.get("suites", "").split():
                yield from _source(uri, suite, stanza.get("components", "").split())


def _source(uri: str, suite: str, components: list[str]) -> Iterator[Source]:
    suite = suite.replace("$(ARCH)", architecture())
    if not suite.endswith("/"):
        yield Source(uri.rstrip("/"), suite, tuple(components))
