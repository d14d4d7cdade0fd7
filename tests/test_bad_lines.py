"""Tests for invalid files: error messages name the file, the line, the invalid value and the expected value.

``python tests/test_bad_lines.py`` prints the table of error messages for docs/data.md.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from carya.data import Corpus, Example, Matrices, Vocabulary, open_data, read_vocabulary
from carya.errors import InputError

PAGE = Path(__file__).parent.parent / "docs" / "data.md"

# File name, content and error message. A trailing … stands for the rest of a long message.
INVALID_FILES: list[tuple[str, bytes, str]] = [
    (
        "data.jsonl",
        b'{"text": "a", "labels": ["x"]}\n{"text": "b", labels: []}',
        "data.jsonl, line 2: Invalid JSON at character 15: Expecting property name enclosed in double quotes.",
    ),
    ("data.jsonl", b'["a", ["x"]]', "data.jsonl, line 1: Each line must be a JSON object, got ['a', ['x']]."),
    (
        "data.jsonl",
        b'{"title": "a", "labels": []}',
        'data.jsonl, line 1: Missing key "text"; the keys are "title", "labels".',
    ),
    ("data.jsonl", b"{}", 'data.jsonl, line 1: Missing key "text"; the object is empty.'),
    ("data.jsonl", b'{"text": null, "labels": []}', 'data.jsonl, line 1: "text" must be a string, got None.'),
    (
        "data.jsonl",
        b'{"text": "a", "labels": 0.5}',
        'data.jsonl, line 1: "labels" must be a list of strings or integers, got 0.5.',
    ),
    (
        "data.jsonl",
        b'{"text": "a", "labels": "x;y"}',
        "data.jsonl, line 1: \"labels\" must be a list of strings or integers, got 'x;y'. To split strings into "
        "labels, pass label_separator (--label-separator).",
    ),
    (
        "data.jsonl",
        b'{"text": "a", "labels": ["x", true]}',
        'data.jsonl, line 1: "labels" must be a list of strings or integers, but contains True.',
    ),
    ("data.jsonl", b'{"text": "a", "labels": ["x", ""]}', 'data.jsonl, line 1: "labels" contains an empty label.'),
    (
        "data.jsonl",
        b'{"text": "\\ud800", "labels": []}',
        "data.jsonl, line 1: \"text\" must be a string, got '\\ud800'.",
    ),
    ("data.jsonl", b'\n{"text": "caf\xe9"}', "data.jsonl, line 2: Invalid UTF-8: byte 0xe9 at position 14."),
    ("data.jsonl.gz", b'{"text": "a"}', "data.jsonl.gz: The file is damaged or not a .gz file."),
    ("data.csv", b"", "data.csv: Missing header. The file is empty."),
    (
        "data.csv",
        b"title,labels\na,x",
        'data.csv, line 1: Missing column "text"; the columns are "title", "labels".',
    ),
    ("data.csv", b"text,labels,text\na,x,b", 'data.csv, line 1: There is more than one column named "text".'),
    ("data.csv", b"text,labels\none, two,x", "data.csv, line 2: Expected 2 fields, as in the header, got 3."),
    ("data.csv", b'text,labels\n"a,x\nb,y', "data.csv, line 2: Invalid CSV: unexpected end of data."),
    ("data.csv", b"text,labels\na,x;;y", "data.csv, line 2: Label 2 of 3 is empty. Labels are separated by ';'."),
    (
        "data.csv",
        b"text;labels\na;x,y",
        "data.csv, line 2: 'x,y' can be one label, or labels separated by ','. Pass label_separator "
        "(--label-separator): ';' for one label, or ',' for several.",
    ),
    (
        "data.csv",
        b"text,labels\na,['x']",
        'data.csv, line 2: "labels" looks like a Python list, "[\'x\']". Write the labels as a JSON list, or with '
        "a separator.",
    ),
    ("data.csv", b"\xff\xfet\x00e\x00x", "data.csv, line 1: Invalid UTF-16: truncated data."),
    ("data.json", b'[{"text": "a", "labels": []},\n{"text": 5}]', 'data.json, line 2: "text" must be a string, got 5.'),
    (
        "data.json",
        b'[{"text": "a", "labels": []}',
        "data.json, line 1: Invalid JSON: Expected ',', got the end of the file.",
    ),
    (
        "data.json",
        b'{"text": ["a", "b"], "labels": [["x"]]}',
        'data.json: Column "text" has 2 values, but column "labels" has 1.',
    ),
    (
        "trn.json",
        b'{"title": "a", "target_ind": ["x"]}',
        "trn.json, line 1: \"target_ind\" must be a list of label indices, got ['x'].",
    ),
    ("data.ft", b"__label__x a\n__label__ b", "data.ft, line 2: The label after __label__ is empty."),
    ("data.arrow", b"ARROW2", "data.arrow: The file is damaged or not an Arrow file."),
    ("data.tsv", b"text\tlabels\na x", "data.tsv, line 2: Expected 2 fields, as in the header, got 1."),
    (
        "annif.tsv",
        b"a\t<http://a.example/1>\nb <http://a.example/2>",
        "annif.tsv, line 2: A line must contain a text, a tab and subject URIs, but it has 0 tabs.",
    ),
    (
        "annif.tsv",
        b"a\t<http://a.example/1>\nb\tcat",
        "annif.tsv, line 2: A subject must be a URI in angle brackets, got 'cat'.",
    ),
    (
        "train.txt",
        b"2 3\n0 1:1",
        "train.txt contains a sparse matrix of features and requires a label file. Pass the feature file as the "
        "path, and the label file as labels (--labels).",
    ),
    (
        "trn_X_Xf.txt",
        b"2 3\n0:1",
        "trn_X_Xf.txt contains a sparse matrix of features and requires a label file. There is no trn_X_Y.txt in the "
        "same folder. Pass the feature file as the path, and the label file as labels (--labels).",
    ),
    (
        "notes.txt",
        b"a red apple",
        "notes.txt: Texts in a .txt file require a label file. Pass it as labels (--labels). For another format, pass "
        "its name: …",
    ),
    ("data.docx", b"", 'data.docx: Unknown file type ".docx". Use .jsonl, …'),
    (
        "train.xmc",
        b"2 3\n0 1:1",
        "train.xmc, line 1: The header must consist of three integers (rows, features, labels), got '2 3'.",
    ),
    ("train.xmc", b"2 3 4\n0 1:1", "train.xmc: Expected the number of rows stated in the header (2), got 1."),
    (
        "train.xmc",
        b"1 3 4\n0 1:1\n1 1:1",
        "train.xmc, line 3: Expected the number of rows stated in the header (1), got more.",
    ),
    (
        "train.xmc",
        b"1 3 4\n7 1:1",
        "train.xmc, line 2: Label 7 is out of range for the 4 labels in the header, which are numbered from 0.",
    ),
    (
        "train.xmc",
        b"1 3 4\n0 3:1",
        "train.xmc, line 2: Feature 3 is out of range for the 3 features in the header, which are numbered from 0.",
    ),
    (
        "train.xmc",
        b"1 3 4\n1:1 2:1",
        "train.xmc, line 2: A label must be an integer >= 0, got '1:1'. A row without labels must begin with a space.",
    ),
    ("train.xmc", b"1 3 4\n0,x 1:1", "train.xmc, line 2: A label must be an integer >= 0, got 'x'."),
    ("train.xmc", b"1 3 4\n0 1:1 2", "train.xmc, line 2: A feature must have the form index:value, got '2'."),
    (
        "train.xmc",
        b"1 3 4\n0 1:nan",
        "train.xmc, line 2: The value of feature 1 must be a finite number, got 'nan'.",
    ),
    ("train.xmc", b"1 3 4\n0 1:1 1:2", "train.xmc, line 2: Feature 1 occurs more than once."),
    ("train.svm", b"0 1:1\n-1 1:1", "train.svm, line 2: A label must be an integer >= 0, got '-1'."),
    ("data.parquet", b"PAR2", "data.parquet: The file is damaged or not a Parquet file."),
    ("names.txt", b"cat\ndog\ncat", "names.txt, line 3: Label 'cat' occurs more than once, first on line 1."),
    ("names.txt", b"cat\n\ndog", "names.txt, line 2: The label is empty."),
    (
        "names.tsv",
        b"a:1\tcat\na:2",
        "names.tsv, line 2: Expected 2 or 3 fields, the first two being an id and a name, got 1.",
    ),
    (
        "names.csv",
        b"id,label_en\n1,cat",
        'names.csv, line 1: Missing column "uri"; the columns are "id", "label_en".',
    ),
]

# One valid file per text-based format.
VALID_FILES = {
    "data.jsonl": b'{"text": "a red apple", "labels": ["fruit", "red"]}\n{"text": "a pear", "labels": ["fruit"]}\n',
    "data.csv": b'text,labels\n"a red, ripe apple",fruit;red\na pear,fruit\n',
    "data.tsv": b"text\tlabels\na red apple\tfruit;red\na pear\tfruit\n",
    "annif.tsv": b"a red apple\t<http://a.example/1> <http://a.example/2>\na pear\t<http://a.example/1>\n",
    "train.xmc": b"2 30 40\n0,3 1:0.5 22:1\n 0:2 17:3e-2\n",
    "train.svm": b"0,3 1:0.5 22:1\n 10:2 17:3e-2 # comment\n",
    "names.txt": b"cat\ndog\nhorse\n",
    "names.tsv": b"<http://a.example/1>\tcat\n<http://a.example/2>\tdog\n",
    "names.csv": b"uri,label_en,label_fi\nhttp://a.example/1,cat,kissa\nhttp://a.example/2,dog,koira\n",
}
N_MUTATIONS = 300


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(path: str, **options: Any) -> Vocabulary | Matrices | list[Example]:
    if path.startswith("names."):
        return read_vocabulary(path)
    data = open_data(path, **options)
    return list(data) if isinstance(data, Corpus) else data


def error_message(path: str) -> str:
    with pytest.raises(InputError) as caught:
        read(path)
    return str(caught.value)


@pytest.mark.parametrize(("name", "content", "message"), INVALID_FILES)
def test_invalid_files(name: str, content: bytes, message: str) -> None:
    Path(name).write_bytes(content)
    if message.endswith("…"):
        assert error_message(name).startswith(message[:-1])
    else:
        assert error_message(name) == message


def messages_table() -> str:
    """Return a Markdown table of invalid files and the resulting error messages."""

    def cell(text: str) -> str:
        return f"`{text}`".replace("|", "\\|")

    rows = ["| file | content | message |", "|---|---|---|"]
    for name, content, message in INVALID_FILES:
        visible = (
            content.decode("utf-8", "backslashreplace").replace("\t", "⇥").replace("\n", "⏎").replace("\0", "\\x00")
        )
        rows.append(f"| {cell(name)} | {cell(visible) if visible else 'empty file'} | {cell(message)} |")
    return "\n".join(rows) + "\n"


def test_documentation_lists_all_messages() -> None:
    assert len(INVALID_FILES) >= 20
    assert messages_table() in PAGE.read_text(encoding="utf-8")


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Change, insert or remove one byte; the result always differs from the input."""
    position = rng.randrange(len(content))
    byte = bytes([rng.choice(b'\x00\xff\t\n\r "#,:;<>[]{}09az')])
    removed = rng.choice([0, 1])
    inserted = byte if not removed or rng.random() < 0.5 else b""
    if content[position : position + removed] == inserted:
        inserted = b"~"
    return content[:position] + inserted + content[position + removed :]


