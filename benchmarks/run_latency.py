"""Measure one system for latency.py in its own environment, and print the results as JSON."""

from __future__ import annotations

import argparse
import importlib
import time
from functools import partial
from pathlib import Path

import measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", help="module in the `rankers` package")
    parser.add_argument("features")
    parser.add_argument("model", type=Path)
    parser.add_argument("--train", action="store_true", help="only train and save the model")
    parser.add_argument("--set", nargs="*", default=[], help="training parameters, as name=JSON")
    parser.add_argument("--rows", type=int, default=4000, help="number of queries for single-row and batch ranking")
    parser.add_argument("--precision", action="store_true", help="also measure precision on all test rows")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    ranker = importlib.import_module("rankers." + arguments.system)
    initial_mb = measure.resident_mb()
    if arguments.train:
        X, Y, _, _ = measure.load(arguments.features)
        started = time.perf_counter()
        ranker.train(X, Y, str(arguments.model), arguments.threads, **measure.settings(arguments.set))
        measure.emit({"train_s": time.perf_counter() - started})
        return

    Xt, Yt = (measure.read(arguments.features, f"{kind}.test.npz") for kind in "XY")
    queries = [ranker.prepare(Xt, row) for row in range(min(arguments.rows, Xt.shape[0]))]
    before_mb = measure.resident_mb()
    started = time.perf_counter()
    model = ranker.load(str(arguments.model), 1)
    ranker.one(model, queries[0])
    result = {
        "load_s": time.perf_counter() - started,
        "model_bytes": measure.folder_bytes(arguments.model),
        **measure.latency(lambda row: ranker.one(model, queries[row]), len(queries), len(queries), repeats=3),
    }
    result["p99_to_median"] = result["one_row_ms_p99"] / result["one_row_ms"]
    # Exclude the benchmark's matrices, which were in memory before the model was loaded.
    result["resident_mb"] = initial_mb + measure.resident_mb() - before_mb
    batch = Xt[: arguments.rows]
    for threads, key in ((1, "batch_1_ms"), (arguments.threads, "batch_ms")):
        model = ranker.load(str(arguments.model), threads)
        if ranker.batch(model, batch) is None:
            break
        result[key] = measure.seconds(partial(ranker.batch, model, batch), 5) / batch.shape[0] * 1e3
    if "batch_ms" in result:
        result["threads_gain"] = result["batch_1_ms"] / result["batch_ms"]
    if arguments.precision:
        S = ranker.batch(model, Xt)
        if S is None:
            rankings = [ranker.one(model, ranker.prepare(Xt, row)) for row in range(Xt.shape[0])]
            S = measure.as_scores(rankings, Yt.shape[1])
        result.update(measure.precision(Yt, S))
    measure.emit(result)


if __name__ == "__main__":
    main()
