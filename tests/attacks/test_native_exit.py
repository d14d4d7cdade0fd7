"""Test that the process exits normally if daemon threads execute native code while the interpreter shuts down."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import tempfile, threading
import carya

X, Y = carya.data.make_world(1000, 100, seed=0)
texts = [f"a text about {number} things" for number in range(3000)]
model = carya.XRLinear(n_jobs=2).fit(X, Y)
vectorizer = carya.Tfidf(n_jobs=2).fit(texts)
folder = tempfile.mkdtemp() + "/model"
model.save(folder)
calls = [
    lambda: carya.XRLinear(n_jobs=2).fit(X, Y),
    lambda: carya.XRLinear(n_jobs=2, verbose=True).fit(X, Y),
    lambda: model.predict(X),
    lambda: model.rank(X[:1]),
    lambda: carya.Tfidf(n_jobs=2).fit(iter(texts)),
    lambda: vectorizer.transform(texts),
    lambda: carya.load(folder),
]
finished = threading.Semaphore(0)

def repeat(call):
    while True:
        call()
        finished.release()

for call in calls:
    threading.Thread(target=repeat, args=(call,), daemon=True).start()
for _ in range(20):
    finished.acquire()
"""


@pytest.mark.parametrize("attempt", range(3))
def test_daemon_threads_do_not_abort_the_process(attempt: int) -> None:
    process = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 0, process.stderr
    assert "terminate" not in process.stderr
    assert "leaked" not in process.stderr