def is_equal(left: Vocabulary | Matrices | list[Example], right: Vocabulary | Matrices | list[Example]) -> bool:
    if isinstance(left, Matrices) and isinstance(right, Matrices):
        return all(a.shape == b.shape and (a != b).nnz == 0 for a, b in ((left.X, right.X), (left.Y, right.Y)))
    return left == right


@pytest.mark.parametrize("name", VALID_FILES)
def test_mutated_files_are_rejected_or_read(name: str) -> None:
    """Reading raises no exception other than InputError, and most mutations cause an error or change the data."""
    content, rng = VALID_FILES[name], random.Random(0)
    Path(name).write_bytes(content)
    original = read(name)
    outcomes: Counter[str] = Counter()
    for _ in range(N_MUTATIONS):
        mutated = mutate(content, rng)
        assert mutated != content
        Path(name).write_bytes(mutated)
        try:
            data = read(name)
        except InputError as error:
            message = str(error)
        else:
            outcomes["unchanged" if is_equal(data, original) else "changed"] += 1
            continue
        assert message.startswith(name)
        assert message.endswith(".")
        outcomes["rejected"] += 1
    assert outcomes["rejected"] > 0
    assert outcomes["changed"] > 0
    assert outcomes["unchanged"] < 0.4 * N_MUTATIONS


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ("a\nb\n", "x\n", "labels.txt ends after line 1, but texts.txt has more lines."),
        ("a\n", "x\ny\n", "texts.txt ends after line 1, but labels.txt has more lines."),
        ("a\nb\n", "x\ny\t\n", "labels.txt, line 2: Label 2 of 2 is empty. Labels are separated by '\\t'."),
    ],
)
def test_inconsistent_pairs(texts: str, labels: str, message: str) -> None:
    Path("texts.txt").write_text(texts)
    Path("labels.txt").write_text(labels)
    with pytest.raises(InputError) as caught:
        read("texts.txt", labels="labels.txt")
    assert str(caught.value) == message


