"""From raw texts to a saved model with scikit-learn's TF-IDF and libpecos, in an environment of its own.

The folder has train.texts.txt.gz, train.labels.npz and the same of test, as docs/data.md describes.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer

from rankers import libpecos

import measure


def read(folder, part):
    labels = sp.csr_matrix(sp.load_npz(Path(folder) / f"{part}.labels.npz")).astype(np.float32)
    return measure.read_texts(folder, part), labels


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--negatives", choices=["tfn", "tfn+man"], default="tfn")
    arguments = parser.parse_args()
    started = time.perf_counter()
    texts, Y = read(arguments.data, "train")
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
    texts, Yt = read(arguments.data, "test")
    Xt = vectorizer.transform(texts)
    Xt.sort_indices()
    S = libpecos.batch(libpecos.Model(model, arguments.threads), Xt)
    measure.emit({**result, **measure.precision(Yt, S)})


if __name__ == "__main__":
    main()
