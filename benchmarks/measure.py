"""Functions shared by the benchmark scripts: reading features, and measuring precision, latency, sizes and memory.

The scripts that run the peers import this module in their own environments, so it depends only on NumPy and SciPy and
works with any version of them.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

KS = (1, 3, 5)
TOP_K = 10
BEAM_WIDTH = 10


def arguments(description: str | None) -> argparse.Namespace:
    """Parse the command-line options of a run, which are the same for every system."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("features", help="folder with X.train.npz, Y.train.npz, X.test.npz and Y.test.npz")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--negatives", choices=["teacher", "both"], default="teacher")
    parser.add_argument("--dense", type=int, default=0, help="number of dense columns to add")
    return parser.parse_args()


def settings(assignments: Sequence[str]) -> dict[str, Any]:
    """Parse parameters given as name=JSON."""
    parsed = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        try:
            parsed[name] = json.loads(value)
        except json.JSONDecodeError:
            raise SystemExit(f"{assignment} does not have the form name=JSON. Put strings in double quotes.") from None
    return parsed


def read(folder: str | Path, name: str) -> Any:
    """Read a matrix from a feature or text folder as float32 CSR with sorted indices.

    If there is no such file, the file names that `carya data` uses are tried: X.trn.npz for X.train.npz, and
    train.labels.txt.gz for train.labels.npz.
    """
    path = Path(folder) / name
    if not path.exists() and name.endswith(".labels.npz"):
        return _read_label_lines(Path(folder), name.removesuffix(".labels.npz"))
    if not path.exists():
        path = Path(folder) / name.replace(".train.", ".trn.").replace(".test.", ".tst.")
    matrix = sp.csr_matrix(sp.load_npz(path)).astype(np.float32)
    matrix.sort_indices()
    return matrix


def _read_lines(path: Path) -> list[str]:
    """Read the lines of a compressed text file."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return file.read().removesuffix("\n").split("\n")


def _read_label_lines(folder: Path, part: str) -> Any:
    """Read the tab-separated labels of one split as a matrix with one column per label in label_names.*.gz."""
    (path,) = folder.glob("label_names.*.gz")
    columns = {line.split("\t")[0]: column for column, line in enumerate(_read_lines(path))}
    rows = [line.split("\t") if line else [] for line in _read_lines(folder / f"{part}.labels.txt.gz")]
    indptr = np.cumsum([0, *map(len, rows)])
    indices = [columns[label] for row in rows for label in row]
    matrix = sp.csr_matrix((np.ones(len(indices), np.float32), indices, indptr), shape=(len(rows), len(columns)))
    matrix.sort_indices()
    return matrix


def read_texts(folder: str | Path, part: str) -> list[str]:
    """Read the texts of one split, e.g. "train", from a text folder."""
    return _read_lines(Path(folder) / f"{part}.texts.txt.gz")


def label_names(folder: str | Path) -> list[str]:
    """Read all label names from a text folder; in a .tsv file, they are in the last column."""
    (path,) = Path(folder).glob("label_names.*.gz")
    return [line.split("\t")[-1] for line in _read_lines(path)]


def load(folder: str | Path, dense: int = 0) -> tuple[Any, Any, Any, Any]:
    """Read X, Y, X_test and Y_test from a feature folder; with `dense`, X and X_test are (sparse, dense) pairs."""
    X, Y, Xt, Yt = (read(folder, f"{kind}.{part}.npz") for part in ("train", "test") for kind in "XY")
    if dense:
        X, Xt = ((block, project(block, dense)) for block in (X, Xt))
    return X, Y, Xt, Yt


def project(X: Any, columns: int) -> Any:
    """Return a fixed random projection of the rows of X, normalized to unit length."""
    rng = np.random.default_rng(12345)
    projected = np.zeros((X.shape[0], columns), np.float32)
    step = 100_000  # generates the projection matrix in slices to limit memory use
    for first in range(0, X.shape[1], step):
        block = X[:, first : first + step]
        projected += block @ rng.standard_normal((block.shape[1], columns)).astype(np.float32)
    return projected / np.maximum(np.linalg.norm(projected, axis=1, keepdims=True), 1e-12)


def precision(Y_test: Any, scores: Any) -> dict[str, float]:
    """Return P@1, P@3 and P@5 of a score matrix, in percent."""
    scores = sp.csr_matrix(scores)
    hits = np.zeros(max(KS))
    for row in range(Y_test.shape[0]):
        first, last = scores.indptr[row : row + 2]
        best = scores.indices[first:last][np.argsort(-scores.data[first:last], kind="stable")][: max(KS)]
        truth = Y_test.indices[Y_test.indptr[row] : Y_test.indptr[row + 1]]
        hits[: len(best)] += np.isin(best, truth)
    cumulative = np.cumsum(hits) / Y_test.shape[0] * 100
    return {f"P@{k}": cumulative[k - 1] / k for k in KS}


def as_scores(rankings: Sequence[Sequence[int]], n_labels: int) -> Any:
    """Convert lists of labels, ranked best first, to a score matrix."""
    sizes = [len(labels) for labels in rankings]
    scores = [1.0 / (rank + 1) for size in sizes for rank in range(size)]
    columns = [label for labels in rankings for label in labels]
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    return sp.csr_matrix((scores, columns, indptr), shape=(len(rankings), n_labels))


def latency(rank: Callable[[int], object], rows: int, count: int = 1500, repeats: int = 1) -> dict[str, float]:
    """Return the median and 99th percentile of the single-row latency, in milliseconds.

    The first tenth of the rows is used for warm-up and not counted. With several repeats, the latency of a row is the
    median over its repeats, which reduces the effect of other processes.
    """
    times = np.empty((repeats, min(rows, count)))
    for repeat in range(repeats):
        for row in range(times.shape[1]):
            started = time.perf_counter()
            rank(row)
            times[repeat, row] = time.perf_counter() - started
    kept = np.median(times, axis=0)[times.shape[1] // 10 :] * 1e3
    return {"one_row_ms": float(np.median(kept)), "one_row_ms_p99": float(np.percentile(kept, 99))}


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """Return the result of a call and its wall-clock and CPU times in seconds; CPU times vary less."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    return result, time.perf_counter() - wall, time.process_time() - cpu


