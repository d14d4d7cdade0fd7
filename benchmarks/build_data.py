"""Build the benchmark data sets from their public sources, in the format that `carya data` writes.

    git clone https://github.com/sciknoworg/subject-indexing-dataset      # CC BY-SA 4.0
    python benchmarks/build_data.py tibkat subject-indexing-dataset/TIBKAT/all-subjects/data tibkat-en

    git clone https://github.com/NatLibFi/Annif-corpora                   # records: CC0; YSO: CC BY 4.0
    python benchmarks/build_data.py yso Annif-corpora/training/yso-finna-en-*.tsv.gz yso-min3

    python benchmarks/build_data.py features tibkat-en features/tibkat-en

`carya data debian` builds debian-deps (see docs/data-sets.md). The last command writes the matrices that all systems in
a comparison read: the TF-IDF features (X.train.npz and X.test.npz) and the labels (Y.train.npz and Y.test.npz).
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import scipy.sparse as sp

import carya
from carya.data.io import text_dataset
from carya.data.io.atomic_folder import atomic_folder
from carya.data.io.text_dataset import LabeledText, TextDataset

import measure

_SOURCES = {
    "tibkat": "TIBKAT, SemEval-2025 Task 5, https://github.com/sciknoworg/subject-indexing-dataset, CC BY-SA 4.0",
    "yso": "Finna records with YSO subjects, https://github.com/NatLibFi/Annif-corpora, records CC0, YSO CC BY 4.0",
}
_TEST_SHARE = 10  # one in ten records is assigned to the test set


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    tibkat = commands.add_parser("tibkat", help="titles and abstracts with GND subjects")
    tibkat.add_argument("data", type=Path, help="folder with record files in the subfolders `train` and `test`")
    tibkat.add_argument("out", type=Path)
    tibkat.add_argument("--language", choices=["en", "de"], default="en")
    yso = commands.add_parser("yso", help="titles and abstracts with YSO subjects")
    yso.add_argument("files", type=Path, nargs="+", help="Annif short-text corpora")
    yso.add_argument("out", type=Path)
    yso.add_argument("--min-labels", type=int, default=3, help="minimum number of subjects per record")
    features = commands.add_parser("features", help="TF-IDF features of a text folder")
    features.add_argument("data", type=Path)
    features.add_argument("out", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "features":
        write_features(arguments.data, arguments.out)
    elif arguments.command == "tibkat":
        parts = [list(read_tibkat(arguments.data / part, arguments.language)) for part in ("train", "test")]
        write(parts[0], parts[1], arguments.out, _SOURCES["tibkat"])
    else:
        train, test = split(read_annif(arguments.files, arguments.min_labels))
        write(train, test, arguments.out, _SOURCES["yso"])


def write(train: list[LabeledText], test: list[LabeledText], out: Path, source: str) -> None:
    """Write a text folder whose README names the source; exit if a split is empty."""
    if not train or not test:
        raise SystemExit("No records were found. Pass the folder or files described in --help.")
    labels = sorted({label for _, labels in train + test for label in labels})
    data = TextDataset(train, test, labels)
    summary = data.summary()
    with atomic_folder(out, text_dataset.FILE_NAMES) as folder:
        data.write(folder, f"# {out.name}\n\nSource: {source}\n\n```\n{json.dumps(summary, indent=1)}\n```\n")
    print(f"{out}: {summary}")


def read_tibkat(folder: Path, language: str) -> Iterator[LabeledText]:
    """Yield the text (title and abstract) and the GND subjects of each record that has subjects."""
    for path in sorted(folder.rglob(f"{language}/*.jsonld")):
        graph = json.loads(path.read_text(encoding="utf-8"))["@graph"]
        record = next((node for node in graph if "title" in node), None)
        if record is not None and "dcterms:subject" in record:
            subjects = tuple(dict.fromkeys(subject["@id"] for subject in _items(record["dcterms:subject"])))
            fields = [_joined(record.get(name)) for name in ("title", "abstract")]
            yield " . ".join(field for field in fields if field), subjects


def read_annif(files: list[Path], min_labels: int) -> Iterator[LabeledText]:
    """Yield the records with at least `min_labels` subjects."""
    for file in files:
        corpus: Any = carya.data.open_data(file, format="annif")
        for example in corpus:
            if len(example.labels) >= min_labels:
                yield " ".join(example.text.split()), tuple(example.labels)


def split(records: Iterator[LabeledText]) -> tuple[list[LabeledText], list[LabeledText]]:
    """Split records by a hash of their text, so that identical texts are always in the same split."""
    parts: tuple[list[LabeledText], list[LabeledText]] = ([], [])
    for record in records:
        parts[zlib.crc32(record[0].encode()) % _TEST_SHARE == 0].append(record)
    return parts


def write_features(data: Path, out: Path) -> None:
    """Write the TF-IDF features of word unigrams and bigrams, computed as in scikit-learn, and the label matrices."""
    out.mkdir(parents=True, exist_ok=True)
    vectorizer = carya.Tfidf(ngram_range=(1, 2), min_df=2, sublinear_tf=True, analyzer="word", tokenizer="sklearn")
    for part in ("train", "test"):
        texts = measure.read_texts(data, part)
        X = vectorizer.fit_transform(texts) if part == "train" else vectorizer.transform(texts)
        sp.save_npz(out / f"X.{part}.npz", sp.csr_matrix(X), compressed=False)
        sp.save_npz(out / f"Y.{part}.npz", measure.read(data, f"{part}.labels.npz"), compressed=False)


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _joined(value: Any) -> str:
    """Join all values of a field into one line of text."""
    return " ".join(" ".join(map(str, _items(value or ""))).split())


if __name__ == "__main__":
    main()
