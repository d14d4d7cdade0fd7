"""What every run of a comparison shares: reading features, precision, latency, sizes, memory.

Runs in the peers' environments too, so it needs nothing but NumPy and SciPy of any version.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

KS = (1, 3, 5)
TOP_K = 10
BEAM_WIDTH = 10


def arguments(description):
    """The options of one run, the same for every peer."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("features")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--negatives", choices=["teacher", "both"], default="teacher")
    parser.add_argument("--dense", type=int, default=0)
    return parser.parse_args()


def settings(given):
    """Parameters given as name=JSON."""
    found = {}
    for one in given:
        name, _, value = one.partition("=")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            raise SystemExit(f"{one} is not name=JSON; texts stand in double quotes") from None
    return found


def read(folder, name):
    """One matrix of a feature folder, float32 CSR with sorted rows."""
    matrix = sp.csr_matrix(sp.load_npz(Path(folder) / name)).astype(np.float32)
    matrix.sort_indices()
    return matrix


def read_texts(folder, part):
    """The texts of one part of a folder of texts."""
    with gzip.open(Path(folder) / f"{part}.texts.txt.gz", "rt", encoding="utf-8", newline="\n") as file:
        return file.read().removesuffix("\n").split("\n")


def label_names(folder):
    """The names of all labels of a folder of texts; a table has them in its last column."""
    (path,) = Path(folder).glob("label_names.*.gz")
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line.split("\t")[-1] for line in file.read().removesuffix("\n").split("\n")]


def load(folder, dense=0):
    """X, Y, X_test, Y_test of a feature folder; with `dense`, X are pairs (sparse, dense)."""
    X, Y, Xt, Yt = (read(folder, f"{kind}.{part}.npz") for part in ("train", "test") for kind in "XY")
    if dense:
        X, Xt = ((block, project(block, dense)) for block in (X, Xt))
    return X, Y, Xt, Yt


def project(X, columns):
    """A dense block for the rows of X: a fixed random projection, rows of length 1."""
    rng = np.random.default_rng(12345)
    out = np.zeros((X.shape[0], columns), np.float32)
    step = 100_000  # the projection matrix in slices, to keep memory down
    for first in range(0, X.shape[1], step):
        block = X[:, first : first + step]
        out += block @ rng.standard_normal((block.shape[1], columns)).astype(np.float32)
    return out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-12)


def precision(Y_test, scores):
    """P@1, 3, 5 in percent of a CSR of scores."""
    scores = sp.csr_matrix(scores)
    hits = np.zeros(max(KS))
    for row in range(Y_test.shape[0]):
        first, last = scores.indptr[row : row + 2]
        best = scores.indices[first:last][np.argsort(-scores.data[first:last], kind="stable")][: max(KS)]
        truth = Y_test.indices[Y_test.indptr[row] : Y_test.indptr[row + 1]]
        hits[: len(best)] += np.isin(best, truth)
    found = np.cumsum(hits) / Y_test.shape[0] * 100
    return {f"P@{k}": found[k - 1] / k for k in KS}


def as_scores(rankings, labels):
    """Lists of labels, best first, as a CSR of scores."""
    sizes = [len(row) for row in rankings]
    scores = [1.0 / (rank + 1) for size in sizes for rank in range(size)]
    columns = [label for row in rankings for label in row]
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    return sp.csr_matrix((scores, columns, indptr), shape=(len(rankings), labels))


def latency(ask, rows, count=1500, passes=1):
    """Median and 99th percentile of one-row calls in milliseconds, a tenth left out as warm-up.

    With several passes over the rows the time of a row is its median: what others do to the machine is left out.
    """
    times = np.empty((passes, min(rows, count)))
    for turn in range(passes):
        for row in range(times.shape[1]):
            started = time.perf_counter()
            ask(row)
            times[turn, row] = time.perf_counter() - started
    kept = np.median(times, axis=0)[times.shape[1] // 10 :] * 1e3
    return {"one_row_ms": float(np.median(kept)), "one_row_ms_p99": float(np.percentile(kept, 99))}


def timed(call):
    """What a call returns, its seconds by the clock, and those of all threads together, which others disturb less."""
    started, worked = time.perf_counter(), time.process_time()
    result = call()
    return result, time.perf_counter() - started, time.process_time() - worked


def train_and_rank(train, rank, rows, prepare=lambda model: model):
    """What `rank` returns for the model that is trained and, untimed, prepared; seconds, and milliseconds a row."""
    model, train_s, train_cpu_s = timed(train)
    model = prepare(model)
    scores, batch_s, batch_cpu_s = timed(lambda: rank(model))
    per_row = 1e3 / rows
    times = {"train_s": train_s, "train_cpu_s": train_cpu_s}
    return scores, times | {"batch_ms": batch_s * per_row, "batch_cpu_ms": batch_cpu_s * per_row}


def seconds(call, repeats=3):
    """The median time of a call."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def resident_mb():
    """The resident set of this process now (Linux)."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return float("nan")


def folder_bytes(path):
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())


def peak_mb():
    """The largest resident set this process has had."""
    scale = 1024 * 1024 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def reset_peak():
    """Forget the peak so far, where the system allows it (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_since_reset_mb():
    """The largest resident set since reset_peak, or since the start elsewhere."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return peak_mb()


def emit(result):
    """One run's result as the last line of standard output."""
    print(json.dumps(result), flush=True)
