"""Run libpecos once on a feature folder, in its own environment, with the same options as run_carya.py."""

from __future__ import annotations

import tempfile
import time

import numpy as np
import scipy.sparse as sp
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel

import measure


def main() -> None:
    arguments = measure.arguments(__doc__)
    X, Y, Xt, Yt = measure.load(arguments.features, arguments.dense)
    if arguments.dense:  # libpecos does not accept (sparse, dense) pairs
        X, Xt = (sp.hstack([block[0], sp.csr_matrix(block[1])], format="csr", dtype=np.float32) for block in (X, Xt))

    measure.reset_peak()
    started = time.perf_counter()
    Z = LabelEmbeddingFactory.create(Y, X, method="pifa")
    chain = Indexer.gen(
        Z,
        indexer_type="hierarchicalkmeans",
        nr_splits=32,
        max_leaf_size=100,
        threads=arguments.threads,
        seed=arguments.seed,
    )
    indexed = time.perf_counter()
    scheme = {"teacher": "tfn", "both": "tfn+man"}[arguments.negatives]
    model = XLinearModel.train(X, Y, C=chain, threshold=0.1, threads=arguments.threads, negative_sampling_scheme=scheme)
    ended = time.perf_counter()
    result = {
        "index_s": indexed - started,
        "train_s": ended - indexed,
        "total_s": ended - started,
        "train_peak_mb": measure.peak_since_reset_mb(),
    }
    search = {"beam_size": measure.BEAM_WIDTH, "only_topk": measure.TOP_K}
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder)
        result["model_bytes"] = measure.folder_bytes(folder)
        del model
        started = time.perf_counter()
        opened = XLinearModel.load(folder, is_predict_only=True)
        result["load_s"] = time.perf_counter() - started
        opened.predict(Xt[:50], threads=arguments.threads, **search)
        started = time.perf_counter()
        S = opened.predict(Xt, threads=arguments.threads, **search)
        result["batch_ms"] = (time.perf_counter() - started) / Xt.shape[0] * 1e3
        result.update(measure.precision(Yt, S))
        queries = [Xt[row] for row in range(min(Xt.shape[0], 1500))]
        result.update(measure.latency(lambda row: opened.predict(queries[row], threads=1, **search), Xt.shape[0]))
    result["peak_mb"] = measure.peak_mb()
    measure.emit(result)


if __name__ == "__main__":
    main()
