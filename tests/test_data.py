"""Tests for data formats: written data can be read back unchanged, and formats are detected correctly.

tests/test_formats.py tests an example of every format.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from carya.data import Corpus, Example, Matrices, Vocabulary, open_data, read_vocabulary, write_data, write_vocabulary
from carya.data.formats.registry import FORMATS, format_names
from carya.errors import InputError, MissingExtraError, ParameterError

EXAMPLES = [
    Example("a red apple", ("fruit", "red")),
    Example("", ("empty",)),
    Example("no labels: “naïve” café 🍎", ()),
    Example(' "quoted", with; odd\u2028 signs\x85 ', ("a b", "ü")),
]
URI_EXAMPLES = [
    Example(example.text, tuple(f"http://a.example/{len(label)}" for label in example.labels)) for example in EXAMPLES
]
VOCABULARY = Vocabulary(["fruit", "red", "empty", "a b", "ü"], ["Fruit", "Red", "Nothing", "A b", "Ü"])
X = sp.csr_array(np.array([[0, 0.1, 2], [0, 0, 0], [1e-30, 0, -3.5]], np.float32))
Y = sp.csr_array(np.array([[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]], np.float32))


def open_corpus(path: Path, **options: Any) -> Corpus:
    data = open_data(path, **options)
    assert isinstance(data, Corpus)
    return data


@pytest.mark.parametrize("compression", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".ndjson"])
def test_text_files_are_restored(suffix: str, compression: str, tmp_path: Path) -> None:
    path = tmp_path / f"data{suffix}{compression}"
    assert write_data(path, Corpus.of(EXAMPLES)) == len(EXAMPLES)
    data = open_corpus(path)
    assert list(data) == EXAMPLES
    assert list(data) == EXAMPLES  # a corpus can be iterated over repeatedly
    assert data.source == str(path)
    assert data.vocabulary is None


def test_parquet_is_restored(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    many = EXAMPLES * 3000
    assert write_data(path, Corpus.of(many)) == len(many)
    assert list(open_corpus(path)) == many


@pytest.mark.parametrize("options", [{"format": "annif"}, {}])
def test_annif_tsv_is_restored(options: dict[str, str], tmp_path: Path) -> None:
    write_data(tmp_path / "data.tsv.gz", Corpus.of(URI_EXAMPLES), format="annif")
    assert list(open_corpus(tmp_path / "data.tsv.gz", **options)) == URI_EXAMPLES


def test_text_and_label_files_are_restored(tmp_path: Path) -> None:
    texts, labels = tmp_path / "texts.txt.xz", tmp_path / "labels.txt"
    write_data(texts, Corpus.of(EXAMPLES), labels=labels)
    assert labels.read_text(encoding="utf-8") == "fruit\tred\nempty\n\na b\tü\n"
    assert list(open_corpus(texts, labels=labels)) == EXAMPLES
    write_data(texts, Corpus.of(EXAMPLES), labels=labels, label_separator="|")
    assert list(open_corpus(texts, labels=labels, label_separator="|")) == EXAMPLES


@pytest.mark.parametrize("vocabulary", [None, VOCABULARY, Vocabulary(VOCABULARY.ids)])
def test_text_folder_is_restored(vocabulary: Vocabulary | None, tmp_path: Path) -> None:
    for part in ("train", "test", "dev"):
        assert write_data(tmp_path / "set", Corpus.of(EXAMPLES, vocabulary=vocabulary), part=part) == len(EXAMPLES)
        data = open_corpus(tmp_path / "set", part=part)
        assert list(data) == EXAMPLES
        assert data.vocabulary == vocabulary


def test_text_folder_with_label_matrix(tmp_path: Path) -> None:
    (tmp_path / "train.texts.txt").write_text("one\ntwo\nthree\n")
    sp.save_npz(tmp_path / "train.labels.npz", Y)
    write_vocabulary(tmp_path / "label_names.tsv.gz", Vocabulary(list("abcd"), ["A", "B", "C", "D"]))
    data = open_corpus(tmp_path)
    assert list(data) == [Example("one", ("a", "d")), Example("two", ("b",)), Example("three")]
    assert data.vocabulary is not None
    assert data.vocabulary.names == ["A", "B", "C", "D"]


def are_equal(left: Matrices, right: Matrices) -> bool:
    return all(
        a.shape == b.shape and np.array_equal(sp.csr_array(a).toarray(), sp.csr_array(b).toarray())
        for a, b in ((left.X, right.X), (left.Y, right.Y))
    )


@pytest.mark.parametrize("target", ["data.txt", "data.xmc.gz", "data.txt.zst", "folder"])
def test_matrices_are_restored(target: str, tmp_path: Path) -> None:
    path = tmp_path / target
    assert write_data(path, Matrices(X, Y)) == 3
    data = open_data(path)
    assert isinstance(data, Matrices)
    assert data.X.dtype == np.float32
    assert are_equal(data, Matrices(X, Y))


def test_svmlight_is_restored(tmp_path: Path) -> None:
    for suffix in (".svm", ".libsvm.xz"):
        path = tmp_path / f"data{suffix}"
        write_data(path, Matrices(X[:2], Y[:2]))
        data = open_data(path)
        assert isinstance(data, Matrices)
        assert are_equal(data, Matrices(X[:2], Y[:2]))
    with pytest.raises(InputError, match=r"svmlight cannot represent a row with neither labels nor features\."):
        write_data(tmp_path / "data.svm", Matrices(X[1:2] * 0, Y[2:]))


@pytest.mark.parametrize("names", [None, ["A", "B", "C", "C"]])
def test_pecos_folder_stores_labels_and_dense_features(names: list[str] | None, tmp_path: Path) -> None:
    vocabulary = Vocabulary(list("abcd"), names)
    write_data(tmp_path / "set", Matrices(X.toarray(), Y, vocabulary), part="test")
    assert (tmp_path / "set" / "X.tst.npy").exists()
    data = open_data(tmp_path / "set", part="test")
    assert isinstance(data, Matrices)
    assert isinstance(data.X, np.ndarray)
    assert are_equal(data, Matrices(X, Y))
    assert data.vocabulary == vocabulary


def test_x_transformer_and_attentionxml_folders(tmp_path: Path) -> None:
    write_data(tmp_path, Matrices(X, Y))
    (tmp_path / "train_texts.txt").write_text("one\ntwo\nthree\n")
    assert [example.labels for example in open_corpus(tmp_path)] == [("0", "3"), ("1",), ()]
    (tmp_path / "label_map.txt").write_text("a\nb\nb\nd\n")  # if names are repeated, label indices are used as ids
    data = open_corpus(tmp_path)
    assert [example.labels for example in data] == [("0", "3"), ("1",), ()]
    assert data.vocabulary is not None
    assert data.vocabulary.names == ["a", "b", "b", "d"]
    (tmp_path / "label_map.txt").write_text("a\nb\nc\nd\n")
    assert [example.labels for example in open_corpus(tmp_path)] == [("a", "d"), ("b",), ()]
    (tmp_path / "train_labels.txt").write_text("a d \n b\n\n")
    assert [example.labels for example in open_corpus(tmp_path)] == [("a", "d"), ("b",), ()]
    assert isinstance(open_data(tmp_path, format="pecos"), Matrices)


def test_annif_folder(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("second\r\ntext\n")
    (tmp_path / "b.key").write_text("dog\n\n")
    (tmp_path / "a.txt").write_text("first")
    (tmp_path / "a.tsv").write_text("<http://a.example/1>\tcat\n<http://a.example/2>\n")
    (tmp_path / "README.txt").write_text("no subjects")
    first = Example("first", ("http://a.example/1", "http://a.example/2"))
    assert list(open_corpus(tmp_path)) == [first, Example("second\r\ntext\n", ("dog",))]
    animals = Vocabulary(["http://a.example/1", "http://a.example/2"], ["cat", "dog"])
    assert list(open_corpus(tmp_path, vocabulary=animals))[1].labels == ("http://a.example/2",)
    same_names = Vocabulary(["first", "second"], ["dog", "dog"])
    assert list(open_corpus(tmp_path, vocabulary=same_names))[1].labels == ("first",)
    with pytest.raises(InputError, match=r"b\.key, line 1: vocabulary has no label named 'dog'"):
        list(open_corpus(tmp_path, vocabulary=Vocabulary(["a"])))


def test_column_options(tmp_path: Path) -> None:
    expected = [Example("A title An abstract", ("x", "y")), Example("Only a title", ())]
    csv = tmp_path / "data.csv"
    csv.write_text('id,title,abstract,subjects\n1,A title,"An abstract",x | y\n\n2,Only a title,,\n')
    options = {"text_column": "title, abstract", "label_column": "subjects"}
    assert list(open_corpus(csv, **options, label_separator="|")) == expected
    tsv = tmp_path / "data.tsv"
    tsv.write_text("title\tabstract\tsubjects\r\nA title\tAn abstract\tx;y\r\nOnly a title\t\t\r\n")
    assert list(open_corpus(tsv, **options)) == expected
    lines = tmp_path / "data.jsonl"
    lines.write_text('{"title": "A title", "abstract": "An abstract", "subjects": ["x", "y"], "id": 1}\n \n')
    assert list(open_corpus(lines, **options)) == expected[:1]
    assert next(iter(open_corpus(csv, text_column="title", label_column=None))) == Example("A title")


def test_long_csv_fields_are_read(tmp_path: Path) -> None:
    import csv

    limit = csv.field_size_limit()
    long = Example("word\n" * 100_000, ("x",))
    write_data(tmp_path / "data.csv", Corpus.of([long]))
    assert list(open_corpus(tmp_path / "data.csv")) == [long]
    assert csv.field_size_limit() == limit


words = st.text(max_size=12)
rows = st.lists(st.tuples(words, st.lists(words, max_size=3)), max_size=5)


@pytest.mark.parametrize(
    ("target", "outcomes"),
    [
        ("data.jsonl", {"restored", "rejected on reading"}),  # empty labels can be written, but not read
        ("data.parquet", {"restored", "rejected on reading"}),
        ("data.csv", {"restored", "rejected on writing"}),
        ("data.tsv", {"restored", "rejected on writing"}),
        ("data.tsv annif", {"restored", "rejected on writing"}),
        ("pair", {"restored", "rejected on writing"}),
        ("set", {"restored", "rejected on writing"}),
    ],
)
def test_arbitrary_texts_are_restored_or_rejected(
    target: str, outcomes: set[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    observed: Counter[str] = Counter()

    @given(rows=rows)
    def check(rows: list[tuple[str, list[str]]]) -> None:
        folder = tmp_path_factory.mktemp("data")
        name, _, form = target.partition(" ")
        options = {"labels": folder / "labels"} if target == "pair" else {"format": form} if form else {}
        data = Corpus.of(rows)
        message = error_message(lambda: write_data(folder / name, data, **options))
        if message:
            assert str(folder) in message
            assert not list(folder.rglob("*.*"))
            observed["rejected on writing"] += 1
        elif any("" in example.labels for example in data):
            assert "contains an empty label" in error_message(lambda: list(open_corpus(folder / name, **options)))
            observed["rejected on reading"] += 1
        else:
            assert list(open_corpus(folder / name, **options)) == list(data)
            observed["restored"] += any(example.text and example.labels for example in data)

    check()
    assert {outcome for outcome, count in observed.items() if count} == outcomes


def error_message(action: Callable[[], object]) -> str:
    """Return the message of the InputError that an action raises, or an empty string if it raises none."""
    try:
        action()
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("target", "example", "message"),
    [
        ("a.tsv", ("a\tb", []), r"a.tsv, line 2: 'a\tb' contains '\t', which this format cannot represent."),
        ("a.tsv", ("a", ["x\ny"]), r"a.tsv, line 2: 'x\ny' contains '\n', which this format cannot represent."),
        (
            "a.csv",
            ("a", ["x;y"]),
            "a.csv, line 2: Label 'x;y' contains the label separator, ';'. Use a different separator.",
        ),
        ("a.csv", ("a", [" x"]), "a.csv, line 2: Label ' x' is empty, or begins or ends with a space."),
        ("a.jsonl", ("\ud800", []), r"a.jsonl: The text contains a lone surrogate, \ud800, which UTF-8 cannot encode."),
        (
            "a.parquet",
            ("\ud800", []),
            "a.parquet: A text or label contains a lone surrogate, which UTF-8 cannot encode.",
        ),
        ("set", ("a\r", []), r"set/train.texts.txt, line 1: 'a\r' ends with '\r', which this format cannot represent."),
        ("a.txt", ("a", []), "a.txt: Texts in a .txt file require a label file"),
        ("a.xmc", ("a", []), "a.xmc: The format 'xmc' stores features, but examples contains texts."),
        ("a.docx", ("a", []), 'a.docx: Unknown file type ".docx". Use .jsonl, .ndjson, .json, .csv'),
        ("-", ("a", []), "Standard output requires a format. Pass one of: jsonl, json, csv"),
    ],
)
def test_data_that_a_format_cannot_represent(
    target: str, example: tuple[str, list[str]], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        write_data(target, Corpus.of([example]))
    assert message in str(caught.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_data_must_be_a_corpus_or_matrices(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"data must be a Corpus or Matrices, got list\. Convert a list with Corpus\.of\."
    ):
        write_data(tmp_path / "a.jsonl", EXAMPLES)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="X"):
        write_data(tmp_path / "a.txt", Matrices(X * np.float32(np.nan), Y))
    for action in (lambda path: write_data(path, Corpus.of(EXAMPLES)), lambda path: list(open_corpus(path))):
        (tmp_path / "b.parquet.gz").write_bytes(b"")
        with pytest.raises(InputError, match="Parquet files are compressed internally"):
            action(tmp_path / "b.parquet.gz")
    explicit = sp.csr_array((np.array([0.0, 1.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    write_data(tmp_path / "a.txt", Matrices(X[:1], explicit))
    assert (tmp_path / "a.txt").read_text() == "1 3 2\n1 1:0.1 2:2.0\n"
    write_data(f"{tmp_path}/v1.0/", Corpus.of(EXAMPLES))
    assert (tmp_path / "v1.0" / "train.texts.txt").exists()


def test_annif_is_detected_by_the_first_line_with_subjects(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("none\t\none\t<http://a.example/1>\n")
    assert list(open_corpus(tmp_path / "a.tsv")) == [Example("none"), Example("one", ("http://a.example/1",))]


def test_annif_rejects_labels_that_are_not_uris(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"A subject must be a URI in angle brackets, got '<a b>'\."):
        write_data(tmp_path / "a.tsv", Corpus.of([("a", ["a b"])]), format="annif")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"format": "yaml"},
            "format must be one of jsonl, json, csv, tsv, parquet, arrow, pair, lines, .*, got 'yaml'",
        ),
        ({"part": "all"}, "part must be one of train, test, dev, got 'all'"),
        ({"label_separator": ""}, "label_separator must not be empty"),
        ({"format": "annif", "label_separator": ";"}, "The format 'annif' does not support label_separator"),
        ({"zero_based": True}, "The format 'jsonl' does not support zero_based"),
        ({"defaults": {"part": "test"}}, "defaults must contain only format, text_column, .*, got part='test'"),
        ({"defaults": {"zero_based": 1}}, "with valid values, got zero_based=1"),
        ({"defaults": {"format": "yaml"}}, "with valid values, got format='yaml'"),
        ({"format": "xmc", "text_column": "title"}, "The format 'xmc' does not support text_column"),
        ({"format": "csv", "labels": "labels.txt"}, "The format 'csv' does not support labels"),
        ({"format": "pair"}, "The format 'pair' requires a second file. Pass it as labels"),
    ],
)
def test_unsupported_options(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text("")
    with pytest.raises(ParameterError, match=message):
        open_data(path, **options)


def test_existing_folders_are_not_damaged(tmp_path: Path) -> None:
    data = Corpus.of(EXAMPLES, vocabulary=VOCABULARY)
    write_data(tmp_path, data)
    with pytest.raises(InputError, match=r"label_names.tsv and vocabulary differ\. Choose another folder\."):
        write_data(tmp_path, Corpus.of(EXAMPLES, vocabulary=Vocabulary(["a"])), part="test")
    (tmp_path / "test.texts.txt.gz").write_bytes(b"")
    with pytest.raises(InputError, match=r"test.texts.txt.gz exists and would conflict with the new files\. Choose"):
        write_data(tmp_path, data, part="test")
    (tmp_path / "train.texts.txt.gz").write_bytes(b"")
    with pytest.raises(
        InputError, match=r"contains both train.texts.txt and train.texts.txt.gz\. Remove one of them\."
    ):
        open_data(tmp_path)
    with pytest.raises(
        InputError,
        match=r"no data for part 'dev'\. Expected dev.texts.txt, dev_texts.txt, .*, dev_X_Xf.txt, or \*.txt",
    ):
        open_data(tmp_path, part="dev")
    with pytest.raises(InputError, match="is a folder, but the format 'jsonl' requires a file"):
        open_data(tmp_path, format="jsonl")


TURTLE = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
<http://a.example/2> a skos:Concept ; skos:prefLabel "dog"@en, "koira"@fi .
<http://a.example/1> a skos:Concept ; skos:prefLabel "cat"@en .
<http://a.example/3> a skos:Concept ; skos:prefLabel "unicorn"@en ; owl:deprecated true .
<http://a.example/scheme> a skos:ConceptScheme ; skos:prefLabel "animals"@en .
"""
XML = """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:s="http://www.w3.org/2004/02/skos/core#">
<s:Concept rdf:about="http://a.example/2"><s:prefLabel xml:lang="en">dog</s:prefLabel></s:Concept>
<s:Concept rdf:about="http://a.example/1"><s:prefLabel xml:lang="en">cat</s:prefLabel></s:Concept>
</rdf:RDF>"""
TRIPLES = "".join(
    f"<http://a.example/{n}> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> "
    "<http://www.w3.org/2004/02/skos/core#Concept> .\n"
    f'<http://a.example/{n}> <http://www.w3.org/2004/02/skos/core#prefLabel> "{name}"@en .\n'
    for n, name in ((1, "cat"), (2, "dog"))
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "<http://a.example/1>\tcat\n<http://a.example/2>\tdog\tnotation\n"),
        ("a.tsv", "http://a.example/1\tcat\r\nhttp://a.example/2\tdog\r\n"),
        ("a.csv", "uri,notation,label_en,label_fi\nhttp://a.example/1,,cat,\nhttp://a.example/2,,dog,koira\n"),
        ("a.ttl", TURTLE),
        ("a.rdf", XML),
        ("a.nt", TRIPLES),
    ],
)
def test_vocabulary_formats(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    vocabulary = read_vocabulary(tmp_path / name)
    assert vocabulary == Vocabulary(["http://a.example/1", "http://a.example/2"], ["cat", "dog"])
    assert vocabulary.number("http://a.example/2") == 1
    assert "http://a.example/1" in vocabulary
    assert "cat" not in vocabulary
    assert 1 not in vocabulary
    assert vocabulary.index.find_name("dog") == 1
    with pytest.raises(InputError, match=r"Unknown label 'http://a\.example/3'\."):
        vocabulary.number("http://a.example/3")


@pytest.mark.parametrize(
    ("name", "content"), [("a.ttl", TURTLE), ("a.csv", "uri,label_fi\nhttp://a.example/2,koira\n")]
)
def test_vocabulary_languages(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    vocabulary = read_vocabulary(tmp_path / name, language="fi")
    assert vocabulary.names[vocabulary.number("http://a.example/2")] == "koira"
    if name == "a.ttl":  # a label that has no name in this language is named by its id
        assert vocabulary.names[0] == vocabulary.ids[0]
    with pytest.raises(InputError, match=r'There are no names in the language "sv"\. The languages are .*"fi"'):
        read_vocabulary(tmp_path / name, language="sv")


def test_vocabularies_are_restored(tmp_path: Path) -> None:
    vocabulary = Vocabulary(["<a>", "b", "http://a.example/1"], ["A", "<B>", "C c"])
    for brackets in (True, False):
        write_vocabulary(tmp_path / "a.tsv.xz", vocabulary, brackets=brackets)
        assert read_vocabulary(tmp_path / "a.tsv.xz") == vocabulary
    write_vocabulary(tmp_path / "a.txt", Vocabulary(["a", "b"]))
    assert read_vocabulary(tmp_path / "a.txt") == Vocabulary(["a", "b"])
    for invalid, message in (
        (vocabulary, r"A .txt file cannot store names in addition to ids\. Use \.tsv\."),
        (Vocabulary([" a"]), "must not be empty and must not begin or end with a space, got ' a'"),
        (Vocabulary(["a\nb"]), r"contains '\\n'"),
    ):
        with pytest.raises(InputError, match=message):
            write_vocabulary(tmp_path / "a.txt", invalid)


def test_inconsistent_vocabularies_and_matrices_are_rejected() -> None:
    with pytest.raises(InputError, match="Label 'a' occurs more than once"):
        Vocabulary(["a", "b", "a"])
    with pytest.raises(InputError, match="Expected 2 names, one per id, got 1"):
        Vocabulary(["a", "b"], ["A"])
    with pytest.raises(InputError, match="X has 2 rows, but Y has 3"):
        Matrices(X[:2], Y)
    with pytest.raises(InputError, match="Y has 4 columns, but vocabulary has 1 labels"):
        Matrices(X, Y, Vocabulary(["a"]))


@pytest.mark.parametrize(
    ("package", "name", "extra"),
    [("zstandard", "a.jsonl.zst", "zstd"), ("pyarrow", "a.parquet", "arrow"), ("pyarrow", "a.feather", "arrow")],
)
def test_errors_for_missing_packages_name_the_extra(
    package: str, name: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_bytes(b"")
    monkeypatch.setitem(sys.modules, package, None)
    message = rf"{name} requires {package}\. Install it with: pip install 'carya\[{extra}\]'"
    with pytest.raises(MissingExtraError, match=message):
        list(open_corpus(tmp_path / name))
    with pytest.raises(MissingExtraError, match=message):
        write_data(tmp_path / name, Corpus.of(EXAMPLES))


def test_the_error_for_missing_rdflib_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.ttl").write_text(TURTLE)
    monkeypatch.setitem(sys.modules, "rdflib", None)
    with pytest.raises(
        MissingExtraError, match=r"a.ttl requires rdflib\. Install it with: pip install 'carya\[skos\]'"
    ):
        read_vocabulary(tmp_path / "a.ttl")


@pytest.mark.parametrize("name", FORMATS)
def test_format_functions_exist(name: str) -> None:
    form = FORMATS[name]
    for function in filter(None, (form.read, form.write, form.detect)):
        assert form.load(function).__doc__
    assert form.is_folder == bool(form.folder_file)


def test_the_error_for_an_unknown_format_lists_writable_formats(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=re.escape(f"one of {', '.join(format_names(writable=True))}, got 'x'")):
        write_data(tmp_path / "a", Corpus.of(EXAMPLES), format="x")
    only_read = set(format_names()) - set(format_names(writable=True))
    assert only_read == {"annif-folder", "huggingface", "lines", "x-transformer", "xmc-json", "xmc-json-folder"}