def train_and_rank(
    train: Callable[[], Any],
    rank: Callable[[Any], Any],
    rows: int,
    prepare: Callable[[Any], Any] = lambda model: model,
) -> tuple[Any, dict[str, float]]:
    """Train a model, prepare it, and rank labels with it; return the result of `rank` and the times.

    The times are wall-clock and CPU times, in seconds for training and in milliseconds per row for ranking. The
    time of `prepare` is not included.
    """
    model, train_s, train_cpu_s = timed(train)
    model = prepare(model)
    scores, batch_s, batch_cpu_s = timed(lambda: rank(model))
    per_row = 1e3 / rows
    times = {"train_s": train_s, "train_cpu_s": train_cpu_s}
    return scores, times | {"batch_ms": batch_s * per_row, "batch_cpu_ms": batch_cpu_s * per_row}


def seconds(call: Callable[[], object], repeats: int = 3) -> float:
    """Return the median time of a call in seconds."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def _process_status(field: str) -> float | None:
    """Return a memory size from /proc/self/status in megabytes, or None on systems without this file."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) / 1024
    return None


def resident_mb() -> float:
    """Return the current resident set size of this process in megabytes, or NaN on systems other than Linux."""
    size = _process_status("VmRSS")
    return float("nan") if size is None else size


def folder_bytes(path: str | Path) -> int:
    """Return the total size in bytes of the files in a folder."""
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())


def peak_mb() -> float:
    """Return the peak resident set size of this process in megabytes."""
    scale = 1024 * 1024 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def reset_peak() -> None:
    """Reset the peak resident set size on Linux; do nothing on other systems."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_since_reset_mb() -> float:
    """Return the peak resident set size since reset_peak was called or, on systems other than Linux, since startup."""
    size = _process_status("VmHWM")
    return peak_mb() if size is None else size


def emit(result: Mapping[str, object]) -> None:
    """Print the result of a run as one line of JSON."""
    print(json.dumps(result), flush=True)
