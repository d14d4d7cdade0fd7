"""Measure the time from raw texts to a saved model with scikit-learn's TF-IDF and libpecos, in a separate environment.

The text folder contains train.texts.txt.gz, train.labels.npz and the corresponding files of the test set (see
docs/data.md).
"""

from __future__ import annotations

import argparse
import tempfile
import time

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from rankers import libpecos

import measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--negatives", choices=["tfn", "tfn+man"], default="tfn")
    arguments = parser.parse_args()
    started = time.perf_counter()
    texts = measure.read_texts(arguments.data, "train")
    Y = measure.read(arguments.data, "train.labels.npz")
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, dtype=np.float32)
    X = vectorizer.fit_transform(texts)
    X.sort_indices()
    vectorized = time.perf_counter()
    model = libpecos.fit(X, Y, arguments.threads, arguments.seed, arguments.negatives)
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        size = measure.folder_bytes(folder)
    result = {
        "vectorize_s": vectorized - started,
        "text_to_model_s": time.perf_counter() - started,
        "model_bytes": size,
        "train_peak_mb": measure.peak_mb(),
    }
    Xt = vectorizer.transform(measure.read_texts(arguments.data, "test"))
    Xt.sort_indices()
    S = libpecos.batch(libpecos.Model(model, arguments.threads), Xt)
    measure.emit({**result, **measure.precision(measure.read(arguments.data, "test.labels.npz"), S)})


if __name__ == "__main__":
    main()
