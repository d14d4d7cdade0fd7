"""Compare the cost of three trees with that of one tree.

    python benchmarks/ensembles.py FEATURES [--rounds 3] [--threads 2]

Runs of the two models alternate. The script prints JSON with the median wall-clock and CPU seconds for training and for
ranking labels for the test rows, and the ratios of these times.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import carya

import measure

RANKINGS = 9  # repetitions per round; ranking all test rows once takes less than a second


def record(times: dict[str, list[float]], name: str, call: Callable[[], object]) -> None:
    """Append the wall-clock and CPU seconds of a call."""
    _, wall, cpu = measure.timed(call)
    times.setdefault(f"{name} s", []).append(wall)
    times.setdefault(f"{name} cpu s", []).append(cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    X, Y, Xt, _ = measure.load(arguments.features)
    tree = carya.XRLinear(n_jobs=arguments.threads)
    unfitted: dict[str, Any] = {"one": tree, "three": carya.Ensemble(tree, n_trees=3, n_jobs=arguments.threads)}
    times: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        opened: dict[str, Any] = {}
        with tempfile.TemporaryDirectory() as folder:
            for name, template in unfitted.items():
                model = template.clone()
                record(times, f"{name} train", partial(model.fit, X, Y))
                model.save(Path(folder) / name)
                opened[name] = carya.load(Path(folder) / name)  # memory-mapped, as in production
                opened[name].set_params(n_jobs=arguments.threads)
                opened[name].predict(Xt)
            for _ in range(RANKINGS):
                for name, model in opened.items():
                    record(times, f"{name} rank", partial(model.predict, Xt, top_k=measure.TOP_K))
    result = {name: statistics.median(values) for name, values in times.items()}
    for quantity in ("train s", "train cpu s", "rank s", "rank cpu s"):
        result[f"{quantity}, three to one"] = result[f"three {quantity}"] / result[f"one {quantity}"]
    measure.emit(result)


if __name__ == "__main__":
    main()
