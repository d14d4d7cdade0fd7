"""Measure the time to fit a vectorizer and transform training texts, and to transform test texts or a single text."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import measure

SHORT_TEXT = "a fast and small web server with support for secure connections"

#: Three functions: fit a vectorizer and transform texts; transform texts; and transform one text.
Vectorizer = tuple[Callable[[list[str]], Any], Callable[[list[str]], Any], Callable[[str], Any]]


def sklearn(threads: int) -> Vectorizer:
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, dtype=np.float32)
    return vectorizer.fit_transform, vectorizer.transform, lambda text: vectorizer.transform([text])


def carya(threads: int) -> Vectorizer:
    from carya import Tfidf

    vectorizer = Tfidf(n_jobs=threads)
    return vectorizer.fit_transform, vectorizer.transform, vectorizer.row


def libpecos(threads: int) -> Vectorizer:
    from pecos.utils.featurization.text.vectorizers import Tfidf

    fitted: list[Any] = []
    config = {
        "ngram_range": [1, 2],
        "min_df_cnt": 2,
        "sublinear_tf": True,
        "add_one_idf": True,
        "threads": threads,
    }

    def fit_transform(texts: list[str]) -> Any:
        fitted.append(Tfidf.train(texts, config=config))
        return transform(texts)

    def transform(texts: list[str]) -> Any:
        return fitted[-1].predict(texts, threads=threads)

    return fit_transform, transform, lambda text: transform([text])


VECTORIZERS = {"carya": carya, "sklearn": sklearn, "libpecos": libpecos}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--who", choices=VECTORIZERS, required=True, help="vectorizer to measure")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    train, test = (measure.read_texts(arguments.data, part) for part in ("train", "test"))
    fit_transform, transform, transform_one = VECTORIZERS[arguments.who](arguments.threads)
    before_mb = measure.peak_mb()
    started = time.perf_counter()
    X = fit_transform(train)
    fitted = time.perf_counter()
    transform(test)
    ended = time.perf_counter()
    result = {
        "fit_transform_s": fitted - started,
        "transform_s": ended - fitted,
        "features": X.shape[1],
        "more_peak_mb": measure.peak_mb() - before_mb,
    }
    times = measure.latency(lambda row: transform_one(SHORT_TEXT), 2000, 2000)
    measure.emit(result | {f"short_text_{key}": value for key, value in times.items()})


if __name__ == "__main__":
    main()
