"""Tests that models can be used in processes that are started by any method, also while other threads use them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from carya.fork_safety import ForkSafeLock, cached_property

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="requires os.fork")

HEAD = """
import multiprocessing, os, signal, sys, tempfile, threading
import numpy as np
import carya

def describe(model, X):
    return model.predict(X).toarray().tobytes(), [array.tolist() for array in model.rank(X[:1])]
"""

SPAWNED = (
    HEAD
    + """
if __name__ == "__main__":
    X, Y = carya.data.make_world(300, 50, seed=0)
    model = carya.XRLinear(max_leaf_size=8, n_jobs=2).fit(X, Y)
    folder = tempfile.mkdtemp() + "/model"
    model.save(folder)
    model = carya.load(folder)
    expected = describe(model, X)
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        assert pool.starmap(describe, [(model, X)] * 8) == [expected] * 8
    assert describe(model, X) == expected
    print("equal")
"""
)

#: A process is forked repeatedly while threads search the model and train others.
FORKED = (
    HEAD
    + """
X, Y = carya.data.make_world(300, 50, seed=0)
texts = [f"a text about {number} things " * 300 for number in range(100)]
folder = tempfile.mkdtemp() + "/model"
carya.XRLinear(max_leaf_size=8, n_jobs=2).fit(X, Y).save(folder)
model = carya.load(folder)
D = X.toarray()
neighbors = carya.NearestNeighbors(over="rows", search=SEARCH).fit(D, Y)
vectorizer = carya.Tfidf(n_jobs=2, stemmer=STEMMER).fit(texts)
expected = describe(model, X), describe(neighbors, D), vectorizer.transform(texts).toarray().tobytes()

def repeat(call):
    while True:
        call()

def train():
    carya.XRLinear(max_leaf_size=8, n_jobs=2).fit(X, Y)

calls = [lambda: model.predict(X), lambda: model.rank(X[:1]), lambda: model.predict(X[:3]), lambda: carya.load(folder)]
calls += [lambda: vectorizer.transform(texts), lambda: neighbors.predict(D), train]
threads = [threading.Thread(target=repeat, args=(call,), daemon=True) for call in calls * 2]
for thread in threads:
    thread.start()
for _ in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # terminates the child if it waits for a lock
        vectorizer.transform(["new words"])
        same = expected == (describe(model, X), describe(neighbors, D), vectorizer.transform(texts).toarray().tobytes())
        same &= describe(carya.load(folder), X) == expected[0]
        train()
        os._exit(0 if same else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, status
print("equal", flush=True)
os._exit(0)
"""
)

LIMITED = (
    HEAD
    + """
from carya.core import memory

X, Y = carya.data.make_world(300, 50, seed=0)
model = carya.XRLinear(max_leaf_size=8, n_jobs=2).fit(X, Y)
expected = describe(model, X)
with memory.limit_memory("8GB"):
    values = memory.empty(1 << 20, np.float32)
    values[:] = 1
    child = os.fork()
    if child == 0:
        signal.alarm(20)
if child == 0:
    assert not memory.is_limited()
    assert values.sum() == 1 << 20
    same = describe(model, X) == expected
    limited = carya.XRLinear(max_leaf_size=8, n_jobs=2, memory="8GB").fit(X, Y)
    os._exit(0 if same and describe(limited, X) == expected else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert describe(model, X) == expected
print("equal")
"""
)


def run(*arguments: str) -> None:
    process = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == ["equal"]


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_models_give_the_same_results_in_other_processes(method: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"  # spawned processes import the script
    script.write_text(SPAWNED)
    run(str(script), method)


@pytest.mark.parametrize("packages", [[], ["snowballstemmer"], ["usearch"]])
def test_processes_that_are_forked_while_other_threads_use_models(packages: list[str]) -> None:
    """Regression test: a lock that another thread held was never released in the child process."""
    for package in packages:
        pytest.importorskip(package)
    settings = {"STEMMER": "english" if "snowballstemmer" in packages else None}
    settings |= {"SEARCH": "graph" if "usearch" in packages else "exact"}
    script = FORKED
    for name, value in settings.items():
        script = script.replace(name, repr(value))
    run("-c", script, "5")


def run_in_child(work: Callable[[], bool]) -> None:
    """Check that a function returns True in a forked process within 10 seconds."""
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        os._exit(0 if work() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_locks_and_cached_properties_do_not_block_forked_processes() -> None:
    computing, forked, lock = threading.Event(), threading.Event(), ForkSafeLock()

    class Computed:
        @cached_property
        def value(self) -> int:
            computing.set()
            return int(forked.wait(60))

    def compute() -> None:
        with lock:
            assert Computed().value == 1

    def use() -> bool:
        forked.set()
        with lock:
            return Computed().value == 1

    thread = threading.Thread(target=compute)
    thread.start()
    assert computing.wait(60)
    run_in_child(use)
    assert lock.locked()
    forked.set()
    thread.join()
    assert not lock.locked()


@pytest.mark.skipif(sys.platform != "linux", reason="memory limits require Linux")
def test_processes_that_are_forked_during_training_with_a_memory_limit() -> None:
    """Regression test: the child process waited for the parent's thread."""
    run("-c", LIMITED)
