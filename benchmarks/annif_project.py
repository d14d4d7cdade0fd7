"""Create the corpus, vocabulary and configuration of an Annif project from a text folder.

    python benchmarks/annif_project.py DATA FOLDER
    cd FOLDER && annif load-vocab debian vocabulary.tsv --language en && annif train debian train.tsv

The project is named `debian`. It uses the omikuji backend, TF-IDF features of word unigrams and bigrams (as in the
other systems), and otherwise Annif's defaults, including three trees.
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
URI_PREFIX = "http://debian.example/"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    data = open_data(arguments.data, part="train")
    if not isinstance(data, Corpus):
        raise SystemExit(f"{arguments.data} contains features, but texts are required. Pass a folder with texts.")
    examples = [
        Example(" ".join(example.text.split()), tuple(URI_PREFIX + label for label in example.labels))
        for example in data
    ]
    write_data(arguments.folder / "train.tsv", Corpus.of(examples), format="annif")
    uris = sorted({label for example in examples for label in example.labels})
    names = [uri.removeprefix(URI_PREFIX) for uri in uris]
    write_vocabulary(arguments.folder / "vocabulary.tsv", Vocabulary(uris, names))
    (arguments.folder / "projects.cfg").write_text(PROJECT)


if __name__ == "__main__":
    main()