def test_inconsistent_text_folders() -> None:
    folder = Path("set")
    folder.mkdir()
    texts = folder / "train.texts.txt"
    texts.write_text("a\nb\n")
    assert error_message("set") == "set contains no train.labels.txt or train.labels.npz."
    sp.save_npz(folder / "train.labels.npz", sp.csr_array(np.eye(3)))
    assert (
        error_message("set") == "set/train.labels.npz requires label_names.tsv or label_names.txt in the same folder."
    )
    (folder / "label_names.txt").write_text("x\ny\n")
    assert error_message("set") == "set/train.labels.npz has 3 columns, but set/label_names.txt has 2 labels."
    (folder / "label_names.txt").write_text("x\ny\nz\n")
    assert error_message("set") == "set/train.texts.txt has 2 lines, but set/train.labels.npz has 3 rows."
    texts.write_text("a\n" * 4)
    assert error_message("set") == "set/train.texts.txt has more than 3 lines, but set/train.labels.npz has 3 rows."
    sp.save_npz(folder / "train.labels.npz", sp.csr_array(-np.eye(3)))
    assert error_message("set").startswith("set/train.labels.npz has negative values")


def test_inconsistent_matrix_folders() -> None:
    Path("set").mkdir()
    sp.save_npz("set/X.trn.npz", sp.csr_array(np.eye(2)))
    assert error_message("set").startswith("Neither set nor its parent folder contains Y.trn.npz or Y.trn.npy")
    sp.save_npz("set/Y.trn.npz", sp.csr_array(np.eye(3)))
    assert error_message("set") == "set: X has 2 rows, but Y has 3."
    np.save("set/X.trn.npy", np.eye(2))
    Path("set/X.trn.npz").write_text("not a matrix")
    assert "set/X.trn.npz does not contain a matrix" in error_message("set")


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_invalid_utf8_in_column_names(kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"text": ["a"], "labels": [["x"]], "name": [1]})
    path = Path(f"a.{kind}")
    if kind == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    else:
        pq.write_table(table, path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"name", b"na\xffe"))
    name = {"arrow": "an Arrow", "parquet": "a Parquet"}[kind]
    assert error_message(f"a.{kind}") == f"a.{kind}: The file is damaged or not {name} file."


