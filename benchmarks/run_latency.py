"""One run of one system for latency.py, in the system's own environment. Prints JSON."""

import argparse
import importlib
import time
from pathlib import Path

import measure


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system")
    parser.add_argument("features")
    parser.add_argument("model", type=Path)
    parser.add_argument("--train", action="store_true", help="train and save, and do nothing else")
    parser.add_argument("--set", nargs="*", default=[], help="how to train, as name=JSON")
    parser.add_argument("--rows", type=int, default=4000, help="queries, one by one and in batch")
    parser.add_argument("--precision", action="store_true", help="measure precision on all test rows too")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    ranker = importlib.import_module("rankers." + arguments.system)
    bare = measure.resident_mb()
    if arguments.train:
        X, Y, _, _ = measure.load(arguments.features)
        started = time.perf_counter()
        ranker.train(X, Y, str(arguments.model), arguments.threads, **measure.settings(arguments.set))
        measure.emit({"train_s": time.perf_counter() - started})
        return

    Xt, Yt = (measure.read(arguments.features, f"{kind}.test.npz") for kind in "XY")
    queries = [ranker.prepare(Xt, row) for row in range(min(arguments.rows, Xt.shape[0]))]
    before = measure.resident_mb()
    started = time.perf_counter()
    model = ranker.load(str(arguments.model), 1)
    ranker.one(model, queries[0])
    result = {
        "load_s": time.perf_counter() - started,
        "model_bytes": measure.folder_bytes(arguments.model),
        **measure.latency(lambda row: ranker.one(model, queries[row]), len(queries), len(queries), passes=3),
    }
    result["p99_to_median"] = result["one_row_ms_p99"] / result["one_row_ms"]
    # Without the benchmark's own matrices, which were there before the model was opened.
    result["resident_mb"] = bare + measure.resident_mb() - before
    some = Xt[: arguments.rows]
    for threads, name in ((1, "batch_1_ms"), (arguments.threads, "batch_ms")):
        model = ranker.load(str(arguments.model), threads)
        if ranker.batch(model, some) is None:
            break
        result[name] = measure.seconds(lambda model=model: ranker.batch(model, some), 5) / some.shape[0] * 1e3
    if "batch_ms" in result:
        result["threads_gain"] = result["batch_1_ms"] / result["batch_ms"]
    if arguments.precision:
        S = ranker.batch(model, Xt)
        if S is None:
            found = [ranker.one(model, ranker.prepare(Xt, row)) for row in range(Xt.shape[0])]
            S = measure.as_scores(found, Yt.shape[1])
        result.update(measure.precision(Yt, S))
    measure.emit(result)


if __name__ == "__main__":
    main()
