"""What three trees cost beside one, in turn: python benchmarks/ensembles.py FEATURES [--rounds 3] [--threads 2]

Prints JSON: seconds of training and of ranking the test rows, by the clock and of all threads together, medians, and
their ratios.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import carya

import measure

RANKINGS = 9  # of all test rows, in turn, as each takes but a moment


def clock(taken: dict[str, list[float]], name: str, call: Callable[[], object]) -> None:
    """Note the seconds of a call, and those of all threads together."""
    _, seconds, worked = measure.timed(call)
    taken.setdefault(f"{name} s", []).append(seconds)
    taken.setdefault(f"{name} cpu s", []).append(worked)


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
        opened: dict[str, Any] = {}
        with tempfile.TemporaryDirectory() as folder:
            for name, make in makers.items():
                model = make()
                clock(taken, f"{name} train", lambda model=model: model.fit(X, Y))
                model.save(Path(folder) / name)
                opened[name] = carya.load(Path(folder) / name)  # as it will be asked
                opened[name].set_params(n_jobs=arguments.threads)
                opened[name].predict(Xt)
            for _ in range(RANKINGS):
                for name, model in opened.items():
                    clock(taken, f"{name} rank", lambda model=model: model.predict(Xt, top_k=measure.TOP_K))
    result = {name: statistics.median(some) for name, some in taken.items()}
    for what in ("train s", "train cpu s", "rank s", "rank cpu s"):
        result[f"{what}, three to one"] = result[f"three {what}"] / result[f"one {what}"]
    measure.emit(result)


if __name__ == "__main__":
    main()
