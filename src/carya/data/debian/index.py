"""The Debian package index of a machine: the names, descriptions, dependencies and tags of its packages.

Only files are read; the state of the package manager is never modified.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from carya.core.progress import Progress, Report
from carya.data.debian.deb822 import SUFFIXES, SkippedStanza, read_stanzas
from carya.errors import InputError

APT_LISTS = Path("/var/lib/apt/lists")
DPKG_STATUS = Path("/var/lib/dpkg/status")

#: Command that downloads the package lists to the folder ``lists``; it does not require root privileges.
FETCH_COMMAND = (
    "mkdir -p lists/partial && apt-get update -o Dir::State::lists=$PWD/lists -o Dir::Cache::pkgcache= "
    "-o Dir::Cache::srcpkgcache= -o Debug::NoLocking=1 -o Acquire::Languages=en"
)

_PACKAGE_FIELDS = frozenset(
    ("package", "source", "status", "depends", "recommends", "tag", "description", "description-md5")
)
_TRANSLATION_FIELDS = frozenset(("description-md5", "description-en"))
_PACKAGE_NAME = re.compile(r"\s*([a-z0-9][a-z0-9+.-]*)")


@dataclass(frozen=True)
class PackageIndex:
    """The files of a package index.

    Attributes
    ----------
    packages : tuple of Path
        Package lists.
    translations : tuple of Path
        Files with long descriptions; without them, packages have only short descriptions.
    installed_only : bool
        Whether the index is dpkg's list of installed packages, which is usually short and contains no debtags.

    Examples
    --------
    >>> PackageIndex((Path("Packages"),), ()).installed_only
    False
    """

    packages: tuple[Path, ...]
    translations: tuple[Path, ...]
    installed_only: bool = False

    @property
    def suites(self) -> list[str]:
        """The archives and suites of the package lists, derived from apt's file names.

        >>> PackageIndex((Path("deb.debian.org_debian_dists_sid_main_binary-amd64_Packages.lz4"),), ()).suites
        ['deb.debian.org/debian sid/main']
        """
        return sorted({_suite(path.name) for path in self.packages})


@dataclass(frozen=True, slots=True)
class Package:
    """A package in the index.

    Attributes
    ----------
    name : str
    source : str
        The source package.
    text : str
        The description, on one line.
    depends : tuple of str
        The dependencies and recommended packages; if there are alternatives, only the first is included.
    tags : tuple of str
        The debtags.

    Examples
    --------
    >>> Package("hello", "hello", "example package", depends=("libc6",)).depends
    ('libc6',)
    """

    name: str
    source: str
    text: str
    depends: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass
class _PackageEntry:
    """A package whose long description has not been read yet."""

    name: str
    source: str
    short_description: str
    long_description: str
    description_md5: str
    depends: tuple[str, ...]
    tags: tuple[str, ...]


def find_index(lists: str | os.PathLike[str] | None = None) -> PackageIndex | None:
    """Return the package index of this machine or of a folder, or None if there is none.

    Parameters
    ----------
    lists : path, optional
        A folder with ``*_Packages`` and ``*_Translation-en`` files, named as in apt's own folder. By default, apt's own
        lists are used or, if there are none (as in many containers), dpkg's list of installed packages.

    Examples
    --------
    >>> find_index("/nonexistent") is None
    True
    """
    folder = APT_LISTS if lists is None else Path(lists)
    index = PackageIndex(_find_lists(folder, "Packages"), _find_lists(folder, "Translation-en"))
    if index.packages:
        return index
    if lists is None and os.access(DPKG_STATUS, os.R_OK):
        return PackageIndex((DPKG_STATUS,), (), installed_only=True)
    return None


def read_packages(
    index: PackageIndex | None = None,
    *,
    skipped: list[SkippedStanza] | None = None,
    progress: Progress | None = None,
) -> list[Package]:
    r"""Read all packages in an index; if a package occurs in several files, its first entry is used.

    Parameters
    ----------
    index : PackageIndex, optional
        The package index to read; by default, the result of :func:`find_index`.
    skipped : list of SkippedStanza, optional
        A list to which malformed stanzas are appended.
    progress : Progress, optional

    Raises
    ------
    MissingExtraError
        If the package lists are LZ4-compressed and lz4 is not installed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "x_Packages").write_text("Package: a\nDepends: b (>= 1) | c, d:any\n")
    ...     read_packages(find_index(folder))
    [Package(name='a', source='a', text='', depends=('b', 'd'), tags=())]
    """
    index = index or find_index()
    if index is None:
        raise InputError(
            f"There is no package index on this machine: neither {APT_LISTS} nor {DPKG_STATUS} contains one. Download "
            "package lists to a folder, and pass find_index(folder)."
        )
    skipped = [] if skipped is None else skipped
    entries: dict[str, _PackageEntry] = {}
    with (progress or Progress()).stage("read packages") as report:
        for path, report_bytes in _with_reports(index.packages, report):
            for stanza in read_stanzas(path, _PACKAGE_FIELDS, skipped, report_bytes):
                entry = _parse_package(stanza, index.installed_only)
                if entry is not None:
                    first = entries.setdefault(entry.name, entry)
                    first.tags = first.tags or entry.tags  # the entries of security updates have no tags
    with (progress or Progress()).stage("read descriptions") as report:
        long_descriptions = dict.fromkeys((entry.description_md5 for entry in entries.values()), "")
        for path, report_bytes in _with_reports(index.translations, report):
            for stanza in read_stanzas(path, _TRANSLATION_FIELDS, skipped, report_bytes):
                md5 = stanza.get("description-md5", "")
                if md5 in long_descriptions and not long_descriptions[md5]:
                    long_descriptions[md5] = stanza.get("description-en", "").partition("\n")[2]
    packages = []
    for entry in entries.values():
        long_description = long_descriptions[entry.description_md5] or entry.long_description
        text = _to_one_line(f"{entry.short_description}\n{long_description}")
        packages.append(Package(entry.name, entry.source, text, entry.depends, entry.tags))
    return packages


def _find_lists(folder: Path, kind: str) -> tuple[Path, ...]:
    """Return the lists of one kind; if files differ only in compression, include only the first readable file."""
    lists: dict[str, Path] = {}
    for suffix in SUFFIXES:
        for path in sorted(folder.glob(f"*_{kind}{suffix}")):
            if path.is_file() and os.access(path, os.R_OK):
                lists.setdefault(path.name.removesuffix(suffix), path)
    return tuple(lists[name] for name in sorted(lists))


def _with_reports(paths: Iterable[Path], report: Report) -> Iterator[tuple[Path, Callable[[int], None] | None]]:
    """Yield each path with a callback that takes the number of bytes read from the file and reports total progress."""
    sizes = {path: path.stat().st_size for path in paths}
    done = 0
    for path, size in sizes.items():
        if report is None:
            yield path, None
        else:
            yield path, lambda n_bytes, done=done: report(done + n_bytes, sum(sizes.values()))  # type: ignore[misc]
        done += size


def _parse_package(stanza: dict[str, str], installed_only: bool) -> _PackageEntry | None:
    """Return the package in a stanza; None if there is none or, with `installed_only`, if it is not installed."""
    if not stanza.get("package") or (installed_only and not stanza.get("status", "").endswith(" installed")):
        return None
    short_description, _, long_description = stanza.get("description", "").partition("\n")
    tags = dict.fromkeys(tag for tag in map(str.strip, stanza.get("tag", "").split(",")) if tag)
    return _PackageEntry(
        stanza["package"],
        (stanza.get("source") or stanza["package"]).split()[0],
        short_description,
        long_description,
        stanza.get("description-md5", ""),
        _parse_dependencies(stanza.get("depends", ""), stanza.get("recommends", "")),
        tuple("".join(tag.split()) for tag in tags),
    )


def _parse_dependencies(*fields: str) -> tuple[str, ...]:
    """Return the first alternative of each dependency in the fields, without its version and architecture."""
    matches = (_PACKAGE_NAME.match(clause) for field in fields for clause in field.split(","))
    return tuple(dict.fromkeys(match[1] for match in matches if match))


def _to_one_line(text: str) -> str:
    """Join the lines of a description, without the lone dots that represent blank lines."""
    return " ".join(word for line in text.split("\n") if line.strip() != "." for word in line.split())


def _suite(file_name: str) -> str:
    archive, dists, rest = file_name.partition("_dists_")
    if not dists:
        return file_name
    parts = rest.split("_")
    return f"{archive.replace('_', '/')} {'/'.join(parts[:-2]) or rest}"
