"""Data that is written comes back the same, in every format; suffixes and what lies in folders tell which it is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from carya.data import Corpus, Example, Matrices, Vocabulary, open_data, read_vocabulary, write_data, write_vocabulary
from carya.errors import InputError, ParameterError

EXAMPLES = [
    Example("a red apple", ("fruit", "red")),
    Example("", ("empty",)),
    Example("no labels: “naïve” café 🍎", ()),
    Example(' "quoted", with; odd\u2028 signs\x85 ', ("a b", "ü")),
]
URIS = [Example(one.text, tuple(f"http://a.example/{len(label)}" for label in one.labels)) for one in EXAMPLES]
VOCABULARY = Vocabulary(["fruit", "red", "empty", "a b", "ü"], ["Fruit", "Red", "Nothing", "A b", "Ü"])
X = sp.csr_array(np.array([[0, 0.1, 2], [0, 0, 0], [1e-30, 0, -3.5]], np.float32))
Y = sp.csr_array(np.array([[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]], np.float32))


def corpus(path: Path, **options: object) -> Corpus:
    data = open_data(path, **options)
    assert isinstance(data, Corpus)
    return data


@pytest.mark.parametrize("compression", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".tsv", ".ndjson"])
def test_files_of_texts_come_back(suffix: str, compression: str, tmp_path: Path) -> None:
    path = tmp_path / f"data{suffix}{compression}"
    assert write_data(path, Corpus.of(EXAMPLES)) == len(EXAMPLES)
    data = corpus(path)
    assert list(data) == EXAMPLES
    assert list(data) == EXAMPLES  # a second time as well
    assert data.source == str(path)
    assert data.vocabulary is None


def test_parquet_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    many = EXAMPLES * 3000
    assert write_data(path, Corpus.of(many)) == len(many)
    assert list(corpus(path)) == many


@pytest.mark.parametrize("options", [{"format": "annif"}, {}])
def test_annif_lines_come_back(options: dict[str, str], tmp_path: Path) -> None:
    write_data(tmp_path / "data.tsv.gz", Corpus.of(URIS), format="annif")
    assert list(corpus(tmp_path / "data.tsv.gz", **options)) == URIS


def test_a_pair_of_files_comes_back(tmp_path: Path) -> None:
    texts, labels = tmp_path / "texts.txt.xz", tmp_path / "labels.txt"
    write_data(texts, Corpus.of(EXAMPLES), labels=labels)
    assert labels.read_text(encoding="utf-8") == "fruit\tred\nempty\n\na b\tü\n"
    assert list(corpus(texts, labels=labels)) == EXAMPLES
    write_data(texts, Corpus.of(EXAMPLES), labels=labels, label_separator="|")
    assert list(corpus(texts, labels=labels, label_separator="|")) == EXAMPLES


@pytest.mark.parametrize("vocabulary", [None, VOCABULARY, Vocabulary(VOCABULARY.ids)])
def test_a_folder_of_texts_comes_back(vocabulary: Vocabulary | None, tmp_path: Path) -> None:
    for part in ("train", "test", "dev"):
        assert write_data(tmp_path / "set", Corpus.of(EXAMPLES, vocabulary=vocabulary), part=part) == len(EXAMPLES)
        data = corpus(tmp_path / "set", part=part)
        assert list(data) == EXAMPLES
        assert data.vocabulary == vocabulary


def test_a_folder_with_a_label_matrix(tmp_path: Path) -> None:
    (tmp_path / "train.texts.txt").write_text("one\ntwo\nthree\n")
    sp.save_npz(tmp_path / "train.labels.npz", Y)
    write_vocabulary(tmp_path / "label_names.tsv.gz", Vocabulary(list("abcd"), ["A", "B", "C", "D"]))
    data = corpus(tmp_path)
    assert list(data) == [Example("one", ("a", "d")), Example("two", ("b",)), Example("three")]
    assert data.vocabulary is not None
    assert data.vocabulary.names == ["A", "B", "C", "D"]


def same(left: Matrices, right: Matrices) -> bool:
    return all(
        a.shape == b.shape and np.array_equal(sp.csr_array(a).toarray(), sp.csr_array(b).toarray())
        for a, b in ((left.X, right.X), (left.Y, right.Y))
    )


@pytest.mark.parametrize("target", ["data.txt", "data.xmc.gz", "data.txt.zst", "folder"])
def test_matrices_come_back(target: str, tmp_path: Path) -> None:
    path = tmp_path / target
    assert write_data(path, Matrices(X, Y)) == 3
    data = open_data(path)
    assert isinstance(data, Matrices)
    assert data.X.dtype == np.float32
    assert same(data, Matrices(X, Y))


def test_svmlight_comes_back(tmp_path: Path) -> None:
    for suffix in (".svm", ".libsvm.xz"):
        path = tmp_path / f"data{suffix}"
        write_data(path, Matrices(X[:2], Y[:2]))
        data = open_data(path)
        assert isinstance(data, Matrices)
        assert same(data, Matrices(X[:2], Y[:2]))
    with pytest.raises(InputError, match="a row without labels and features cannot be written as svmlight"):
        write_data(tmp_path / "data.svm", Matrices(X[1:2] * 0, Y[2:]))


@pytest.mark.parametrize("names", [None, ["A", "B", "C", "C"]])
def test_pecos_folders_keep_labels_and_dense_features(names: list[str] | None, tmp_path: Path) -> None:
    vocabulary = Vocabulary(list("abcd"), names)
    write_data(tmp_path / "set", Matrices(X.toarray(), Y, vocabulary), part="test")
    assert (tmp_path / "set" / "X.tst.npy").exists()
    data = open_data(tmp_path / "set", part="test")
    assert isinstance(data, Matrices)
    assert isinstance(data.X, np.ndarray)
    assert same(data, Matrices(X, Y))
    assert data.vocabulary == vocabulary


def test_folders_of_x_transformer_and_attentionxml(tmp_path: Path) -> None:
    write_data(tmp_path, Matrices(X, Y))
    (tmp_path / "train_texts.txt").write_text("one\ntwo\nthree\n")
    assert [one.labels for one in corpus(tmp_path)] == [("0", "3"), ("1",), ()]
    (tmp_path / "label_map.txt").write_text("a\nb\nb\nd\n")  # lines that are the same are names
    data = corpus(tmp_path)
    assert [one.labels for one in data] == [("0", "3"), ("1",), ()]
    assert data.vocabulary is not None
    assert data.vocabulary.names == ["a", "b", "b", "d"]
    (tmp_path / "label_map.txt").write_text("a\nb\nc\nd\n")
    assert [one.labels for one in corpus(tmp_path)] == [("a", "d"), ("b",), ()]
    (tmp_path / "train_labels.txt").write_text("a d \n b\n\n")
    assert [one.labels for one in corpus(tmp_path)] == [("a", "d"), ("b",), ()]
    assert isinstance(open_data(tmp_path, format="pecos"), Matrices)


def test_folders_of_annif(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("second\r\ntext\n")
    (tmp_path / "b.key").write_text("dog\n\n")
    (tmp_path / "a.txt").write_text("first")
    (tmp_path / "a.tsv").write_text("<http://a.example/1>\tcat\n<http://a.example/2>\n")
    (tmp_path / "README.txt").write_text("no subjects")
    first = Example("first", ("http://a.example/1", "http://a.example/2"))
    assert list(corpus(tmp_path)) == [first, Example("second\r\ntext\n", ("dog",))]
    animals = Vocabulary(["http://a.example/1", "http://a.example/2"], ["cat", "dog"])
    assert list(corpus(tmp_path, vocabulary=animals))[1].labels == ("http://a.example/2",)


def test_columns_are_chosen(tmp_path: Path) -> None:
    wanted = [Example("A title An abstract", ("x", "y")), Example("Only a title", ())]
    csv = tmp_path / "data.csv"
    csv.write_text('id,title,abstract,subjects\n1,A title,"An abstract",x | y\n\n2,Only a title,,\n')
    options = {"text_column": "title, abstract", "label_column": "subjects"}
    assert list(corpus(csv, **options, label_separator="|")) == wanted
    tsv = tmp_path / "data.tsv"
    tsv.write_text("title\tabstract\tsubjects\r\nA title\tAn abstract\tx;y\r\nOnly a title\t\t\r\n")
    assert list(corpus(tsv, **options)) == wanted
    lines = tmp_path / "data.jsonl"
    lines.write_text('{"title": "A title", "abstract": "An abstract", "subjects": ["x", "y"], "id": 1}\n \n')
    assert list(corpus(lines, **options)) == wanted[:1]
    assert next(iter(corpus(csv, text_column="title", label_column=None))) == Example("A title")


def test_long_fields_of_csv_are_read(tmp_path: Path) -> None:
    import csv

    before = csv.field_size_limit()
    long = Example("word\n" * 100_000, ("x",))
    write_data(tmp_path / "data.csv", Corpus.of([long]))
    assert list(corpus(tmp_path / "data.csv")) == [long]
    assert csv.field_size_limit() == before


words = st.text(max_size=12)
rows = st.lists(st.tuples(words, st.lists(words, max_size=3)), max_size=5)


@pytest.mark.parametrize(
    "target", ["data.jsonl", "data.csv", "data.tsv", "data.tsv annif", "data.parquet", "pair", "set"]
)
@given(rows=rows)
def test_odd_texts_come_back_or_are_refused(
    target: str, rows: list[tuple[str, list[str]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("odd")
    name, _, form = target.partition(" ")
    options = {"labels": folder / "labels"} if target == "pair" else {"format": form} if form else {}
    data = Corpus.of(rows)
    said = refusal(lambda: write_data(folder / name, data, **options))
    if said:
        assert str(folder) in said
        assert not list(folder.rglob("*.*"))
    elif any("" in one.labels for one in data):  # read, an empty label is an error everywhere; two formats can hold it
        assert "has an empty label" in refusal(lambda: list(corpus(folder / name, **options)))
        assert name in ("data.jsonl", "data.parquet")
    else:
        assert list(corpus(folder / name, **options)) == list(data)


def refusal(action: Callable[[], object]) -> str:
    try:
        action()
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("target", "example", "message"),
    [
        ("a.tsv", ("a\tb", []), r"a.tsv, line 2: 'a\tb' has '\t' in it, which this format cannot hold"),
        ("a.tsv", ("a", ["x\ny"]), r"a.tsv, line 2: 'x\ny' has '\n' in it, which this format cannot hold"),
        ("a.csv", ("a", ["x;y"]), "a.csv, line 2: the label 'x;y' has ';' in it, which separates labels"),
        ("a.csv", ("a", [" x"]), "a.csv, line 2: the label ' x' is empty or has spaces around it"),
        ("a.jsonl", ("\ud800", []), r"a.jsonl: half a character, \ud800, cannot be written as UTF-8"),
        ("a.parquet", ("\ud800", []), "a.parquet: half a character cannot be written as UTF-8"),
        ("set", ("a\r", []), r"set/train.texts.txt, line 1: 'a\r' ends with '\r', which this format cannot hold"),
        ("a.txt", ("a", []), "a.txt: texts in a .txt file need a file of labels"),
        ("a.xmc", ("a", []), "a.xmc: the format 'xmc' holds features, examples has texts"),
        ("a.docx", ("a", []), "a.docx: the suffix tells no format; it may be .jsonl, .ndjson, .csv"),
        ("-", ("a", []), "standard output does not tell a format"),
    ],
)
def test_what_a_format_cannot_hold(
    target: str, example: tuple[str, list[str]], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        write_data(target, Corpus.of([example]))
    assert message in str(caught.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_data_must_be_a_corpus_or_matrices(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data must be a Corpus or Matrices, got list; Corpus.of makes one of a list"):
        write_data(tmp_path / "a.jsonl", EXAMPLES)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="X"):
        write_data(tmp_path / "a.txt", Matrices(X * np.float32(np.nan), Y))
    for action in (lambda path: write_data(path, Corpus.of(EXAMPLES)), lambda path: list(corpus(path))):
        (tmp_path / "b.parquet.gz").write_bytes(b"")
        with pytest.raises(InputError, match="a Parquet file is compressed within"):
            action(tmp_path / "b.parquet.gz")
    explicit = sp.csr_array((np.array([0.0, 1.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 2))
    write_data(tmp_path / "a.txt", Matrices(X[:1], explicit))
    assert (tmp_path / "a.txt").read_text() == "1 3 2\n1 1:0.1 2:2.0\n"
    write_data(f"{tmp_path}/v1.0/", Corpus.of(EXAMPLES))
    assert (tmp_path / "v1.0" / "train.texts.txt").exists()


def test_annif_is_told_by_the_first_line_with_subjects(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("none\t\none\t<http://a.example/1>\n")
    assert list(corpus(tmp_path / "a.tsv")) == [Example("none"), Example("one", ("http://a.example/1",))]


def test_annif_refuses_labels_that_are_no_uris(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a subject must be a URI in angle brackets, got '<a b>'"):
        write_data(tmp_path / "a.tsv", Corpus.of([("a", ["a b"])]), format="annif")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "json"}, "the format must be one of jsonl, csv, tsv, parquet, annif, annif-folder, pair"),
        ({"part": "all"}, "the part must be one of train, test, dev; got 'all'"),
        ({"label_separator": ""}, "the label separator must not be empty"),
        ({"label_separator": ";"}, "the format 'jsonl' knows no label_separator"),
        ({"format": "xmc", "text_column": "title"}, "the format 'xmc' knows no text_column"),
        ({"format": "csv", "labels": "labels.txt"}, "the format 'csv' knows no labels"),
        ({"format": "pair"}, "the format 'pair' needs labels, the path of a second file"),
    ],
)
def test_options_that_a_format_does_not_know(options: dict[str, str], message: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text("")
    with pytest.raises(ParameterError, match=message):
        open_data(path, **options)


def test_folders_keep_what_is_in_them(tmp_path: Path) -> None:
    data = Corpus.of(EXAMPLES, vocabulary=VOCABULARY)
    write_data(tmp_path, data)
    with pytest.raises(InputError, match=r"label_names.tsv lists other labels than vocabulary: choose another folder"):
        write_data(tmp_path, Corpus.of(EXAMPLES, vocabulary=Vocabulary(["a"])), part="test")
    (tmp_path / "test.texts.txt.gz").write_bytes(b"")
    with pytest.raises(InputError, match=r"test.texts.txt.gz is in the way: choose another folder"):
        write_data(tmp_path, data, part="test")
    (tmp_path / "train.texts.txt.gz").write_bytes(b"")
    with pytest.raises(InputError, match=r"both train.texts.txt and train.texts.txt.gz; only one can be meant"):
        open_data(tmp_path)
    with pytest.raises(InputError, match="there is no data of the part 'dev' in it"):
        open_data(tmp_path, part="dev")
    with pytest.raises(InputError, match="the format 'jsonl' is that of a file, this is a folder"):
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
def test_vocabularies(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    vocabulary = read_vocabulary(tmp_path / name)
    assert vocabulary == Vocabulary(["http://a.example/1", "http://a.example/2"], ["cat", "dog"])
    assert vocabulary.row("http://a.example/2") == 1
    with pytest.raises(InputError, match=r"there is no label 'http://a\.example/3'"):
        vocabulary.row("http://a.example/3")


@pytest.mark.parametrize(
    ("name", "content"), [("a.ttl", TURTLE), ("a.csv", "uri,label_fi\nhttp://a.example/2,koira\n")]
)
def test_vocabularies_have_languages(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    vocabulary = read_vocabulary(tmp_path / name, language="fi")
    assert vocabulary.names[vocabulary.row("http://a.example/2")] == "koira"
    assert vocabulary.names[0] == (vocabulary.ids[0] if name == "a.ttl" else "koira")  # no name: the id
    with pytest.raises(InputError, match='there are no names in the language "sv", only in '):
        read_vocabulary(tmp_path / name, language="sv")


def test_vocabularies_come_back(tmp_path: Path) -> None:
    odd = Vocabulary(["<a>", "b", "http://a.example/1"], ["A", "<B>", "C c"])
    for brackets in (True, False):
        write_vocabulary(tmp_path / "a.tsv.xz", odd, brackets=brackets)
        assert read_vocabulary(tmp_path / "a.tsv.xz") == odd
    write_vocabulary(tmp_path / "a.txt", Vocabulary(["a", "b"]))
    assert read_vocabulary(tmp_path / "a.txt") == Vocabulary(["a", "b"])
    for vocabulary, message in (
        (odd, "a .txt file holds no names beside ids: write .tsv"),
        (Vocabulary([" a"]), "' a' is empty or has spaces around it"),
        (Vocabulary(["a\nb"]), r"has '\\n' in it"),
    ):
        with pytest.raises(InputError, match=message):
            write_vocabulary(tmp_path / "a.txt", vocabulary)


def test_labels_must_differ_and_have_names() -> None:
    with pytest.raises(InputError, match="the label 'a' occurs twice"):
        Vocabulary(["a", "b", "a"])
    with pytest.raises(InputError, match="2 ids, 1 names"):
        Vocabulary(["a", "b"], ["A"])
    with pytest.raises(InputError, match="X has 2 rows, Y has 3"):
        Matrices(X[:2], Y)
    with pytest.raises(InputError, match="Y has 4 columns, vocabulary has 1 labels"):
        Matrices(X, Y, Vocabulary(["a"]))


@pytest.mark.parametrize(
    ("package", "name", "extra"), [("zstandard", "a.jsonl.zst", "zstd"), ("pyarrow", "a.parquet", "parquet")]
)
def test_missing_packages_are_named(
    package: str, name: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_bytes(b"")
    monkeypatch.setitem(sys.modules, package, None)
    message = rf"{name}: this needs {package}; pip install 'carya\[{extra}\]'"
    with pytest.raises(InputError, match=message):
        list(corpus(tmp_path / name))
    with pytest.raises(InputError, match=message):
        write_data(tmp_path / name, Corpus.of(EXAMPLES))


def test_missing_rdflib_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.ttl").write_text(TURTLE)
    monkeypatch.setitem(sys.modules, "rdflib", None)
    with pytest.raises(InputError, match=r"a.ttl: this needs rdflib; pip install 'carya\[skos\]'"):
        read_vocabulary(tmp_path / "a.ttl")
