"""Compare adding labels to a trained model with training it again.

    python benchmarks/new_labels.py FEATURES... [--large FOLDER] [--out FILE.json]

FEATURES are folders with X.train.npz, Y.train.npz, X.test.npz and Y.test.npz (SciPy CSR). For each of them, a random
tenth of the labels is held out. The base model is trained on all training rows without the held-out labels, which are
then added with `XRLinear.add_labels`, from the training rows that have them ("new rows") or from all training rows. In
the experiment "later rows", the base model is trained only on the rows without new labels. Precision is measured on
the test rows with and without new labels. The weights of all other labels are compared byte by byte.

--large is a folder with X.trn.npz and Y.trn.npz, such as one written by ``carya data synth --like amazon-670k``; to its
model, 1,000 labels are added.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from rich.console import Console
from rich.table import Table

import carya
from carya import metrics

from provenance import provenance

_REPEATS = 3

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", nargs="*", type=Path, help="folders with the matrices")
    parser.add_argument("--large", type=Path, help="folder with a large data set")
    parser.add_argument("--large-model", type=Path, help="folder in which the large model is stored")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="JSON output file")
    arguments = parser.parse_args()
    results: dict[str, Any] = {"provenance": provenance()}
    if arguments.large is not None:
        results["large"] = add_to_large(arguments.large, arguments.large_model, arguments.seed, arguments.threads)
        Console().print(results["large"])
    for folder in arguments.features:
        results[folder.name] = compare(folder, arguments.seed, arguments.threads)
        show(folder.name, results[folder.name])
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


def hold_out(Y: sp.csr_array, count: int, seed: int) -> np.ndarray:
    """Return all columns in an order in which a random selection of `count` columns comes last."""
    new = np.sort(np.random.default_rng(seed).choice(Y.shape[1], count, replace=False))
    return np.concatenate([np.setdiff1d(np.arange(Y.shape[1]), new), new])


def compare(folder: Path, seed: int, threads: int) -> dict[str, Any]:
    """Compare the models on one data set."""
    X, Y, X_test, Y_test = (sp.csr_array(sp.load_npz(folder / f"{name}.npz")) for name in _names())
    count = Y.shape[1] // 10
    order = hold_out(Y, count, seed)
    Y, Y_test, known = sp.csr_array(Y[:, order]), sp.csr_array(Y_test[:, order]), Y.shape[1] - count
    with_new, test_with_new = (np.diff(sp.csr_array(labels[:, known:]).indptr) > 0 for labels in (Y, Y_test))
    model = carya.XRLinear(n_jobs=threads, seed=seed)

    def evaluate(fitted: carya.XRLinear) -> dict[str, float]:
        S = fitted.predict(X_test, top_k=5)
        return {
            f"{name}_P@{k}": 100 * metrics.precision(Y_test[rows], S[rows], k=k)
            for name, rows in (("new", test_with_new), ("other", ~test_with_new))
            for k in (1, 5)
        }

    retrained, times = timed(lambda: model.clone().fit(X, Y), _REPEATS)
    out: dict[str, Any] = {
        "rows": X.shape[0],
        "new_rows": int(with_new.sum()),
        "labels": Y.shape[1],
        "new_labels": count,
        "retrained": times | evaluate(retrained),
    }
    bases = {
        "held-out labels": model.clone().fit(X, Y[:, :known]),
        "later rows": model.clone().fit(X[~with_new], Y[~with_new][:, :known]),
    }
    for experiment, base in bases.items():
        for rows_name, rows in (("new rows", with_new), ("all rows", np.ones(X.shape[0], bool))):
            added, times = timed(partial(add_labels, base, count, X[rows], Y[rows]), _REPEATS)
            unchanged = {"others_unchanged": are_unchanged(base, added)}
            out[f"{experiment}, {rows_name}"] = times | evaluate(added) | unchanged
    return out


def add_to_large(folder: Path, stored: Path | None, seed: int, threads: int) -> dict[str, Any]:
    """Add 1,000 labels, each of which has the same rows as a random existing label, to a large model."""
    X, Y = (sp.csr_array(sp.load_npz(folder / f"{name}.trn.npz")) for name in ("X", "Y"))
    if stored is None or not stored.exists():
        base = carya.XRLinear(n_jobs=threads, seed=seed).fit(X, Y)
        if stored is not None:
            base.save(stored)
    else:
        base = carya.XRLinear.load(stored)
    new = sp.csr_array(Y[:, hold_out(Y, 1000, seed)[-1000:]])
    rows = np.flatnonzero(np.diff(new.indptr))
    X, Y = X[rows], sp.hstack([Y[rows], new[rows]], format="csr")
    base.predict(X[:100])  # verifies the checksums
    added, times = timed(partial(add_labels, base, 1000, X, Y), _REPEATS)
    return times | {
        "labels": base.n_labels_,
        "new_labels": 1000,
        "rows": rows.size,
        "others_unchanged": are_unchanged(base, added),
    }


def add_labels(base: carya.XRLinear, count: int, X: sp.csr_array, Y: sp.csr_array) -> carya.XRLinear:
    """Return a copy of a model with additional labels."""
    return copy.copy(base).add_labels(count, X, Y)


def are_unchanged(base: carya.XRLinear, added: carya.XRLinear) -> bool:
    """Return whether all arrays of the layers are the same after the new labels are removed again."""
    removed = copy.copy(added).remove_labels(range(base.n_labels_, added.n_labels_))
    return all(
        np.array_equal(first, second)
        for before, after in zip(base.layers_, removed.layers_, strict=True)
        for first, second in zip(_arrays(before), _arrays(after), strict=True)
    )


def _arrays(layer: Any) -> list[np.ndarray]:
    weights = layer.weights
    return [weights.starts, weights.data, weights.scales, layer.dense, layer.biases, layer.chunks, layer.order]


def timed(call: Callable[[], T], repeats: int) -> tuple[T, dict[str, float]]:
    """Return the last result, and the median wall-clock and CPU times of several calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter(), time.process_time()
        result = call()
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
    return result, {"wall_s": wall, "cpu_s": cpu}


def _names() -> list[str]:
    return ["X.train", "Y.train", "X.test", "Y.test"]


def show(name: str, result: dict[str, Any]) -> None:
    table = Table("", "time, s", "CPU, s", "% of training CPU", "P@5 new", "P@5 other", "others unchanged", title=name)
    for key, values in result.items():
        if not isinstance(values, dict):
            continue
        table.add_row(
            key,
            f"{values['wall_s']:.3f}",
            f"{values['cpu_s']:.3f}",
            f"{100 * values['cpu_s'] / result['retrained']['cpu_s']:.1f}",
            f"{values['new_P@5']:.2f}",
            f"{values['other_P@5']:.2f}",
            str(values.get("others_unchanged", "")),
        )
    Console().print(table)


if __name__ == "__main__":
    main()