def test_invalid_parquet_columns() -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for table, message in (
        ({"title": ["a"]}, 'a.parquet: Missing column "text"; the columns are "title".'),
        ({"text": [5], "labels": [["x"]]}, 'a.parquet: Column "text" must have type string, got int64.'),
        (
            {"text": ["a"], "labels": ["x"]},
            'a.parquet: Column "labels" must have type list<string>, list<integer>, integer, got string. To split '
            "strings into labels, pass label_separator (--label-separator).",
        ),
        ({"text": ["a", None], "labels": [["x"]] * 2}, 'a.parquet, row 2: "text" must be a string, got None.'),
        (
            {"text": ["a"] * 2, "labels": [["x"], None]},
            'a.parquet, row 2: "labels" must be a list of strings or integers, got None.',
        ),
    ):
        pq.write_table(pa.table(table), "a.parquet")
        assert error_message("a.parquet") == message


def test_invalid_label_names_in_annif_folders_and_skos_files() -> None:
    Path("a.txt").write_text("text")
    Path("a.key").write_text("cat\ndog\n")
    Path("names.txt").write_text("cat\n")
    with pytest.raises(InputError, match=r"a.key, line 2: names.txt has no label named 'dog'\."):
        read(".", vocabulary="names.txt")
    Path("names.ttl").write_text("@prefix a: <http://a.example/> .\na:1 a ;\n")
    assert error_message("names.ttl").startswith("names.ttl, line 2: Invalid turtle: ")
    Path("names.rdf").write_text("<a>\n<b></a>")
    assert error_message("names.rdf").startswith("names.rdf, line 2: Invalid xml: ")
    Path("names.nt").write_text("a b c .")
    assert error_message("names.nt").startswith("names.nt: Invalid nt: ")
    Path("names.nt").write_text("")
    assert error_message("names.nt") == "names.nt contains no skos:Concept."
    Path("names.doc").write_text("")
    assert error_message("names.doc").startswith('names.doc: Unknown vocabulary file type ".doc". Use .txt, .tsv')


def test_missing_files() -> None:
    with pytest.raises(InputError, match=r"^nonexistent.jsonl: No such file or directory\.$"):
        open_data("nonexistent.jsonl")
    assert error_message("names.txt") == "names.txt: No such file or directory."


if __name__ == "__main__":
    print(messages_table(), end="")
