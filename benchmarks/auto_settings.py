"""Compare transforms and values of C for every loss and negative sampling scheme on held-out training rows.

    python benchmarks/auto_settings.py FEATURES --out grid.json [--losses logistic] [--negatives teacher] [--C 1,8]
    python benchmarks/auto_settings.py --show grid.json...

The values of `transform="auto"` and `C="auto"` were chosen with this script. FEATURES is a folder with X.train.npz and
Y.train.npz. A tenth of the training rows, in blocks of 20 consecutive rows, is held out; the test set is never read.
One model is trained per loss, negative sampling scheme and value of C. It ranks labels for the held-out rows with each
combination of a transform for the inner layers and a transform for the last layer. The results are saved after each
model has been evaluated, and models whose results are already in the --out file are skipped.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import carya
from carya.core.validation import check_features
from carya.trees.beam_search import BeamSearcher
from carya.trees.transforms import Transform

import measure

RUN = 20
NEGATIVES: dict[str, Any] = {
    "teacher": "teacher",
    "teacher,both": ("teacher", "both"),
    "both": "both",
    "matcher": "matcher",
}
COSTS = {
    "squared-hinge": (0.5, 1.0, 2.0, 4.0),
    "hinge": (0.5, 1.0, 2.0, 4.0),
    "logistic": (1.0, 4.0, 8.0, 16.0, 32.0, 64.0),
}
#: Transforms for the inner layers by loss; models are trained with the first one.
INNER = {
    "squared-hinge": ("l3-hinge", "l2-hinge", "l4-hinge"),
    "hinge": ("l3-hinge", "l2-hinge", "l4-hinge"),
    "logistic": ("sigmoid", "l2-hinge", "l3-hinge"),
}
LAST = ("noop", "sigmoid", "l1-hinge", "l2-hinge", "l3-hinge", "l4-hinge", "l5-hinge", "l6-hinge", "l8-hinge")


def split(rows: int) -> tuple[Any, Any]:
    """Split off a tenth of the rows; return the training rows and the held-out rows."""
    runs = np.random.default_rng(0).permutation((rows - 1) // RUN + 1)
    held_out = np.isin(np.arange(rows) // RUN, runs[: runs.size // 10])
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def measure_transforms(model: carya.XRLinear, X: Any, Y: Any, inner: tuple[str, ...]) -> dict[str, list[float]]:
    """Return P@1, P@3 and P@5 for every combination of inner-layer and last-layer transforms."""
    results, queries, layers = {}, check_features(X), list(model.layers_)
    for above in inner if len(layers) > 1 else ("none",):
        upper = [replace(layer, transform=Transform.from_name(above)) for layer in layers[:-1]]
        for name in LAST:
            searcher = BeamSearcher([*upper, replace(layers[-1], transform=Transform.from_name(name))])
            indptr, labels, scores = searcher.predict(queries, top_k=5, beam_width=model.beam_width, threads=2)
            S = sp.csr_array((scores, labels, indptr), shape=Y.shape)
            results[f"{above},{name}"] = [round(float(value), 2) for value in measure.precision(Y, S).values()]
    return results


def run(arguments: argparse.Namespace) -> None:
    """Train and evaluate all models on a data set."""
    X, Y = (measure.read(arguments.features, f"{name}.train.npz") for name in "XY")
    train, held_out = split(X.shape[0])
    out = Path(arguments.out)
    grid = json.loads(out.read_text()) if out.exists() else {}
    tree = None
    for loss in arguments.losses.split(","):
        for negatives in arguments.negatives.split(";"):
            costs = COSTS[loss] if arguments.C is None else tuple(map(float, arguments.C.split(",")))
            for C in costs:
                key = f"{loss} {arguments.penalty} {negatives} {C:g}"
                if key in grid:
                    continue
                settings = {"loss": loss, "penalty": arguments.penalty, "C": C, "negatives": NEGATIVES[negatives]}
                model = carya.XRLinear(**settings, transform=INNER[loss][0], tree=tree, n_jobs=arguments.threads)
                started = time.perf_counter()
                model.fit(X[train], Y[train])
                seconds = time.perf_counter() - started
                tree = model.tree_  # the same for all models
                precision = measure_transforms(model, X[held_out], Y[held_out], INNER[loss])
                weights = sum(layer.weights.n_weights for layer in model.layers_)
                grid[key] = {"seconds": round(seconds, 1), "weights": weights, "P@1,3,5": precision}
                out.write_text(json.dumps(grid, indent=1))
                best = max(precision, key=lambda name: sum(precision[name]))
                print(f"{key}: {seconds:.0f} s, {weights:,} weights, {best} {precision[best]}", flush=True)


def show(paths: list[str]) -> None:
    """Print, for each model, the combinations of transforms with the best results, and their P@k on each data set."""
    grids = {Path(path).stem: json.loads(Path(path).read_text()) for path in paths}
    for key in next(iter(grids.values())):
        if not all(key in grid for grid in grids.values()):
            continue
        results = [grid[key]["P@1,3,5"] for grid in grids.values()]
        pairs = sorted(results[0], key=lambda name: -sum(sum(result[name]) for result in results))
        print(key)
        for name in pairs[:4]:
            print(f"    {name:20}", " | ".join(" / ".join(f"{p:.1f}" for p in result[name]) for result in results))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", nargs="*")
    parser.add_argument("--out")
    parser.add_argument("--show", nargs="+")
    parser.add_argument("--losses", default=",".join(COSTS))
    parser.add_argument("--penalty", default="l2")
    parser.add_argument("--negatives", default=";".join(NEGATIVES), help="separated by semicolons")
    parser.add_argument("--C")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.show:
        show(arguments.show)
    else:
        (arguments.features,) = arguments.features
        run(arguments)


if __name__ == "__main__":
    main()
