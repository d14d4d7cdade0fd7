"""A folder for Annif from a folder of texts: a corpus, a vocabulary and a project `debian` with the omikuji backend.

    python benchmarks/annif_project.py DATA FOLDER
    cd FOLDER && annif load-vocab debian vocabulary.tsv --language en && annif train debian train.tsv

TF-IDF of words and pairs, as the other systems have; else Annif's defaults, which are three trees.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from carya.data import Corpus, Example, Vocabulary, open_data, write_data, write_vocabulary

PROJECT = """[debian]
name=Debian
language=en
backend=omikuji
analyzer=simple
vocab=debian
min_df=2
ngram=2
limit=10
"""
BASE = "http://debian.example/"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    data = open_data(arguments.data, part="train")
    if not isinstance(data, Corpus):
        raise SystemExit(f"{arguments.data} holds features, not texts")
    examples = [Example(" ".join(one.text.split()), tuple(BASE + label for label in one.labels)) for one in data]
    write_data(arguments.folder / "train.tsv", Corpus.of(examples), format="annif")
    ids = sorted({label for one in examples for label in one.labels})
    write_vocabulary(arguments.folder / "vocabulary.tsv", Vocabulary(ids, [label.removeprefix(BASE) for label in ids]))
    (arguments.folder / "projects.cfg").write_text(PROJECT)


if __name__ == "__main__":
    main()
