"""Tests for data streams: compressed and uncompressed files are read line by line and written atomically."""

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
from carya.data.io.files import open_output, open_text_output, read_blocks, read_bytes, read_lines, uncompressed_name
from carya.data.read_write import open_data, write_data
from carya.errors import InputError, SaveError

from command_line import CARYA

COMPRESSIONS = ["", ".gz", ".xz", ".zst"]


def write_file(path: Path, content: bytes) -> Path:
    with open_output(path) as stream:
        stream.write(content)
    return path


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_only_line_feeds_end_lines(compression: str, tmp_path: Path) -> None:
    text = "\ufeffone\r\ntwo\rstill\u2028two\x0b\x0c\x1c\x85\n\nlast"
    path = write_file(tmp_path / f"a.txt{compression}", text.encode())
    assert list(read_lines(path)) == ["one", "two\rstill\u2028two\x0b\x0c\x1c\x85", "", "last"]
    assert "".join(read_lines(path, keep_ends=True)) == text.removeprefix("\ufeff")
    for size in (1, 7, 1000):
        assert b"".join(read_blocks(path, size)).decode() == text.removeprefix("\ufeff") + "\n"
        assert all(block.endswith(b"\n") for block in read_blocks(path, size))
    assert uncompressed_name(path) == "a.txt"


def test_a_byte_order_mark_in_the_text_is_kept(tmp_path: Path) -> None:
    with open_text_output(tmp_path / "a.txt") as write:
        write("\ufeffone\n")
    assert list(read_lines(tmp_path / "a.txt")) == ["\ufeffone"]


