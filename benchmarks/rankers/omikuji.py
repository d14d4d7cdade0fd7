"""omikuji 0.5.2 with default settings, except for a single tree as in the other systems; it has no batch prediction."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import omikuji

import measure


def write(X: Any, Y: Any, folder: str | Path) -> Path:
    """Write the training data in omikuji's input format."""
    path = Path(folder) / "train.txt"
    with path.open("w") as file:
        rows = [row for row in range(X.shape[0]) if X.indptr[row] < X.indptr[row + 1]]  # omikuji rejects empty rows
        file.write(f"{len(rows)} {X.shape[1]} {Y.shape[1]}\n")
        for row in rows:
            labels = ",".join(map(str, Y.indices[Y.indptr[row] : Y.indptr[row + 1]]))
            entries = slice(X.indptr[row], X.indptr[row + 1])
            features = " ".join(f"{i}:{v:.6g}" for i, v in zip(X.indices[entries], X.data[entries], strict=True))
            file.write(f"{labels} {features}\n")
    return path


def train(X: Any, Y: Any, folder: str, threads: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = write(X, Y, scratch)
        options = omikuji.Model.default_hyper_param()
        options.n_trees = 1
        omikuji.Model.train_on_data(str(path), options, n_threads=threads).save(str(folder))


def load(folder: str, threads: int) -> Any:
    model = omikuji.Model.load(str(folder))
    model.init_prediction_thread_pool(1)
    model.densify_weights()  # faster, and recommended in the omikuji documentation
    return model


def prepare(X: Any, row: int) -> list[tuple[int, float]]:
    entries = slice(X.indptr[row], X.indptr[row + 1])
    return list(zip(X.indices[entries].tolist(), X.data[entries].tolist(), strict=True))


def one(model: Any, query: Any, top_k: int = measure.TOP_K, beam: int = measure.BEAM_WIDTH) -> list[int]:
    return [label for label, _ in model.predict(query, beam_size=beam, top_k=top_k)]


def batch(model: Any, X: Any, top_k: int = measure.TOP_K, beam: int = measure.BEAM_WIDTH) -> None:
    return None
