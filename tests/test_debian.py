"""Tests for Debian package indexes: stanzas, compressed files, packages, data sets, and archive downloads."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carya.data import debian
from carya.data.debian import apt_sources
from carya.data.debian import index as debian_index
from carya.data.debian.deb822 import SUFFIXES, SkippedStanza, parse_stanzas, read_stanzas
from carya.data.debian.download import download, parse_release
from carya.errors import InputError, MissingExtraError, ParameterError

import fake_archive

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".lz4": lambda data: lz4.frame.compress(data, content_checksum=True),
}
PREFIX = "deb.example.org_debian_dists_sid_main"


def parse(text: bytes, *fields: str) -> tuple[list[dict[str, str]], list[SkippedStanza]]:
    skipped: list[SkippedStanza] = []
    return list(parse_stanzas(io.BytesIO(text), set(fields), "Packages", skipped)), skipped


def write_lists(folder: Path, suffix: str = "", packages: bytes | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    compress = COMPRESSIONS[suffix]
    (folder / f"{PREFIX}_binary-amd64_Packages{suffix}").write_bytes(compress(packages or fake_archive.packages()))
    (folder / f"{PREFIX}_i18n_Translation-en{suffix}").write_bytes(compress(fake_archive.translation()))
    return folder


# Stanzas


@pytest.mark.parametrize(
    ("malformed", "message"),
    [
        (b"no colon here\n", "Packages, line 4: line without a field name"),
        (b": no name\n", "Packages, line 4: line without a field name"),
        (b"two words: x\n", "Packages, line 4: line without a field name"),
        (b" continued\n", "Packages, line 4: continuation line without a preceding field"),
        (b"A: 1\nB: 2\na: 3\n", "Packages, line 6: repeated field 'a'"),
        (b"\xff\xfe: 1\n", "Packages, line 4: line without a field name"),
        (b"A: " + b"x" * (9 << 20) + b"\n", "Packages, line 4: stanza larger than 8 MiB"),
    ],
)
def test_malformed_stanzas_are_skipped_and_recorded(malformed: bytes, message: str) -> None:
    stanzas, skipped = parse(b"A: 1\n b\n\n" + malformed + b"\n\r\nA: last", "a")
    assert stanzas == [{"a": "1\n b"}, {"a": "last"}]
    assert [str(stanza) for stanza in skipped] == [message]


def test_comments_and_other_fields_are_ignored() -> None:
    assert parse(b"# c\nA: 1\n# c\n 2\nB: 3\n 4\n", "a") == ([{"a": "1\n 2"}], [])


def test_invalid_utf8_is_replaced() -> None:
    assert parse(b"A: \xff\n", "a")[0] == [{"a": "�"}]


names = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
lines = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=12)


@given(st.lists(st.dictionaries(names, st.lists(lines, min_size=1, max_size=3), min_size=1, max_size=4), max_size=5))
def test_written_stanzas_are_restored(written: list[dict[str, list[str]]]) -> None:
    text = "\n".join(
        "".join(f"{name.title()}: " + "\n ".join(value) + "\n" for name, value in stanza.items()) for stanza in written
    )
    fields = {name for stanza in written for name in stanza}
    stanzas, skipped = parse(text.encode(), *fields)
    assert not skipped
    assert stanzas == [{name: "\n ".join(value) for name, value in stanza.items()} for stanza in written]


def test_arbitrary_lines_do_not_stop_parsing() -> None:
    outcomes: Counter[str] = Counter()

    @given(st.lists(st.sampled_from([b"A: 1", b" x", b"", b":", b"A", b"#", b"\xff: 2", b"B: \r"]), max_size=12))
    def check(pieces: list[bytes]) -> None:
        stanzas, skipped = parse(b"\n".join(pieces) + b"\n\nEnd: 1\n", "a", "b", "end")
        assert stanzas[-1] == {"end": "1"}
        assert all(1 <= stanza.line <= len(pieces) for stanza in skipped)
        outcomes["skipped"] += len(skipped)
        outcomes["parsed"] += len(stanzas) - 1

    check()
    assert outcomes["skipped"] > 0
    assert outcomes["parsed"] > 0


# Files


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_lists_are_read_in_every_compression(suffix: str, tmp_path: Path) -> None:
    index = debian.find_index(write_lists(tmp_path / "lists", suffix))
    assert index is not None
    assert index.suites == ["deb.example.org/debian sid/main"]
    assert debian.read_packages(index)[0] == debian.Package(
        "tool0",
        "source0",
        "tool number 0 a long text",
        ("liba1",),
        ("role::program", "use::a", "works-with::text"),
    )


def test_only_lz4_lists_require_lz4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == "lz4"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "lz4", None)
    compressed = debian.find_index(write_lists(tmp_path / "compressed", ".lz4"))
    message = r"_Packages\.lz4 requires lz4\. Install it with: pip install 'carya\[debian\]'$"
    with pytest.raises(MissingExtraError, match=message):
        debian.read_dataset(index=compressed)
    for suffix in set(SUFFIXES) - {".lz4"}:
        index = debian.find_index(write_lists(tmp_path / f"lists{suffix}", suffix))
        assert len(debian.read_packages(index)) == 60
    both = debian.find_index(write_lists(tmp_path / "compressed", ""))
    assert len(debian.read_packages(both)) == 60  # LZ4 is used only if a list exists in no other format


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".lz4"])
@pytest.mark.parametrize("share", [0.6, 0.0])
def test_damaged_files_are_rejected(suffix: str, share: float, tmp_path: Path) -> None:
    path = tmp_path / f"x_Packages{suffix}"
    data = COMPRESSIONS[suffix](fake_archive.packages(600))
    path.write_bytes(data[: int(share * len(data))] if share else b"not compressed at all")
    with pytest.raises(InputError, match=f"x_Packages{suffix} cannot be read"):
        list(read_stanzas(path, {"package"}, []))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".lz4"])
def test_flipped_bits_are_detected_or_have_no_effect(suffix: str, tmp_path: Path) -> None:
    path, rng = tmp_path / f"x_Packages{suffix}", random.Random(0)
    data = COMPRESSIONS[suffix](fake_archive.packages(20))
    path.write_bytes(data)
    expected = list(read_stanzas(path, {"package", "depends"}, []))
    n_rejected = 0
    for _ in range(100):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            assert list(read_stanzas(path, {"package", "depends"}, [])) == expected
        except InputError:
            n_rejected += 1
    assert n_rejected > 80


# Packages


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ("Depends: a, b", ("a", "b")),
        ("Depends: a (>= 1.0), b:any (<< 2), c [amd64]", ("a", "b", "c")),
        ("Depends: a | b, c | a", ("a", "c")),
        ("Depends: b\nRecommends: a, b", ("b", "a")),
        ("Pre-Depends: a", ()),
        ("Depends: , ,\n a,\n libstdc++6", ("a", "libstdc++6")),
        ("Depends: ${shlibs:Depends}, (>= 1)", ()),
    ],
)
def test_dependencies(fields: str, names: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "x_Packages").write_text(f"Package: p\n{fields}\n")
    assert debian.read_packages(debian.find_index(tmp_path))[0].depends == names


def test_first_entry_of_a_package_is_used_with_tags_from_later_entries(tmp_path: Path) -> None:
    (tmp_path / "a-security_Packages").write_text("Package: p\nDescription: new\n")
    (tmp_path / "a_Packages").write_text("Package: p\nDescription: old\nTag: role::program\n")
    assert debian.read_packages(debian.find_index(tmp_path)) == [
        debian.Package("p", "p", "new", (), ("role::program",)),
    ]


def test_dpkg_status_is_used_without_apt_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian_index, "APT_LISTS", tmp_path)
    monkeypatch.setattr(debian_index, "DPKG_STATUS", tmp_path / "status")
    assert debian.find_index() is None
    with pytest.raises(InputError, match="There is no package index on this machine"):
        debian.read_packages()
    (tmp_path / "status").write_text(
        "Package: a\nStatus: install ok installed\nDescription: is\n here\n\n"
        "Package: b\nStatus: deinstall ok config-files\nDescription: was here\n"
    )
    index = debian.find_index()
    assert index is not None
    assert index.installed_only
    assert [package.text for package in debian.read_packages(index)] == ["is here"]


# Data sets


@pytest.mark.parametrize(("kind", "labels"), [("deps", fake_archive.LIBRARIES), ("tags", None)])
def test_data_set_is_split_by_source(kind: str, labels: list[str] | None, tmp_path: Path) -> None:
    index = debian.find_index(write_lists(tmp_path))
    data = debian.read_dataset(kind, index=index)
    assert len(data.train) + len(data.test) == 60
    assert data.train
    assert data.test
    assert labels is None or data.label_names == labels
    train_sources, test_sources = ({int(text.split()[2]) // 3 for text, _ in part} for part in (data.train, data.test))
    assert not train_sources & test_sources
    repeated = debian.read_dataset(kind, index=index)
    assert (repeated.train, repeated.test) == (data.train, data.test)


def test_rare_labels_and_rows_without_labels_are_omitted(tmp_path: Path) -> None:
    (tmp_path / "x_Packages").write_text(
        "".join(f"Package: p{i}\nDescription: p\nDepends: {d}\n\n" for i, d in enumerate(["a", "a, b", "c", ""]))
    )
    data = debian.read_dataset("deps", index=debian.find_index(tmp_path))
    assert sorted(data.train + data.test) == [("p", ("a",)), ("p", ("a",))]
    assert data.label_names == ["a"]


def test_invalid_parameters() -> None:
    with pytest.raises(ParameterError, match=r"kind must be 'deps' or 'tags', got 'dep'\."):
        debian.read_dataset("dep")
    with pytest.raises(ParameterError, match=r"min_rows must be an integer >= 1, got 0\."):
        debian.read_dataset(min_rows=0)


# Sources and downloads


def write_apt_configuration(folder: Path, sources: str, conf: str = "") -> Path:
    (folder / "sources.list.d").mkdir(parents=True)
    (folder / "apt.conf.d").mkdir()
    (folder / "sources.list.d" / "x.sources").write_text(sources)
    (folder / "apt.conf.d" / "50proxy").write_text(conf)
    return folder


def test_sources_in_both_styles(tmp_path: Path) -> None:
    architecture = apt_sources.architecture()
    folder = write_apt_configuration(
        tmp_path,
        "# c\nTypes: deb deb-src\nURIs: http://a/debian/\nSuites: sid sid-updates\nComponents: main contrib\n\n"
        "Types: deb\nEnabled: no\nURIs: http://off/debian\nSuites: sid\nComponents: main\n\n"
        "Types: deb-src\nURIs: http://src/debian\nSuites: sid\nComponents: main\n",
    )
    (folder / "sources.list").write_text(
        "# deb http://comment/ sid main\ndeb-src http://src/ sid main\ndeb cdrom:[x]/ sid main\n"
        f"deb [ arch={architecture} signed-by=/k ] https://b/debian sid main # end\n"
        "deb [arch=z80] http://z/ sid main\ndeb http://flat/ ./\n"
    )
    assert apt_sources.read_sources(folder) == [
        apt_sources.AptSource("https://b/debian", "sid", ("main",)),
        apt_sources.AptSource("http://a/debian", "sid", ("main", "contrib")),
        apt_sources.AptSource("http://a/debian", "sid-updates", ("main", "contrib")),
    ]


@pytest.mark.parametrize("by_hash", [True, False])
@pytest.mark.parametrize("by_proxy", [True, False])
def test_download(by_hash: bool, by_proxy: bool, tmp_path: Path) -> None:
    files = fake_archive.archive(by_hash=by_hash, architecture=apt_sources.architecture())
    with fake_archive.serve(files) as (address, requested):
        host = "http://archive.invalid" if by_proxy else address
        folder = write_apt_configuration(
            tmp_path / "apt",
            f"Types: deb\nURIs: {host}/debian\nSuites: sid gone\nComponents: main\n",
            f'Acquire {{ http {{ Proxy "{address}"; }}; }};' if by_proxy else 'Acquire::http::Proxy "DIRECT";',
        )
        warnings = download(tmp_path, apt=folder)
    assert [warning.split(": ")[0] for warning in warnings] == [f"{host}/debian/dists/gone"]
    assert any("by-hash" in path for path in requested) == by_hash
    assert all(path.startswith("http://archive.invalid/") for path in requested) == by_proxy
    index = debian.find_index(tmp_path)
    assert index is not None
    assert len(index.translations) == 1
    assert len(debian.read_packages(index)) == 60


def test_modified_lists_are_rejected(tmp_path: Path) -> None:
    files = fake_archive.archive(damaged=True, architecture=apt_sources.architecture())
    with fake_archive.serve(files) as (address, _):
        folder = write_apt_configuration(
            tmp_path, f"Types: deb\nURIs: {address}/debian\nSuites: sid\nComponents: main\n"
        )
        with pytest.raises(InputError, match=r"No package list could be downloaded: .*the SHA-256 sum of .* differs"):
            download(tmp_path, apt=folder)
    assert debian.find_index(tmp_path) is None


def test_release_files_without_checksums_are_rejected() -> None:
    with pytest.raises(ValueError, match="no SHA-256 sums"):
        parse_release(b"Suite: sid\n")
