"""The Debian package index of a machine: what its packages are, depend on and are tagged with.

Only files are read; the system's package state is never touched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from carya.core.progress import Progress, Report
from carya.data.debian.deb822 import ENDINGS, Problem, read_stanzas
from carya.errors import InputError

LISTS = Path("/var/lib/apt/lists")
STATUS = Path("/var/lib/dpkg/status")

#: How anyone fetches the lists into a folder of their own.
FETCH = (
    "mkdir -p lists/partial && apt-get update -o Dir::State::lists=$PWD/lists -o Dir::Cache::pkgcache= "
    "-o Dir::Cache::srcpkgcache= -o Debug::NoLocking=1 -o Acquire::Languages=en"
)

_FIELDS = frozenset(("package", "source", "status", "depends", "recommends", "tag", "description", "description-md5"))
_TRANSLATION = frozenset(("description-md5", "description-en"))
_NAME = re.compile(r"\s*([a-z0-9][a-z0-9+.-]*)")


@dataclass(frozen=True)
class Index:
    """Where a package index lies.

    Attributes
    ----------
    packages : tuple of Path
        Lists of packages.
    translations : tuple of Path
        Long descriptions; without them a package has its short one only.
    installed_only : bool
        Whether this is dpkg's list of what is installed: a few hundred packages and no debtags.

    Examples
    --------
    >>> Index((Path("Packages"),), ()).installed_only
    False
    """

    packages: tuple[Path, ...]
    translations: tuple[Path, ...]
    installed_only: bool = False

    @property
    def suites(self) -> list[str]:
        """Names of the archives and suites, as apt's file names have them.

        >>> Index((Path("deb.debian.org_debian_dists_sid_main_binary-amd64_Packages.lz4"),), ()).suites
        ['deb.debian.org/debian sid/main']
        """
        return sorted({_suite(path.name) for path in self.packages})


@dataclass(frozen=True, slots=True)
class Package:
    """What the index tells of a package.

    >>> Package("hello", "hello", "example package", depends=("libc6",)).depends
    ('libc6',)
    """

    name: str
    source: str
    text: str
    depends: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass
class _Read:
    """A package before its long description is known."""

    package: str
    source: str
    short: str
    long: str
    md5: str
    depends: tuple[str, ...]
    tags: tuple[str, ...]


def find_index(lists: str | os.PathLike[str] | None = None) -> Index | None:
    """The package index of this machine or of a folder, or None where there is none.

    Parameters
    ----------
    lists : path, optional
        A folder of ``*_Packages`` and ``*_Translation-en`` files, as apt keeps them. Without it the lists of apt are
        taken, and where those are empty, as in many containers, dpkg's list of what is installed.

    Examples
    --------
    >>> find_index("/nowhere") is None
    True
    """
    folder = LISTS if lists is None else Path(lists)
    index = Index(_files(folder, "Packages"), _files(folder, "Translation-en"))
    if index.packages:
        return index
    if lists is None and os.access(STATUS, os.R_OK):
        return Index((STATUS,), (), installed_only=True)
    return None


def packages(
    index: Index | None = None, *, problems: list[Problem] | None = None, progress: Progress | None = None
) -> list[Package]:
    r"""All packages of an index, in its order; one that several files hold comes from the first of them.

    Parameters
    ----------
    index : Index, optional
        By default what :func:`find_index` finds on this machine.
    problems : list of Problem, optional
        Takes a note of every stanza that was skipped because it cannot be understood.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "x_Packages").write_text("Package: a\nDepends: b (>= 1) | c, d:any\n")
    ...     packages(find_index(folder))
    [Package(name='a', source='a', text='', depends=('b', 'd'), tags=())]
    """
    index = index or find_index()
    if index is None:
        raise InputError(f"there is no package index on this machine: neither {LISTS} nor {STATUS} holds one")
    problems = [] if problems is None else problems
    with (progress or Progress()).stage("read packages") as report:
        found: dict[str, _Read] = {}
        for path, told in _with_report(index.packages, report):
            for stanza in read_stanzas(path, _FIELDS, problems, told):
                one = _package(stanza, index.installed_only)
                if one is not None:
                    first = found.setdefault(one.package, one)
                    first.tags = first.tags or one.tags  # security updates come without
    with (progress or Progress()).stage("read descriptions") as report:
        long = dict.fromkeys((one.md5 for one in found.values()), "")
        for path, told in _with_report(index.translations, report):
            for stanza in read_stanzas(path, _TRANSLATION, problems, told):
                md5 = stanza.get("description-md5", "")
                if md5 in long and not long[md5]:
                    long[md5] = stanza.get("description-en", "").partition("\n")[2]
    return [
        Package(one.package, one.source, _clean(f"{one.short}\n{long[one.md5] or one.long}"), one.depends, one.tags)
        for one in found.values()
    ]


def _files(folder: Path, what: str) -> tuple[Path, ...]:
    """The files of a kind; of one that is there in several compressions the first."""
    found: dict[str, Path] = {}
    for ending in ENDINGS:
        for path in sorted(folder.glob(f"*_{what}{ending}")):
            if path.is_file() and os.access(path, os.R_OK):
                found.setdefault(path.name.removesuffix(ending), path)
    return tuple(found[name] for name in sorted(found))


def _with_report(paths: Iterable[Path], report: Report) -> Iterable[tuple[Path, Callable[[int], None] | None]]:
    paths = list(paths)
    total = sum(path.stat().st_size for path in paths)
    done = 0
    for path in paths:
        yield path, None if report is None else lambda here, before=done: report(before + here, total)  # type: ignore[misc]
        done += path.stat().st_size


def _package(stanza: dict[str, str], installed_only: bool) -> _Read | None:
    if not stanza.get("package") or (installed_only and not stanza.get("status", "").endswith(" installed")):
        return None
    short, _, long = stanza.get("description", "").partition("\n")
    tags = dict.fromkeys(tag for tag in map(str.strip, stanza.get("tag", "").split(",")) if tag)
    return _Read(
        stanza["package"],
        (stanza.get("source") or stanza["package"]).split()[0],
        short,
        long,
        stanza.get("description-md5", ""),
        _names(stanza.get("depends", ""), stanza.get("recommends", "")),
        tuple("".join(tag.split()) for tag in tags),
    )


def _names(*fields: str) -> tuple[str, ...]:
    """The names in dependency fields: of alternatives the first, without versions and architectures."""
    matches = (_NAME.match(clause) for value in fields for clause in value.split(","))
    return tuple(dict.fromkeys(match[1] for match in matches if match))


def _clean(text: str) -> str:
    """One line; the lone dots that stand for blank lines go."""
    return " ".join(word for line in text.split("\n") if line.strip() != "." for word in line.split())


def _suite(name: str) -> str:
    archive, dists, rest = name.partition("_dists_")
    if not dists:
        return name
    parts = rest.split("_")
    return f"{archive.replace('_', '/')} {'/'.join(parts[:-2]) or rest}"
