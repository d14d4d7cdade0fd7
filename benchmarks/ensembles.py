"""What three trees cost beside one, in turn: python benchmarks/ensembles.py FEATURES [--rounds 3] [--threads 2]

Prints JSON: seconds of training and milliseconds a row of ranking in batch, medians, and their ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time

import carya

import measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    X, Y, Xt, _ = measure.load(arguments.features)
    tree = carya.XRLinear(n_jobs=arguments.threads)
    makers = {"one": lambda: tree, "three": lambda: carya.Ensemble(tree, n_trees=3, n_jobs=arguments.threads)}
    train: dict[str, list[float]] = {name: [] for name in makers}
    rank: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(arguments.rounds):
        for name, make in makers.items():
            started = time.perf_counter()
            model = make().fit(X, Y)
            train[name].append(time.perf_counter() - started)
            model.predict(Xt[:50])
            started = time.perf_counter()
            model.predict(Xt, top_k=measure.TOP_K)
            rank[name].append((time.perf_counter() - started) / Xt.shape[0] * 1e3)
    result: dict[str, float] = {}
    for what, times in (("train_s", train), ("batch_ms", rank)):
        medians = {name: statistics.median(some) for name, some in times.items()}
        result |= {f"{name} {what}": value for name, value in medians.items()}
        result[f"{what} ratio"] = medians["three"] / medians["one"]
    measure.emit(result)


if __name__ == "__main__":
    main()
