"""One peer on a feature folder, in its own environment: python run_framework_peer.py FEATURES NAME [--threads N]

NAME is libpecos-tfn-3 or libpecos-tfn+man-3 (three trees of other seeds, the best of its four ways of averaging, and
how each tree did), omikuji-parabel, omikuji-bonsai (three trees, its defaults and those of its documentation), or
napkinxc-plt.
"""

import argparse
import tempfile
import time

import numpy as np
import scipy.sparse as sp

import measure


def libpecos(X, Y, Xt, Yt, threads, scheme):
    from pecos.utils.smat_util import CsrEnsembler
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    started = time.perf_counter()
    Z = LabelEmbeddingFactory.create(Y, X, method="pifa")
    models = []
    for seed in range(3):
        chain = Indexer.gen(
            Z, indexer_type="hierarchicalkmeans", nr_splits=32, max_leaf_size=100, threads=threads, seed=seed
        )
        models.append(
            XLinearModel.train(X, Y, C=chain, threshold=0.1, threads=threads, negative_sampling_scheme=scheme)
        )
    result = {"train_s": time.perf_counter() - started}
    started = time.perf_counter()
    found = [model.predict(Xt, beam_size=measure.BEAM_WIDTH, only_topk=20, threads=threads) for model in models]
    result["batch_ms"] = (time.perf_counter() - started) / Xt.shape[0] * 1e3
    result["trees"] = [measure.precision(Yt, S) for S in found]
    ways = ("average", "rank_average", "softmax_average", "sigmoid_average")
    result["ways"] = {way: measure.precision(Yt, getattr(CsrEnsembler, way)(*found)) for way in ways}
    best = max(result["ways"].values(), key=lambda one: one["P@1"] + one["P@5"])
    return result | best


def omikuji(X, Y, Xt, Yt, threads, kind):
    import omikuji as package

    from rankers import omikuji as ranker

    options = package.Model.default_hyper_param()
    if kind == "bonsai":
        options.cluster_balanced = False
        options.cluster_k = 100
        options.max_depth = 3
    with tempfile.TemporaryDirectory() as scratch:
        text = ranker.write(X, Y, scratch)
        started = time.perf_counter()
        model = package.Model.train_on_data(str(text), options, n_threads=threads)
        result = {"train_s": time.perf_counter() - started}
    model.init_prediction_thread_pool(threads)
    model.densify_weights()
    started = time.perf_counter()
    rows = [model.predict(ranker.prepare(Xt, row), beam_size=measure.BEAM_WIDTH, top_k=5) for row in range(Xt.shape[0])]
    result["batch_ms"] = (time.perf_counter() - started) / Xt.shape[0] * 1e3
    ends = np.cumsum([0, *map(len, rows)])
    labels = np.array([label for row in rows for label, _ in row], np.int32)
    scores = np.array([score for row in rows for _, score in row], np.float32)
    return result | measure.precision(Yt, sp.csr_matrix((scores, labels, ends), shape=Yt.shape))


def napkinxc(X, Y, Xt, Yt, threads):
    from rankers import napkinxc as ranker

    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        ranker.train(X, Y, folder, threads)
        result = {"train_s": time.perf_counter() - started}
        model = ranker.load(folder, threads)
        started = time.perf_counter()
        S = ranker.batch(model, Xt)
        result["batch_ms"] = (time.perf_counter() - started) / Xt.shape[0] * 1e3
    return result | measure.precision(Yt, S)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features")
    parser.add_argument("name")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    data = measure.load(arguments.features)
    system, _, rest = arguments.name.partition("-")
    if system == "libpecos":
        result = libpecos(*data, arguments.threads, rest.removesuffix("-3"))
    elif system == "omikuji":
        result = omikuji(*data, arguments.threads, rest)
    else:
        result = napkinxc(*data, arguments.threads)
    measure.emit(result)


if __name__ == "__main__":
    main()
