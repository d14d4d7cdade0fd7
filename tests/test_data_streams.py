"""Files are read line by line, compressed or not, and written whole or not at all."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from carya.data.corpus import Corpus, Example
from carya.data.io.files import bare_name, read_blocks, read_bytes, read_lines, writing, writing_text
from carya.data.read_write import open_data, write_data
from carya.errors import InputError, SaveError

COMPRESSIONS = ["", ".gz", ".xz", ".zst"]


def filled(path: Path, content: bytes) -> Path:
    with writing(path) as stream:
        stream.write(content)
    return path


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_only_line_feeds_end_lines(compression: str, tmp_path: Path) -> None:
    text = "\ufeffone\r\ntwo\rstill\u2028two\x0b\x0c\x1c\x85\n\nlast"
    path = filled(tmp_path / f"a.txt{compression}", text.encode())
    assert list(read_lines(path)) == ["one", "two\rstill\u2028two\x0b\x0c\x1c\x85", "", "last"]
    assert "".join(read_lines(path, ends=True)) == text.removeprefix("\ufeff")
    for size in (1, 7, 1000):
        assert b"".join(read_blocks(path, size)).decode() == text.removeprefix("\ufeff") + "\n"
        assert all(block.endswith(b"\n") for block in read_blocks(path, size))
    assert bare_name(path) == "a.txt"


def test_a_text_that_begins_with_a_mark_keeps_it(tmp_path: Path) -> None:
    with writing_text(tmp_path / "a.txt") as write:
        write("\ufeffone\n")
    assert list(read_lines(tmp_path / "a.txt")) == ["\ufeffone"]


@pytest.mark.parametrize("at_once", [2, 3, 7, 1000])
def test_lines_are_the_same_however_many_bytes_come_at_once(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carya.data.io.files._BUFFER", at_once)
    path = tmp_path / "a.txt"
    for text in ("", "\n", "a", "a\n", "\r\n\r\n", "zwölf\r\n€uro\r\n\nend\r", "a\r\rb\n\r"):
        path.write_bytes(text.encode())
        ended = text.split("\n")
        want = [line.removesuffix("\r") for line in ended[:-1]] + ([ended[-1]] if ended[-1] else [])
        assert list(read_lines(path)) == want
        assert "".join(read_lines(path, ends=True)) == text
    path.write_bytes(b"one\ntwo\nth\xffree\nfour\n")
    lines = read_lines(path)
    assert [next(lines), next(lines)] == ["one", "two"]
    with pytest.raises(InputError, match=r"a\.txt, line 3: not UTF-8: byte 0xff at position 3"):
        next(lines)


@pytest.mark.parametrize("compression", [".gz", ".xz", ".zst"])
def test_truncated_and_foreign_files_are_named(compression: str, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    path = filled(tmp_path / f"a{compression}", content)
    assert read_bytes(path) == content
    whole = path.read_bytes()
    for length in (len(whole) - 1, len(whole) // 2, 20):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=f"a{compression}: the file ends in the midst of its compressed data"):
            read_bytes(path)
    for damaged in (b"plain text, not compressed", whole[:1000] + bytes(1000) + whole[2000:]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=rf"a{compression}: (damaged, or no {compression} file|the file ends)"):
            read_bytes(path)


@pytest.mark.parametrize("compression", [".gz", ".xz", ".zst"])
def test_files_put_one_after_the_other_are_one(compression: str, tmp_path: Path) -> None:
    path = filled(tmp_path / f"a{compression}", b"one\n")
    path.write_bytes(path.read_bytes() + filled(tmp_path / f"b{compression}", b"two\n").read_bytes())
    assert list(read_lines(path)) == ["one", "two"]


def test_same_data_same_bytes(tmp_path: Path) -> None:
    assert len({filled(tmp_path / f"{n}.gz", b"one\n").read_bytes() for n in range(2)}) == 1


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_files_appear_whole_or_not_at_all(compression: str, error: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / f"a.jsonl{compression}"

    def examples(fail: bool) -> Iterator[Example]:
        yield Example("one", ("x",))
        if fail:
            raise error

    def write(fail: bool) -> None:
        write_data(path, Corpus(lambda: examples(fail), source="here"))

    with pytest.raises(error):
        write(fail=True)
    assert list(tmp_path.iterdir()) == []
    write(fail=False)
    before = path.read_bytes()
    with pytest.raises(error):
        write(fail=True)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_links_stay_and_rights_are_usual(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    filled(tmp_path / "link", b"one")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"one"
    usual = tmp_path / "usual"
    usual.write_bytes(b"")
    assert (tmp_path / "file").stat().st_mode == usual.stat().st_mode


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError, match=r"file/data.jsonl: (Not a directory|File exists)"):
        write_data(tmp_path / "file" / "data.jsonl", Corpus.of([]))


def lines(path: Path, rows: int) -> Path:
    rng = random.Random(0)
    with writing_text(path) as write:
        for _ in range(rows):
            write(json.dumps({"text": rng.randbytes(500).hex(), "labels": ["a"]}) + "\n")
    return path


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
def test_a_corpus_is_not_read_whole(compression: str, tmp_path: Path) -> None:
    path = lines(tmp_path / f"a.jsonl{compression}", 20_000)  # 20 MB
    for target in (path, tmp_path / f"a.csv{compression}"):
        if target != path:
            write_data(target, open_data(path))
        tracemalloc.start()
        assert sum(1 for _ in open_data(target)) == 20_000
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 3e6


def test_errors_wait_until_their_line(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", 3)
    path.write_text(path.read_text() + "oops\n")
    examples = iter(open_data(path))
    assert [next(examples).labels for _ in range(3)] == [("a",)] * 3
    with pytest.raises(InputError, match=r"a.jsonl, line 4: not JSON at character 1"):
        next(examples)


def convert(*arguments: str, cwd: Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    code = (
        "import typer; from carya.cli.data.convert import convert; app = typer.Typer(); app.command()(convert); app()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], input=given, capture_output=True, check=False, cwd=cwd, timeout=60
    )


def test_convert(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("title,abstract,subjects\na,red apple,fruit|red\na,pear,fruit\n")
    columns = ["--text-column", "title,abstract", "--label-column", "subjects", "--label-separator", "|"]
    done = convert("data.csv", "out.jsonl.gz", *columns, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"out.jsonl.gz: 2 rows\n"), done.stderr
    with gzip.open(tmp_path / "out.jsonl.gz", "rt") as file:
        assert json.loads(file.readline()) == {"text": "a red apple", "labels": ["fruit", "red"]}
    done = convert(
        "out.jsonl.gz", "texts.txt", "--to-labels", "labels.txt", "--to-label-separator", r"\t", cwd=tmp_path
    )
    assert (tmp_path / "labels.txt").read_text() == "fruit\tred\nfruit\n", done.stderr
    done = convert("texts.txt", "-", "--labels", "labels.txt", "--to", "tsv", cwd=tmp_path)
    assert done.stdout == b"text\tlabels\na red apple\tfruit;red\na pear\tfruit\n"


def test_standard_input_is_read_once(tmp_path: Path) -> None:
    line = b'{"text": "caf\xc3\xa9", "labels": ["x"]}\n'
    done = convert("-", "-", "--from", "jsonl", "--to", "jsonl", cwd=tmp_path, given=line)
    assert (done.stdout, done.stderr) == (line, b"")
    done = convert("-", "-", "--from", "jsonl", "--to", "jsonl", cwd=tmp_path, given=b"{}\n")
    assert b'standard input, line 1: there is no "text", only an empty object' in done.stderr
    code = "from carya.data import open_data; c = open_data('-', format='jsonl'); list(c); list(c)"
    done = subprocess.run([sys.executable, "-c", code], input=line, capture_output=True, check=False)
    assert b"InputError: standard input can be read only once" in done.stderr


def test_doors_for_texts_start_without_scipy(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", 2)
    code = (
        "import sys; from carya.data import Corpus, open_data, write_data; write_data('b.csv', open_data('a.jsonl'));"
        "print({'numpy', 'scipy', 'pyarrow', 'rdflib', 'zstandard'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "set()\n"
