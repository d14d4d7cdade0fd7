"""One peer on a feature folder, in its own environment: python run_framework_peer.py FEATURES NAME SCORES [--threads N]

NAME is libpecos-tfn-3 or libpecos-tfn+man-3 (three trees of other seeds, the best of its four ways of averaging, and
how each tree did), omikuji-parabel, omikuji-bonsai (three trees, its defaults and those of its documentation), or
napkinxc-plt. What it finds for the test rows is written to the file SCORES; prints JSON, its times and what it tells
of its trees.
"""

import argparse
import tempfile

import numpy as np
import scipy.sparse as sp

import measure


def libpecos(X, Y, Xt, Yt, threads, scheme):
    from pecos.utils.smat_util import CsrEnsembler
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    def train():
        Z = LabelEmbeddingFactory.create(Y, X, method="pifa")
        models = []
        for seed in range(3):
            chain = Indexer.gen(
                Z, indexer_type="hierarchicalkmeans", nr_splits=32, max_leaf_size=100, threads=threads, seed=seed
            )
            models.append(
                XLinearModel.train(X, Y, C=chain, threshold=0.1, threads=threads, negative_sampling_scheme=scheme)
            )
        return models

    def rank(models):
        return [model.predict(Xt, beam_size=measure.BEAM_WIDTH, only_topk=20, threads=threads) for model in models]

    found, result = measure.train_and_rank(train, rank, Xt.shape[0])
    result["trees"] = [measure.precision(Yt, S) for S in found]
    ways = ("average", "rank_average", "softmax_average", "sigmoid_average")
    mixed = {way: getattr(CsrEnsembler, way)(*found) for way in ways}
    result["ways"] = {way: measure.precision(Yt, S) for way, S in mixed.items()}
    best = max(ways, key=lambda way: result["ways"][way]["P@1"] + result["ways"][way]["P@5"])
    return mixed[best], result


def omikuji(X, Y, Xt, Yt, threads, kind):
    import omikuji as package

    from rankers import omikuji as ranker

    options = package.Model.default_hyper_param()
    if kind == "bonsai":
        options.cluster_balanced = False
        options.cluster_k = 100
        options.max_depth = 3

    def prepare(model):
        model.init_prediction_thread_pool(threads)
        model.densify_weights()
        return model

    def rank(model):
        beam = {"beam_size": measure.BEAM_WIDTH, "top_k": measure.TOP_K}
        return [model.predict(ranker.prepare(Xt, row), **beam) for row in range(Xt.shape[0])]

    with tempfile.TemporaryDirectory() as scratch:
        text = str(ranker.write(X, Y, scratch))
        rows, result = measure.train_and_rank(
            lambda: package.Model.train_on_data(text, options, n_threads=threads), rank, Xt.shape[0], prepare
        )
    ends = np.cumsum([0, *map(len, rows)])
    labels = np.array([label for row in rows for label, _ in row], np.int32)
    scores = np.array([score for row in rows for _, score in row], np.float32)
    return sp.csr_matrix((scores, labels, ends), shape=Yt.shape), result


def napkinxc(X, Y, Xt, Yt, threads):
    from rankers import napkinxc as ranker

    with tempfile.TemporaryDirectory() as folder:
        S, result = measure.train_and_rank(
            lambda: ranker.train(X, Y, folder, threads),
            lambda model: ranker.batch(model, Xt),
            Xt.shape[0],
            lambda _: ranker.load(folder, threads),
        )
    S.resize(Yt.shape)
    return S, result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features")
    parser.add_argument("name")
    parser.add_argument("scores")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    data = measure.load(arguments.features)
    system, _, rest = arguments.name.partition("-")
    if system == "libpecos":
        S, result = libpecos(*data, arguments.threads, rest.removesuffix("-3"))
    elif system == "omikuji":
        S, result = omikuji(*data, arguments.threads, rest)
    else:
        S, result = napkinxc(*data, arguments.threads)
    sp.save_npz(arguments.scores, sp.csr_matrix(S))
    measure.emit(result)


if __name__ == "__main__":
    main()
