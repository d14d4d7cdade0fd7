"""Run Carya once on a feature folder: python run_carya.py FEATURES --threads 2 --seed 0 --negatives teacher"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import carya
from carya.core.progress import Progress, Report

import measure


class StageTimes(Progress):
    """Progress display that records when each type of stage, e.g. "train", begins for the first time."""

    def __init__(self) -> None:
        self.started: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[Report]:
        self.started.setdefault(name.partition(" ")[0], time.perf_counter())
        yield None


def rows_of(X: Any, rows: Any) -> Any:
    """Select rows from a matrix or a (sparse, dense) pair."""
    return tuple(block[rows] for block in X) if isinstance(X, tuple) else X[rows]


def main() -> None:
    arguments = measure.arguments(__doc__)
    X, Y, Xt, Yt = measure.load(arguments.features, arguments.dense)
    model = carya.XRLinear(
        negatives=arguments.negatives, transform="l3-hinge", n_jobs=arguments.threads, seed=arguments.seed
    )
    stages = StageTimes()
    measure.reset_peak()
    started = time.perf_counter()
    with mock.patch("carya.models.xr_linear.training.show_progress", return_value=stages):
        model.fit(X, Y)
    ended = time.perf_counter()
    indexed = stages.started["train"]
    result = {
        "index_s": indexed - started,
        "train_s": ended - indexed,
        "total_s": ended - started,
        "train_peak_mb": measure.peak_since_reset_mb(),
    }
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model")
        result["model_bytes"] = measure.folder_bytes(f"{folder}/model")
        started = time.perf_counter()
        opened = carya.load(f"{folder}/model")
        result["load_s"] = time.perf_counter() - started
        opened.predict(rows_of(Xt, slice(50)))
        started = time.perf_counter()
        S = opened.predict(Xt, top_k=measure.TOP_K, beam_width=measure.BEAM_WIDTH)
        result["batch_ms"] = (time.perf_counter() - started) / Yt.shape[0] * 1e3
        result |= measure.precision(Yt, S)
        queries = [rows_of(Xt, [row]) for row in range(min(Yt.shape[0], 1500))]
        result |= measure.latency(
            lambda row: opened.rank(queries[row], top_k=measure.TOP_K, beam_width=measure.BEAM_WIDTH), Yt.shape[0]
        )
    result["peak_mb"] = measure.peak_mb()
    measure.emit(result)


if __name__ == "__main__":
    main()
