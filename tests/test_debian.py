"""Package indexes: stanzas, files in every compression, packages, data sets, and lists from an archive."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carya.data import debian
from carya.data.debian import apt_sources
from carya.data.debian import index as debian_index
from carya.data.debian.deb822 import Problem, read_stanzas, stanzas
from carya.data.debian.download import download, release_files
from carya.data.debian.lz4_frames import open_lz4
from carya.errors import InputError, ParameterError

import fake_archive
from reference import lz4_frame

COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".lz4": lz4_frame,
}
PREFIX = "deb.example.org_debian_dists_sid_main"


def parsed(text: bytes, *wanted: str) -> tuple[list[dict[str, str]], list[Problem]]:
    problems: list[Problem] = []
    return list(stanzas(io.BytesIO(text), set(wanted), "Packages", problems)), problems


def write_lists(folder: Path, ending: str = "", packages: bytes | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    pack = COMPRESSIONS[ending]
    (folder / f"{PREFIX}_binary-amd64_Packages{ending}").write_bytes(pack(packages or fake_archive.packages()))
    (folder / f"{PREFIX}_i18n_Translation-en{ending}").write_bytes(pack(fake_archive.translation()))
    return folder


# Stanzas


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"no colon here\n", "Packages:4: a line without a field name"),
        (b": no name\n", "Packages:4: a line without a field name"),
        (b"two words: x\n", "Packages:4: a line without a field name"),
        (b" continued\n", "Packages:4: a continuation line without a field before it"),
        (b"A: 1\nB: 2\na: 3\n", "Packages:6: a second field 'a' in one stanza"),
        (b"\xff\xfe: 1\n", "Packages:4: a line without a field name"),
        (b"A: " + b"x" * (9 << 20) + b"\n", "Packages:4: a stanza of more than 8 MiB"),
    ],
)
def test_a_malformed_stanza_is_skipped_and_noted(bad: bytes, message: str) -> None:
    found, problems = parsed(b"A: 1\n b\n\n" + bad + b"\n\r\nA: last", "a")
    assert found == [{"a": "1\n b"}, {"a": "last"}]
    assert [str(problem) for problem in problems] == [message]


def test_comments_and_unwanted_fields_are_passed_over() -> None:
    assert parsed(b"# c\nA: 1\n# c\n 2\nB: 3\n 4\n", "a") == ([{"a": "1\n 2"}], [])


def test_wrong_utf8_is_replaced() -> None:
    assert parsed(b"A: \xff\n", "a")[0] == [{"a": "�"}]


names = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
lines = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=12)


@given(st.lists(st.dictionaries(names, st.lists(lines, min_size=1, max_size=3), min_size=1, max_size=4), max_size=5))
def test_what_was_written_is_read(given_stanzas: list[dict[str, list[str]]]) -> None:
    text = "\n".join(
        "".join(f"{name.title()}: " + "\n ".join(value) + "\n" for name, value in stanza.items())
        for stanza in given_stanzas
    )
    wanted = {name for stanza in given_stanzas for name in stanza}
    found, problems = parsed(text.encode(), *wanted)
    assert not problems
    assert found == [{name: "\n ".join(value) for name, value in stanza.items()} for stanza in given_stanzas]


@given(st.lists(st.sampled_from([b"A: 1", b" x", b"", b":", b"A", b"#", b"\xff: 2", b"B: \r"]), max_size=12))
def test_no_text_is_the_end_of_it(pieces: list[bytes]) -> None:
    found, problems = parsed(b"\n".join(pieces) + b"\n\nEnd: 1\n", "a", "b", "end")
    assert found[-1] == {"end": "1"}
    assert all(1 <= problem.line <= len(pieces) for problem in problems)


# Files


@given(st.binary(max_size=300), st.integers(1, 5), st.integers(1, 40))
def test_lz4_gives_back_what_was_packed(piece: bytes, times: int, block: int) -> None:
    data = piece * times
    assert open_lz4(io.BytesIO(lz4_frame(data, block))).read() == data


@given(st.binary(max_size=60))
def test_damaged_lz4_is_an_error_of_a_known_kind(noise: bytes) -> None:
    frame = bytes.fromhex("04224d184040c0") + noise
    with contextlib.suppress(ValueError, EOFError):
        open_lz4(io.BytesIO(frame)).read()


@pytest.mark.parametrize("ending", COMPRESSIONS)
def test_lists_are_read_in_every_compression(ending: str, tmp_path: Path) -> None:
    index = debian.find_index(write_lists(tmp_path / "lists", ending))
    assert index is not None
    assert index.suites == ["deb.example.org/debian sid/main"]
    first = debian.packages(index)[0]
    assert first == debian.Package(
        "tool0",
        "source0",
        "tool number 0 a long text",
        ("liba1",),
        ("role::program", "use::a", "works-with::text"),
    )


@pytest.mark.parametrize("ending", [".gz", ".xz", ".bz2", ".lz4"])
@pytest.mark.parametrize("cut", [0.6, 0.0])
def test_a_damaged_file_is_named(ending: str, cut: float, tmp_path: Path) -> None:
    path = tmp_path / f"x_Packages{ending}"
    data = COMPRESSIONS[ending](fake_archive.packages(600))
    path.write_bytes(data[: int(cut * len(data))] if cut else b"not compressed at all")
    with pytest.raises(InputError, match=f"x_Packages{ending} cannot be read"):
        list(read_stanzas(path, {"package"}, []))


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
    assert debian.packages(debian.find_index(tmp_path))[0].depends == names


def test_of_a_package_in_two_suites_the_first_counts_but_tags_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a-security_Packages").write_text("Package: p\nDescription: new\n")
    (tmp_path / "a_Packages").write_text("Package: p\nDescription: old\nTag: role::program\n")
    assert debian.packages(debian.find_index(tmp_path)) == [
        debian.Package("p", "p", "new", (), ("role::program",)),
    ]


def test_where_apt_has_no_lists_dpkg_knows_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian_index, "LISTS", tmp_path)
    monkeypatch.setattr(debian_index, "STATUS", tmp_path / "status")
    assert debian.find_index() is None
    with pytest.raises(InputError, match="there is no package index on this machine"):
        debian.packages()
    (tmp_path / "status").write_text(
        "Package: a\nStatus: install ok installed\nDescription: is\n here\n\n"
        "Package: b\nStatus: deinstall ok config-files\nDescription: was here\n"
    )
    index = debian.find_index()
    assert index is not None
    assert index.installed_only
    assert [one.text for one in debian.packages(index)] == ["is here"]


# Data sets


@pytest.mark.parametrize(("kind", "labels"), [("deps", fake_archive.LIBRARIES), ("tags", None)])
def test_a_data_set_is_split_by_source(kind: str, labels: list[str] | None, tmp_path: Path) -> None:
    index = debian.find_index(write_lists(tmp_path))
    data = debian.dataset(kind, index=index)
    assert len(data.train) + len(data.test) == 60
    assert data.train
    assert data.test
    assert labels is None or data.label_names == labels
    number = [{int(text.split()[2]) // 3 for text, _ in part} for part in (data.train, data.test)]
    assert not number[0] & number[1]
    again = debian.dataset(kind, index=index)
    assert (again.train, again.test) == (data.train, data.test)


def test_rare_labels_and_rows_without_labels_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "x_Packages").write_text(
        "".join(f"Package: p{i}\nDescription: p\nDepends: {d}\n\n" for i, d in enumerate(["a", "a, b", "c", ""]))
    )
    data = debian.dataset("deps", index=debian.find_index(tmp_path))
    assert sorted(data.train + data.test) == [("p", ("a",)), ("p", ("a",))]
    assert data.label_names == ["a"]


def test_wrong_parameters_are_named() -> None:
    with pytest.raises(ParameterError, match="kind is 'dep'; it must be 'deps' or 'tags'"):
        debian.dataset("dep")
    with pytest.raises(ParameterError, match="min_rows is 0; it must be at least 1"):
        debian.dataset(min_rows=0)


# Sources and downloads


def apt(folder: Path, source: str, conf: str = "") -> Path:
    (folder / "sources.list.d").mkdir(parents=True)
    (folder / "apt.conf.d").mkdir()
    (folder / "sources.list.d" / "x.sources").write_text(source)
    (folder / "apt.conf.d" / "50proxy").write_text(conf)
    return folder


def test_sources_of_both_forms(tmp_path: Path) -> None:
    here = apt_sources.architecture()
    folder = apt(
        tmp_path,
        "# c\nTypes: deb deb-src\nURIs: http://a/debian/\nSuites: sid sid-updates\nComponents: main contrib\n\n"
        "Types: deb\nEnabled: no\nURIs: http://off/debian\nSuites: sid\nComponents: main\n\n"
        "Types: deb-src\nURIs: http://src/debian\nSuites: sid\nComponents: main\n",
    )
    (folder / "sources.list").write_text(
        "# deb http://comment/ sid main\ndeb-src http://src/ sid main\ndeb cdrom:[x]/ sid main\n"
        f"deb [ arch={here} signed-by=/k ] https://b/debian sid main # end\n"
        "deb [arch=z80] http://z/ sid main\ndeb http://flat/ ./\n"
    )
    assert apt_sources.sources(folder) == [
        apt_sources.Source("https://b/debian", "sid", ("main",)),
        apt_sources.Source("http://a/debian", "sid", ("main", "contrib")),
        apt_sources.Source("http://a/debian", "sid-updates", ("main", "contrib")),
    ]


@pytest.mark.parametrize("by_hash", [True, False])
@pytest.mark.parametrize("by_proxy", [True, False])
def test_download(by_hash: bool, by_proxy: bool, tmp_path: Path) -> None:
    files = fake_archive.archive(by_hash=by_hash, architecture=apt_sources.architecture())
    with fake_archive.serve(files) as (address, asked):
        host = "http://archive.invalid" if by_proxy else address
        folder = apt(
            tmp_path / "apt",
            f"Types: deb\nURIs: {host}/debian\nSuites: sid gone\nComponents: main\n",
            f'Acquire {{ http {{ Proxy "{address}"; }}; }};' if by_proxy else 'Acquire::http::Proxy "DIRECT";',
        )
        notes = download(tmp_path, apt=folder)
    assert [note.split(": ")[0] for note in notes] == [f"{host}/debian/dists/gone"]
    assert any("by-hash" in path for path in asked) == by_hash
    assert all(path.startswith("http://archive.invalid/") for path in asked) == by_proxy
    index = debian.find_index(tmp_path)
    assert index is not None
    assert len(index.translations) == 1
    assert len(debian.packages(index)) == 60


def test_a_list_that_was_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    files = fake_archive.archive(damaged=True, architecture=apt_sources.architecture())
    with fake_archive.serve(files) as (address, _):
        folder = apt(tmp_path, f"Types: deb\nURIs: {address}/debian\nSuites: sid\nComponents: main\n")
        with pytest.raises(InputError, match=r"no package list could be fetched: .*its SHA-256 differs"):
            download(tmp_path, apt=folder)
    assert debian.find_index(tmp_path) is None


def test_a_release_without_sums_is_refused() -> None:
    with pytest.raises(ValueError, match="no SHA-256 sums"):
        release_files(b"Suite: sid\n")
