"""Measure how many held-out label names are proposed as new labels for test texts.

    python benchmarks/open_vocabulary.py DATA

DATA is a text folder (train.texts.txt.gz, train.labels.npz, …) with label names. A fifth of the labels is removed from
the training data. A held-out label of a test text is counted only if the text contains a word of the label's name.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import carya
from carya.core.matrices import Csr
from carya.text.labels import LabelRows
from carya.text.open_vocabulary.name_statistics import normalize
from carya.text.open_vocabulary.phrases import find_phrases
from carya.text.open_vocabulary.proposals import propose

import measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    folder = arguments.data
    Y, test_Y = (sp.csr_array(sp.load_npz(folder / f"{part}.labels.npz")) for part in ("train", "test"))
    names = measure.label_names(folder)
    is_held_out = np.random.default_rng(arguments.seed).random(Y.shape[1]) < 0.2
    known = np.flatnonzero(~is_held_out)
    ids = [str(label) for label in known]
    labels = LabelRows(Csr.of_scipy(sp.csr_array(Y[:, known])).with_values(1), ids)
    ranker = carya.TextRanker().fit(
        measure.read_texts(folder, "train"), labels, names={str(label): names[label] for label in known}
    )
    n_pairs = n_possible = 0
    found = dict.fromkeys((1, 5, 10), 0)
    merged = dict.fromkeys((5, 10), 0)
    texts = measure.read_texts(folder, "test")
    for row, text in enumerate(texts):
        relevant = test_Y.indices[test_Y.indptr[row] : test_Y.indptr[row + 1]].tolist()
        words = set(normalize(text).split())
        targets = {normalize(names[label]) for label in relevant if is_held_out[label]}
        targets = {target for target in targets if words & set(target.split())}
        if not targets:
            continue
        n_pairs += len(targets)
        possible = {phrase.text for phrase in find_phrases(text, ranker.vectorizer_, ranker.label_set_.name_statistics)}
        n_possible += len(targets & possible)
        proposals = [phrase for phrase, _ in propose(text, ranker.vectorizer_, ranker.label_set_, top_k=10)]
        suggestions = ranker.suggest(text, top_k=10, open_vocabulary=True)
        for k in found:
            found[k] += len(targets & set(proposals[:k]))
        for k in merged:
            merged[k] += len(targets & {suggestion.label for suggestion in suggestions[:k] if suggestion.is_new})
    result = {
        "pairs": n_pairs,
        "possible": n_possible / n_pairs,
        **{f"recall@{k} among new labels": count / n_pairs for k, count in found.items()},
        **{f"recall@{k} among all labels": count / n_pairs for k, count in merged.items()},
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
