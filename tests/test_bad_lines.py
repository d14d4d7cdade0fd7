"""What is wrong with a file is said with its name, the line, what it was and what it must be.

``python tests/test_bad_lines.py`` prints the table of docs/data.md.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from carya.data import Matrices, open_data, read_vocabulary
from carya.errors import InputError

PAGE = Path(__file__).parent.parent / "docs" / "data.md"

# A file, what is in it, and what is said about it.
BAD: list[tuple[str, bytes, str]] = [
    (
        "data.jsonl",
        b'{"text": "a", "labels": ["x"]}\n{"text": "b", labels: []}',
        "data.jsonl, line 2: not JSON at character 15: Expecting property name enclosed in double quotes",
    ),
    ("data.jsonl", b'["a", ["x"]]', "data.jsonl, line 1: must be an object, got ['a', ['x']]"),
    (
        "data.jsonl",
        b'{"title": "a", "labels": []}',
        'data.jsonl, line 1: there is no "text", only "title", "labels"',
    ),
    ("data.jsonl", b'{"text": null, "labels": []}', 'data.jsonl, line 1: "text" must be a string, got None'),
    ("data.jsonl", b'{"text": "a", "labels": 5}', 'data.jsonl, line 1: "labels" must be a list of strings, got 5'),
    (
        "data.jsonl",
        b'{"text": "a", "labels": ["x", 5]}',
        'data.jsonl, line 1: "labels" must be a list of strings, got 5 in it',
    ),
    ("data.jsonl", b'{"text": "a", "labels": ["x", ""]}', 'data.jsonl, line 1: "labels" has an empty label'),
    (
        "data.jsonl",
        b'{"text": "\\ud800", "labels": []}',
        "data.jsonl, line 1: \"text\" must be a string, got '\\ud800'",
    ),
    ("data.jsonl", b'\n{"text": "caf\xe9"}', "data.jsonl, line 2: not UTF-8: byte 0xe9 at position 14"),
    ("data.jsonl.gz", b'{"text": "a"}', "data.jsonl.gz: damaged, or no .gz file"),
    ("data.csv", b"", "data.csv: there is no header"),
    (
        "data.csv",
        b"title,labels\na,x",
        'data.csv, line 1: there is no column "text"; the columns are "title", "labels"',
    ),
    ("data.csv", b"text,labels,text\na,x,b", 'data.csv, line 1: there is more than one column "text"'),
    (
        "data.csv",
        b"text,labels\none, two,x",
        "data.csv, line 2: the number of fields is 3, in the header it is 2",
    ),
    ("data.csv", b'text,labels\n"a,x\nb,y', "data.csv, line 2: not CSV: unexpected end of data"),
    ("data.csv", b"text,labels\na,x;;y", "data.csv, line 2: label 2 of 3 is empty; labels are separated by ';'"),
    ("data.tsv", b"text\tlabels\na x", "data.tsv, line 2: the number of fields is 1, in the header it is 2"),
    (
        "annif.tsv",
        b"a\t<http://a.example/1>\nb <http://a.example/2>",
        "annif.tsv, line 2: a line must be a text, a TAB and subjects, it has 0 TABs",
    ),
    (
        "annif.tsv",
        b"a\t<http://a.example/1>\nb\tcat",
        "annif.tsv, line 2: a subject must be a URI in angle brackets, got 'cat'",
    ),
    (
        "train.txt",
        b"2 3\n0 1:1",
        "train.txt: texts in a .txt file need a file of labels (labels=, or --labels); or give the format, one of …",
    ),
    (
        "train.xmc",
        b"2 3\n0 1:1",
        "train.xmc, line 1: the header must be three whole numbers: rows, features, labels; got '2 3'",
    ),
    ("train.xmc", b"2 3 4\n0 1:1", "train.xmc: the number of rows is 1, in the header it is 2"),
    ("train.xmc", b"1 3 4\n0 1:1\n1 1:1", "train.xmc, line 3: a row after the 1 of the header"),
    ("train.xmc", b"1 3 4\n7 1:1", "train.xmc, line 2: label 7 is outside the 4 labels of the header"),
    ("train.xmc", b"1 3 4\n0 3:1", "train.xmc, line 2: feature 3 is outside the 3 features of the header"),
    (
        "train.xmc",
        b"1 3 4\n1:1 2:1",
        "train.xmc, line 2: a label must be a whole number, got '1:1'; a row without labels begins with a space",
    ),
    ("train.xmc", b"1 3 4\n0,x 1:1", "train.xmc, line 2: a label must be a whole number, got 'x'"),
    ("train.xmc", b"1 3 4\n0 1:1 2", "train.xmc, line 2: a feature must be number:value, got '2'"),
    (
        "train.xmc",
        b"1 3 4\n0 1:nan",
        "train.xmc, line 2: the value of feature 1 must be a finite number, got 'nan'",
    ),
    ("train.xmc", b"1 3 4\n0 1:1 1:2", "train.xmc, line 2: feature 1 occurs twice"),
    ("train.svm", b"0 1:1\n-1 1:1", "train.svm, line 2: a label must be a whole number, got '-1'"),
    ("data.parquet", b"PAR2", "data.parquet: not a Parquet file, or damaged"),
    ("names.txt", b"cat\ndog\ncat", "names.txt, line 3: the label 'cat' occurs twice, first on line 1"),
    ("names.txt", b"cat\n\ndog", "names.txt, line 2: the label is empty"),
    ("names.tsv", b"a:1\tcat\na:2", "names.tsv, line 2: the number of fields is 1, it must be 2 (id, name) or 3"),
    (
        "names.csv",
        b"id,label_en\n1,cat",
        'names.csv, line 1: there is no column "uri"; the columns are "id", "label_en"',
    ),
]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(path: str) -> None:
    if path.startswith("names."):
        read_vocabulary(path)
    elif not isinstance(data := open_data(path), Matrices):
        list(data)


def said_about(path: str) -> str:
    with pytest.raises(InputError) as caught:
        read(path)
    return str(caught.value)


@pytest.mark.parametrize(("name", "content", "message"), BAD)
def test_bad_lines(name: str, content: bytes, message: str) -> None:
    Path(name).write_bytes(content)
    said = said_about(name)
    if message.endswith("…"):
        assert said.startswith(message[:-1])
    else:
        assert said == message


def table() -> str:
    """The table as Markdown."""

    def cell(text: str) -> str:
        return f"`{text}`".replace("|", "\\|")

    rows = ["| file | content | message |", "|---|---|---|"]
    for name, content, message in BAD:
        shown = content.decode("utf-8", "backslashreplace").replace("\t", "⇥").replace("\n", "⏎")
        rows.append(f"| {cell(name)} | {cell(shown) if shown else 'nothing'} | {cell(message)} |")
    return "\n".join(rows) + "\n"


def test_the_page_shows_these_messages() -> None:
    assert len(BAD) >= 20
    assert table() in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ("a\nb\n", "x\n", "labels.txt: the number of lines is 1, texts.txt has more"),
        ("a\n", "x\ny\n", "texts.txt: the number of lines is 1, labels.txt has more"),
        ("a\nb\n", "x\ny\t\n", "labels.txt, line 2: label 2 of 2 is empty; labels are separated by '\\t'"),
    ],
)
def test_pairs_that_do_not_fit(texts: str, labels: str, message: str) -> None:
    Path("texts.txt").write_text(texts)
    Path("labels.txt").write_text(labels)
    with pytest.raises(InputError) as caught:
        list(open_data("texts.txt", labels="labels.txt"))
    assert str(caught.value) == message


def test_folders_that_do_not_fit() -> None:
    folder = Path("set")
    folder.mkdir()
    texts = folder / "train.texts.txt"
    texts.write_text("a\nb\n")
    assert said_about("set") == "set: there is no train.labels.txt or train.labels.npz in it"
    sp.save_npz(folder / "train.labels.npz", sp.csr_array(np.eye(3)))
    needs = "there is no label_names.tsv or label_names.txt, which train.labels.npz needs"
    assert said_about("set") == f"set: {needs}"
    (folder / "label_names.txt").write_text("x\ny\n")
    assert said_about("set") == "set/train.labels.npz has 3 columns, set/label_names.txt has 2 labels"
    (folder / "label_names.txt").write_text("x\ny\nz\n")
    assert said_about("set") == "set/train.texts.txt: the number of lines is 2, set/train.labels.npz has 3 rows"
    texts.write_text("a\n" * 4)
    more = "the number of lines is more than 3, the rows of set/train.labels.npz"
    assert said_about("set") == f"set/train.texts.txt: {more}"
    sp.save_npz(folder / "train.labels.npz", sp.csr_array(-np.eye(3)))
    negative = "has negative values; a label is present (above 0) or absent"
    assert said_about("set") == f"set/train.labels.npz {negative}"


def test_matrices_that_do_not_fit() -> None:
    Path("set").mkdir()
    sp.save_npz("set/X.trn.npz", sp.csr_array(np.eye(2)))
    assert said_about("set").startswith("set: there is no Y.trn.npz or Y.trn.npy")
    sp.save_npz("set/Y.trn.npz", sp.csr_array(np.eye(3)))
    assert said_about("set") == "set: X has 2 rows, Y has 3"
    np.save("set/X.trn.npy", np.eye(2))
    Path("set/X.trn.npz").write_text("no matrix")
    assert "set/X.trn.npz does not hold a matrix" in said_about("set")


def test_columns_of_parquet() -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for table, message in (
        ({"title": ["a"]}, 'a.parquet: there is no column "text"; the columns are "title"'),
        ({"text": [5], "labels": [["x"]]}, 'a.parquet: the column "text" must be of type string, it is int64'),
        ({"text": ["a"], "labels": ["x"]}, 'a.parquet: the column "labels" must be of type list<string>, it is string'),
        ({"text": ["a", None], "labels": [["x"]] * 2}, 'a.parquet, row 2: "text" must be a string, got None'),
        (
            {"text": ["a"] * 2, "labels": [["x"], None]},
            'a.parquet, row 2: "labels" must be a list of strings, got None',
        ),
    ):
        pq.write_table(pa.table(table), "a.parquet")
        assert said_about("a.parquet") == message


def test_names_of_annif_folders_and_skos() -> None:
    Path("a.txt").write_text("text")
    Path("a.key").write_text("cat\ndog\n")
    Path("names.txt").write_text("cat\n")
    with pytest.raises(InputError, match=r"a.key, line 2: names.txt has no label named 'dog'"):
        list(open_data(".", vocabulary="names.txt"))
    Path("names.ttl").write_text("@prefix a: <http://a.example/> .\na:1 a ;\n")
    assert said_about("names.ttl").startswith("names.ttl, line 2: not turtle: ")
    Path("names.rdf").write_text("<a>\n<b></a>")
    assert said_about("names.rdf").startswith("names.rdf, line 2: not xml: ")
    Path("names.nt").write_text("a b c .")
    assert said_about("names.nt").startswith("names.nt: not nt: ")
    Path("names.nt").write_text("")
    assert said_about("names.nt") == "names.nt: there is no skos:Concept in it"
    Path("names.doc").write_text("")
    assert said_about("names.doc").startswith("names.doc: a vocabulary is read from a file that ends with .txt, .tsv")


def test_missing_files() -> None:
    with pytest.raises(InputError, match=r"^nowhere.jsonl: No such file or directory$"):
        open_data("nowhere.jsonl")
    assert said_about("names.txt") == "names.txt: No such file or directory"


if __name__ == "__main__":
    print(table(), end="")
