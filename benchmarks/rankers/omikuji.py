"""omikuji 0.5.2 with its defaults but one tree, as the others have; it has no call for many rows."""

import tempfile
from pathlib import Path

import omikuji

import measure


def write(X, Y, folder):
    """The file that it trains on."""
    text = Path(folder) / "train.txt"
    with text.open("w") as file:
        rows = [row for row in range(X.shape[0]) if X.indptr[row] < X.indptr[row + 1]]  # it refuses empty ones
        file.write(f"{len(rows)} {X.shape[1]} {Y.shape[1]}\n")
        for row in rows:
            labels = ",".join(map(str, Y.indices[Y.indptr[row] : Y.indptr[row + 1]]))
            at = slice(X.indptr[row], X.indptr[row + 1])
            entries = " ".join(f"{i}:{v:.6g}" for i, v in zip(X.indices[at], X.data[at], strict=True))
            file.write(f"{labels} {entries}\n")
    return text


def train(X, Y, folder, threads):
    with tempfile.TemporaryDirectory() as scratch:
        text = write(X, Y, scratch)
        options = omikuji.Model.default_hyper_param()
        options.n_trees = 1
        omikuji.Model.train_on_data(str(text), options, n_threads=threads).save(str(folder))


def load(folder, threads):
    model = omikuji.Model.load(str(folder))
    model.init_prediction_thread_pool(1)
    model.densify_weights()  # faster to ask, and its documentation says to
    return model


def prepare(X, row):
    at = slice(X.indptr[row], X.indptr[row + 1])
    return list(zip(X.indices[at].tolist(), X.data[at].tolist(), strict=True))


def one(model, query, top_k=measure.TOP_K, beam=measure.BEAM_WIDTH):
    return [label for label, _ in model.predict(query, beam_size=beam, top_k=top_k)]


def batch(model, X, top_k=measure.TOP_K, beam=measure.BEAM_WIDTH):
    return None
