"""Make every allocation of several operations fail in turn, and check that each operation raises MemoryError.

The script is run by test_allocation_faults.py with allocation_faults.c preloaded. It prints a JSON object with the
number of faults and a list of problems per operation.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import carya
from carya.data import generate_data

MAX_FAULTS = int(sys.argv[1])  # maximum number of faults per operation, spaced evenly over its allocations
REPETITIONS = 8  # number of times that a fault is repeated in a leak check
MAX_LEAKED = 4  # allocations that are still in use after all repetitions, for example in pools

library = ctypes.CDLL(None)
for function in ("allocation_count", "allocation_outstanding"):
    getattr(library, function).restype = ctypes.c_long
library.allocation_faults.argtypes = [ctypes.c_long]


def attempt(operation: Callable[[], Any], at: int) -> str:
    """Run an operation with a fault in allocation `at`; return the name of the exception, or an empty string."""
    try:
        library.allocation_faults(at)
        try:
            operation()
        finally:
            library.allocation_faults(-1)
    except Exception as error:
        return type(error).__name__
    return ""


def leaks(operation: Callable[[], Any], at: int) -> int:
    """Return the number of allocations that are still in use after repeated faults."""
    attempt(operation, at)
    gc.collect()
    before = library.allocation_outstanding()
    for _ in range(REPETITIONS):
        attempt(operation, at)
    gc.collect()
    return int(library.allocation_outstanding() - before)


def check(operation: Callable[[], Any], result: Callable[[], Any]) -> dict[str, Any]:
    """Make the allocations of an operation fail in turn; `result()` must always return the same value."""
    expected = result()
    operation()
    library.allocation_faults(0)
    operation()
    count = library.allocation_count()
    library.allocation_faults(-1)
    problems, outcomes = [], {"MemoryError": 0, "": 0}
    faults = sorted({1 + index * count // MAX_FAULTS for index in range(MAX_FAULTS)} & set(range(1, count + 1)))
    for number, at in enumerate(faults):
        outcome = attempt(operation, at)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if outcome not in ("MemoryError", ""):
            problems.append(f"allocation {at} of {count}: {outcome}")
        if result() != expected:
            problems.append(f"allocation {at} of {count}: different results")
        if number % 10 == 0 and (leaked := leaks(operation, at)) > MAX_LEAKED:
            problems.append(f"allocation {at} of {count}: {leaked} allocations leaked in {REPETITIONS} attempts")
    return {"allocations": count, "faults": len(faults), "outcomes": outcomes, "problems": problems}


def main() -> None:
    data = generate_data(60, 12, labels_per_row=2, features_per_row=6, n_features=40, seed=0)
    dense = np.random.default_rng(0).standard_normal((60, 3)).astype(np.float32)
    model = carya.XRLinear(branching=3, max_leaf_size=3, n_jobs=2).fit(data.X, data.Y)
    texts = ["a fast web server", "a small mail server", "ein schneller Server", "機器學習"] * 3
    labels = [["net", "web"], ["net", "mail"], ["net"], ["learning"]] * 3
    tree = carya.XRLinear(branching=2, max_leaf_size=2, n_jobs=2)
    ranker = carya.TextRanker(carya.Tfidf(min_df=1, n_jobs=2), tree).fit(texts, labels)
    row = data.X[[0]]

    def ranking() -> Any:
        ids, scores = model.rank(row, top_k=3)
        return ids.tolist(), scores.tolist()

    def suggestions() -> Any:
        return [(item.label, item.score) for item in ranker.suggest("a web server")]

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        ranker.save(folder)
        operations: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
            "fit": (lambda: model.clone().fit(data.X, data.Y), ranking),
            "fit with dense features": (lambda: model.clone().fit((data.X, dense), data.Y), ranking),
            "predict": (lambda: model.predict(data.X, top_k=3), ranking),
            "rank": (lambda: model.rank(row, top_k=3), ranking),
            "fit texts": (lambda: ranker.clone().fit(texts, labels), suggestions),
            "suggest": (lambda: ranker.suggest_all(texts), suggestions),
            "save": (lambda: ranker.save(folder), suggestions),
            "load": (lambda: carya.load(folder).suggest(texts[0]), suggestions),
        }
        print(json.dumps({name: check(*functions) for name, functions in operations.items()}))


if __name__ == "__main__":
    main()
