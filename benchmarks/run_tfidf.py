"""One vectorizer on raw texts: fit and transform of the training part, transform of the test part, one short text."""

import argparse
import time

import measure

SHORT = "a fast and small web server with support for secure connections"


def sklearn(threads):
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    made = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True, dtype=np.float32)
    return made.fit_transform, made.transform, lambda text: made.transform([text])


def carya(threads):
    from carya import Tfidf

    made = Tfidf(n_jobs=threads)
    return made.fit_transform, made.transform, made.row


def libpecos(threads):
    from pecos.utils.featurization.text.vectorizers import Tfidf

    made = {}
    config = {
        "ngram_range": [1, 2],
        "min_df_cnt": 2,
        "sublinear_tf": True,
        "add_one_idf": True,
        "threads": threads,
    }

    def fit_transform(texts):
        made["model"] = Tfidf.train(texts, config=config)
        return made["model"].predict(texts, threads=threads)

    def transform(texts):
        return made["model"].predict(texts, threads=threads)

    return fit_transform, transform, lambda text: transform([text])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--who", choices=["carya", "sklearn", "libpecos"], required=True)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    train, test = (measure.read_texts(arguments.data, part) for part in ("train", "test"))
    fit_transform, transform, one = {"carya": carya, "sklearn": sklearn, "libpecos": libpecos}[arguments.who](
        arguments.threads
    )
    before = measure.peak_mb()
    started = time.perf_counter()
    X = fit_transform(train)
    fitted = time.perf_counter()
    transform(test)
    ended = time.perf_counter()
    result = {
        "fit_transform_s": fitted - started,
        "transform_s": ended - fitted,
        "features": X.shape[1],
        "more_peak_mb": measure.peak_mb() - before,
    }
    result.update({f"short_text_{k}": v for k, v in measure.latency(lambda row: one(SHORT), 2000, 2000).items()})
    measure.emit(result)


if __name__ == "__main__":
    main()
