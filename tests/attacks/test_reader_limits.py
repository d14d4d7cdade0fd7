"""Tests for input that would take too much time or memory to process, or that contains terminal escape sequences."""

from __future__ import annotations

import gzip
import unicodedata
from pathlib import Path
from typing import Any

import pytest

import carya
from carya.data.formats.matrices.svmlight import read_svmlight
from carya.data.formats.vocabularies import read_vocabulary
from carya.data.io import files
from carya.errors import InputError

from command_line import run

RDF = """<?xml version="1.0"?>
<!DOCTYPE rdf:RDF [{entities}]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">
  <skos:Concept rdf:about="{uri}"><skos:prefLabel xml:lang="en">{name}</skos:prefLabel></skos:Concept>
</rdf:RDF>
"""
BOMB = '<!ENTITY a0 "aaaaaaaaaa">' + "".join(
    f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 9)
)  # expands to a billion characters


@pytest.mark.parametrize(
    "entities",
    [
        BOMB,
        f'<!ENTITY a8 "{"a" * 1000}">',
        '<!ENTITY a8 SYSTEM "file:///etc/passwd">',
        '<!ENTITY % p SYSTEM "http://127.0.0.1/x"> <!ENTITY a8 "a">',
    ],
    ids=["nested", "long", "external", "parameter"],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_that_expand_are_rejected(entities: str, encoding: str, tmp_path: Path) -> None:
    text = RDF.format(entities=entities, uri="http://example.org/1", name="&a8;")
    (tmp_path / "bomb.rdf").write_text(text, encoding=encoding)
    with pytest.raises(InputError, match=r"bomb\.rdf: The XML entity '\w+' is external, refers to other entities"):
        read_vocabulary(tmp_path / "bomb.rdf")


def test_entities_for_prefixes_are_read(tmp_path: Path) -> None:
    entities = '<!ENTITY ex "http://example.org/"><!ENTITY cat "cat">'
    (tmp_path / "a.rdf").write_text(RDF.format(entities=entities, uri="&ex;1", name="&cat;"))
    vocabulary = read_vocabulary(tmp_path / "a.rdf")
    assert (list(vocabulary.ids), list(vocabulary.names)) == (["http://example.org/1"], ["cat"])


def test_endless_lines_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small compressed file can expand to gigabytes of data without a newline."""
    monkeypatch.setattr(files, "_MAX_LINE_BYTES", 1 << 20)
    with gzip.open(tmp_path / "bomb.txt.gz", "wb") as file:
        file.write(b"first\n")
        for _ in range(4):
            file.write(b"a" * (1 << 20))
    for read in (files.read_lines, files.read_blocks):
        with pytest.raises(InputError, match=r"bomb\.txt\.gz, line 2: The line exceeds the limit of 1 MiB"):
            list(read(tmp_path / "bomb.txt.gz"))
    (tmp_path / "long.txt").write_text("first\n" + "a" * (1 << 19) + "\n" + "b" * (1 << 19))
    assert [len(line) for line in files.read_lines(tmp_path / "long.txt")] == [5, 1 << 19, 1 << 19]
    assert sum(map(len, files.read_blocks(tmp_path / "long.txt"))) == 6 + (1 << 20) + 2


@pytest.mark.parametrize(("line", "content"), [("1000000000 1:1\n", "labels"), ("0 1000000000:1\n", "features")])
def test_one_large_number_does_not_determine_the_size_of_a_matrix(line: str, content: str, tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1 2:1\n" + line)
    with pytest.raises(InputError, match=rf"The {content} are numbered up to \d+, but there are only 2 entries"):
        read_svmlight(tmp_path / "a.svm")
    stated: dict[str, Any] = {"n_labels": 1_000_000_001} if content == "labels" else {"n_features": 1_000_000_000}
    matrices = read_svmlight(tmp_path / "a.svm", zero_based=False, **stated)
    assert max(matrices.X.shape[1], matrices.Y.shape[1]) >= 10**9


def test_control_characters_are_not_printed(tmp_path: Path) -> None:
    """Escape sequences in a term or label name could change the title or colors of the terminal."""
    texts = ["web \x1b]0;title\x07 server", "mail \x1b[31m server"] * 4
    labels = [["w\x1b[2J"], ["m\x9b31m"]] * 4
    vectorizer = carya.Tfidf(analyzer="char", ngram_range=(1, 3), min_df=1, lowercase=False)
    carya.TextRanker(vectorizer, carya.XRLinear(max_leaf_size=2)).fit(texts, labels).save(tmp_path / "model")
    result = run("explain", str(tmp_path / "model"), texts[0])
    assert result.returncode == 0, result.stderr
    assert not any(unicodedata.category(character) == "Cc" for character in result.stdout if character != "\n")
    assert "\\x1b" in result.stdout
