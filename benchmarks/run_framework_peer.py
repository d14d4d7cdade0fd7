"""Run one peer on a feature folder, in its own environment: python run_framework_peer.py FEATURES NAME SCORES

NAME is libpecos-tfn-3 or libpecos-tfn+man-3 (three trees with different seeds, combined with the best of libpecos's
four averaging methods), omikuji-parabel (three trees, default settings), omikuji-bonsai (three trees, the settings
recommended in the omikuji documentation), or napkinxc-plt. The scores for the test rows are written to the file SCORES.
The script prints JSON with the times and, for libpecos, the precision of each tree and each averaging method.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import numpy as np
import scipy.sparse as sp

import measure

Result = tuple[Any, dict[str, Any]]


def libpecos(X: Any, Y: Any, Xt: Any, Yt: Any, threads: int, scheme: str) -> Result:
    from pecos.utils.smat_util import CsrEnsembler
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    def train() -> list[Any]:
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

    def rank(models: list[Any]) -> list[Any]:
        return [model.predict(Xt, beam_size=measure.BEAM_WIDTH, only_topk=20, threads=threads) for model in models]

    matrices, times = measure.train_and_rank(train, rank, Xt.shape[0])
    averages = {
        name: getattr(CsrEnsembler, name)(*matrices)
        for name in ("average", "rank_average", "softmax_average", "sigmoid_average")
    }
    precisions = {name: measure.precision(Yt, S) for name, S in averages.items()}
    best = max(precisions, key=lambda name: precisions[name]["P@1"] + precisions[name]["P@5"])
    return averages[best], {**times, "trees": [measure.precision(Yt, S) for S in matrices], "ways": precisions}


def omikuji(X: Any, Y: Any, Xt: Any, Yt: Any, threads: int, kind: str) -> Result:
    import omikuji as package

    from rankers import omikuji as ranker

    options = package.Model.default_hyper_param()
    if kind == "bonsai":
        options.cluster_balanced = False
        options.cluster_k = 100
        options.max_depth = 3

    def prepare(model: Any) -> Any:
        model.init_prediction_thread_pool(threads)
        model.densify_weights()
        return model

    def rank(model: Any) -> list[Any]:
        limits = {"beam_size": measure.BEAM_WIDTH, "top_k": measure.TOP_K}
        return [model.predict(ranker.prepare(Xt, row), **limits) for row in range(Xt.shape[0])]

    with tempfile.TemporaryDirectory() as scratch:
        path = str(ranker.write(X, Y, scratch))
        rankings, times = measure.train_and_rank(
            lambda: package.Model.train_on_data(path, options, n_threads=threads), rank, Xt.shape[0], prepare
        )
    ends = np.cumsum([0, *map(len, rankings)])
    labels = np.array([label for ranking in rankings for label, _ in ranking], np.int32)
    scores = np.array([score for ranking in rankings for _, score in ranking], np.float32)
    return sp.csr_matrix((scores, labels, ends), shape=Yt.shape), times


def napkinxc(X: Any, Y: Any, Xt: Any, Yt: Any, threads: int) -> Result:
    from rankers import napkinxc as ranker

    with tempfile.TemporaryDirectory() as folder:
        S, times = measure.train_and_rank(
            lambda: ranker.train(X, Y, folder, threads),
            lambda model: ranker.batch(model, Xt),
            Xt.shape[0],
            lambda _: ranker.load(folder, threads),
        )
    S.resize(Yt.shape)
    return S, times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features")
    parser.add_argument("name")
    parser.add_argument("scores")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    data = measure.load(arguments.features)
    system, _, kind = arguments.name.partition("-")
    if system == "libpecos":
        S, result = libpecos(*data, arguments.threads, kind.removesuffix("-3"))
    elif system == "omikuji":
        S, result = omikuji(*data, arguments.threads, kind)
    else:
        S, result = napkinxc(*data, arguments.threads)
    sp.save_npz(arguments.scores, sp.csr_matrix(S))
    measure.emit(result)


if __name__ == "__main__":
    main()
