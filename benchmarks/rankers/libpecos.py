"""libpecos 1.2.8: XR-Linear with default settings."""

from __future__ import annotations

from typing import Any, NamedTuple

from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel

import measure


class Model(NamedTuple):
    """A model and the number of threads for batch prediction."""

    model: Any
    threads: int


def fit(X: Any, Y: Any, threads: int, seed: int = 0, negatives: str = "tfn") -> Any:
    Z = LabelEmbeddingFactory.create(Y, X, method="pifa")
    chain = Indexer.gen(
        Z, indexer_type="hierarchicalkmeans", nr_splits=32, max_leaf_size=100, threads=threads, seed=seed
    )
    return XLinearModel.train(X, Y, C=chain, threshold=0.1, threads=threads, negative_sampling_scheme=negatives)


def train(X: Any, Y: Any, folder: str, threads: int) -> None:
    fit(X, Y, threads).save(folder)


def load(folder: str, threads: int) -> Model:
    return Model(XLinearModel.load(folder, is_predict_only=True), threads)


def prepare(X: Any, row: int) -> Any:
    return X[row]


def one(model: Model, query: Any, top_k: int = measure.TOP_K, beam: int = measure.BEAM_WIDTH) -> Any:
    return model.model.predict(query, beam_size=beam, only_topk=top_k, threads=1).indices


def batch(model: Model, X: Any, top_k: int = measure.TOP_K, beam: int = measure.BEAM_WIDTH) -> Any:
    return model.model.predict(X, beam_size=beam, only_topk=top_k, threads=model.threads)