@pytest.mark.parametrize("buffer_size", [2, 3, 7, 1000])
def test_lines_do_not_depend_on_the_buffer_size(
    buffer_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carya.data.io.files._BUFFER_SIZE", buffer_size)
    path = tmp_path / "a.txt"
    for text in ("", "\n", "a", "a\n", "\r\n\r\n", "zwölf\r\n€uro\r\n\nend\r", "a\r\rb\n\r"):
        path.write_bytes(text.encode())
        *lines, last = text.split("\n")
        expected = [line.removesuffix("\r") for line in lines] + ([last] if last else [])
        assert list(read_lines(path)) == expected
        assert "".join(read_lines(path, keep_ends=True)) == text
    path.write_bytes(b"one\ntwo\nth\xffree\nfour\n")
    stream = read_lines(path)
    assert [next(stream), next(stream)] == ["one", "two"]
    with pytest.raises(InputError, match=r"a\.txt, line 3: Invalid UTF-8: byte 0xff at position 3\."):
        next(stream)


@pytest.mark.parametrize("compression", [".gz", ".xz", ".zst"])
def test_truncated_and_damaged_files_are_rejected(compression: str, tmp_path: Path) -> None:
    content = os.urandom(300_000)
    path = write_file(tmp_path / f"a{compression}", content)
    assert read_bytes(path) == content
    complete = path.read_bytes()
    for length in (len(complete) - 1, len(complete) // 2, 20):
        path.write_bytes(complete[:length])
        with pytest.raises(InputError, match=f"a{compression}: The compressed data is truncated"):
            read_bytes(path)
    for damaged in (b"plain text, not compressed", complete[:1000] + bytes(1000) + complete[2000:]):
        path.write_bytes(damaged)
        with pytest.raises(
            InputError,
            match=rf"a{compression}: The (file is damaged or not a {compression} file|compressed data is truncated)",
        ):
            read_bytes(path)


@pytest.mark.parametrize("compression", [".gz", ".xz", ".zst"])
def test_flipped_bits_are_detected_or_have_no_effect(compression: str, tmp_path: Path) -> None:
    content = b"a short text, a short text" * 10
    path = write_file(tmp_path / f"a{compression}", content)
    compressed = path.read_bytes()
    n_rejected = 0
    for position in range(len(compressed)):
        damaged = bytearray(compressed)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            assert read_bytes(path) == content  # e.g. if the flipped bit is part of a .gz file's modification time
        except InputError:
            n_rejected += 1
    assert n_rejected > 0.7 * len(compressed)


@pytest.mark.parametrize("compression", [".gz", ".xz", ".zst"])
def test_concatenated_files_are_read_as_one(compression: str, tmp_path: Path) -> None:
    path = write_file(tmp_path / f"a{compression}", b"one\n")
    path.write_bytes(path.read_bytes() + write_file(tmp_path / f"b{compression}", b"two\n").read_bytes())
    assert list(read_lines(path)) == ["one", "two"]


def test_same_data_gives_same_bytes(tmp_path: Path) -> None:
    assert len({write_file(tmp_path / f"{n}.gz", b"one\n").read_bytes() for n in range(2)}) == 1


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_files_are_written_atomically(compression: str, error: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / f"a.jsonl{compression}"

    def examples(fail: bool) -> Iterator[Example]:
        yield Example("one", ("x",))
        if fail:
            raise error

    def write(fail: bool) -> None:
        write_data(path, Corpus(lambda: examples(fail), source="generator"))

    with pytest.raises(error):
        write(fail=True)
    assert list(tmp_path.iterdir()) == []
    write(fail=False)
    before = path.read_bytes()
    with pytest.raises(error):
        write(fail=True)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_links_are_followed_and_permissions_are_default(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_file(tmp_path / "link", b"one")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"one"
    other = tmp_path / "other"
    other.write_bytes(b"")
    assert (tmp_path / "file").stat().st_mode == other.stat().st_mode


def test_unwritable_paths(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError, match=r"file/data.jsonl: (Not a directory|File exists)\."):
        write_data(tmp_path / "file" / "data.jsonl", Corpus.of([]))


def write_jsonl(path: Path, n_rows: int) -> Path:
    rng = random.Random(0)
    with open_text_output(path) as write:
        for _ in range(n_rows):
            write(json.dumps({"text": rng.randbytes(500).hex(), "labels": ["a"]}) + "\n")
    return path


@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
def test_corpus_is_streamed(compression: str, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / f"a.jsonl{compression}", 20_000)  # 20 MB
    for target in (path, tmp_path / f"a.csv{compression}"):
        if target != path:
            write_data(target, open_data(path))
        tracemalloc.start()
        corpus = open_data(target)
        assert isinstance(corpus, Corpus)
        assert sum(1 for _ in corpus) == 20_000
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 3e6


def test_errors_are_raised_when_their_line_is_reached(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", 3)
    path.write_text(path.read_text() + "oops\n")
    corpus = open_data(path)
    assert isinstance(corpus, Corpus)
    examples = iter(corpus)
    assert [next(examples).labels for _ in range(3)] == [("a",)] * 3
    with pytest.raises(InputError, match=r"a.jsonl, line 4: Invalid JSON at character 1"):
        next(examples)


def convert(*arguments: str, cwd: Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [*CARYA, "data", "convert", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, cwd=cwd, timeout=60)


def test_convert(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("title,abstract,subjects\na,red apple,fruit|red\na,pear,fruit\n")
    columns = ["--text-column", "title,abstract", "--label-column", "subjects", "--label-separator", "|"]
    result = convert("data.csv", "out.jsonl.gz", *columns, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, b"out.jsonl.gz: 2 rows\n"), result.stderr
    with gzip.open(tmp_path / "out.jsonl.gz", "rt") as file:
        assert json.loads(file.readline()) == {"text": "a red apple", "labels": ["fruit", "red"]}
    result = convert(
        "out.jsonl.gz", "texts.txt", "--to-labels", "labels.txt", "--to-label-separator", r"\t", cwd=tmp_path
    )
    assert (tmp_path / "labels.txt").read_text() == "fruit\tred\nfruit\n", result.stderr
    result = convert("texts.txt", "-", "--labels", "labels.txt", "--to", "tsv", cwd=tmp_path)
    assert result.stdout == b"text\tlabels\na red apple\tfruit;red\na pear\tfruit\n"


def test_standard_input_is_read_once(tmp_path: Path) -> None:
    line = b'{"text": "caf\xc3\xa9", "labels": ["x"]}\n'
    result = convert("-", "-", "--from", "jsonl", "--to", "jsonl", cwd=tmp_path, stdin=line)
    assert (result.stdout, result.stderr) == (line, b"")
    result = convert("-", "-", "--from", "jsonl", "--to", "jsonl", cwd=tmp_path, stdin=b"{}\n")
    assert b'standard input, line 1: Missing key "text"; the object is empty.' in result.stderr
    code = "from carya.data import open_data; c = open_data('-', format='jsonl'); list(c); list(c)"
    result = subprocess.run([sys.executable, "-c", code], input=line, capture_output=True, check=False)
    assert b"InputError: standard input can be read only once" in result.stderr


def test_text_formats_do_not_import_numpy_or_scipy(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", 2)
    code = (
        "import sys; from carya.data import Corpus, open_data, write_data; write_data('b.csv', open_data('a.jsonl'));"
        "print({'numpy', 'scipy', 'pyarrow', 'rdflib', 'zstandard'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert result.stdout == "set()\n"
