"""What three trees cost beside one, in turn: python benchmarks/ensembles.py FEATURES [--rounds 3] [--threads 2]

Prints JSON: seconds of training and of ranking the test rows, by the clock and of all threads together, medians, and
their ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import carya

import measure

RANKINGS = 5  # of all test rows, as each takes but a moment


def clock(taken: dict[str, list[float]], name: str, call: Callable[[], object]) -> None:
    """Note the seconds of a call, and those of all threads together, which others on the machine disturb less."""
    started, worked = time.perf_counter(), time.process_time()
    call()
    taken.setdefault(f"{name} s", []).append(time.perf_counter() - started)
    taken.setdefault(f"{name} cpu s", []).append(time.process_time() - worked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    X, Y, Xt, _ = measure.load(arguments.features)
    tree = carya.XRLinear(n_jobs=arguments.threads)
    makers = {"one": lambda: tree, "three": lambda: carya.Ensemble(tree, n_trees=3, n_jobs=arguments.threads)}
    taken: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        for name, make in makers.items():
            model = make()
            clock(taken, f"{name} train", lambda model=model: model.fit(X, Y))
            model.predict(Xt[:50])
            for _ in range(RANKINGS):
                clock(taken, f"{name} rank", lambda model=model: model.predict(Xt, top_k=measure.TOP_K))
    result = {name: statistics.median(some) for name, some in taken.items()}
    for what in ("train s", "train cpu s", "rank s", "rank cpu s"):
        result[f"{what}, three to one"] = result[f"three {what}"] / result[f"one {what}"]
    measure.emit(result)


if __name__ == "__main__":
    main()
