"""Tests for every data format: sample files are read correctly, and written data can be read back.

``python tests/test_formats.py`` prints the table of formats for docs/data.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from carya.core.progress import Progress
from carya.data import Corpus, Example, Matrices, Vocabulary, open_data, write_data
from carya.data.formats.detection import detect_format
from carya.data.formats.registry import FORMATS
from carya.data.io import reading_progress
from carya.errors import InputError, ParameterError

import format_files
from command_line import run
from format_files import FORMAT_FILES, NAMED, NAMES, NUMBERED, TEXTS, URIS, FormatFile

PAGE = Path(__file__).parent.parent / "docs" / "data.md"

#: For each writable format: the path to write to and the additional options.
WRITTEN: dict[str, tuple[str, dict[str, str]]] = {
    "jsonl": ("data.jsonl", {}),
    "json": ("data.json.zst", {}),
    "csv": ("data.csv", {}),
    "tsv": ("data.tsv", {}),
    "parquet": ("data.parquet", {}),
    "arrow": ("data.feather", {}),
    "pair": ("texts.txt", {"labels": "labels.txt"}),
    "fasttext": ("data.ft", {}),
    "text2text": ("data.tsv", {}),
    "annif": ("data.tsv", {}),
    "xmc": ("data.xmc", {}),
    "xmc-pair": ("trn_X_Xf.txt.gz", {}),
    "svmlight": ("data.svm", {}),
    "npz": ("X.npz", {"labels": "Y.npz"}),
    "texts": ("set", {}),
    "pecos": ("set", {}),
    "xmc-folder": ("set", {}),
}


def options_of(file: FormatFile, folder: Path) -> dict[str, Any]:
    return {name: folder / value if name == "labels" else value for name, value in file.options.items()}


def check(data: Corpus | Matrices, content: list[Example] | None) -> None:
    if content is not None:
        assert isinstance(data, Corpus)
        assert list(data) == content
        assert list(data) == content
        assert list(data.texts()) == [example.text for example in content]
    else:
        assert isinstance(data, Matrices)
        for actual, expected in ((data.X, format_files.X), (data.Y, format_files.Y)):
            assert actual.dtype == np.float32
            assert np.array_equal(actual.toarray() if sp.issparse(actual) else actual, expected)


@pytest.mark.parametrize("name", FORMAT_FILES)
def test_every_format_is_read(name: str, tmp_path: Path) -> None:
    file = FORMAT_FILES[name]
    file.write(tmp_path)
    path, options = tmp_path / file.path, options_of(file, tmp_path)
    check(open_data(path, format=file.format, **options), file.content)
    needs_labels = file.options.get("label_column", "") is not None
    part = options.get("part", "train")
    assert detect_format(path, part, options.get("labels"), needs_labels=needs_labels) == file.format
    check(open_data(path, **options), file.content)


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_is_restored(name: str, tmp_path: Path) -> None:
    path = tmp_path / WRITTEN[name][0]
    options: dict[str, Any] = {key: tmp_path / value for key, value in WRITTEN[name][1].items()}
    data: Corpus | Matrices = Matrices(sp.csr_array(format_files.X), sp.csr_array(format_files.Y))
    content: list[Example] | None = None
    if FORMATS[name].content == "texts":
        content = {"text2text": NUMBERED, "annif": format_files.WITH_URIS}.get(name, NAMED)
        data = Corpus.of(content)
    assert write_data(path, data, format=name, **options) == len(TEXTS)
    check(open_data(path, format=name, **options), content)
    check(open_data(path, **options), content)


def formats_table() -> str:
    """Return the table for docs/data.md that shows which formats these tests read and write."""
    read = {file.format for file in FORMAT_FILES.values()}
    table = ["| format | suffixes | content | description | read | write |", "|---|---|---|---|---|---|"]
    for name, form in FORMATS.items():
        suffixes = "a folder" if form.is_folder else ", ".join(f"`{suffix}`" for suffix in form.suffixes)
        cells = ["✓" if name in tested else "" for tested in (read, WRITTEN)]
        table.append(f"| `{name}` | {suffixes} | {form.content} | {form.description} | {' | '.join(cells)} |")
    return "\n".join(table) + "\n"


def test_documentation_lists_all_formats() -> None:
    assert formats_table() in PAGE.read_text(encoding="utf-8")
    assert {file.format for file in FORMAT_FILES.values()} == set(FORMATS)
    assert set(WRITTEN) == {name for name, form in FORMATS.items() if form.write}


@pytest.mark.parametrize(
    "compression",
    ["", ".gz", ".xz", ".zst"],
)
@pytest.mark.parametrize("name", ["json", "fasttext", "text2text", "xmc-pair"])
def test_compressed_files(name: str, compression: str, tmp_path: Path) -> None:
    path = tmp_path / f"{Path(WRITTEN[name][0]).name.partition('.')[0]}.txt{compression}"
    content = {"json": NAMED, "fasttext": NAMED, "text2text": NUMBERED}.get(name)
    data = Corpus.of(content) if content else Matrices(sp.csr_array(format_files.X), sp.csr_array(format_files.Y))
    write_data(path, data, format=name)
    check(open_data(path), content)


def test_hugging_face_reads_and_writes_the_same_folders(tmp_path: Path) -> None:
    """Check that `datasets` reads the folder from format_files, and that Carya reads folders written by `datasets`."""
    datasets = pytest.importorskip("datasets")
    format_files.write_dataset(tmp_path)
    loaded = datasets.load_from_disk(str(tmp_path / "saved"))
    assert list(loaded["train"]["text"]) == list(TEXTS)
    classes = datasets.Sequence(datasets.ClassLabel(names=list(NAMES)))
    features = datasets.Features({"text": datasets.Value("string"), "labels": classes})
    rows = {"text": list(TEXTS) * 100, "labels": [list(row) for row in format_files.NUMBERS] * 100}
    saved = datasets.Dataset.from_dict(rows, features=features)
    saved.save_to_disk(str(tmp_path / "one"), num_shards=3)
    data = open_data(tmp_path / "one")
    assert isinstance(data, Corpus)
    assert list(data) == NAMED * 100
    assert data.vocabulary == Vocabulary(NAMES)
    saved.select(range(5, 1, -1)).save_to_disk(str(tmp_path / "some"))
    assert [example.text for example in open_data(tmp_path / "some")] == [TEXTS[row % 3] for row in range(5, 1, -1)]  # type: ignore[union-attr]
    datasets.DatasetDict(train=saved, test=saved.select([1])).save_to_disk(str(tmp_path / "splits"))
    assert list(open_data(tmp_path / "splits", part="test")) == NAMED[1:2]  # type: ignore[arg-type]
    saved.to_parquet(str(tmp_path / "data.parquet"))
    assert list(open_data(tmp_path / "data.parquet")) == NAMED * 100  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no data for part 'dev'"):
        open_data(tmp_path / "splits", part="dev")


def test_saved_datasets_are_checked(tmp_path: Path) -> None:
    format_files.write_dataset(tmp_path)
    root = tmp_path / "saved" / "train"
    state = json.loads((root / "state.json").read_text())
    for change, message in (
        ({"_data_files": [{"filename": "../x.arrow"}]}, "must contain the names of files in the folder"),
        ({"_data_files": [{"filename": "x.arrow"}]}, "x.arrow: No such file or directory"),
        ({"_data_files": 5}, '"_data_files" must be a list'),
        (
            {"_indices_data_files": [{"filename": "i.arrow"}]},
            r"Call flatten_indices\(\) and save the data set again",
        ),
    ):
        (root / "state.json").write_text(json.dumps(state | change))
        with pytest.raises(InputError, match=message):
            open_data(tmp_path / "saved")
    (root / "state.json").write_text("{")
    with pytest.raises(InputError, match=r"state.json: Invalid JSON"):
        open_data(tmp_path / "saved")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_spreadsheets(delimiter: str, encoding: str, tmp_path: Path) -> None:
    rows = [("title", "ort", "labels"), ('ein "roter"\r\nApfel', "Köln", "rot+süß"), ("Birne", "", "")]
    quoted = ["".join(delimiter.join('"' + cell.replace('"', '""') + '"' for cell in row) + "\r\n") for row in rows]
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    for first in ("", f"sep={delimiter}\r\n"):
        (tmp_path / "data.csv").write_bytes(mark + (first + "".join(quoted)).encode(encoding))
        data = open_data(tmp_path / "data.csv", text_column="title,ort", label_separator="+")
        assert list(data) == [Example('ein "roter"\r\nApfel Köln', ("rot", "süß")), Example("Birne")]  # type: ignore[arg-type]
        (tmp_path / "data.csv").write_bytes(mark + (first + "".join(quoted) + '"x"\r\n').encode(encoding))
        with pytest.raises(InputError, match=rf"data.csv, line {5 + bool(first)}: Expected 3 fields, .*, got 1"):
            list(open_data(tmp_path / "data.csv", text_column="title", label_separator="+"))  # type: ignore[arg-type]


def test_json_is_parsed_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carya.data.io.files._BUFFER_SIZE", 7)
    texts = [f'{"text " * (row % 7)}"\\ \n é {row}' for row in range(300)]
    content = json.dumps([{"text": text, "labels": [row]} for row, text in enumerate(texts)], indent=2)
    (tmp_path / "data.json").write_text(content)
    data = open_data(tmp_path / "data.json")
    assert list(data) == [Example(text, (str(row),)) for row, text in enumerate(texts)]  # type: ignore[arg-type]
    first_line = content[: content.index('"labels"', 9000)].count("\n") + 1
    (tmp_path / "data.json").write_text(content[:9000] + content[9000:].replace('"labels"', "labels", 1))
    with pytest.raises(InputError, match=rf"data.json, line {first_line}: Invalid JSON at character 5"):
        list(open_data(tmp_path / "data.json"))  # type: ignore[arg-type]
    for content, message in (
        ('{"a": 1}', 'Missing key "text"'),
        ("[[1]]", r"line 1: Each value must be a JSON object, got \[1\]"),
        ('[{"text": "a", "labels": []}] 1', "line 1: Expected the end of the file after the array"),
        ('{"text": ["a"], "labels": [[]]} {}', "An object of columns must be the only value"),
        ('{"text": {"0": "a"}, "labels": {"1": []}}', 'Columns "text" and "labels" have different row names'),
        ('{"text": ["a"], "labels": 5}', 'Column "labels" must be a list, got 5'),
        ("[" * 100_000, "line 1: Invalid JSON"),
    ):
        (tmp_path / "data.json").write_text(content)
        with pytest.raises(InputError, match=message):
            list(open_data(tmp_path / "data.json"))  # type: ignore[arg-type]


def test_arrow_columns(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    text = pa.array(list(TEXTS))
    for labels, options in (
        (pa.array(["fruit|red", "fruit", "other"]), {"label_separator": "|"}),
        (pa.array(["fruit|red", "fruit", "other"]).dictionary_encode(), {"label_separator": "|"}),
        (pa.array([list(e.labels) for e in NAMED], pa.large_list(pa.large_string())), {}),
    ):
        pq.write_table(pa.table({"text": text.dictionary_encode(), "labels": labels}), tmp_path / "a.parquet")
        assert list(open_data(tmp_path / "a.parquet", **options)) == NAMED  # type: ignore[arg-type]
    pq.write_table(pa.table({"text": text, "labels": pa.array([3, 1, 4], pa.int16())}), tmp_path / "a.parquet")
    assert [e.labels for e in open_data(tmp_path / "a.parquet")] == [("3",), ("1",), ("4",)]  # type: ignore[union-attr]
    pq.write_table(pa.table({"text": text, "labels": pa.array([3.5, 1, 4])}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match='Column "labels" must have type list<string>, list<integer>, integer, got do'):
        list(open_data(tmp_path / "a.parquet"))  # type: ignore[arg-type]


def test_fasttext_labels_can_be_anywhere(tmp_path: Path) -> None:
    (tmp_path / "a.ft").write_text("__label__a  text __label__b more\ntext only\n__label__a\n\n end __label__c\n")
    assert list(open_data(tmp_path / "a.ft")) == [  # type: ignore[arg-type]
        Example("text more", ("a", "b")),
        Example("text only"),
        Example("", ("a",)),
        Example("end", ("c",)),
    ]
    for example, message in (
        (Example("a", ("x y",)), "Label 'x y' is empty or contains whitespace"),
        (Example("a __label__x"), "contains a word that begins with __label__"),
        (Example(" a"), "is blank, or begins or ends with a space"),
    ):
        with pytest.raises(InputError, match=f"b.ft, line 1: .*{message}"):
            write_data(tmp_path / "b.ft", Corpus.of([example]))


def test_text2text_checks_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    (tmp_path / "output-items.txt").write_text("x\ny\n")
    for line, message in (
        ("x\ta", "A label must be an integer >= 0, optionally followed by a colon and a relevance, got 'x'"),
        ("0:-1\ta", "The relevance must be a number >= 0, got '-1'"),
        ("2\ta", "Label 2 is out of range for the 2 labels in .*output-items.txt, which are numbered from 0"),
        ("0,1", "A line must contain label indices, a tab and a text, but it has no tab"),
    ):
        path.write_text(f"0\ta\n{line}\n")
        with pytest.raises(InputError, match=f"a.txt, line 2: {message}"):
            list(open_data(path, format="text2text"))  # type: ignore[arg-type]
    path.write_text("0:0,1:2\ta\tb\n")
    assert list(open_data(path)) == [Example("a\tb", ("y",))]  # type: ignore[arg-type]
    with pytest.raises(InputError, match="Label 'x' is not a label index"):
        write_data(tmp_path / "b.txt", Corpus.of([("a", ["x"])]), format="text2text")
    write_data(tmp_path / "b.txt", Corpus.of([("a", ["y"])], vocabulary=Vocabulary(["x", "y"])), format="text2text")
    assert (tmp_path / "b.txt").read_text() == "1\ta\n"


def test_sparse_pairs_are_checked(tmp_path: Path) -> None:
    features, labels = tmp_path / "trn_X_Xf.txt", tmp_path / "trn_X_Y.txt"
    features.write_text("2 3\n0:1\n1:1\n")
    for content, message in (
        ("1 4\n0:1\n", "trn_X_Xf.txt has 2 rows, but .*trn_X_Y.txt has 1 rows"),
        ("2 4\n0:1\n7:1\n", "trn_X_Y.txt, line 3: Label 7 is out of range for the 4 labels in the header"),
        ("2 4\n0:1\n", r"trn_X_Y.txt: Expected the number of rows stated in the header \(2\), got 1"),
        ("2 4\n0:1\n\n1:1\n", r"trn_X_Y.txt, line 4: Expected the number of rows stated in the header \(2\), got more"),
        ("2 4 5\n0:1\n\n", "must consist of two integers"),
        ("2 4\n0:-1\n\n", "trn_X_Y.txt has negative values"),
        ("2 4\n0:1 0:1\n\n", "trn_X_Y.txt, line 2: Label 0 occurs more than once"),
        ("2 4\n0\n\n", "trn_X_Y.txt, line 2: A label must have the form index:value, got '0'"),
    ):
        labels.write_text(content)
        with pytest.raises(InputError, match=message):
            open_data(features)
    data = Matrices(sp.csr_array(format_files.X), sp.csr_array(format_files.Y))
    with pytest.raises(ParameterError, match="The format 'xmc-pair' requires a second file"):
        write_data(tmp_path / "x.txt", data, format="xmc-pair")
    write_data(tmp_path / "x.txt", data, labels=tmp_path / "y.txt")
    check(open_data(tmp_path / "x.txt", labels=tmp_path / "y.txt"), None)


def test_convert_writes_every_format(tmp_path: Path) -> None:
    write_data(tmp_path / "texts.jsonl", Corpus.of(NUMBERED))
    write_data(tmp_path / "uris.jsonl", Corpus.of(format_files.WITH_URIS))
    write_data(tmp_path / "data.xmc", Matrices(sp.csr_array(format_files.X), sp.csr_array(format_files.Y)))
    assert URIS[0] in (tmp_path / "uris.jsonl").read_text()
    for name in ("json", "arrow", "fasttext", "text2text", "annif", "xmc-pair", "npz", "xmc-folder"):
        folder = tmp_path / name
        folder.mkdir()
        path, options = WRITTEN[name]
        source = (
            "data.xmc" if FORMATS[name].content == "features" else "uris.jsonl" if name == "annif" else "texts.jsonl"
        )
        labels = ["--to-labels", f"{name}/{options['labels']}"] if options else []
        result = run("data", "convert", source, f"{name}/{path}", "--to", name, *labels, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        content = None if source == "data.xmc" else NUMBERED if source == "texts.jsonl" else format_files.WITH_URIS
        second: dict[str, Any] = {key: folder / value for key, value in options.items()}
        check(open_data(folder / path, **second), content)


class RecordedProgress(Progress):
    """Progress display that records the stages and the last report of each."""

    def __init__(self) -> None:
        self.stages: dict[str, tuple[int, int]] = {}

    def stage(self, name: str) -> Any:
        from contextlib import contextmanager

        @contextmanager
        def context() -> Any:
            def report(done: int, total: int, /, *, loss: float | None = None) -> None:
                self.stages[name] = (done, total)

            yield report

        return context()


@pytest.mark.parametrize("compression", ["", ".gz"])
def test_progress_is_reported_for_large_files(
    compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_progress, "MIN_SIZE", 100)
    path = tmp_path / f"data.jsonl{compression}"
    write_data(path, Corpus.of([Example(f"{row * row} {row}") for row in range(1000)]))
    write_data(tmp_path / "small.jsonl", Corpus.of(NAMED[:1]))
    progress = RecordedProgress()
    with reading_progress.showing_progress(progress):
        assert len(list(open_data(path))) == 1000  # type: ignore[arg-type]
        assert len(list(open_data(tmp_path / "small.jsonl"))) == 1  # type: ignore[arg-type]
    size = path.stat().st_size
    assert progress.stages == {f"read {path.name}": (size, size)}
    progress.stages.clear()
    with reading_progress.showing_progress(progress):
        assert detect_format(path.rename(tmp_path / f"data.txt{compression}"), "train", None) == "jsonl"
    assert not progress.stages, "only the first lines are read"
    path = tmp_path / f"data.txt{compression}"
    list(open_data(path))  # type: ignore[arg-type]
    assert not progress.stages


if __name__ == "__main__":
    print(formats_table(), end="")
