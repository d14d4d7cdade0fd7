"""Small example files and folders in every data format, and the data expected when each of them is read.

The files are written without Carya, as other programs would write them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from carya.data import Example

#: The texts of all examples, and their labels as indices and as names.
TEXTS = ("a red apple", "a ripe pear", "no fruit at all")
NUMBERS = ((0, 1), (0,), (2,))
NAMES = ("fruit", "red", "other")
URIS = tuple(f"http://a.example/{name}" for name in NAMES)

NAMED = [Example(text, tuple(NAMES[number] for number in row)) for text, row in zip(TEXTS, NUMBERS, strict=True)]
NUMBERED = [Example(text, tuple(map(str, row))) for text, row in zip(TEXTS, NUMBERS, strict=True)]
WITH_URIS = [Example(text, tuple(URIS[number] for number in row)) for text, row in zip(TEXTS, NUMBERS, strict=True)]
UNLABELED = [Example(text) for text in TEXTS]
X = np.array([[0.5, 0, 1], [0, 2, 0], [1, 1, 0.25]], np.float32)
Y = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 1]], np.float32)

RECORDS = [{"text": example.text, "labels": list(example.labels)} for example in NAMED]
XMC_RECORDS = [
    {"uid": f"B{row}", "title": text.partition(" ")[0], "content": text.partition(" ")[2], "target_ind": list(numbers)}
    for row, (text, numbers) in enumerate(zip(TEXTS, NUMBERS, strict=True))
]


@dataclass(frozen=True)
class FormatFile:
    """An example file or folder in a data format.

    Attributes
    ----------
    format : str
    path : str
        The path to open, relative to the folder passed to `write`.
    write : callable
        Writes the file and any accompanying files to a folder.
    content : list of Example, optional
        The expected data; None if the file contains the matrices X and Y.
    options : dict
        Options for `open_data`; the path of a second file is also relative to the folder.
    is_detected : bool
        Whether the format is detected automatically.
    """

    format: str
    path: str
    write: Callable[[Path], None]
    content: list[Example] | None
    options: dict[str, Any] = field(default_factory=dict)
    is_detected: bool = True


def files(**contents: str | bytes) -> Callable[[Path], None]:
    """Return a function that writes files; in a keyword, ``__`` stands for a dot and ``___`` for a slash."""

    def write(folder: Path) -> None:
        for name, content in contents.items():
            path = folder / name.replace("___", "/").replace("__", ".")
            path.parent.mkdir(exist_ok=True)
            raw = content if isinstance(content, bytes) else content.encode()
            path.write_bytes(gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)

    return write


def items(folder: Path) -> None:
    """Write the label names to a file, as PECOS does."""
    (folder / "output-items.txt").write_text(LABEL_NAMES)


def json_lines(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def sparse_text(matrix: Any) -> str:
    rows = [" ".join(f"{column}:{row[column]:g}" for column in np.flatnonzero(row)) for row in matrix]
    return f"{matrix.shape[0]} {matrix.shape[1]}\n" + "\n".join(rows) + "\n"


def labeled_rows(first_feature: int) -> str:
    rows = []
    for x, numbers in zip(X, NUMBERS, strict=True):
        pairs = " ".join(f"{column + first_feature}:{x[column]:g}" for column in np.flatnonzero(x))
        rows.append(f"{','.join(map(str, numbers))} {pairs}\n")
    return "".join(rows)


def lines_of(rows: Any, separator: str) -> str:
    return "".join(separator.join(row) + "\n" for row in rows)


def matrices(x: str, y: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for path, matrix in ((folder / x, X), (folder / y, Y)):
            path.parent.mkdir(exist_ok=True, parents=True)
            if path.suffix == ".npz":
                sp.save_npz(path, sp.csr_matrix(matrix))
            else:
                np.save(path, matrix)

    return write


def both(*writers: Callable[[Path], None]) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for writer in writers:
            writer(folder)

    return write


def arrow_table(*, classes: bool = False) -> Any:
    import pyarrow as pa

    labels = [list(row) for row in NUMBERS] if classes else [record["labels"] for record in RECORDS]
    return pa.table({"text": list(TEXTS), "labels": labels})


def write_parquet(folder: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(arrow_table(), folder / "data.parquet")


def write_feather(folder: Path) -> None:
    import pyarrow.feather

    pyarrow.feather.write_feather(arrow_table(), str(folder / "data.feather"))


def write_arrow_stream(path: Path, table: Any) -> None:
    import pyarrow as pa

    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def write_dataset(folder: Path) -> None:
    """Write the files that ``DatasetDict.save_to_disk`` writes for two splits with ClassLabel features.

    Each split consists of two files.
    """
    feature = {"feature": {"names": list(NAMES), "_type": "ClassLabel"}, "_type": "List"}
    info = {"features": {"text": {"dtype": "string", "_type": "Value"}, "labels": feature}}
    (folder / "saved").mkdir()
    (folder / "saved" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "validation"]}))
    for split in ("train", "validation"):
        target = folder / "saved" / split
        target.mkdir()
        table = arrow_table(classes=True)
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": info})})
        names = [f"data-{number:05}-of-00002.arrow" for number in range(2)]
        for name, part in zip(names, (table.slice(0, 2), table.slice(2)), strict=True):
            write_arrow_stream(target / name, part)
        state: dict[str, Any] = {
            "_data_files": [{"filename": name} for name in names],
            "_fingerprint": "1",
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": split,
        }
        (target / "state.json").write_text(json.dumps(state))
        (target / "dataset_info.json").write_text(json.dumps(info))


CSV = "text,labels\n" + "".join(f'"{example.text}",{";".join(example.labels)}\n' for example in NAMED)
EXCEL = "text;labels\r\n" + "".join(f'{example.text};"{";".join(example.labels)}"\r\n' for example in NAMED)
TSV = CSV.replace('"', "").replace(",", "\t")
LABEL_NAMES = lines_of(zip(NAMES, strict=True), "")
LABEL_RECORDS = json_lines([{"uid": f"L{number}", "title": name} for number, name in enumerate(NAMES)])
XMC_LINES = json_lines(XMC_RECORDS)
NAMES_OF_ROWS = lines_of((example.labels for example in NAMED), "\t")
NUMBERS_OF_ROWS = lines_of((example.labels for example in NUMBERED), " ")
TEXT_LINES = lines_of(zip(TEXTS, strict=True), "")

#: At least one example per format; docs/data.md lists the first example of each format.
FORMAT_FILES: dict[str, FormatFile] = {
    "jsonl": FormatFile("jsonl", "data.jsonl", files(data__jsonl=json_lines(RECORDS)), NAMED),
    "jsonl with numbers": FormatFile(
        "jsonl",
        "data.jsonl.gz",
        files(data__jsonl__gz=json_lines([{"text": e.text, "labels": list(map(int, e.labels))} for e in NUMBERED])),
        NUMBERED,
    ),
    "jsonl with a separator": FormatFile(
        "jsonl",
        "data.jsonl",
        files(data__jsonl=json_lines([{"text": e.text, "labels": "|".join(e.labels)} for e in NAMED])),
        NAMED,
        {"label_separator": "|"},
    ),
    "json": FormatFile("json", "data.json", files(data__json=json.dumps(RECORDS, indent=1)), NAMED),
    "json columns": FormatFile(
        "json",
        "data.json",
        files(data__json=json.dumps({key: [record[key] for record in RECORDS] for key in ("text", "labels")})),
        NAMED,
    ),
    "json from pandas": FormatFile(
        "json",
        "data.json.gz",
        files(
            data__json__gz=json.dumps(
                {key: {str(row): record[key] for row, record in enumerate(RECORDS)} for key in ("text", "labels")}
            )
        ),
        NAMED,
    ),
    "json with one object per line": FormatFile("json", "data.json", files(data__json=json_lines(RECORDS)), NAMED),
    "csv": FormatFile("csv", "data.csv", files(data__csv=CSV), NAMED),
    "csv with semicolons": FormatFile("csv", "data.csv", files(data__csv=EXCEL), NAMED),
    "csv from Excel": FormatFile("csv", "data.csv", files(data__csv="\ufeffsep=;\r\n" + EXCEL), NAMED),
    "csv in UTF-16": FormatFile("csv", "data.csv", files(data__csv=EXCEL.encode("utf-16")), NAMED),
    "csv with JSON lists": FormatFile(
        "csv",
        "data.csv",
        files(
            data__csv="text;labels\n"
            + "".join(f'{e.text};"{json.dumps(list(e.labels)).replace(chr(34), chr(34) * 2)}"\n' for e in NAMED)
        ),
        NAMED,
    ),
    "tsv": FormatFile("tsv", "data.tsv", files(data__tsv=TSV), NAMED),
    "tsv in UTF-16": FormatFile("tsv", "data.tsv", files(data__tsv=TSV.encode("utf-16")), NAMED),
    "parquet": FormatFile("parquet", "data.parquet", write_parquet, NAMED),
    "arrow": FormatFile("arrow", "data.feather", write_feather, NAMED),
    "arrow stream": FormatFile(
        "arrow", "data.arrow", lambda folder: write_arrow_stream(folder / "data.arrow", arrow_table()), NAMED
    ),
    "pair": FormatFile(
        "pair",
        "texts.txt",
        files(texts__txt=TEXT_LINES, labels__txt=NAMES_OF_ROWS),
        NAMED,
        {"labels": "labels.txt"},
    ),
    "pair with a sparse matrix": FormatFile(
        "pair",
        "texts.txt",
        files(texts__txt=TEXT_LINES, trn_X_Y__txt=sparse_text(Y)),
        NUMBERED,
        {"labels": "trn_X_Y.txt"},
    ),
    "lines": FormatFile("lines", "texts.txt", files(texts__txt=TEXT_LINES), UNLABELED, {"label_column": None}),
    "fasttext": FormatFile(
        "fasttext",
        "train.txt",
        files(train__txt="".join(" ".join([*(f"__label__{x}" for x in e.labels), e.text]) + "\n" for e in NAMED)),
        NAMED,
    ),
    "text2text": FormatFile(
        "text2text",
        "train.txt",
        files(train__txt="".join(f"{','.join(e.labels)}\t{e.text}\n" for e in NUMBERED), output_items__txt=LABEL_NAMES),
        NUMBERED,
    ),
    "text2text with relevances and names": FormatFile(
        "text2text",
        "train.tsv",
        both(
            files(train__tsv="".join(f"{','.join(f'{x}:0.5' for x in e.labels)}\t{e.text}\n" for e in NUMBERED)),
            items,
        ),
        NAMED,
    ),
    "annif": FormatFile(
        "annif",
        "data.tsv",
        files(data__tsv="".join(f"{e.text}\t{' '.join(f'<{uri}>' for uri in e.labels)}\n" for e in WITH_URIS)),
        WITH_URIS,
    ),
    "xmc-json": FormatFile("xmc-json", "trn.json.gz", files(trn__json__gz=XMC_LINES), NUMBERED),
    "xmc-json with names": FormatFile(
        "xmc-json", "trn.json.gz", files(trn__json__gz=XMC_LINES, lbl__json__gz=LABEL_RECORDS), NAMED
    ),
    "xmc": FormatFile("xmc", "train.txt", files(train__txt="3 3 3\n" + labeled_rows(0)), None),
    "xmc-pair": FormatFile(
        "xmc-pair", "trn_X_Xf.txt", files(trn_X_Xf__txt=sparse_text(X), trn_X_Y__txt=sparse_text(Y)), None
    ),
    "xmc-pair opened by its label file": FormatFile(
        "xmc-pair",
        "trn_X_Y.txt.gz",
        files(trn_X_Xf__txt__gz=sparse_text(X), trn_X_Y__txt__gz=sparse_text(Y)),
        None,
    ),
    "xmc-pair with custom file names": FormatFile(
        "xmc-pair", "x.txt", files(x__txt=sparse_text(X), y__txt=sparse_text(Y)), None, {"labels": "y.txt"}
    ),
    "svmlight": FormatFile("svmlight", "train.svm", files(train__svm=labeled_rows(1)), None),
    "svmlight with zero-based indices": FormatFile(
        "svmlight", "train.txt", files(train__txt=labeled_rows(0)), None, {"zero_based": True}
    ),
    "npz": FormatFile("npz", "X.npz", matrices("X.npz", "Y.npz"), None, {"labels": "Y.npz"}),
    "npz with dense features": FormatFile("npz", "X.npy", matrices("X.npy", "Y.npz"), None, {"labels": "Y.npz"}),
    "texts": FormatFile(
        "texts", "set", files(set___train__texts__txt=TEXT_LINES, set___train__labels__txt=NAMES_OF_ROWS), NAMED
    ),
    "x-transformer": FormatFile(
        "x-transformer",
        "set",
        files(set___train_texts__txt=TEXT_LINES, set___train_labels__txt=NUMBERS_OF_ROWS),
        NUMBERED,
    ),
    "x-transformer with Y.txt": FormatFile(
        "x-transformer",
        "set",
        files(set___trn_X__txt=TEXT_LINES, set___trn_X_Y__txt=sparse_text(Y), set___Y__txt=LABEL_NAMES),
        NAMED,
    ),
    "xmc-json-folder": FormatFile(
        "xmc-json-folder", "set", files(set___trn__json__gz=XMC_LINES, set___Y__txt=LABEL_NAMES), NAMED
    ),
    "huggingface": FormatFile("huggingface", "saved", write_dataset, NAMED),
    "huggingface split": FormatFile("huggingface", "saved", write_dataset, NAMED, {"part": "dev"}),
    "pecos": FormatFile("pecos", "set", matrices("set/X.trn.npz", "set/Y.trn.npz"), None),
    "pecos archive": FormatFile("pecos", "set", matrices("set/tfidf-attnxml/X.trn.npz", "set/Y.trn.npz"), None),
    "pecos subfolder": FormatFile(
        "pecos", "set/tfidf-attnxml", matrices("set/tfidf-attnxml/X.trn.npz", "set/Y.trn.npz"), None
    ),
    "xmc-folder": FormatFile(
        "xmc-folder", "set", files(set___trn_X_Xf__txt=sparse_text(X), set___trn_X_Y__txt=sparse_text(Y)), None
    ),
    "xmc-folder from AttentionXML": FormatFile(
        "xmc-folder",
        "set",
        files(set___train_v1__txt="3 3 3\n" + labeled_rows(0), set___test_v1__txt="1 3 3\n 0:1\n"),
        None,
    ),
    "xmc-folder with combined files": FormatFile(
        "xmc-folder", "set", files(set___train__txt="3 3 3\n" + labeled_rows(0)), None
    ),
    "xmc-folder with prefixed file names": FormatFile(
        "xmc-folder", "set", files(set___eurlex_train__txt="3 3 3\n" + labeled_rows(0)), None
    ),
    "annif-folder": FormatFile(
        "annif-folder",
        "set",
        files(
            **{f"set___{row}__txt": text for row, text in enumerate(TEXTS)},
            **{f"set___{row}__key": "\n".join(e.labels) for row, e in enumerate(NAMED)},
        ),
        NAMED,
    ),
}
