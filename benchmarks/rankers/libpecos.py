"""libpecos 1.2.8, XR-Linear with its defaults."""

from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel

import measure


class Model:
    """A model and how many threads it may use."""

    def __init__(self, model, threads):
        self.model, self.threads = model, threads


def fit(X, Y, threads, seed=0, negatives="tfn"):
    Z = LabelEmbeddingFactory.create(Y, X, method="pifa")
    chain = Indexer.gen(
        Z, indexer_type="hierarchicalkmeans", nr_splits=32, max_leaf_size=100, threads=threads, seed=seed
    )
    return XLinearModel.train(X, Y, C=chain, threshold=0.1, threads=threads, negative_sampling_scheme=negatives)


def train(X, Y, folder, threads):
    fit(X, Y, threads).save(folder)


def load(folder, threads):
    return Model(XLinearModel.load(folder, is_predict_only=True), threads)


def prepare(X, row):
    return X[row]


def one(model, query, top_k=measure.TOP_K, beam=measure.BEAM_WIDTH):
    return model.model.predict(query, beam_size=beam, only_topk=top_k, threads=1).indices


def batch(model, X, top_k=measure.TOP_K, beam=measure.BEAM_WIDTH):
    return model.model.predict(X, beam_size=beam, only_topk=top_k, threads=model.threads)
