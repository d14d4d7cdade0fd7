"""Stress test for ThreadSanitizer: threads use models while other threads load, replace, release and train them.

    python tests/thread_stress.py [SECONDS]

In the main process, 64 threads rank labels for texts and check the results. Meanwhile, other threads save models over
each other, load and release them, and train models. A forked process and a spawned process do the same with fewer
threads and the model that the main process has loaded. The script prints the number of operations per process; it fails
if a result is incorrect or if a process does not exit. tools/check-threads runs it with ThreadSanitizer, which requires
that the process is forked before any threads are started; tests/attacks/test_processes.py forks processes with threads.
"""

from __future__ import annotations

import collections
import multiprocessing
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import carya

warnings.simplefilter("ignore")  # texts without known terms

MAIN_THREADS = 64
PROCESS_THREADS = 16
EXIT_SECONDS = 300  # maximum time until a process exits after its threads have been stopped
TEXTS = ["a fast web server", "a small mail server", "機器 learning", "b c", ""]
LABELS = {"a": ["web", "mail", "ml", "x"], "b": ["mail", "web", "x", "ml"]}


def train(name: str) -> Any:
    """Return a text model whose suggestions depend on `name`."""
    model = carya.XRLinear(branching=2, max_leaf_size=2, n_jobs=2)
    labels = [[label] for label in LABELS[name]]
    return carya.TextRanker(carya.Tfidf(min_df=1, n_jobs=2), model).fit(TEXTS[:4] * 5, labels * 5)


def describe(ranker: Any) -> list[Any]:
    """Return the suggestions for all texts, for several texts at a time and for one at a time."""
    rows = [ranker.suggest_all(TEXTS), [ranker.suggest(text) for text in TEXTS]]
    return [[[(item.label, item.score) for item in row] for row in form] for form in rows]


class Stress:
    """The models that replace each other in a folder, and the number of operations."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.models = [train(name) for name in LABELS]
        self.expected = [describe(model) for model in self.models]
        self.models[0].save(folder)
        self.current = carya.load(folder)

    def rank(self) -> None:
        assert describe(self.current) in self.expected

    def load(self) -> None:
        self.current = carya.load(self.folder)  # releases the previous model, unless a thread is using it

    def replace(self) -> None:
        for model in self.models:
            model.save(self.folder)

    def train(self) -> None:
        assert [describe(train(name)) for name in LABELS] == self.expected

    def run(self, process: str, n_threads: int, seconds: float) -> None:
        """Run all operations in threads, print their numbers and exit with status 1 if one of them failed."""
        counts: collections.Counter[str] = collections.Counter()
        deadline = time.monotonic() + seconds
        errors: list[BaseException] = []
        lock = threading.Lock()

        def repeat(work: Callable[[], None]) -> None:
            try:
                while not counts[work.__name__] or (time.monotonic() < deadline and not errors):
                    work()
                    with lock:
                        counts[work.__name__] += 1
            except BaseException as error:
                errors.append(error)
                raise

        works = [*[self.rank] * n_threads, self.load, self.load, self.replace, self.train]
        threads = [threading.Thread(target=repeat, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"{process}: " + ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())), flush=True)
        if errors:
            raise SystemExit(1)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as folder:
        stress = Stress(Path(folder) / "model")
        processes = []
        for method in ("fork", "spawn"):
            context: Any = multiprocessing.get_context(method)
            arguments = (f"{method}ed process", PROCESS_THREADS, seconds)
            processes.append(context.Process(target=stress.run, args=arguments))
            processes[-1].start()
        stress.run("main process", MAIN_THREADS, seconds)
        for process in processes:
            process.join(EXIT_SECONDS)
            if process.exitcode != 0:
                raise SystemExit(f"The exit code of a process is {process.exitcode}.")


if __name__ == "__main__":
    main()
